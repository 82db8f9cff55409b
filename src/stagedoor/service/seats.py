"""The right to run an agent's program: as many as the machine may have at the same time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

from stagedoor.errors import TooMany

from .views import SessionView


class Dozing(Protocol):
    """A session that only waits for a next prompt."""

    @property
    def view(self) -> SessionView: ...
    async def doze(self) -> None: ...


class Seats:
    """``idle``: those that could be put to sleep now."""

    def __init__(self, limit: int, idle: Callable[[], Sequence[Dozing]]) -> None:
        self._limit = limit
        self._idle = idle
        self._taken: set[str] = set()
        self._waiting = 0
        self._freed = asyncio.Event()

    @property
    def awaited(self) -> bool:
        """Somebody waits for one."""
        return self._waiting > 0

    @property
    def free(self) -> int:
        """How many more could sit down."""
        return max(self._limit - len(self._taken) - self._waiting, 0)

    def leave(self, session_id: str) -> None:
        self._taken.discard(session_id)
        self._freed.set()

    async def find(self, session_id: str) -> None:
        """A seat now, or none: whoever has been idle for longest is put to sleep for it."""
        while not self._take(session_id):
            idle = self._idle()
            if not idle:
                raise TooMany(
                    f"{self._limit} agents are running, which is the limit of this server; end one, or try again later"
                )
            await min(idle, key=lambda session: session.view.updated_at).doze()

    async def wait(self, session_id: str) -> None:
        """A seat as soon as there is one; whoever becomes idle meanwhile gives up its own."""
        self._waiting += 1
        try:
            with contextlib.suppress(TooMany):
                await self.find(session_id)
            while not self._take(session_id):
                self._freed.clear()
                await self._freed.wait()
        finally:
            self._waiting -= 1

    def _take(self, session_id: str) -> bool:
        if session_id not in self._taken and len(self._taken) >= self._limit:
            return False
        self._taken.add(session_id)
        return True
