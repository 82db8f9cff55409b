"""Connections: what uvicorn's do not offer by themselves, and streams need; and how many, how slow they may be.

- A door can cut a connection off (``abort``) whose client no longer reads. Closing would wait for it for ever.
- A door sees that the server is stopping, so that an endless answer ends in order.
- Many WebSocket messages, framed once for all clients, go out in one write: ``{"type": "websocket.send", "frames":
  bytes}``, where ``scope["extensions"]`` has ``stagedoor.frames``. Its ``write`` does the same without a wait, while
  the client keeps up; it is what makes a broadcast cheap.
- A connection that sends no complete header in time is closed, and one beyond the limit is refused.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

FRAMES = "stagedoor.frames"
CLOSE_SECONDS = 30.0
"""How long a client has to take what was sent before the close frame."""
HEAD_SECONDS = 10.0
"""From the first byte of a request (or from the connection) to the end of its header."""
TOO_MANY_CONNECTIONS = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\ncontent-type: text/plain\r\n\r\n"
    b"too many connections are open; try again shortly\n"
)


class ClientConnection:
    """The connection under a request, as far as a door may touch it."""

    def __init__(self, abort: Callable[[], None] = lambda: None) -> None:
        self.abort = abort
        self.stopping = asyncio.Event()
        """Set when the server stops."""


def connection_of(scope: Any) -> ClientConnection:
    """The connection of a request; one that does nothing under another server than ours."""
    connection = scope.get("state", {}).get("connection")
    return connection if isinstance(connection, ClientConnection) else ClientConnection()


def text_frame(payload: bytes) -> bytes:
    """One whole, unmasked WebSocket text message."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 65536:
        return struct.pack("!BBH", 0x81, 126, size) + payload
    return struct.pack("!BBQ", 0x81, 127, size) + payload


class HttpConnection(H11Protocol):
    """One that must send its header in time, and is refused when too many are open."""

    max_connections = 1000
    head_seconds = HEAD_SECONDS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.client_connection = ClientConnection(transport.abort)
        self.app_state = {**self.app_state, "connection": self.client_connection}
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.write(TOO_MANY_CONNECTIONS)
            transport.close()
        else:
            self._start_deadline()

    def shutdown(self) -> None:
        self.client_connection.stopping.set()
        super().shutdown()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if not self.transport.is_closing() and (self.conn.their_state is h11.IDLE or self._answered_early()):
            self._start_deadline()
        else:
            self._clear_deadline()

    def _answered_early(self) -> bool:
        """The answer is out and the client still sends: hanging up at once could take the answer from it."""
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        super().connection_lost(exc)

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.head_seconds, self.transport.abort)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def http_connection(max_connections: int, head_seconds: float = HEAD_SECONDS) -> type[HttpConnection]:
    """The class of the connections uvicorn is to make."""
    limits = {"max_connections": max_connections, "head_seconds": head_seconds}
    return type("LimitedHttpConnection", (HttpConnection,), limits)


class WebSocketConnection(WebSocketsSansIOProtocol):
    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent and not self.conn.extensions:  # an extension would have to see every message
            scope: Any = self.scope
            scope["extensions"][FRAMES] = {"write": self.write}

    def write(self, frames: bytes) -> bool:
        """Hand whole frames to a client that keeps up; False, and nothing done, when it does not."""
        if not self.writable.is_set():
            return False
        if self.disconnected or self.close_sent or self.transport.is_closing():
            raise ClientDisconnected
        self.transport.write(frames)
        return True

    async def send(self, message: Any) -> None:
        frames = message.get("frames")
        if frames is None:
            await super().send(message)
            if message["type"] == "websocket.close":
                self.loop.call_later(CLOSE_SECONDS, self.transport.abort)
            return
        while not self.write(frames):
            await self.writable.wait()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # nobody is there to take what is still in the buffer
