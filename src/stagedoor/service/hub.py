"""The doorbell: it says that there may be something new, and nothing else. What is new stands in the log."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Hub(Protocol):
    def ring(self, topic: str) -> None:
        """Wake everyone who listens to ``topic``."""

    def bell(self, topic: str) -> Bell:
        """Listen to ``topic`` from now on."""
        ...


class Bell(Protocol):
    async def rung(self) -> None:
        """Wait until the topic was rung since the last time this returned."""

    def close(self) -> None: ...


class LocalHub:
    """Within one process."""

    def __init__(self) -> None:
        self._bells: dict[str, set[LocalBell]] = {}

    def ring(self, topic: str) -> None:
        for bell in self._bells.get(topic, ()):
            bell.event.set()

    def bell(self, topic: str) -> LocalBell:
        bell = LocalBell(self, topic)
        self._bells.setdefault(topic, set()).add(bell)
        return bell

    def _leave(self, bell: LocalBell) -> None:
        bells = self._bells.get(bell.topic)
        if bells is not None:
            bells.discard(bell)
            if not bells:
                del self._bells[bell.topic]


class LocalBell:
    def __init__(self, hub: LocalHub, topic: str) -> None:
        self.topic = topic
        self.event = asyncio.Event()
        self._hub = hub

    async def rung(self) -> None:
        await self.event.wait()
        self.event.clear()

    def close(self) -> None:
        self._hub._leave(self)
