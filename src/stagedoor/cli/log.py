"""``stagedoor log``: move the server's log from a file into PostgreSQL and back; say which roles may use it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import EXIT_SUCCESS, EXIT_USAGE
from .command import Parser, report

if TYPE_CHECKING:
    from ..service.postgres.copying import TableCopy

VERBS = ("copy", "grant")


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor log",
        description="Copy the server's log, complete and verified: from its file into a PostgreSQL database, or back. "
        "No server may run on either of them meanwhile; the old one is left as it is. Or let two roles use a log in "
        "PostgreSQL: servers everything, workers all but devices and their tokens.",
        examples=(
            "stagedoor log copy --to postgresql://stagedoor@localhost/stagedoor",
            "stagedoor log copy --from postgresql://stagedoor@localhost/stagedoor --to ~/back/log.db",
            "stagedoor log grant --database postgresql://owner@localhost/stagedoor --door door --worker worker",
        ),
    )
    verbs = parser.add_subparsers(dest="verb", metavar="{" + ",".join(VERBS) + "}", required=True)
    copying = verbs.add_parser("copy", help="copy a log, and read it back")
    copying.add_argument(
        "--from", dest="source", metavar="LOG", help="a file, or an address postgresql://… (default: this home's log)"
    )
    copying.add_argument("--to", dest="target", metavar="LOG", required=True, help="where there is no log yet")
    granting = verbs.add_parser("grant", help="let roles use a log in PostgreSQL (run it as its owner)")
    granting.add_argument("--database", metavar="URL", required=True, help="postgresql://OWNER@host/name")
    granting.add_argument("--door", metavar="ROLE", action="append", default=[], help="of servers (repeatable)")
    granting.add_argument("--worker", metavar="ROLE", action="append", default=[], help="of workers (repeatable)")
    arguments = parser.parse_args(argv)
    from ..errors import StagedoorError

    try:
        if arguments.verb == "grant":
            return _grant(arguments.database, arguments.door, arguments.worker)
        return _copy(arguments.source, arguments.target)
    except (StagedoorError, OSError, ModuleNotFoundError) as fault:
        report("log", fault)
        return EXIT_USAGE


def _copy(source: str | None, target: str) -> int:
    from ..register import home

    try:
        from ..service.postgres.copying import copy_log
    except ModuleNotFoundError as fault:
        if fault.name != "asyncpg":
            raise
        from ..errors import ConfigError

        raise ConfigError("a log in PostgreSQL needs one more package: pip install asyncpg") from fault
    old = _place(source or str(home() / "log.db"))
    new = _place(target)
    copied: list[TableCopy] = asyncio.run(copy_log(old, new, progress=_progress))
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    for table in copied:
        if table.rows and table.name != "epochs":
            print(f"{table.rows:>12,}  {table.name.replace('_', ' ')}")
    print("copied, read back and found the same")
    return EXIT_SUCCESS


def _grant(url: str, doors: list[str], workers: list[str]) -> int:
    from ..errors import ConfigError
    from ..service.postgres import grant

    if not doors and not workers:
        raise ConfigError("name at least one role with --door or --worker (make it first: createuser NAME)")
    asyncio.run(grant(_place(url), doors=doors, workers=workers))
    print(f"{', '.join((*doors, *workers))} may use it now")
    return EXIT_SUCCESS


def _place(place: str) -> str:
    """A file, also when a folder with one is named; an address without a password."""
    from ..service.postgres.address import is_database, without_password

    if is_database(place):
        return without_password(place) or ""
    path = Path(place).expanduser().absolute()
    return str(path / "log.db" if path.is_dir() else path)


def _progress(name: str, count: int) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{name} {count:,}", end="", file=sys.stderr, flush=True)
