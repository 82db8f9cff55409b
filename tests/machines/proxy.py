"""A wire between two programs that can be cut: a partition as the one end and the other would see it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

PIECE = 65_536


class Wire:
    """Forwards TCP to ``there``: a host and port, or a socket in the file system.

    While it is ``silent`` nothing passes in either direction, and nobody is told.
    """

    def __init__(self, there: tuple[str, int] | Path) -> None:
        self._there = there
        self._passing = asyncio.Event()
        self._passing.set()
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def silence(self) -> None:
        self._passing.clear()

    def restore(self) -> None:
        """Also for what waited meanwhile: it arrives late, as it does after a real partition."""
        self._passing.set()

    def cut(self) -> None:
        """Break every connection; new ones are taken."""
        for writer in tuple(self._open):
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator[Wire]:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        try:
            yield self
        finally:
            self._passing.set()
            self._server.close()
            self.cut()
            await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            await self._passing.wait()
            answers, there = await self._connect()
            self._open.add(there)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, there))
                group.create_task(self._forward(answers, writer))
        except (OSError, ExceptionGroup):
            pass  # one end is gone: so is the other
        finally:
            for end in (writer, there):
                if end is not None:
                    self._open.discard(end)
                    end.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._there, Path):
            return await asyncio.open_unix_connection(self._there)
        return await asyncio.open_connection(*self._there)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(PIECE):
            await self._passing.wait()
            writer.write(piece)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()
