"""One stream, many readers, with back-pressure: the slowest reader slows the source, and nobody loses anything."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")

LIMIT = 4096
TRIM = 512


class _Cursor:
    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at


class Relay(Generic[Item]):
    """Holds what has been published until every reader has taken it.

    The first reader gets everything from the start. Another one that joins gets what is still held. When the last
    reader leaves, the next one goes on where it stopped. More than ``limit`` untaken items make ``publish`` wait.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._items: list[Item] = []
        self._first = 0  # the number of the first item held
        self._cursors: set[_Cursor] = set()
        self._resume_at = 0  # where a reader starts when there is no other
        self._waiting: list[asyncio.Future[None]] = []
        self._room: asyncio.Future[None] | None = None
        self._closed = False

    async def publish(self, items: Iterable[Item]) -> None:
        """Hand ``items`` to the readers; waits while the slowest is more than ``limit`` behind."""
        self.add(items)
        while self._end - self._floor > self._limit and not self._closed:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def add(self, items: Iterable[Item]) -> None:
        """Hand ``items`` to the readers without waiting: for the few that no source can be slowed down for."""
        self._items.extend(items)
        self._wake()

    def release(self) -> None:
        """Wait for no reader any more: the source is about to end, and its last words are few."""
        self._limit = sys.maxsize
        self._make_room()

    def close(self) -> None:
        """Nothing more will come: readers end after what is held."""
        self._closed = True
        self._wake()
        self._make_room()

    @property
    def closed(self) -> bool:
        return self._closed

    def reader(self) -> Reader[Item]:
        cursor = _Cursor(self._floor)
        self._cursors.add(cursor)
        return Reader(self, cursor)

    @property
    def _end(self) -> int:
        return self._first + len(self._items)

    @property
    def _floor(self) -> int:
        return min((cursor.at for cursor in self._cursors), default=self._resume_at)

    def _trim(self) -> None:
        done = self._floor - self._first
        if done >= TRIM or (done and done == len(self._items)):
            del self._items[:done]
            self._first += done
        self._make_room()

    def _make_room(self) -> None:
        if (
            self._room is not None
            and not self._room.done()
            and (self._closed or self._end - self._floor <= self._limit)
        ):
            self._room.set_result(None)

    def _leave(self, cursor: _Cursor) -> None:
        self._cursors.discard(cursor)
        if not self._cursors:
            self._resume_at = cursor.at
        self._trim()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _news(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future


class Reader(Generic[Item]):
    """An async iterator. Leaving it (``close``, or letting it be collected) frees what it had not taken."""

    def __init__(self, relay: Relay[Item], cursor: _Cursor) -> None:
        self._relay = relay
        self._cursor = cursor
        self._leave = weakref.finalize(self, Relay[Item]._leave, relay, cursor)
        self._leave.atexit = False

    def __aiter__(self) -> Reader[Item]:
        return self

    async def __anext__(self) -> Item:
        # The hot path of every stream: one item costs one index, no call.
        relay, cursor = self._relay, self._cursor
        while True:
            items, at = relay._items, cursor.at - relay._first
            if at < len(items):
                item = items[at]
                cursor.at += 1
                if at >= TRIM or at + 1 == len(items):
                    relay._trim()
                return item
            if relay._closed or not self._leave.alive:
                raise StopAsyncIteration
            await relay._news()

    async def news(self) -> bool:
        """Wait until there is something to take; false at the end."""
        relay, cursor = self._relay, self._cursor
        while cursor.at == relay._end:
            if relay._closed or not self._leave.alive:
                return False
            await relay._news()
        return True

    def ready(self) -> Iterator[Item]:
        """What there is now, one by one. Whoever stops in the middle has taken what came so far, and no more."""
        relay, cursor = self._relay, self._cursor
        at, items = cursor.at - relay._first, relay._items
        ready = items[at:]
        try:
            for item in ready:
                cursor.at += 1
                yield item
        finally:
            relay._trim()

    async def batch(self) -> list[Item]:
        """Everything there is now, at least one item; empty at the end."""
        relay, cursor = self._relay, self._cursor
        while cursor.at == relay._end:
            if relay._closed or not self._leave.alive:
                return []
            await relay._news()
        items = relay._items[cursor.at - relay._first :]
        cursor.at = relay._end
        relay._trim()
        return items

    def close(self) -> None:
        self._leave()
        self._relay._wake()
