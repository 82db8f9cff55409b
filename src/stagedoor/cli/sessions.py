"""``stagedoor sessions``: what all agents have stored for this directory, in one table; show, export, resume."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import TYPE_CHECKING

from . import EXIT_SUCCESS, EXIT_USAGE
from .parsing import Parser
from .run import DIALECTS

if TYPE_CHECKING:
    from ..drivers.agent import StoredSession

VERBS = ("list", "show", "export", "resume")
LIST = ("stagedoor sessions --agent codex --search login --since 7", "stagedoor sessions --json")
SHOW = ("stagedoor sessions show 3f2a", "stagedoor sessions show last")
EXPORT = ("stagedoor sessions export last > session.md", "stagedoor sessions export 3f2a --format json")
RESUME = ("stagedoor sessions resume 3f2a 'And now the docs'", "stagedoor sessions resume last - --fork < task.md")


def main(argv: list[str]) -> int:
    words = argv if argv and (argv[0] in VERBS or argv[0] in ("-h", "--help")) else ["list", *argv]
    if words[0] == "resume":
        return _resume(words[1:])
    parser = Parser(
        prog="stagedoor sessions",
        description="The sessions of all agents in this directory, newest first.",
        examples=(LIST[0], SHOW[0], EXPORT[0], RESUME[0]),
    )
    verbs = parser.add_subparsers(dest="verb", metavar="{" + ",".join(VERBS) + "}")
    listing = verbs.add_parser("list", help="one table (the default)", examples=LIST)
    listing.add_argument("--agent", action="append", metavar="NAME", help="only this agent's (repeatable)")
    listing.add_argument("--search", metavar="TEXT", help="only those in which it was said, asked or run")
    listing.add_argument("--since", metavar="DAYS", type=float, help="only those touched in the last days")
    listing.add_argument("-n", "--limit", type=int, metavar="N", help="at most so many")
    listing.add_argument("--json", action="store_true", help="one JSON object per session")
    showing = verbs.add_parser("show", help="a readable transcript", examples=SHOW)
    exporting = verbs.add_parser("export", help="the transcript as Markdown or JSON on stdout", examples=EXPORT)
    exporting.add_argument("--format", choices=("markdown", "json"), default="markdown")
    exporting.add_argument(
        "--dialect", choices=DIALECTS, help="with --format json: whose vocabulary (default: stagedoor)"
    )
    for one in (showing, exporting):
        one.add_argument("session", help="an id, the beginning of one, or last")
    for one in (listing, showing, exporting):
        one.add_argument("-C", "--cwd", default=".", metavar="DIR", help="the directory (default: here)")
    verbs.add_parser("resume", help="go on with one: takes an id, a prompt, and every flag of stagedoor run")
    given = parser.parse_args(words)
    from ..errors import StagedoorError
    from .exits import report

    try:
        match given.verb:
            case "show":
                return _show(given)
            case "export":
                return _export(given)
            case _:
                return _list(given)
    except (StagedoorError, OSError, ModuleNotFoundError) as fault:
        if isinstance(fault, BrokenPipeError):
            raise
        return report("sessions", fault)


def _list(given: argparse.Namespace) -> int:
    import msgspec

    from ..past import stored_sessions
    from .lines import one_line, style_for
    from .tables import Cell, ago, table

    now = int(time.time() * 1000)
    found = [one for one in stored_sessions(given.cwd, given.agent) if _wanted(one, given, now)]
    found = found[: given.limit] if given.limit else found
    if given.json:
        for one in found:
            print(msgspec.json.encode(one).decode())
        return EXIT_SUCCESS
    if not found:
        print(
            "no sessions here" + (" that match" if given.search or given.agent or given.since else ""), file=sys.stderr
        )
        return EXIT_SUCCESS
    rows: list[list[Cell]] = [
        [
            ("tool", one.agent),
            one.session_id,
            ago(one.updated_ms, now),
            "" if one.messages is None else str(one.messages),
            "" if one.tokens is None else f"{one.tokens:,}",
            "" if one.cost_usd is None else f"${one.cost_usd:.2f}",
            one.branch,
            one_line(one.title or one.first_prompt, 60),
        ]
        for one in found
    ]
    headings = ["agent", "session", "updated", "messages", "tokens", "cost", "branch", "title"]
    kept = [n for n, _ in enumerate(headings) if any(row[n] for row in rows)]
    style = style_for(sys.stdout)
    print(table([headings[n] for n in kept], [[row[n] for n in kept] for row in rows], style))
    return EXIT_SUCCESS


def _wanted(one: StoredSession, given: argparse.Namespace, now: int) -> bool:
    recent = given.since is None or one.updated_ms >= now - given.since * 86_400_000
    return recent and (given.search is None or _has(one, given.search.lower()))


def _has(one: StoredSession, words: str) -> bool:
    from ..errors import StagedoorError
    from ..past import events_of
    from ..unified.events import Text, ToolUse, TurnStarted

    if words in f"{one.title}\n{one.first_prompt}\n{one.session_id}".lower():
        return True
    with contextlib.suppress(StagedoorError, OSError):  # what cannot be read has nothing in it
        for event in events_of(one):
            match event:
                case Text(text=said) | TurnStarted(prompt=said) | ToolUse(target=said) if words in said.lower():
                    return True
                case _:
                    continue
    return False


def _show(given: argparse.Namespace) -> int:
    from ..past import events_of, find
    from ..transcript import clean
    from ..unified.events import TurnStarted
    from .lines import Lines, style_for

    style = style_for(sys.stdout)
    stored, lines = find(given.session, given.cwd), Lines(style)
    print(style("dim", f"{stored.agent} {stored.session_id} {stored.model}".rstrip()))
    for event in events_of(stored):
        if isinstance(event, TurnStarted):
            print(f"\n{style('strong', '❯ ' + clean(event.prompt).strip())}\n")
        else:
            print(lines.show(event), end="")
    return EXIT_SUCCESS


def _export(given: argparse.Namespace) -> int:
    from ..dialects import DIALECTS as PROJECTIONS
    from ..dialects import encode
    from ..past import events_of, find
    from ..transcript import markdown

    if given.dialect and given.format != "json":
        print("stagedoor sessions: --dialect says how JSON speaks; add --format json", file=sys.stderr)
        return EXIT_USAGE
    stored = find(given.session, given.cwd)
    if given.format == "json":
        projection = PROJECTIONS[given.dialect or "stagedoor"]()
        for event in events_of(stored):
            for line in encode(projection, event):
                print(line.decode())
    else:
        print(markdown(stored, events_of(stored)), end="")
    return EXIT_SUCCESS


def _resume(words: list[str]) -> int:
    from ..errors import StagedoorError
    from . import run
    from .exits import report
    from .flags import BadFlag, add_option_flags, options_from

    parser = Parser(
        prog="stagedoor sessions resume",
        description="Go on with a stored session; its agent is known. Takes every flag of stagedoor run.",
        examples=RESUME,
    )
    parser.add_argument("session", help="an id, the beginning of one, or last")
    parser.add_argument("prompt", help="what to do next; - reads it from standard input")
    run.add_output_flags(parser)
    add_option_flags(parser)
    given = parser.parse_args(words)
    from ..past import find

    try:
        options = options_from(given)
        stored = find(given.session, options.get("cwd", "."))
    except (StagedoorError, BadFlag) as fault:
        return report("sessions", fault)
    prompt = sys.stdin.read() if given.prompt == "-" else given.prompt
    return run.perform(stored.agent, prompt, {**options, "resume": stored.session_id}, given)
