"""The socket: opened before anything else so that a port in use is reported at once, then served by uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator

import uvicorn
from starlette.applications import Starlette

from stagedoor.service.config.settings import Settings
from stagedoor.transports.tasks import TaskOwner

from .access.devices import Devices
from .access.sizes import HEAD_BYTES
from .connections import WebSocketConnection, http_connection

STREAM_SECONDS = 1.0
"""Seconds that streams have to end by themselves when the server stops."""
REQUEST_SECONDS = 5
"""Seconds that requests have to finish then."""


def open_socket(host: str, port: int) -> socket.socket:
    """Bind; raises ``OSError``."""
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    # asyncio sends at once (TCP_NODELAY) only where it can see that this is TCP; else every answer waits 40 ms.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.setblocking(False)
    except BaseException:
        opened.close()
        raise
    return opened


class ListeningServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, devices: Devices | None) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._devices = devices
        self._stopping = asyncio.Event()
        self.serving: asyncio.Task[None]

    def leave(self) -> None:
        """Stop listening, in order."""
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Once a second for the date in the answers, instead of uvicorn's ten times; and no waiting at the end."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._stopping.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are handled by the command."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._devices is not None:
            self._devices.stopping = True
            asyncio.get_running_loop().call_later(STREAM_SECONDS, self._devices.stop)
        await super().shutdown(sockets)


@contextlib.asynccontextmanager
async def listening(app: Starlette, settings: Settings, opened: socket.socket) -> AsyncGenerator[ListeningServer]:
    """Serve ``app`` while the body runs; open requests are finished at the end."""
    config = uvicorn.Config(
        app,
        http=http_connection(settings.limits.connections),
        h11_max_incomplete_event_size=HEAD_BYTES,
        ws=WebSocketConnection,
        ws_ping_interval=20.0,
        ws_ping_timeout=60.0,  # the ping may be queued behind much that a slow client has yet to read
        ws_max_size=settings.limits.body,
        ws_per_message_deflate=False,
        lifespan="off",  # ours to enter: uvicorn would end the process when it fails
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=REQUEST_SECONDS,
        ssl_certfile=settings.tls_cert or None,
        ssl_keyfile=settings.tls_key or None,
    )
    server = ListeningServer(config, getattr(app.state, "devices", None))
    async with app.router.lifespan_context(app):
        tasks = TaskOwner()
        serving = server.serving = tasks.start(server.serve([opened]))
        starting = tasks.start(server.ready.wait())
        try:
            await asyncio.wait([serving, starting], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            yield server
        finally:
            starting.cancel()
            server.leave()
            await serving
