"""Sessions that open on other machines, for those who follow everything: the log is looked at whenever it rings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from msgspec.structs import replace

from stagedoor.errors import StoreError
from stagedoor.transports.tasks import TaskOwner

from ..journal import SESSIONS, Journal
from ..store import Query
from ..views import SessionView

OPEN = 1000
NEWEST = 200
"""Sessions that may open and end between two looks."""
PAUSE = 0.2
"""Seconds between two looks, at least."""
REMEMBERED = 20_000


class OpeningsElsewhere:
    """``me``: the worker of this process; its own sessions are told by itself."""

    def __init__(self, journal: Journal, me: Callable[[], str]) -> None:
        self._journal = journal
        self._me = me
        self._tasks = TaskOwner()

    def watch(self, watcher: Callable[[SessionView], None]) -> Callable[[], None]:
        """Call ``watcher`` with every session of others that is open, and with each that opens from now on, with all
        that happens in it; until what is returned is called."""
        key = object()
        self._tasks.start(self._follow(watcher), key=key)
        return lambda: self._tasks.cancel(key)

    async def close(self) -> None:
        await self._tasks.close()

    async def _follow(self, watcher: Callable[[SessionView], None]) -> None:
        bell = self._journal.hub.bell(SESSIONS)
        ends: dict[str, int | None] | None = None
        try:
            while True:
                with contextlib.suppress(StoreError):  # away: looked at when it is back
                    ends = await self._look(ends, watcher)
                await asyncio.sleep(PAUSE)
                await bell.rung()
        finally:
            bell.close()

    async def _look(
        self, ends: dict[str, int | None] | None, watcher: Callable[[SessionView], None]
    ) -> dict[str, int | None]:
        """``ends``: by session, where it had ended; ``None`` while it is open. Returns how it is now."""
        opened = await self._journal.store.sessions(Query(ended=False, limit=OPEN))
        newest = await self._journal.store.sessions(Query(limit=NEWEST))
        views = {view.id: view for view in (*newest, *opened)}
        now = {name: after for name, after in (ends or {}).items() if name not in views}
        for view in views.values():
            now[view.id] = view.last_seq if view.ended else None
            if view.worker == self._me():
                continue
            if ends is None:
                if not view.ended:
                    watcher(view)
            elif view.id not in ends:
                if not (view.ended and view.imported):  # what was taken in happened long ago
                    watcher(replace(view, last_seq=0))  # it has opened since: everything in it is new
            elif not view.ended and (after := ends[view.id]) is not None:
                watcher(replace(view, last_seq=after))  # it is open again: what comes after its end is new
        return dict(list(now.items())[-REMEMBERED:])
