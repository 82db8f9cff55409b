"""``stagedoor devices``: who was let into the running server, and putting somebody out again."""

from __future__ import annotations

import sys
import time
from typing import Any

from . import EXIT_SUCCESS, EXIT_USAGE
from .parsing import Parser

VERBS = ("list", "revoke")


def main(argv: list[str]) -> int:
    words = argv if argv and (argv[0] in VERBS or argv[0] in ("-h", "--help")) else ["list", *argv]
    parser = Parser(
        prog="stagedoor devices",
        description="The devices that were paired with the running server. A revoked one loses what it has open at "
        "once.",
        examples=("stagedoor devices", "stagedoor devices revoke phone", "stagedoor devices --json"),
    )
    verbs = parser.add_subparsers(dest="verb", metavar="{" + ",".join(VERBS) + "}")
    listing = verbs.add_parser("list", help="one table (the default)")
    listing.add_argument("--json", action="store_true", help="one JSON object per device")
    revoking = verbs.add_parser("revoke", help="put a device out, now")
    revoking.add_argument("device", help="its id, the beginning of one, or its name")
    given = parser.parse_args(words)
    from ..errors import StagedoorError
    from .exits import report

    try:
        return _revoke(given.device) if given.verb == "revoke" else _list(json=given.json)
    except (StagedoorError, OSError, ModuleNotFoundError) as fault:
        report("devices", fault)
        return EXIT_USAGE


def _all() -> list[dict[str, Any]]:
    from ..register import home
    from ..server.running import ask

    devices: list[dict[str, Any]] = ask(home(), "GET", "/api/devices")["devices"]
    return devices


def _list(*, json: bool) -> int:
    import msgspec

    from ..transcript import clean
    from .lines import style_for
    from .tables import ago, table

    devices = _all()
    if json:
        for device in devices:
            print(msgspec.json.encode(device).decode())
        return EXIT_SUCCESS
    if not devices:
        print("no devices are paired; let one in with: stagedoor pair", file=sys.stderr)
        return EXIT_SUCCESS
    now = int(time.time() * 1000)
    rows = [
        [
            device["id"][:8],
            clean(device["name"]),
            ", ".join(device["scopes"]),
            ago(device["createdAt"], now),
            ago(device["seenAt"] or 0, now),
        ]
        for device in devices
    ]
    print(table(["device", "name", "may", "paired", "seen"], rows, style_for(sys.stdout)))
    return EXIT_SUCCESS


def _revoke(wanted: str) -> int:
    from ..errors import SessionNotFound
    from ..register import home
    from ..server.running import ask
    from ..transcript import clean

    found = [device for device in _all() if device["id"].startswith(wanted) or device["name"] == wanted]
    if len(found) != 1:
        many = "several devices match" if found else "no device matches"
        raise SessionNotFound(f"{many} {wanted!r}; stagedoor devices lists them")
    ask(home(), "DELETE", f"/api/devices/{found[0]['id']}")
    print(f"revoked {clean(found[0]['name'])}")
    return EXIT_SUCCESS
