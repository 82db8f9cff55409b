"""``stagedoor audit``: is the log of decisions complete and unchanged, and what is in it?"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from . import EXIT_FAILED, EXIT_SUCCESS
from .command import Parser


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor audit",
        description="Verify and show the log of permission decisions. Changed and missing lines are detected.",
        examples=(
            "stagedoor audit verify",
            "stagedoor audit show --decision deny --last 20",
            "stagedoor audit show audit.jsonl --json",
        ),
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verify|show")
    checking = verbs.add_parser(
        "verify",
        help="check the log; exit code 1 and the first bad line if it was changed",
        examples=(
            "stagedoor audit verify",
            "stagedoor audit verify backup/audit.jsonl",
            "stagedoor audit verify box1/audit.jsonl box2/audit.jsonl",
        ),
    )
    showing = verbs.add_parser(
        "show",
        help="show the decisions, oldest first",
        examples=("stagedoor audit show --agent codex --decision deny",),
    )
    where = "audit.jsonl in $STAGEDOOR_HOME, where run and serve write it"
    checking.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="file",
        help=f"the logs, one for each machine that wrote one (default: {where})",
    )
    showing.add_argument("file", nargs="?", type=Path, help=f"the log (default: {where})")
    showing.add_argument("--json", action="store_true", help="print one JSON object per decision")
    showing.add_argument("--last", type=int, metavar="N", help="show only the last N")
    showing.add_argument("--agent", metavar="NAME")
    showing.add_argument("--decision", choices=("allow", "deny"))
    arguments = parser.parse_args(argv)
    from .state import audit_path

    if arguments.verb == "verify":
        return max([_verify(path) for path in arguments.files] or [_verify_own(audit_path())])
    path: Path = arguments.file or audit_path()
    if not path.exists():
        return _missing(path)
    return _show(path, arguments)


def _missing(path: Path) -> int:
    print(f"stagedoor audit: log {path} not found", file=sys.stderr)
    return EXIT_FAILED


def _verify(path: Path) -> int:
    """One chain: each machine has its own, and all are to be whole."""
    from ..permissions.audit import head_path

    return _verify_own(path) if path.exists() or head_path(path).exists() else _missing(path)


def _verify_own(path: Path) -> int:
    from ..permissions.audit import verify

    checked = verify(path)
    if checked.ok:
        print(
            f"{path}: {checked.entries} decisions, complete and unchanged"
            if checked.entries
            else f"{path}: {checked.why or 'empty'}"
        )
        return EXIT_SUCCESS
    print(f"{path}: line {checked.first_bad_line}: {checked.why}", file=sys.stderr)
    return EXIT_FAILED


def _show(path: Path, arguments: argparse.Namespace) -> int:
    import msgspec

    from ..permissions.audit import AuditRecord, read_log
    from .terminal.output import Cell, one_line, style_for, table

    def matches(record: AuditRecord) -> bool:
        entry = record.entry
        return arguments.agent in (None, entry.agent) and arguments.decision in (None, entry.decision)

    records = [record for record in read_log(path) if matches(record)]
    records = records[-arguments.last :] if arguments.last else records
    if arguments.json:
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
