"""The real server of ``tests/server``, and a proxy in front of it that behaves as badly as a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import random
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

_spec = importlib.util.spec_from_file_location(
    "stagedoor_serving", Path(__file__).parents[1] / "server" / "conftest.py"
)
assert _spec is not None
assert _spec.loader is not None
_serving = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_serving)
settings, serve, server, _script = _serving.settings, _serving.serve, _serving.server, _serving._script


class Proxy:
    """Passes bytes on. ``cut_within``: cuts each connection before so many bytes have passed, while ``cuts_left``.

    ``refuses``: a pattern of requests that are answered with 403 and a page; ``hangs_up_on``: with a closed connection;
    ``swallows``: whose answers are kept back.
    """

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._chance = random.Random(20261115)
        self.cut_within = 0
        self.cuts_left = 0
        self.cuts = 0
        self.refuses = ""
        self.hangs_up_on = ""
        self.swallows = ""
        self.requests: list[str] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        except OSError:
            writer.transport.abort()
            return
        request = [""]
        bytes_left = [self._chance.randint(1, self.cut_within) if self.cut_within else 0]

        async def passing(source: asyncio.StreamReader, target: asyncio.StreamWriter, *, asks: bool) -> None:
            while chunk := await source.read(65536):
                if asks:
                    request[0] = chunk.partition(b"\r\n")[0].decode("latin-1")
                    if not self._lets_in(request[0], writer):
                        return
                elif self.swallows and re.search(self.swallows, request[0]):
                    continue
                if bytes_left[0] and self.cuts_left:
                    chunk, bytes_left[0] = chunk[: bytes_left[0]], bytes_left[0] - len(chunk)
                    target.write(chunk)
                    await target.drain()
                    if bytes_left[0] <= 0:
                        self.cuts += 1
                        self.cuts_left -= 1
                        return
                else:
                    target.write(chunk)
                    await target.drain()

        ways = [
            asyncio.create_task(passing(reader, up_writer, asks=True)),
            asyncio.create_task(passing(up_reader, writer, asks=False)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (writer, up_writer):
                with contextlib.suppress(OSError):
                    await asyncio.wait_for(end.drain(), 1)
                end.transport.abort() if self.cut_within else end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    def _lets_in(self, request: str, writer: asyncio.StreamWriter) -> bool:
        if request.endswith("HTTP/1.1"):
            self.requests.append(request)
        if self.refuses and re.search(self.refuses, request):
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nno")
            return False
        return not (self.hangs_up_on and re.search(self.hangs_up_on, request))


@pytest.fixture
def proxied() -> Callable[[Any], contextlib.AbstractAsyncContextManager[Proxy]]:
    """``async with proxied(server) as proxy``."""

    @contextlib.asynccontextmanager
    async def start(server: Any) -> AsyncIterator[Proxy]:
        proxy = Proxy(server.port)
        serving: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(proxy.serve(reader, writer))
            serving.add(task)
            task.add_done_callback(serving.discard)

        listener = await asyncio.start_server(accept, "127.0.0.1", 0)
        proxy.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        try:
            yield proxy
        finally:
            listener.close()
            for task in list(serving):
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
            await listener.wait_closed()

    return start
