"""What is done every hour: what has been kept long enough is removed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from stagedoor.errors import StoreError

from .journal import DAY, Journal
from .store import Sweep

EVERY = 3600.0


class Upkeep:
    """``keep_days``: how long ended sessions keep their records. An idempotency key counts for a day."""

    def __init__(self, journal: Journal, keep_days: float | None, now: Callable[[], int]) -> None:
        self._journal = journal
        self._keep_days = keep_days
        self._now = now
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._go_on(), name="stagedoor upkeep")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def once(self) -> None:
        await self._journal.write(Sweep(self._now() - DAY))
        if self._keep_days is not None:
            await self._journal.retain(self._keep_days, self._now())

    async def _go_on(self) -> None:
        while True:
            with contextlib.suppress(StoreError):  # whoever writes next finds out, and says it
                await self.once()
            await asyncio.sleep(EVERY)
