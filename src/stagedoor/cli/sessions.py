"""``stagedoor sessions``: the stored sessions of all agents in this directory; show, export, resume; undo."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import TYPE_CHECKING

from . import EXIT_SUCCESS, EXIT_USAGE
from .command import DIALECTS, BadFlag, Parser, add_option_flags, options_from, report

if TYPE_CHECKING:
    from ..drivers.agent import StoredSession

VERBS = ("list", "show", "export", "resume", "undo")
LIST = ("stagedoor sessions --agent codex --search login --since 7", "stagedoor sessions --json")
SHOW = ("stagedoor sessions show 3f2a", "stagedoor sessions show last")
EXPORT = ("stagedoor sessions export last > session.md", "stagedoor sessions export 3f2a --format json")
RESUME = ("stagedoor sessions resume 3f2a 'And now the docs'", "stagedoor sessions resume last - --fork < task.md")
UNDO = (
    "stagedoor sessions undo 3f2a",
    "stagedoor sessions undo 3f2a src/app.py --turn 2",
    "stagedoor sessions undo 3f2a --list",
)


def main(argv: list[str]) -> int:
    words = argv if argv and (argv[0] in VERBS or argv[0] in ("-h", "--help")) else ["list", *argv]
    if words[0] == "resume":
        return _resume(words[1:])
    if words[0] == "undo":
        return _undo(words[1:])
    parser = Parser(
        prog="stagedoor sessions",
        description="List, show, export and resume the stored sessions of all agents in this directory.",
        examples=(LIST[0], SHOW[0], EXPORT[0], RESUME[0]),
    )
    verbs = parser.add_subparsers(dest="verb", metavar="{" + ",".join(VERBS) + "}")
    listing = verbs.add_parser("list", help="list the sessions, newest first (the default)", examples=LIST)
    listing.add_argument("--agent", action="append", metavar="NAME", help="only sessions of this agent (repeatable)")
    listing.add_argument(
        "--search", metavar="TEXT", help="only sessions with this text in a prompt, an answer or a command"
    )
    listing.add_argument("--since", metavar="DAYS", type=float, help="only sessions that changed in the last DAYS days")
    listing.add_argument("-n", "--limit", type=int, metavar="N", help="show at most N")
    listing.add_argument("--json", action="store_true", help="print one JSON object per session")
    showing = verbs.add_parser("show", help="show a readable transcript", examples=SHOW)
    exporting = verbs.add_parser("export", help="print the transcript as Markdown or JSON", examples=EXPORT)
    exporting.add_argument("--format", choices=("markdown", "json"), default="markdown")
    exporting.add_argument(
        "--dialect", choices=DIALECTS, help="with --format json: the vocabulary (default: stagedoor)"
    )
    for command in (showing, exporting):
        command.add_argument("session", help="an id, the beginning of one, or last")
    for command in (listing, showing, exporting):
        command.add_argument("-C", "--cwd", default=".", metavar="DIR", help="the directory (default: here)")
    verbs.add_parser("resume", help="continue a session: takes an id, a prompt, and every flag of stagedoor run")
    verbs.add_parser("undo", help="restore the files of a server's session as they were before a turn")
    arguments = parser.parse_args(words)
    from ..errors import StagedoorError

    try:
        match arguments.verb:
            case "show":
                return _show(arguments)
            case "export":
                return _export(arguments)
            case _:
                return _list(arguments)
    except (StagedoorError, OSError, ModuleNotFoundError) as fault:
        if isinstance(fault, BrokenPipeError):
            raise
        return report("sessions", fault)


def _list(arguments: argparse.Namespace) -> int:
    import msgspec

    from ..stored_sessions import stored_sessions
    from .terminal.output import Cell, ago, one_line, style_for, table

    now = int(time.time() * 1000)
    sessions = [
        stored for stored in stored_sessions(arguments.cwd, arguments.agent) if _matches(stored, arguments, now)
    ]
    sessions = sessions[: arguments.limit] if arguments.limit else sessions
    if arguments.json:
        for stored in sessions:
            print(msgspec.json.encode(stored).decode())
        return EXIT_SUCCESS
    if not sessions:
        matching = "matching " if arguments.search or arguments.agent or arguments.since else ""
        print(f"no {matching}sessions in this directory", file=sys.stderr)
        return EXIT_SUCCESS
    rows: list[list[Cell]] = [
        [
            ("tool", stored.agent),
            stored.session_id,
            ago(stored.updated_ms, now),
            "" if stored.messages is None else str(stored.messages),
            "" if stored.tokens is None else f"{stored.tokens:,}",
            "" if stored.cost_usd is None else f"${stored.cost_usd:.2f}",
            stored.branch,
            one_line(stored.title or stored.first_prompt, 60),
        ]
        for stored in sessions
    ]
    headings = ["agent", "session", "updated", "messages", "tokens", "cost", "branch", "title"]
    columns = [n for n, _ in enumerate(headings) if any(row[n] for row in rows)]
    style = style_for(sys.stdout)
    print(table([headings[n] for n in columns], [[row[n] for n in columns] for row in rows], style))
    return EXIT_SUCCESS


def _matches(stored: StoredSession, arguments: argparse.Namespace, now: int) -> bool:
    recent = arguments.since is None or stored.updated_ms >= now - arguments.since * 86_400_000
    return recent and (arguments.search is None or _contains(stored, arguments.search.lower()))


def _contains(stored: StoredSession, words: str) -> bool:
    from ..errors import StagedoorError
    from ..stored_sessions import events_of
    from ..unified.events import Text, ToolUse, TurnStarted

    if words in f"{stored.title}\n{stored.first_prompt}\n{stored.session_id}".lower():
        return True
    with contextlib.suppress(StagedoorError, OSError):  # what cannot be read has nothing in it
        for event in events_of(stored):
            match event:
                case Text(text=text) | TurnStarted(prompt=text) | ToolUse(target=text) if words in text.lower():
                    return True
                case _:
                    continue
    return False


def _show(arguments: argparse.Namespace) -> int:
    from ..stored_sessions import events_of, find
    from ..transcript import clean
    from ..unified.events import TurnStarted
    from .terminal.output import EventLines, style_for

    style = style_for(sys.stdout)
    stored, lines = find(arguments.session, arguments.cwd), EventLines(style)
    print(style("dim", f"{stored.agent} {stored.session_id} {stored.model}".rstrip()))
    for event in events_of(stored):
        if isinstance(event, TurnStarted):
            print(f"\n{style('strong', '❯ ' + clean(event.prompt).strip())}\n")
        else:
            print(lines.show(event), end="")
    return EXIT_SUCCESS


def _export(arguments: argparse.Namespace) -> int:
    from ..dialects import DIALECTS as PROJECTIONS
    from ..dialects import encode
    from ..stored_sessions import events_of, find
    from ..transcript import markdown

    if arguments.dialect and arguments.format != "json":
        print("stagedoor sessions: --dialect needs --format json", file=sys.stderr)
        return EXIT_USAGE
    stored = find(arguments.session, arguments.cwd)
    if arguments.format == "json":
        projection = PROJECTIONS[arguments.dialect or "stagedoor"]()
        for event in events_of(stored):
            for line in encode(projection, event):
                print(line.decode())
    else:
        print(markdown(stored, events_of(stored)), end="")
    return EXIT_SUCCESS


def _resume(words: list[str]) -> int:
    from ..errors import StagedoorError
    from . import run

    parser = Parser(
        prog="stagedoor sessions resume",
        description="Continue a stored session with its agent. Takes every flag of stagedoor run.",
        examples=RESUME,
    )
    parser.add_argument("session", help="an id, the beginning of one, or last")
    parser.add_argument(
        "prompt",
        nargs="*",
        help="what to do next; - reads it from standard input (without one, at a terminal: stagedoor chat)",
    )
    run.add_output_flags(parser)
    add_option_flags(parser)
    arguments = parser.parse_intermixed_args(words)  # the prompt may be left out, or stand behind flags
    from ..stored_sessions import find

    try:
        options = options_from(arguments)
        stored = find(arguments.session, options.get("cwd", "."))
    except (StagedoorError, BadFlag) as fault:
        return report("sessions", fault)
    return run.run_words(parser, stored.agent, {**options, "resume": stored.session_id}, arguments)


def _undo(words: list[str]) -> int:
    import asyncio

    from ..errors import StagedoorError

    parser = Parser(
        prog="stagedoor sessions undo",
        description="Restore files of a session's workspace, as they were before a turn. The session is one of a "
        "server; ignored files and commits stay as they are. An undo can be undone: it says how.",
        examples=UNDO,
    )
    parser.add_argument("session", help="the session's id at the server, or the beginning of one")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only these files and folders (default: everything)")
    parser.add_argument("--turn", type=int, metavar="N", help="the state before turn N (default: before the last)")
    parser.add_argument("--checkpoint", default="", metavar="ID", help="any state of --list")
    parser.add_argument("--list", action="store_true", help="show the states that can be restored")
    parser.add_argument("--server", default=None, metavar="URL", help="the server (default: the one that runs here)")
    arguments = parser.parse_args(words)
    try:
        return asyncio.run(_undo_at_server(arguments))
    except (StagedoorError, OSError, ModuleNotFoundError) as fault:
        return report("sessions", fault)


async def _undo_at_server(arguments: argparse.Namespace) -> int:
    from ..errors import SessionNotFound
    from ..remote import connect
    from .terminal.output import Cell, ago, style_for, table

    async with connect(arguments.server) as remote:
        matching = [view.id for view in await remote.sessions() if view.id.startswith(arguments.session)]
        if len(matching) > 1:
            raise SessionNotFound(
                f"{arguments.session!r} is the beginning of {len(matching)} sessions; write more of it"
            )
        session = remote.session(matching[0] if matching else arguments.session)
        if arguments.list:
            now = int(time.time() * 1000)
            rows: list[list[Cell]] = [
                [
                    one.id,
                    f"before turn {one.turn}" if one.kind == "turn" else "before an undo",
                    ago(one.at, now),
                    str(one.files),
                ]
                for one in await session.checkpoints()
            ]
            print(table(["checkpoint", "state", "made", "files"], rows, style_for(sys.stdout)))
            return EXIT_SUCCESS
        result = await session.undo(turn=arguments.turn, checkpoint=arguments.checkpoint, paths=arguments.paths)
    for path in result.paths:
        print(f"restored {path}")
    for path in result.not_restored:
        print(f"not restored: {path}", file=sys.stderr)
    if not result.paths and not result.not_restored:
        print("nothing differs from that state", file=sys.stderr)
    elif result.paths:
        print(f"undo this: stagedoor sessions undo {session.id} --checkpoint {result.redo}", file=sys.stderr)
    return 1 if result.not_restored else EXIT_SUCCESS
