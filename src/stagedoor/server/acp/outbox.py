"""What goes to a client, in order. Nobody waits to put something in; whoever has much to say waits for room."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from ..streams.following import STALL_SECONDS

FULL = 256 * 1024
"""Bytes that may wait before those with much to say do."""
MOST = 64 * 1024 * 1024
"""Bytes after which a client that does not read is given up."""


class Outbox:
    """``closed`` is set when the client reads no more."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], stall_after: float = STALL_SECONDS) -> None:
        self.closed = asyncio.Event()
        self._send = send
        self._stall_after = stall_after
        self._messages: deque[bytes] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, message: bytes) -> None:
        if self.closed.is_set():
            return
        self._messages.append(message)
        self._empty.clear()
        self._size += len(message)
        self._news.set()
        if self._size >= FULL:
            self._room.clear()
        if self._size >= MOST:
            self._close()

    async def room(self) -> None:
        """Return when the client has read most of what it was sent."""
        await self._room.wait()

    async def run(self) -> None:
        """Send until the client reads no more."""
        while not self.closed.is_set():
            await self._news.wait()
            self._news.clear()
            while self._messages and not self.closed.is_set():
                await self._deliver(self._messages[0])

    async def _deliver(self, message: bytes) -> None:
        try:
            async with asyncio.timeout(self._stall_after):
                await self._send(message)
        except Exception:  # whatever it is: nobody is reading
            self._close()
            return
        if self.closed.is_set():
            return
        self._messages.popleft()
        self._size -= len(message)
        if self._size < FULL:
            self._room.set()
        if not self._messages:
            self._empty.set()

    async def flushed(self) -> None:
        """Return when all is sent, or nobody reads any more."""
        await self._empty.wait()

    def _close(self) -> None:
        self.closed.set()
        self._messages.clear()
        self._empty.set()
        self._news.set()
        self._room.set()
