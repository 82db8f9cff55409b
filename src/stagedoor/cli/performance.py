"""One prompt, performed before an audience: shown as it happens, asked about, interrupted."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, TextIO

from .. import catalog
from ..drivers.agent import Agent
from ..errors import NotSupported, StagedoorError
from ..session import Session
from ..unified import events
from ..unified.capabilities import Capabilities
from ..unified.decisions import Decision
from ..unified.events import Event, PermissionRequest
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

    able = abilities(agent, options)
    if able is None:
        return options  # whatever else is wrong is said when the session is opened
    kept = "policy" in options or "remember_in" in options
    remember: Literal["session", "always"] = "always" if kept else "session"
    asking = Asking(keyboard, output, write, style_for(where), able=able, remember=remember)
    return {**options, "can_use_tool": asking}


def abilities(agent: Agent, options: dict[str, Any]) -> Capabilities | None:
    """What the driver that these options choose can do, when somebody is there to be asked."""

    def somebody(request: PermissionRequest) -> Decision:
        raise NotImplementedError

    given: dict[str, Any] = {**options, "can_use_tool": somebody}
    try:
        return catalog.driver(agent, Options(**given)).capabilities
    except NotSupported:
        return None


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
            except StagedoorError as fault:
                if as_json and isinstance(
                    session, Session
                ):  # whoever reads events reads them to the end; a person is told once, below
                    async for event in session.events:
                        see(event)
                output.pause()
                print(f"stagedoor run: {sentence(fault)}", file=sys.stderr)
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
