"""Rings that were lost with the process that was to ring: it wrote, and was killed before it told anybody.

A process that lives keeps what it has to ring until it is passed on. So rings are lost only when one ends without a
word, and that shows in its row: its lease is over, or it has come again as another incarnation. Then everybody here
looks at the log again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from stagedoor.errors import StoreError
from stagedoor.transports.tasks import TaskOwner

from ..journal import Journal

LOOK_EVERY = 2.0
"""Seconds between two looks at the workers: one short question for the whole process."""
RING_ANYWAY = 60.0
"""Seconds after which everybody looks again, whatever the workers' rows say."""


class LostRings:
    def __init__(self, journal: Journal, now: Callable[[], int]) -> None:
        self._journal = journal
        self._now = now
        self._tasks = TaskOwner()
        self._living: frozenset[tuple[str, str]] = frozenset()
        self._rung = time.monotonic()

    def start(self) -> None:
        self._tasks.start(self._watch(), name="stagedoor lost rings")

    async def stop(self) -> None:
        await self._tasks.close()

    async def look(self) -> None:
        """Ring for everybody here if one has gone since the last look."""
        rows = await self._journal.store.workers()
        living = frozenset((row.id, row.incarnation) for row in rows if row.until > self._now())
        if self._living - living or time.monotonic() - self._rung > RING_ANYWAY:
            self._journal.hub.ring_all()
            self._rung = time.monotonic()
        self._living = living

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(StoreError):  # away: when it is back, everybody is rung for anyway
                await self.look()
            await asyncio.sleep(LOOK_EVERY)
