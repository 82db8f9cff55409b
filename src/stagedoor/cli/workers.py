"""``stagedoor workers``: the machines of the running server; drain one, or revoke it."""

from __future__ import annotations

import sys
import time
from typing import Any

from . import EXIT_SUCCESS, EXIT_USAGE
from .command import Parser, report

VERBS = ("list", "enrol", "drain", "undrain", "revoke")
_HELP = {
    "drain": "give it nothing new; what it runs goes on",
    "undrain": "give it work again",
    "revoke": "take everything from it, for good: what runs there is interrupted",
}


def main(argv: list[str]) -> int:
    words = argv if argv and (argv[0] in VERBS or argv[0] in ("-h", "--help")) else ["list", *argv]
    parser = Parser(
        prog="stagedoor workers",
        description="List the machines that run sessions for the running server, with their labels, seats, versions "
        "and what they run.",
        examples=("stagedoor workers", "stagedoor workers drain box3", "stagedoor workers --json"),
    )
    verbs = parser.add_subparsers(dest="verb", metavar="{" + ",".join(VERBS) + "}")
    listing = verbs.add_parser("list", help="list the machines (the default)")
    listing.add_argument("--json", action="store_true", help="print one JSON object per machine")
    verbs.add_parser("enrol", help="make a code that lets one new machine in, within an hour")
    for verb, text in _HELP.items():
        one = verbs.add_parser(verb, help=text)
        one.add_argument("worker", help="its id, the beginning of its id, or its name")
    arguments = parser.parse_args(words)
    from ..errors import StagedoorError

    try:
        match arguments.verb:
            case "list":
                return _list(json=arguments.json)
            case "enrol":
                return _enrol()
            case _:
                return _change(arguments.verb, arguments.worker)
    except (StagedoorError, OSError, ModuleNotFoundError) as fault:
        report("workers", fault)
        return EXIT_USAGE


def _all() -> list[dict[str, Any]]:
    from ..register import home
    from ..server.running import send_request

    workers: list[dict[str, Any]] = send_request(home(), "GET", "/api/workers")["workers"]
    return workers


def _list(*, json: bool) -> int:
    import msgspec

    from ..transcript import clean
    from .terminal.output import ago, style_for, table

    workers = _all()
    if json:
        for worker in workers:
            print(msgspec.json.encode(worker).decode())
        return EXIT_SUCCESS
    if not workers:
        print("no machine runs sessions: run stagedoor worker --database URL on one", file=sys.stderr)
        return EXIT_SUCCESS
    now = int(time.time() * 1000)
    rows = [
        [
            worker["id"][:8],
            clean(worker["name"]),
            _state(worker),
            f"{len(worker['sessions'])}/{worker['seats']}",
            worker["version"],
            ago(worker["seenAt"], now),
            clean(" ".join(worker["labels"])),
        ]
        for worker in workers
    ]
    names = ["worker", "name", "state", "sessions/seats", "version", "last seen", "labels"]
    print(table(names, rows, style_for(sys.stdout)))
    for worker in workers:
        for session in worker["sessions"]:
            title = clean(session["title"])[:60]
            print(f"  {clean(worker['name'])}: {session['id'][:8]} {session['agent']} {session['state']} {title}")
    return EXIT_SUCCESS


def _state(worker: dict[str, Any]) -> str:
    names = [name for name in ("revoked", "away", "draining") if worker[name]]
    return ", ".join(names) or "ready"


def _enrol() -> int:
    from ..register import home
    from ..server.running import send_request

    print(send_request(home(), "POST", "/api/workers")["code"])
    print("On the new machine, once, within an hour: stagedoor worker --enrol CODE", file=sys.stderr)
    return EXIT_SUCCESS


def _change(verb: str, name: str) -> int:
    from ..errors import SessionNotFound
    from ..register import home
    from ..server.running import send_request
    from ..transcript import clean

    matches = [worker for worker in _all() if worker["id"].startswith(name) or worker["name"] == name]
    if len(matches) != 1:
        count = "several machines match" if matches else "no machine matches"
        raise SessionNotFound(f"{count} {name!r}: stagedoor workers lists them")
    path = f"/api/workers/{matches[0]['id']}"
    if verb == "revoke":
        send_request(home(), "DELETE", path)
    else:
        send_request(home(), "PATCH", path, {"draining": verb == "drain"})
    done = {"drain": "takes nothing new", "undrain": "takes work again", "revoke": "revoked"}[verb]
    print(f"{clean(matches[0]['name'])}: {done}")
    return EXIT_SUCCESS
