"""How many CLIs may run at once."""

from __future__ import annotations

import asyncio


class Seats:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken: set[str] = set()
        self._freed = asyncio.Event()

    @property
    def taken(self) -> int:
        return len(self._taken)

    def take(self, session_id: str) -> bool:
        """Whether ``session_id`` has a seat now, or had one already."""
        if session_id not in self._taken and len(self._taken) >= self.limit:
            return False
        self._taken.add(session_id)
        return True

    def leave(self, session_id: str) -> None:
        self._taken.discard(session_id)
        self._freed.set()

    async def wait(self, session_id: str) -> None:
        while not self.take(session_id):
            self._freed.clear()
            await self._freed.wait()
