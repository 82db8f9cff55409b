"""One conversation with ``gemini --acp``: the protocol's own session, with Gemini's peculiarities taken care of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import msgspec

from stagedoor.agents.acp.config import AcpSessionConfig
from stagedoor.agents.acp.events import Event as AcpEvent
from stagedoor.agents.acp.protocol import Reply
from stagedoor.agents.acp.session import AcpSession
from stagedoor.agents.acp.updates import AgentMessageChunk, KnownBlock, SessionUpdate, TextContent, ToolCallUpdate
from stagedoor.transports.tasks import TaskOwner

from .commands import literal_over_acp
from .config import PROFILE, ApprovalMode, GeminiSessionConfig
from .events import Paused
from .records import ToolDetails
from .store import PrivateHome, SessionFile, locator, sweep_stubs

Event: TypeAlias = AcpEvent | ToolDetails | Paused
Pair: TypeAlias = tuple[bytes, AcpEvent]
PAUSE = 0.9
"""Seconds; the CLI waits at least one before it asks again."""
PATIENCE = (0.005, 0.01, 0.02, 0.05, 0.1, 0.3)
"""Seconds between looks at the session file: the CLI writes a finished call there right after its update, and before
it says anything else. So nothing that it says waits for a record: whatever comes next ends the looking."""

MODE_IDS = {
    ApprovalMode.DEFAULT: "default",
    ApprovalMode.AUTO_EDIT: "autoEdit",
    ApprovalMode.PLAN: "plan",
    ApprovalMode.YOLO: "yolo",
}


def acp_config(config: GeminiSessionConfig) -> AcpSessionConfig:
    """Mode, model, policy and MCP servers are the process's; only the questions belong to the session."""
    return AcpSessionConfig(can_use_tool=config.can_use_tool, permission_timeout=config.permission_timeout)


def blocks(prompt: str | Sequence[KnownBlock], config: GeminiSessionConfig) -> tuple[KnownBlock, ...]:
    """A prompt, taken literally unless the config says otherwise: text that begins with ``/`` would run a command."""
    if not isinstance(prompt, str):
        return tuple(prompt)
    return (TextContent(prompt if config.expand_prompt else literal_over_acp(prompt)),)


def make_loadable(files: Sequence[Path], now: float) -> None:
    """Give the file of a session that was created in this clock minute the name of an earlier one.

    ``session/load`` starts a new file, named by the clock minute and the short id, *before* it reads the old one. In
    the minute the session was created in, both names are the same, and the conversation is replaced by an empty one.
    """
    minutes = [_minute(now), _minute(now + 60)]  # the load itself may be in the next
    for path in files:
        minute = path.name[: len(minutes[0])]
        if minute in minutes:
            earlier = (_minute(now - 60 * back) + path.name.removeprefix(minute) for back in range(1, 60))
            free = (place for name in earlier if not (place := path.with_name(name)).exists())
            path.rename(next(free))


def _minute(now: float) -> str:
    return time.strftime("session-%Y-%m-%dT%H-%M-", time.gmtime(now))


class GeminiAcpSession:
    """Made by :class:`~stagedoor.agents.gemini.client.GeminiClient`. ``acp`` is the protocol's own session."""

    def __init__(
        self, acp: AcpSession, config: GeminiSessionConfig, *, cwd: str, folder: Path, home: PrivateHome
    ) -> None:
        self.acp = acp
        self.session_id = acp.session_id
        self._config = config
        self._cwd = cwd
        self._folder = folder
        self._home = home
        self._file = SessionFile(locator(folder, cwd, acp.session_id))

    @property
    def events(self) -> AsyncIterator[Event]:
        """Events of the Agent Client Protocol, to the end of the session. Each use is a separate reader.

        Behind the update that ends a tool call comes what the session file adds to it: :class:`ToolDetails`. Before a
        piece of text that took long comes :class:`Paused`.
        """
        return _events(self.received)

    @property
    def received(self) -> AsyncIterator[tuple[bytes, Event]]:
        """The same with the raw message each came from (empty for an event that no message caused)."""
        return detailed(self.acp.received, self.tool_details)

    @property
    def running(self) -> bool:
        return self.acp.running

    async def send(self, prompt: str | Sequence[KnownBlock]) -> None:
        """Start a turn; its events end with ``PromptResponse``, ``RequestFailed`` or ``Unanswered``."""
        await self.acp.send(blocks(prompt, self._config))

    async def turn_ended(self) -> Reply:
        return await self.acp.turn_ended()

    async def wait(self) -> None:
        """Wait until no turn runs. Raises ``ProcessExited`` when the program ended with an error or in mid-turn."""
        await self.acp.wait()

    async def interrupt(self) -> None:
        """End the running turn and its commands. Open questions are answered first: the CLI does not stop before."""
        await self.acp.interrupt()

    async def set_mode(self, mode: ApprovalMode) -> None:
        await self.acp.set_mode(MODE_IDS[mode])

    async def set_model(self, model: str) -> None:
        await self.acp.set_model(model)

    async def cancel(self) -> None:
        await self.acp.cancel()
        self._clean_up()

    async def close(self) -> None:
        await self.acp.close()
        self._clean_up()

    def tool_name(self, tool_call_id: str) -> str:
        """The protocol does not say which tool a call is of; its id does."""
        return PROFILE.tool_name(tool_call_id) or ""

    def tool_details(self, tool_call_id: str) -> ToolDetails | None:
        """What the session file knows of a finished call: exit code, diff, what the model got."""
        return self._file.tool_details(tool_call_id)

    async def __aenter__(self) -> GeminiAcpSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await (self.close() if kind is None else self.cancel())

    def _clean_up(self) -> None:
        sweep_stubs(self._folder, self._cwd, self.session_id)
        self._home.remove()


async def detailed(
    received: AsyncIterator[Pair], details_of: Callable[[str], ToolDetails | None]
) -> AsyncIterator[tuple[bytes, Event]]:
    """What the CLI says, with what its session file (``details_of`` a call) adds behind the end of each call."""
    clock = asyncio.get_running_loop().time
    last = clock()
    tasks = TaskOwner()
    pair = await anext(received, None)
    while pair is not None:
        raw, event = pair
        if isinstance(event, SessionUpdate) and isinstance(event.update, AgentMessageChunk):
            before, last = last, clock()
            if last - before >= PAUSE:
                yield b"", Paused(last - before, stamp=event.stamp)
        yield raw, event
        match event:
            case SessionUpdate(update=ToolCallUpdate(status="completed" | "failed") as call, replayed=False):
                coming = tasks.start(_next(received))
                try:
                    if (details := await _first_of(call.tool_call_id, details_of, coming)) is not None:
                        yield b"", msgspec.structs.replace(details, stamp=event.stamp)
                    pair = await coming
                finally:
                    await tasks.close()
            case _:
                pair = await anext(received, None)


async def _first_of(
    tool_call_id: str, details_of: Callable[[str], ToolDetails | None], coming: asyncio.Task[Pair | None]
) -> ToolDetails | None:
    """The details of a finished call, looked for until the CLI speaks again."""
    for pause in (*PATIENCE, None):
        if (details := details_of(tool_call_id)) is not None:
            return details
        await asyncio.wait([coming], timeout=pause)
        if coming.done():
            break
    return details_of(tool_call_id)


async def _next(received: AsyncIterator[Pair]) -> Pair | None:
    return await anext(received, None)


async def _events(received: AsyncIterator[tuple[bytes, Event]]) -> AsyncIterator[Event]:
    async for _, event in received:
        yield event
