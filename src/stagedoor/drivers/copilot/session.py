"""A session of Copilot CLI, with what its own records say of it put in where it belongs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias

from ...agents.acp import AcpSession
from ...agents.acp.events import Event as AcpEvent
from ...agents.acp.responses import PromptResponse
from ...agents.acp.updates import AgentMessageChunk, SessionUpdate
from .records import CopilotFailure, CopilotLine, CopilotRecords, NewRecords

NativeEvent: TypeAlias = AcpEvent | CopilotFailure | CopilotLine
Pair: TypeAlias = tuple[bytes, NativeEvent]
LEVELS = ("Info: ", "Warning: ", "Error: ")
"""How the lines of the CLI itself begin. They come as the model's text does."""
PATIENCE = 2.0
"""Seconds that the records may be behind the protocol."""


class CopilotSession:
    """``records`` is the file that the CLI writes; what it holds already was told before."""

    def __init__(self, inner: AcpSession, records: Path) -> None:
        self.acp = inner
        self._records = records
        self._start = records.stat().st_size if records.exists() else 0

    @property
    def session_id(self) -> str:
        return self.acp.session_id

    @property
    def received(self) -> AsyncIterator[Pair]:
        return _received(self, self.acp.received, CopilotRecords(self._records, self._start))

    async def send(self, prompt: str) -> None:
        await self.acp.send(prompt)

    async def interrupt(self) -> None:
        await self.acp.interrupt()

    async def cancel(self) -> None:
        await self.acp.cancel()

    async def close(self) -> None:
        await self.acp.close()


async def _received(
    session: CopilotSession, inner: AsyncIterator[tuple[bytes, AcpEvent]], records: CopilotRecords
) -> AsyncIterator[Pair]:
    """Holds the session: whoever still reads it still has it. Text that may be the CLI's own is kept back until its
    records tell whether the model said it."""
    held: list[tuple[bytes, AcpEvent]] = []
    so_far = NewRecords()
    async for raw, event in inner:
        words = _words(event)
        if words is not None and (held or words.startswith(LEVELS)):
            held.append((raw, event))
            continue
        over = isinstance(event, PromptResponse)
        if over or held:
            await _look(records, so_far, is_over=over)
        for pair in held:
            yield _judged(pair, so_far.texts)
        held.clear()
        if over:
            for failure in so_far.failures:
                yield b"", failure
            so_far = NewRecords()
        yield raw, event
    for pair in held:
        yield pair


async def _look(records: CopilotRecords, so_far: NewRecords, *, is_over: bool) -> None:
    """What the records have now; at the end of a turn, what they have when they are written to its end."""
    until = asyncio.get_running_loop().time() + PATIENCE
    while True:
        new = await asyncio.to_thread(records.new)
        so_far.texts += new.texts
        so_far.failures += new.failures
        so_far.turn_ended = so_far.turn_ended or new.turn_ended
        if not is_over or so_far.turn_ended or so_far.failures or asyncio.get_running_loop().time() > until:
            return
        await asyncio.sleep(0.05)


def _words(event: AcpEvent) -> str | None:
    match event:
        case SessionUpdate(update=AgentMessageChunk() as chunk, replayed=False):
            return chunk.text
        case _:
            return None


def _judged(pair: tuple[bytes, AcpEvent], texts: list[str]) -> Pair:
    raw, event = pair
    words = _words(event) or ""
    line = line_of(words)
    return pair if line is None or any(words in text for text in texts) else (raw, line)


def line_of(words: str) -> CopilotLine | None:
    """The line of the CLI itself that these words look like."""
    level = next((level for level in LEVELS if words.startswith(level)), "")
    return CopilotLine(level.rstrip(": ").lower(), words.removeprefix(level)) if level else None
