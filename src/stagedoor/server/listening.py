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
from .arrivals import Arrivals, Guest, Room, descriptor_limit, room_for
from .connections import HttpConnection, WebSocketConnection
from .logs import FLOOD

STREAM_SECONDS = 1.0
"""Seconds that streams have to end by themselves when the server stops."""
REQUEST_SECONDS = 5
"""Seconds that requests have to finish then."""
KEEP_ALIVE_SECONDS = 30
"""For a connection that rests. Clients let go of theirs first (httpx after 5 seconds, aiohttp after 15): where both do
it at the same moment, a request is lost that nobody may repeat."""


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
    def __init__(self, config: uvicorn.Config, devices: Devices | None, room: Room) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._room = room
        self._arrivals: list[Arrivals] = []
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
            for arrivals in self._arrivals:
                arrivals.report()
            FLOOD.report()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._stopping.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are handled by the command."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Connections are accepted by us: asyncio takes everybody, and cannot be without descriptors quietly."""
        await super().startup([])
        self._arrivals = [
            Arrivals(opened, self._connect, room=self._room, tls=self.config.ssl) for opened in sockets or ()
        ]
        self.ready.set()

    def _connect(self, guest: Guest) -> asyncio.Protocol:
        state = {**self.lifespan.state, "guest": guest}
        return HttpConnection(config=self.config, server_state=self.server_state, app_state=state)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._devices is not None:
            self._devices.stopping = True
            asyncio.get_running_loop().call_later(STREAM_SECONDS, self._devices.stop)
        for arrivals in self._arrivals:
            arrivals.close()
        await super().shutdown(sockets)
        for arrivals in self._arrivals:
            await arrivals.wait_closed()


@contextlib.asynccontextmanager
async def listening(app: Starlette, settings: Settings, opened: socket.socket) -> AsyncGenerator[ListeningServer]:
    """Serve ``app`` while the body runs; open requests are finished at the end."""
    config = uvicorn.Config(
        app,
        http=HttpConnection,
        h11_max_incomplete_event_size=HEAD_BYTES,
        ws=WebSocketConnection,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
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
    room = room_for(settings.limits.connections, descriptor_limit())
    server = ListeningServer(config, getattr(app.state, "devices", None), room)
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
