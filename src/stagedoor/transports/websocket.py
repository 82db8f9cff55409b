"""A WebSocket in the shape of a child process, so that one JSON-RPC protocol travels over both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from ..errors import AgentRefused, ConnectionLost, MessageTooLarge
from ..wire.jsonl import MAX_LINE
from ..wire.shapes import UnknownMessage

if TYPE_CHECKING:
    from ssl import SSLContext

    from websockets.asyncio.client import ClientConnection
    from websockets.exceptions import ConnectionClosed

NORMAL_CLOSURES = frozenset({1000, 1001})
TOO_BIG = 1009


class WebSocket:
    """Made by :meth:`connect`. Every frame is one message; we send text frames."""

    def __init__(self, connection: ClientConnection, url: str, max_message: int) -> None:
        self._connection = connection
        self._url = url
        self._max_message = max_message

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        max_message: int = MAX_LINE,
        open_within: float = 30.0,
        use_proxies: bool = False,
        tls: SSLContext | None = None,
    ) -> WebSocket:
        try:
            from websockets.asyncio.client import connect
            from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI
        except ImportError as error:
            raise ConnectionLost("websockets is not installed; run: pip install websockets") from error
        try:
            connection = await connect(
                url,
                additional_headers=dict(headers or {}),
                max_size=max_message,
                open_timeout=open_within,
                proxy=True if use_proxies else None,
                ssl=tls,
            )
        except InvalidStatus as error:
            code = error.response.status_code
            raise AgentRefused(f"{url} refused the connection with status {code}", code=code) from error
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI) as error:
            raise ConnectionLost(f"could not connect to {url}: {str(error) or type(error).__name__}") from error
        return cls(connection, url, max_message)

    async def batches(self) -> AsyncIterator[list[bytes | UnknownMessage]]:
        """Messages until the peer closes in order. Raises ``ConnectionLost`` or ``MessageTooLarge`` otherwise."""
        from websockets.exceptions import ConnectionClosed

        while True:
            try:
                message = await self._connection.recv()
            except ConnectionClosed as closed:
                self._raise_unless_orderly(closed)
                return
            yield [message.encode() if isinstance(message, str) else message]

    async def send(self, message: bytes) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await self._connection.send(message.decode("utf-8", "replace"))
        except ConnectionClosed as closed:
            raise ConnectionLost(f"{self._url} is closed: {closed}") from closed

    async def end_input(self) -> None:
        """A WebSocket has no half-closed state: this is ``close``."""
        await self.close()

    async def close(self) -> None:
        await self._connection.close()

    async def __aenter__(self) -> WebSocket:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _raise_unless_orderly(self, closed: ConnectionClosed) -> None:
        received = closed.rcvd.code if closed.rcvd else None
        sent = closed.sent.code if closed.sent else None
        if TOO_BIG in (received, sent):
            whose = "a message from" if sent == TOO_BIG else "a message of ours to"
            raise MessageTooLarge(
                f"{whose} {self._url} was larger than the limit ({self._max_message} bytes here)"
            ) from closed
        if received not in NORMAL_CLOSURES and sent not in NORMAL_CLOSURES:
            raise ConnectionLost(f"{self._url} broke off: {closed}") from closed
