"""What uvicorn's connections do not offer by themselves, and streams need.

- A door can cut a connection off (``abort``) whose client no longer reads. Closing would wait for it for ever.
- A door hears that the server is leaving, so that an endless answer ends in order.
- Many WebSocket messages, framed once for all clients, go out in one write: ``{"type": "websocket.send", "frames":
  bytes}``, where ``scope["extensions"]`` has ``stagedoor.frames``. Its ``write`` does the same without a wait, while
  the client keeps up; it is what makes a broadcast cheap.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

FRAMES = "stagedoor.frames"
CLOSING = 30.0
"""Seconds a client has to take what was sent before the goodbye."""


class Line:
    """The connection under a request, as far as a door may touch it."""

    def __init__(self, abort: Callable[[], None] = lambda: None) -> None:
        self.abort = abort
        self.leaving = asyncio.Event()
        """Set when the server stops."""


def line_of(scope: Any) -> Line:
    """The line of a request; one that does nothing under another server than ours."""
    line = scope.get("state", {}).get("line")
    return line if isinstance(line, Line) else Line()


def text_frame(payload: bytes) -> bytes:
    """One whole, unmasked WebSocket text message."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 65536:
        return struct.pack("!BBH", 0x81, 126, size) + payload
    return struct.pack("!BBQ", 0x81, 127, size) + payload


class HttpConnection(H11Protocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.line = Line(transport.abort)
        self.app_state = {**self.app_state, "line": self.line}
        super().connection_made(transport)

    def shutdown(self) -> None:
        self.line.leaving.set()
        super().shutdown()


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
                self.loop.call_later(CLOSING, self.transport.abort)
            return
        while not self.write(frames):
            await self.writable.wait()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # nobody is there to take what is still in the buffer
