"""Connections: what uvicorn's do not offer by themselves, and streams need; and how many, how slow they may be.

- A door can cut a connection off (``abort``) whose client no longer reads. Closing would wait for it for ever.
- A door sees that the server is stopping, so that an endless answer ends in order.
- Many WebSocket messages, framed once for all clients, go out in one write: ``{"type": "websocket.send", "frames":
  bytes}``, where ``scope["extensions"]`` has ``stagedoor.frames``. Its ``write`` does the same without a wait, while
  the client keeps up; it is what makes a broadcast cheap.
- A connection that sends no complete header in time is closed, and so is one that sends on after its answer.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from .arrivals import Guest

FRAMES = "stagedoor.frames"
CLOSE_SECONDS = 30.0
"""How long a client has to take what was sent before the close frame."""
HEAD_SECONDS = 10.0
"""From the first byte of a request (or from the connection) to the end of its header."""


class ClientConnection:
    """The connection under a request, as far as a door may touch it."""

    def __init__(self, abort: Callable[[], None] = lambda: None, admit: Callable[[], None] = lambda: None) -> None:
        self.abort = abort
        self.admit = admit
        """To be called when a request has shown a token."""
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
    """One that must send its header in time. Who comes is a ``Guest`` in the state of the app."""

    head_seconds = HEAD_SECONDS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        guest = cast("Guest", self.app_state["guest"])
        self.client_connection = ClientConnection(transport.abort, guest.admit)
        self.app_state = {**self.app_state, "connection": self.client_connection}
        super().connection_made(transport)
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

    def on_response_complete(self) -> None:
        guest = cast("Guest", self.app_state["guest"])
        guest.renew()
        super().on_response_complete()
        if not self.transport.is_closing() and self._answered_early():
            self._start_deadline()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self.loop.call_later(CLOSE_SECONDS, self.transport.abort)  # it may never read what is still in the buffer

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        guest = cast("Guest", self.app_state["guest"])
        guest.leave()
        super().connection_lost(exc)

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.head_seconds, self.transport.abort)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class WebSocketConnection(WebSocketsSansIOProtocol):
    def connection_lost(self, exc: Exception | None) -> None:
        guest = cast("Guest", self.app_state["guest"])
        guest.leave()
        super().connection_lost(exc)

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
