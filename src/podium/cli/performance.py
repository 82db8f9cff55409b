"""One prompt, performed before an audience: shown as it happens, asked about, interrupted."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, TextIO

from .. import catalog
from ..drivers.driver import Agent
from ..errors import NotSupported, PodiumError
from ..session import Session
from ..unified import events
from ..unified.events import Event
from ..unified.options import Options
from . import EXIT_FAILED, EXIT_INTERRUPTED
from .asking import Asking
from .exits import code_of_error, code_of_status, sentence
from .keyboard import Keyboard
from .lines import style_for
from .outputs import Output
from .stopping import Stopping

if TYPE_CHECKING:
    from ..remote import RemoteSession


def with_questions(
    agent: Agent, options: dict[str, Any], keyboard: Keyboard, output: Output, where: TextIO
) -> dict[str, Any]:
    """The options with a person to ask, where the agent has a driver that can."""

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


class Outcome:
    """What the stream has said so far of how it ends."""

    def __init__(self) -> None:
        self.begun = False
        self.version = ""
        self._status = ""
        self._kinds: list[str] = []

    def see(self, event: Event) -> None:
        match event:
            case events.Init():
                self.begun, self.version = True, event.agent_version
            case events.Error(fatal=True):
                self._kinds.append(event.kind)
            case events.Done():
                self._status = event.status
            case _:
                return

    def code(self, *, interrupted: bool) -> int:
        if interrupted and self._status != "success":
            return EXIT_INTERRUPTED
        return code_of_status(self._status, self._kinds) if self._status else EXIT_FAILED


async def stream(
    session: Session | RemoteSession,
    prompt: str,
    output: Output,
    restore: Callable[[], None],
    *,
    as_json: bool = False,
    also: Callable[[Event], None] = lambda event: None,
) -> int:
    """Send the prompt and show all that comes, under the rules of Ctrl-C. Returns the exit code."""
    outcome = Outcome()

    def see(event: Event) -> None:
        outcome.see(event)
        output.show(event)
        also(event)

    ticking = asyncio.ensure_future(output.ticking())
    stopping = Stopping(session, output.note, restore, begun=lambda: outcome.begun)
    stopping.start()
    output.resume()
    try:
        async with session:
            try:
                async with aclosing(session.send(prompt)) as turn:
                    async for event in turn:
                        see(event)
            except PodiumError as fault:
                if as_json and isinstance(
                    session, Session
                ):  # whoever reads events reads them to the end; a person is told once, below
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
        _keep_count(session.agent, outcome.version, session.unrecognized)
    return outcome.code(interrupted=stopping.pressed > 0)


def on_terminal(agent: str, *, thinking: bool) -> Output:
    from rich.console import Console

    from .screen import Screen

    return Screen(Console(highlight=False), agent=agent, thinking=thinking)


def _keep_count(agent: str, version: str, unrecognized: int) -> None:
    if unrecognized:
        from .state import count_unrecognized

        count_unrecognized(agent, version, unrecognized)
