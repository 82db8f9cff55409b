"""``stagedoor devices``: which devices are paired with the running server; revoke one."""

from __future__ import annotations

import sys
import time
from typing import Any

from . import EXIT_SUCCESS, EXIT_USAGE
from .command import Parser, report

VERBS = ("list", "revoke")


def main(argv: list[str]) -> int:
    words = argv if argv and (argv[0] in VERBS or argv[0] in ("-h", "--help")) else ["list", *argv]
    parser = Parser(
        prog="stagedoor devices",
        description="List and revoke the devices that are paired with the running server. A revoked device is "
        "disconnected at once.",
        examples=("stagedoor devices", "stagedoor devices revoke phone", "stagedoor devices --json"),
    )
    verbs = parser.add_subparsers(dest="verb", metavar="{" + ",".join(VERBS) + "}")
    listing = verbs.add_parser("list", help="list the devices (the default)")
    listing.add_argument("--json", action="store_true", help="print one JSON object per device")
    revoking = verbs.add_parser("revoke", help="revoke the access of a device, at once")
    revoking.add_argument("device", help="its id, the beginning of its id, or its name")
    arguments = parser.parse_args(words)
    from ..errors import StagedoorError

    try:
        return _revoke(arguments.device) if arguments.verb == "revoke" else _list(json=arguments.json)
    except (StagedoorError, OSError, ModuleNotFoundError) as fault:
        report("devices", fault)
        return EXIT_USAGE


def _all() -> list[dict[str, Any]]:
    from ..register import home
    from ..server.running import send_request

    devices: list[dict[str, Any]] = send_request(home(), "GET", "/api/devices")["devices"]
    return devices


def _list(*, json: bool) -> int:
    import msgspec

    from ..transcript import clean
    from .terminal.output import ago, style_for, table

    devices = _all()
    if json:
        for device in devices:
            print(msgspec.json.encode(device).decode())
        return EXIT_SUCCESS
    if not devices:
        print("no devices are paired: run stagedoor pair", file=sys.stderr)
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
    print(table(["device", "name", "scopes", "paired", "last seen"], rows, style_for(sys.stdout)))
    return EXIT_SUCCESS


def _revoke(name: str) -> int:
    from ..errors import SessionNotFound
    from ..register import home
    from ..server.running import send_request
    from ..transcript import clean

    matches = [device for device in _all() if device["id"].startswith(name) or device["name"] == name]
    if len(matches) != 1:
        count = "several devices match" if matches else "no device matches"
        raise SessionNotFound(f"{count} {name!r}: stagedoor devices lists them")
    send_request(home(), "DELETE", f"/api/devices/{matches[0]['id']}")
    print(f"revoked {clean(matches[0]['name'])}")
    return EXIT_SUCCESS
