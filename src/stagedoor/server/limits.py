"""How much at once: the size of a body and the time it may take, connections, and the time a request's head may take.

What is too much is refused with a sentence; nobody's slowness or greed costs the others anything.
"""

from __future__ import annotations

import asyncio

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .connections import HttpConnection
from .problems import Refused, problem_response

HEAD_SECONDS = 10.0
"""From the first byte of a request (or from the connection) to the end of its header."""
BODY_SECONDS = 60.0
"""From the end of the header to the end of the body."""
HEAD_BYTES = 32 * 1024
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\ncontent-type: text/plain\r\n\r\n"
    b"too many connections are open; try again shortly\n"
)


_HANG_UP = {"connection": "close"}


class Sizes:
    """A head of at most ``HEAD_BYTES``; a body of ``most`` bytes, with or without a length, within ``seconds``."""

    def __init__(self, app: ASGIApp, most: int, seconds: float = BODY_SECONDS) -> None:
        self._app = app
        self._most = most
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and _head_size(scope) > HEAD_BYTES:
            fault = Refused("header-too-large", f"a header may have {HEAD_BYTES:,} bytes; this one has more")
            await problem_response(fault, instance=scope["path"][:200])(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if {name for name, _ in scope["headers"]} >= {b"content-length", b"transfer-encoding"}:
            # A proxy before us may go by the one where we go by the other, and so hide a request in a body.
            fault = Refused("bad-request", "a body has a length or comes in chunks, not both", headers=_HANG_UP)
            await problem_response(fault, instance=scope["path"])(scope, receive, send)
            return
        said = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not said.isdigit() or int(said[:20]) > self._most:
            await problem_response(self._too_large(), instance=scope["path"])(scope, receive, send)
            return
        await self._app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        got = 0
        whole = False
        until = asyncio.get_running_loop().time() + self._seconds

        async def counted() -> Message:
            nonlocal got, whole
            if whole:  # the next thing heard is that the client leaves
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise Refused("request-timeout", "the body took too long to come; send it again, faster") from None
            got += len(message.get("body", b""))
            if got > self._most:
                raise self._too_large()
            whole = not message.get("more_body", False)
            return message

        return counted

    def _too_large(self) -> Refused:
        return Refused("too-large", f"a request may have {self._most:,} bytes; this one has more")


def _head_size(scope: Scope) -> int:
    """uvicorn bounds a head only while it is incomplete."""
    return len(scope["path"]) + len(scope["query_string"]) + sum(len(n) + len(v) for n, v in scope["headers"])


class LimitedConnection(HttpConnection):
    """A connection that must say what it wants in time, and is turned away when there are too many."""

    most = 1000
    head_seconds = HEAD_SECONDS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.write(FULL)
            transport.close()
        else:
            self._expect()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if not self.transport.is_closing() and (self.conn.their_state is h11.IDLE or self._answered()):
            self._expect()
        else:
            self._met()

    def _answered(self) -> bool:
        """The answer is out and the client still sends: hanging up at once could take the answer from it."""
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def connection_lost(self, exc: Exception | None) -> None:
        self._met()
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.head_seconds, self.transport.abort)

    def _met(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def connection(most: int, head_seconds: float = HEAD_SECONDS) -> type[LimitedConnection]:
    """The class uvicorn is to make connections of."""
    return type("Connection", (LimitedConnection,), {"most": most, "head_seconds": head_seconds})
