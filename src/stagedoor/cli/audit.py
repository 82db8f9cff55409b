"""``stagedoor audit``: is the log of decisions whole, and what is in it?"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from . import EXIT_FAILED, EXIT_SUCCESS
from .parsing import Parser


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor audit",
        description="Every permission decision is kept in a log in which a changed or missing line is found.",
        examples=(
            "stagedoor audit verify",
            "stagedoor audit show --decision deny --last 20",
            "stagedoor audit show audit.jsonl --json",
        ),
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verify|show")
    checking = verbs.add_parser(
        "verify",
        help="exit code 1 and the first bad line when the log is not what was written",
        examples=("stagedoor audit verify", "stagedoor audit verify backup/audit.jsonl"),
    )
    showing = verbs.add_parser(
        "show", help="the decisions, oldest first", examples=("stagedoor audit show --agent codex --decision deny",)
    )
    for one in (checking, showing):
        one.add_argument("file", nargs="?", type=Path, help="the log (default: the command line's own)")
    showing.add_argument("--json", action="store_true", help="one record per line")
    showing.add_argument("--last", type=int, metavar="N", help="only the last N")
    showing.add_argument("--agent", metavar="NAME")
    showing.add_argument("--decision", choices=("allow", "deny"))
    given = parser.parse_args(argv)
    from ..permissions.audit import head_path
    from .state import audit_path

    path: Path = given.file or audit_path()
    if given.verb == "verify" and (path.exists() or given.file is None or head_path(path).exists()):
        return _verify(path)
    if not path.exists():
        print(f"stagedoor audit: there is no log {path}", file=sys.stderr)
        return EXIT_FAILED
    return _show(path, given)


def _verify(path: Path) -> int:
    from ..permissions.audit import verify

    checked = verify(path)
    if checked.ok:
        print(f"{path}: {checked.entries} decisions, whole" if checked.entries else f"{path}: {checked.why or 'empty'}")
        return EXIT_SUCCESS
    print(f"{path}: line {checked.first_bad_line}: {checked.why}", file=sys.stderr)
    return EXIT_FAILED


def _show(path: Path, given: argparse.Namespace) -> int:
    import msgspec

    from ..permissions.audit import Record, read_log
    from .lines import one_line, style_for
    from .tables import Cell, table

    def wanted(record: Record) -> bool:
        entry = record.entry
        return given.agent in (None, entry.agent) and given.decision in (None, entry.decision)

    records = [record for record in read_log(path) if wanted(record)]
    records = records[-given.last :] if given.last else records
    if given.json:
        for record in records:
            print(msgspec.json.encode(record).decode())
        return EXIT_SUCCESS
    rows: list[list[Cell]] = []
    for record in records:
        entry = record.entry
        when = datetime.fromtimestamp(record.at / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        by = entry.by + (f" “{entry.rule}”" if entry.rule else "")
        mark = ("ok" if entry.decision == "allow" else "bad", entry.decision)
        rows.append([when, entry.agent, mark, entry.tool, entry.risk, by, one_line(entry.target, 80)])
    style = style_for(sys.stdout)
    print(table(["when", "agent", "decision", "tool", "risk", "by", "target"], rows, style))
    return EXIT_SUCCESS
