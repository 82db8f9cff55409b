"""A signal object for callers who stop a run from somewhere else, another thread included."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from .transports.tasks import TaskOwner


class Closes(Protocol):
    """A session, here or on a server."""

    async def close(self) -> None: ...


class CancelToken:
    """Given to any number of runs, ``cancel()`` ends them all. It stays cancelled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._watchers: list[Callable[[], None]] = []

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """May be called from any thread, and more than once."""
        with self._lock:
            watchers, self._watchers = self._watchers, []
            self._cancelled = True
        for watcher in watchers:
            watcher()

    async def wait(self) -> None:
        """Returns when the token is cancelled."""
        loop = asyncio.get_running_loop()
        cancelled = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(cancelled.set)

        with self._lock:
            if self._cancelled:
                return
            self._watchers.append(wake)
        try:
            await cancelled.wait()
        finally:
            with self._lock:
                if wake in self._watchers:
                    self._watchers.remove(wake)


@asynccontextmanager
async def ends_with(session: Closes, token: CancelToken | None) -> AsyncGenerator[asyncio.Event]:
    """While inside, ``token`` ends ``session``, but not before the event given back is set: it must have begun."""
    started = asyncio.Event()
    if token is None:
        yield started
        return

    async def obey() -> None:
        await token.wait()
        await started.wait()
        await session.close()

    tasks = TaskOwner()
    tasks.start(obey())
    try:
        yield started
    finally:
        await tasks.close()
