"""Writes that nobody waits for one by one: the next is handed over while the last is being committed.

The log keeps their order and refuses a number that does not follow, so one that fails takes those behind it along.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stagedoor.errors import StoreBroken, StoreError

from .journal import Journal
from .store import Append

MOST = 4
"""On their way at once; with so many, whoever hands over waits."""


class Ahead:
    """``failed`` is told of the first one that was not kept; from then on everybody is refused."""

    def __init__(self, journal: Journal, failed: Callable[[StoreError], None]) -> None:
        self._journal = journal
        self._failed = failed
        self._under_way = 0
        self._one_over = asyncio.Event()
        self._fault: StoreError | None = None

    async def write(self, append: Append) -> None:
        """Hand over; returns when there is room for another."""
        self._check()
        self._under_way += 1
        self._journal.hand_over((append,), self._over)
        await self._fewer_than(MOST)
        self._check()

    async def stored(self) -> None:
        """Wait until everything handed over is kept. Raises when something was not."""
        await self.quiet()
        self._check()

    async def quiet(self) -> None:
        """Wait until nothing is on its way, however that ended."""
        await self._fewer_than(1)

    async def _fewer_than(self, most: int) -> None:
        while self._under_way >= most:
            self._one_over.clear()
            await self._one_over.wait()

    def _over(self, fault: BaseException | None) -> None:
        self._under_way -= 1
        self._one_over.set()
        if fault is not None and self._fault is None:
            self._fault = fault if isinstance(fault, StoreError) else StoreBroken(f"not written: {fault!r}")
            self._failed(self._fault)

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault
