"""How long to try again, and how often."""

from __future__ import annotations

import asyncio
import random

from ..errors import ConnectionLost

FIRST = 0.05
LONGEST = 5.0


class Patience:
    """Waits longer each time, up to a bound, never all clients at once; gives up after ``bound`` seconds of failure."""

    def __init__(self, bound: float) -> None:
        self._bound = bound
        self._delay = FIRST
        self._since: float | None = None
        self._waited_at = 0.0

    def answered(self) -> None:
        """Somebody is there."""
        self._since = None

    def progressed(self) -> None:
        """It works."""
        self._since = None
        self._delay = FIRST

    async def wait(self, why: str) -> None:
        """Wait before the next try. Raises ``ConnectionLost`` when there have been enough."""
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        elif now - self._since >= self._bound:
            raise ConnectionLost(f"gave up after {self._bound:g} seconds: {why}")
        if now - self._waited_at > 2 * LONGEST:
            self._delay = FIRST
        await asyncio.sleep(self._delay * random.uniform(0.5, 1.0))
        self._delay = min(self._delay * 2, LONGEST)
        self._waited_at = now
