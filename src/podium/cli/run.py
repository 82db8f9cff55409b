"""``podium run``: one prompt on one agent, shown as it happens."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, TextIO

from . import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from .exits import code_of_error, code_of_status, report, sentence
from .flags import BadFlag, add_option_flags, options_from

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..drivers.driver import Agent
    from ..session import Session
    from .keyboard import Keyboard
    from .outputs import Output

DIALECTS = ("podium", "ues", "lifecycle", "board", "notify", "chat")


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    shown = parser.add_argument_group("what is shown")
    shown.add_argument("--json", action="store_true", help="one event per line on stdout")
    shown.add_argument("--dialect", choices=DIALECTS, help="with --json: whose vocabulary (default: podium)")
    shown.add_argument("-q", "--quiet", action="store_true", help="the final answer and nothing else")
    shown.add_argument("--plain", action="store_true", help="plain lines, at a terminal too")
    shown.add_argument("--no-thinking", dest="thinking", action="store_false", help="leave the reasoning out")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="podium run",
        description="Run one prompt on an agent. At a terminal you are asked before the agent does what its tier "
        "does not allow: y (yes), n (no), a (always in this session), e (edit). Ctrl-C interrupts, twice kills.",
        epilog="exit codes: 0 success · 1 the agent failed · 2 usage · 3 not installed · 4 not signed in · "
        "5 limit reached · 130 interrupted",
    )
    made.add_argument("agent", help="podium agents lists them")
    made.add_argument("prompt", help="what to do; - reads it from standard input")
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
        print("podium run: --dialect says how --json speaks; add --json", file=sys.stderr)
        return EXIT_USAGE
    prompt = sys.stdin.read() if given.prompt == "-" else given.prompt
    if not prompt.strip():
        print("podium run: the prompt is empty", file=sys.stderr)
        return EXIT_USAGE
    return perform(given.agent, prompt, options, given)


def perform(agent: str, prompt: str, options: dict[str, Any], given: argparse.Namespace) -> int:
    """Run the prompt and show it as the flags of ``add_output_flags`` say. Returns the exit code."""
    from ..errors import PodiumError

    try:
        return asyncio.run(_perform(agent, prompt, options, given))
    except (PodiumError, ModuleNotFoundError, OSError) as fault:
        if isinstance(fault, BrokenPipeError):
            raise
        return report("run", fault)
    except asyncio.CancelledError:
        return EXIT_INTERRUPTED


async def _perform(agent: str, prompt: str, options: dict[str, Any], given: argparse.Namespace) -> int:
    from .. import api, catalog
    from .keyboard import find_keyboard
    from .state import with_audit

    found = catalog.agent(agent)
    keyboard = find_keyboard()
    on_screen = sys.stdout.isatty() and not (given.json or given.quiet or given.plain)
    output = _screen(found.name, thinking=given.thinking) if on_screen else _written(given)
    if keyboard is not None and _wants_answers(options):
        options = with_questions(found, options, keyboard, output, sys.stdout if on_screen else sys.stderr)

    def restore() -> None:
        if keyboard is not None:
            keyboard.stop()

    session = api.open(agent, **with_audit(options))
    if keyboard is not None:
        keyboard.start()
    try:
        return await _stream(session, prompt, output, restore, as_json=given.json)
    finally:
        restore()


def _wants_answers(options: dict[str, Any]) -> bool:
    """Whether anything can be asked at all: without it the agent may be run in a simpler way."""
    approval = options.get("approval") or ("autoAll" if options.get("tier") == "autonomous" else "ask")
    return approval != "autoAll" or "policy" in options


def with_questions(
    agent: Agent, options: dict[str, Any], keyboard: Keyboard, output: Output, where: TextIO
) -> dict[str, Any]:
    """The options with a person to ask, where the agent has a driver that can."""
    from .. import catalog
    from ..errors import NotSupported
    from ..unified.options import Options
    from .asking import Asking
    from .lines import style_for

    def write(text: str) -> None:
        where.write(text)
        where.flush()

    def asking(*, can_edit: bool) -> dict[str, Any]:
        kept = "policy" in options or "remember_in" in options
        remember: Literal["session", "always"] = "always" if kept else "session"
        return {
            **options,
            "can_use_tool": Asking(keyboard, output, write, style_for(where), can_edit=can_edit, remember=remember),
        }

    try:
        chosen = catalog.driver(agent, Options(**asking(can_edit=False)))
    except NotSupported:
        return options  # whatever else is wrong is said when the session is opened
    return asking(can_edit=chosen.capabilities.edit_input)


async def _stream(session: Session, prompt: str, output: Output, restore: Callable[[], None], *, as_json: bool) -> int:
    from ..errors import PodiumError
    from ..unified import events
    from .stopping import Stopping

    done: events.Done | None = None
    kinds: list[str] = []
    version = ""

    def see(event: events.Event) -> None:
        nonlocal done, version
        output.show(event)
        match event:
            case events.Done():
                done = event
            case events.Error(fatal=True):
                kinds.append(event.kind)
            case events.Init():
                version = event.agent_version
                stopping.begun = True
            case _:
                return

    ticking = asyncio.ensure_future(output.ticking())
    stopping = Stopping(session, output.note, restore)
    stopping.start()
    output.resume()
    try:
        async with session:
            try:
                async with aclosing(session.send(prompt)) as turn:
                    async for event in turn:
                        see(event)
            except PodiumError as fault:
                if as_json:  # whoever reads events reads them to the end; a person is told once, below
                    async for event in session.events:
                        see(event)
                output.pause()
                print(f"podium run: {sentence(fault)}", file=sys.stderr)
                return code_of_error(fault)
            rest = session.events
            await session.close()
            async for event in rest:
                see(event)
    finally:
        stopping.stop()
        ticking.cancel()
        output.pause()
        _keep_count(session.agent, version, session.unrecognized)
    if done is None:
        return EXIT_FAILED
    return EXIT_INTERRUPTED if stopping.pressed and done.status != "success" else code_of_status(done.status, kinds)


def _screen(agent: str, *, thinking: bool) -> Output:
    from rich.console import Console

    from .screen import Screen

    return Screen(Console(highlight=False), agent=agent, thinking=thinking)


def _written(given: argparse.Namespace) -> Output:
    from .outputs import Written, answer_alone, json_lines, plain_lines

    if given.json:
        return Written(json_lines(given.dialect or "podium"))
    return Written(answer_alone if given.quiet else plain_lines(thinking=given.thinking))


def _keep_count(agent: str, version: str, unrecognized: int) -> None:
    if unrecognized:
        from .state import count_unrecognized

        count_unrecognized(agent, version, unrecognized)
