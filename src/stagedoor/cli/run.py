"""``stagedoor run``: one prompt on one agent, shown as it happens."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import EXIT_INTERRUPTED, EXIT_USAGE
from .exits import report
from .flags import BadFlag, add_option_flags, options_from
from .parsing import Parser

if TYPE_CHECKING:
    from ..remote import RemoteSession
    from .outputs import Output

DIALECTS = ("stagedoor", "ues", "lifecycle", "board", "notify", "chat")


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    shown = parser.add_argument_group("what is shown")
    shown.add_argument("--json", action="store_true", help="one event per line on stdout")
    shown.add_argument("--dialect", choices=DIALECTS, help="with --json: whose vocabulary (default: stagedoor)")
    shown.add_argument("-q", "--quiet", action="store_true", help="the final answer and nothing else")
    shown.add_argument("--plain", action="store_true", help="plain lines, at a terminal too")
    shown.add_argument("--no-thinking", dest="thinking", action="store_false", help="leave the reasoning out")


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="stagedoor run",
        description="Run one prompt on an agent. At a terminal you are asked before the agent does what its tier "
        "does not allow: y (yes), n (no), a (always in this session), e (edit). Ctrl-C interrupts, twice kills.",
        examples=(
            'stagedoor run claude "Fix the login bug"',
            "stagedoor run codex - --tier autonomous --json < task.md",
            'stagedoor run gemini "Explain this repository" --quiet > answer.md',
            'stagedoor run opencode "And now the docs" --resume 3f2a9c10 --policy team.yaml',
        ),
        ends="exit codes: 0 success · 1 the agent failed · 2 usage · 3 not installed · 4 not signed in · "
        "5 limit reached\n            130 interrupted",
    )
    made.add_argument("agent", help="stagedoor agents lists them")
    made.add_argument("prompt", help="what to do; - reads it from standard input")
    made.add_argument(
        "--server",
        metavar="URL|local",
        help="run it there: a server's address (its token in STAGEDOOR_TOKEN), or the one that runs with your home",
    )
    add_output_flags(made)
    add_option_flags(made)
    return made


def main(argv: list[str]) -> int:
    given = parser().parse_args(argv)
    try:
        options = options_from(given)
    except BadFlag as fault:
        return report("run", fault)
    if given.dialect and not given.json:
        print("stagedoor run: --dialect says how --json speaks; add --json", file=sys.stderr)
        return EXIT_USAGE
    prompt = sys.stdin.read() if given.prompt == "-" else given.prompt
    if not prompt.strip():
        print("stagedoor run: the prompt is empty", file=sys.stderr)
        return EXIT_USAGE
    return perform(given.agent, prompt, options, given)


def perform(agent: str, prompt: str, options: dict[str, Any], given: argparse.Namespace) -> int:
    """Run the prompt and show it as the flags of ``add_output_flags`` say. Returns the exit code."""
    from ..errors import StagedoorError

    try:
        return asyncio.run(_perform(agent, prompt, options, given))
    except (StagedoorError, ModuleNotFoundError, OSError) as fault:
        if isinstance(fault, BrokenPipeError):
            raise
        return report("run", fault)
    except asyncio.CancelledError:
        return EXIT_INTERRUPTED


async def _perform(agent: str, prompt: str, options: dict[str, Any], given: argparse.Namespace) -> int:
    from .. import api, catalog
    from .keyboard import find_keyboard
    from .performance import on_terminal, stream, with_questions
    from .state import with_audit

    found = catalog.agent(agent)
    keyboard = find_keyboard()
    on_screen = sys.stdout.isatty() and not (given.json or given.quiet or given.plain)
    output = on_terminal(found.name, thinking=given.thinking) if on_screen else _written(given)
    if keyboard is not None and _wants_answers(options):
        options = with_questions(found, options, keyboard, output, sys.stdout if on_screen else sys.stderr)

    def restore() -> None:
        if keyboard is not None:
            keyboard.stop()

    server: str | None = getattr(given, "server", None)
    session = api.open(agent, **with_audit(options)) if server is None else _on_server(server, agent, options)
    if keyboard is not None:
        keyboard.start()
    try:
        return await stream(session, prompt, output, restore, as_json=given.json)
    finally:
        restore()


def _on_server(server: str, agent: str, options: dict[str, Any]) -> RemoteSession:
    from ..remote import connect

    if server == "local":  # the same machine: what is here is there
        options = {**options, "cwd": str(Path(options.get("cwd", ".")).resolve())}
    return connect(server).open(agent, **options)


def _wants_answers(options: dict[str, Any]) -> bool:
    """Whether anything can be asked at all: without it the agent may be run in a simpler way."""
    approval = options.get("approval") or ("autoAll" if options.get("tier") == "autonomous" else "ask")
    return approval != "autoAll" or "policy" in options


def _written(given: argparse.Namespace) -> Output:
    from .outputs import Written, answer_alone, json_lines, plain_lines

    if given.json:
        return Written(json_lines(given.dialect or "stagedoor"))
    return Written(answer_alone if given.quiet else plain_lines(thinking=given.thinking))
