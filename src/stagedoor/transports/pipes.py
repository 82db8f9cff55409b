"""File descriptors, awaited. Thin on purpose: back-pressure is simply not reading."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
from typing import Literal

PIPE_SIZE = 2**20
CHUNK = 2**18


def output_pair(kind: Literal["pipe", "socketpair"]) -> tuple[int, int]:
    """Our reading end (non-blocking) and the child's writing end."""
    if kind == "socketpair":
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIPE_SIZE)
        read, write = ours.detach(), theirs.detach()
    else:
        read, write = os.pipe()
        _enlarge(read)
    os.set_blocking(read, False)
    return read, write


def input_pair() -> tuple[int, int]:
    """The child's reading end and our writing end (non-blocking)."""
    read, write = os.pipe()
    _enlarge(write)
    os.set_blocking(write, False)
    return read, write


def _enlarge(pipe: int) -> None:
    # Some CLIs exit without draining their pipe; what fits into it is not lost. Unprivileged users have a quota.
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_SIZE)


class ReadEnd:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: asyncio.Future[None] | None = None

    def take(self) -> bytes | None:
        """What is there now: ``None`` if nothing yet, ``b""`` at the end."""
        if self._fd < 0:
            return b""
        try:
            return os.read(self._fd, CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""  # a reset socketpair is an end like any other; what was missing shows in the protocol

    async def ready(self, timeout: float | None) -> bool:
        """Wait until there is something to take; false when ``timeout`` is up."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[None] = loop.create_future()
        self._waiting = arrived
        loop.add_reader(self._fd, _resolve, arrived)
        try:
            async with asyncio.timeout(timeout):
                await arrived
        except TimeoutError:
            return False
        finally:
            self._waiting = None
            if self._fd >= 0:
                loop.remove_reader(self._fd)
        return True

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            if self._waiting is not None and not (loop := self._waiting.get_loop()).is_closed():
                # The number of a closed descriptor is soon another's: the loop must forget it, the reader wake up.
                loop.remove_reader(fd)
                loop.call_soon_threadsafe(_resolve, self._waiting)
            os.close(fd)


class WriteEnd:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._turn = asyncio.Lock()

    @property
    def closed(self) -> bool:
        return self._fd < 0

    async def write(self, content: bytes) -> None:
        """Write all of it. Raises ``BrokenPipeError`` when the reader is gone."""
        async with self._turn:
            view = memoryview(content)
            while view:
                if self._fd < 0:
                    raise BrokenPipeError
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:
                    await self._writable()

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        room: asyncio.Future[None] = loop.create_future()
        loop.add_writer(self._fd, _resolve, room)
        try:
            await room
        finally:
            if self._fd >= 0:
                loop.remove_writer(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(RuntimeError, ValueError):
                # A writer that waits for room must wake up and see that the end is closed.
                asyncio.get_running_loop().remove_writer(fd)
            os.close(fd)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
