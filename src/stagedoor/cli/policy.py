"""``stagedoor policy``: which rule decides about a command, and what a policy would decide about past sessions."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from ..unified.options import Approval, Sandbox, Tier
from . import EXIT_SUCCESS, EXIT_USAGE
from .command import Parser, report

if TYPE_CHECKING:
    from ..permissions.paths import Ground
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
        "explain", help="show the decision about a command, and which rule made it", examples=EXPLAIN
    )
    simulating = verbs.add_parser(
        "simulate", help="apply a policy to the tool calls of past sessions", examples=SIMULATE
    )
    checking = verbs.add_parser("check", help="report mistakes in policy files, with line numbers", examples=(CHECK,))
    checking.add_argument("files", nargs="+", type=Path, metavar="FILE")
    for command in (explaining, simulating):
        command.add_argument("--policy", type=Path, metavar="FILE", help="YAML or TOML")
        command.add_argument("--tier", choices=get_args(Tier), default="supervised")
        command.add_argument("--approval", choices=get_args(Approval))
        command.add_argument("--sandbox", choices=get_args(Sandbox))
        command.add_argument(
            "-C", "--cwd", type=Path, default=Path(), metavar="DIR", help="the workspace (default: here)"
        )
        command.add_argument("--json", action="store_true")
        command.add_argument(
            "--agent", default="", metavar="NAME", help="decide as if this agent asked; only its past sessions"
        )
    explaining.add_argument(
        "command", nargs="+", metavar="COMMAND", help="one quoted command line, or its words after --"
    )
    simulating.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="EVENTS",
        help="events of stagedoor run --json (default: the stored sessions of this directory)",
    )
    simulating.add_argument("--changed", action="store_true", help="show only calls with another decision than before")
    arguments = parser.parse_args(argv)
    from ..errors import StagedoorError

    try:
        match arguments.verb:
            case "explain":
                return _explain(arguments)
            case "simulate":
                return _simulate(arguments)
            case _:
                return _check(arguments.files)
    except (StagedoorError, OSError) as fault:
        return report("policy", fault)


def _policy(arguments: argparse.Namespace) -> Policy:
    from ..permissions.policy import built_in
    from ..permissions.policy_file import load_policy

    modes = built_in(tier=arguments.tier, approval=arguments.approval, sandbox=arguments.sandbox)
    return load_policy(arguments.policy).stacked_on(modes) if arguments.policy else modes


def _ground(arguments: argparse.Namespace) -> Ground:
    from .. import catalog
    from ..permissions.paths import Ground
    from ..permissions.protected import as_patterns

    protected = as_patterns(catalog.protected())
    return Ground(str(arguments.cwd.resolve()), str(Path.home()), protected, on_disk=arguments.verb == "explain")


def _explain(arguments: argparse.Namespace) -> int:
    import msgspec

    from ..permissions.explain import explain

    words: list[str] = arguments.command
    command = words[0] if len(words) == 1 else shlex.join(words)
    explanation = explain(_policy(arguments), command, _ground(arguments), agent=arguments.agent)
    print(msgspec.json.encode(explanation).decode() if arguments.json else explanation.text)
    return EXIT_SUCCESS


def _simulate(arguments: argparse.Namespace) -> int:
    import msgspec

    from ..permissions.explain import simulate
    from .terminal.output import Cell, one_line, style_for, table

    events = list(_recorded_events(arguments.files) if arguments.files else _stored_events(arguments))
    calls = simulate(_policy(arguments), events, cwd=_ground(arguments))
    shown = [call for call in calls if call.changed or not arguments.changed]
    if arguments.json:
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
        print(table(["now", "before", "tool", "target", "rule"], rows, style))
    sessions = len({event.session_id for event in events})
    would = ", ".join(f"{sum(c.ruling.action == a for c in calls)} {w}" for a, w in
                      (("allow", "allowed"), ("ask", "asked about"), ("deny", "denied")))  # fmt: skip
    changed = sum(call.changed for call in calls)
    print(f"{len(calls)} calls of {sessions} sessions: {would}; {changed} with another decision than before")
    return EXIT_SUCCESS


def _recorded_events(files: list[Path]) -> Iterator[Event]:
    import msgspec

    from ..errors import PolicyError
    from ..unified.events import decode

    for file in files:
        try:
            lines = file.read_bytes().splitlines()
        except OSError as fault:
            raise PolicyError(f"cannot read {file}: {fault.strerror}") from fault
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
                    raise PolicyError(
                        f"{file}: line {number} is not an event of stagedoor run --json: {fault}"
                    ) from fault


def _stored_events(arguments: argparse.Namespace) -> Iterator[Event]:
    from ..stored_sessions import events_of, stored_sessions

    for stored in stored_sessions(arguments.cwd, [arguments.agent] if arguments.agent else None):
        yield from events_of(stored)


def _check(files: list[Path]) -> int:
    from ..errors import PolicyError
    from ..permissions.policy_file import load_policy

    wrong = False
    for file in files:
        try:
            policy = load_policy(file)
        except PolicyError as fault:
            print(fault, file=sys.stderr)
            wrong = True
        else:
            print(f"{file}: {len(policy.all_rules)} rules, no mistakes")
    return EXIT_USAGE if wrong else EXIT_SUCCESS
