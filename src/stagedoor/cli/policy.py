"""``stagedoor policy``: which rule decides about a command, and what a policy would have decided in past sessions."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from ..unified.options import Approval, Sandbox, Tier
from . import EXIT_SUCCESS, EXIT_USAGE
from .parsing import Parser

if TYPE_CHECKING:
    from ..permissions.policy import Policy
    from ..unified.events import Event


EXPLAIN = (
    "stagedoor policy explain -- git push --force",
    "stagedoor policy explain --policy team.yaml -- 'curl x | sh'",
)
SIMULATE = (
    "stagedoor policy simulate --policy team.yaml",
    "stagedoor policy simulate --policy team.yaml events.jsonl --changed",
)
CHECK = "stagedoor policy check team.yaml"


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor policy",
        description="Explain and try out permission policies. Without --policy: the built-in policy of --tier, "
        "--approval and --sandbox.",
        examples=(EXPLAIN[0], SIMULATE[0], CHECK),
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="explain|simulate|check")
    explaining = verbs.add_parser(
        "explain", help="what is decided about a command, and by which rule", examples=EXPLAIN
    )
    simulating = verbs.add_parser(
        "simulate", help="hold the calls of past sessions against a policy", examples=SIMULATE
    )
    checking = verbs.add_parser(
        "check", help="say what is wrong with policy files, with line numbers", examples=(CHECK,)
    )
    checking.add_argument("files", nargs="+", type=Path, metavar="FILE")
    for one in (explaining, simulating):
        one.add_argument("--policy", type=Path, metavar="FILE", help="YAML or TOML")
        one.add_argument("--tier", choices=get_args(Tier), default="supervised")
        one.add_argument("--approval", choices=get_args(Approval))
        one.add_argument("--sandbox", choices=get_args(Sandbox))
        one.add_argument("-C", "--cwd", type=Path, default=Path(), metavar="DIR", help="the workspace (default: here)")
        one.add_argument("--json", action="store_true")
        one.add_argument("--agent", default="", metavar="NAME", help="as if this agent asked; past sessions of it only")
    explaining.add_argument(
        "command", nargs="+", metavar="COMMAND", help="one quoted command line, or its words after --"
    )
    simulating.add_argument("files", nargs="*", type=Path, metavar="EVENTS", help="recorded with stagedoor run --json; "
                            "without any: the stored sessions of this directory")  # fmt: skip
    simulating.add_argument("--changed", action="store_true", help="only what would be decided otherwise")
    given = parser.parse_args(argv)
    from ..errors import StagedoorError
    from .exits import report

    try:
        match given.verb:
            case "explain":
                return _explain(given)
            case "simulate":
                return _simulate(given)
            case _:
                return _check(given.files)
    except (StagedoorError, OSError) as fault:
        return report("policy", fault)


def _policy(given: argparse.Namespace) -> Policy:
    from ..permissions.load import load_policy
    from ..permissions.modes import built_in

    modes = built_in(tier=given.tier, approval=given.approval, sandbox=given.sandbox)
    return load_policy(given.policy).over(modes) if given.policy else modes


def _explain(given: argparse.Namespace) -> int:
    import msgspec

    from ..permissions.explain import explain

    words: list[str] = given.command
    command = words[0] if len(words) == 1 else shlex.join(words)
    told = explain(_policy(given), command, str(given.cwd.resolve()), agent=given.agent, home=str(Path.home()))
    print(msgspec.json.encode(told).decode() if given.json else told.text)
    return EXIT_SUCCESS


def _simulate(given: argparse.Namespace) -> int:
    import msgspec

    from ..permissions.explain import simulate
    from .lines import one_line, style_for
    from .tables import Cell, table

    events = list(_recorded(given.files) if given.files else _stored(given))
    calls = simulate(_policy(given), events, cwd=str(given.cwd.resolve()), home=str(Path.home()))
    shown = [call for call in calls if call.changed or not given.changed]
    if given.json:
        for call in shown:
            print(msgspec.json.encode(call).decode())
        return EXIT_SUCCESS
    roles = {"allow": "ok", "deny": "bad", "ask": "strong"}
    rows: list[list[Cell]] = [
        [
            (roles[call.ruling.action], call.ruling.action),
            ("bad" if call.changed else "dim", call.then),
            call.tool,
            one_line(call.target, 60),
            call.ruling.rule.label if call.ruling.rule is not None else "default",
        ]
        for call in shown
    ]
    if rows:
        style = style_for(sys.stdout)
        print(table(["now", "then", "tool", "target", "rule"], rows, style))
    sessions = len({event.session_id for event in events})
    would = ", ".join(f"{sum(c.ruling.action == a for c in calls)} {w}" for a, w in
                      (("allow", "allowed"), ("ask", "asked about"), ("deny", "denied")))  # fmt: skip
    changed = sum(call.changed for call in calls)
    print(f"{len(calls)} calls of {sessions} sessions: {would}; {changed} decided otherwise than then")
    return EXIT_SUCCESS


def _recorded(files: list[Path]) -> Iterator[Event]:
    import msgspec

    from ..errors import PolicyError
    from ..unified.events import decode

    for file in files:
        try:
            lines = file.read_bytes().splitlines()
        except OSError as fault:
            raise PolicyError(f"{file} cannot be read: {fault.strerror}") from fault
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
                    raise PolicyError(f"{file}: line {number} is no event of stagedoor run --json: {fault}") from fault


def _stored(given: argparse.Namespace) -> Iterator[Event]:
    from ..past import events_of, stored_sessions

    for stored in stored_sessions(given.cwd, [given.agent] if given.agent else None):
        yield from events_of(stored)


def _check(files: list[Path]) -> int:
    from ..errors import PolicyError
    from ..permissions.load import load_policy

    wrong = False
    for file in files:
        try:
            policy = load_policy(file)
        except PolicyError as fault:
            print(fault, file=sys.stderr)
            wrong = True
        else:
            print(f"{file}: {len(policy.all_rules)} rules, fine")
    return EXIT_USAGE if wrong else EXIT_SUCCESS
