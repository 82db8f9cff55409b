"""A session of Kimi Code, with what its own records say of each turn put in before its end."""

from __future__ import annotations

import asyncio
import shutil
import weakref
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from ...agents.acp import AcpSession
from ...agents.acp.events import Event as AcpEvent
from ...agents.acp.events import RequestFailed
from ...agents.acp.responses import PromptResponse
from .records import KimiRecords, KimiTurn, NativeEvent, records_file

PATIENCE = 2.0
"""Seconds that the records may be behind the protocol."""


class KimiSession:
    """``env`` says where the CLI keeps its records; what they hold already was told before. ``home`` was made for this
    session and goes with it: links and a copy of the user's configuration."""

    def __init__(self, inner: AcpSession, env: Mapping[str, str], start: int, home: Path) -> None:
        self._remove_home = weakref.finalize(self, shutil.rmtree, home, ignore_errors=True)
        self.acp = inner
        self._env = env
        self._start = start

    @property
    def session_id(self) -> str:
        return self.acp.session_id

    @property
    def received(self) -> AsyncIterator[tuple[bytes, NativeEvent]]:
        return _received(self, self.acp.received, KimiRecords(self.session_id, self._env, self._start))

    async def send(self, prompt: str) -> None:
        await self.acp.send(literal(prompt))

    async def interrupt(self) -> None:
        await self.acp.interrupt()

    async def cancel(self) -> None:
        await self.acp.cancel()
        await asyncio.to_thread(self._remove_home)

    async def close(self) -> None:
        await self.acp.close()
        await asyncio.to_thread(self._remove_home)


def literal(prompt: str) -> str:
    """A word with a slash at the beginning would be taken for a command, an unknown one refused."""
    return f" {prompt}" if prompt.startswith("/") else prompt


def size_of_records(session_id: str | None, env: Mapping[str, str]) -> int:
    path = records_file(session_id, env) if session_id else None
    return path.stat().st_size if path is not None else 0


async def _received(
    session: KimiSession, inner: AsyncIterator[tuple[bytes, AcpEvent]], records: KimiRecords
) -> AsyncIterator[tuple[bytes, NativeEvent]]:
    """Holds the session: whoever still reads it still has it."""
    async for raw, event in inner:
        match event:
            case PromptResponse():
                yield b"", await _turn(records)
            case RequestFailed(method="session/prompt"):
                await _turn(records)  # it is told as it is; what the records say of it must not stand for the next one
            case _:
                pass
        yield raw, event


async def _turn(records: KimiRecords) -> KimiTurn:
    turn = KimiTurn()
    until = asyncio.get_running_loop().time() + PATIENCE
    while True:
        await asyncio.to_thread(records.add_to, turn)
        if turn.ended or asyncio.get_running_loop().time() > until:
            return turn
        await asyncio.sleep(0.05)
