"""An MCP server in this process for programs that we start: HTTP on the loopback address, with a secret per listener.

Who may call it: whoever knows the secret, which only the agent's own configuration has. A page in a browser on this
machine may not: it does not know the secret, and whatever names another host (a rebound name) or says where it comes
from (``Origin``, which every browser adds to such a request and no agent does) is refused before the body is read.

This is the small part of HTTP/1.1 that such clients use, and it is strict: anything else ends the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from ..transports.tasks import TaskOwner
from .http_exchange import LoopbackConnections, RefusedExchange, RequestHead, chunk, parse_head, read_body, write_reply
from .protocol import http_status, meta_of

HEAD_SECONDS = 60.0
"""How long a connection may stay open with nothing asked."""
BODY_SECONDS = 30.0
STREAM_AFTER = 5.0
"""A reply that takes longer becomes a stream, with a sign of life now and then: clients give up on silence."""
SIGN_OF_LIFE = 10.0

Respond = Callable[[bytes], Coroutine[Any, Any, dict[str, Any] | None]]


class LoopbackListener:
    """A listener for one session. ``respond`` answers a message; it is cancelled when nobody waits any more.

    >>> server = await LoopbackListener.open(respond)
    >>> McpServer(url=server.url, headers=server.headers, transport="http")
    """

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._secret = secrets.token_urlsafe(32)
        self._connections = LoopbackConnections(self._exchange)
        self._calls = TaskOwner()

    @classmethod
    async def open(cls, respond: Respond) -> LoopbackListener:
        server = cls(respond)
        await server._connections.open()
        return server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._connections.port}/mcp"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._secret}"}

    def cancel_calls(self) -> None:
        """End what runs; whoever waits for it is answered that it was cancelled."""
        self._calls.cancel_all()

    def abandon(self) -> None:
        """For finalizers: stop listening, without waiting."""
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._calls.cancel_all()
        self._connections.abandon()

    async def close(self) -> None:
        self._connections.stop_listening()
        await self._calls.close()
        await self._connections.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its reply; whether the connection goes on."""
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = parse_head(await reader.readuntil(b"\r\n\r\n"))
            self._admit(head)
            async with asyncio.timeout(BODY_SECONDS):
                body = await read_body(head, reader, writer)
        except asyncio.LimitOverrunError:
            await write_reply(writer, 431, b"the head of the request is too long", last=True)
            return False
        except RefusedExchange as refused:
            await write_reply(writer, refused.status, str(refused).encode(), last=True)
            return False
        return await self._reply(head, body, reader, writer)

    def _admit(self, head: RequestHead) -> None:
        """Raises unless this is one of our own agents."""
        if "origin" in head.headers:
            raise RefusedExchange(403, "no web page may call this server")
        if head.headers.get("host", "").lower() not in (
            f"127.0.0.1:{self._connections.port}",
            f"localhost:{self._connections.port}",
        ):
            raise RefusedExchange(403, "this server has another name")
        given = head.headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {self._secret}".encode()):
            raise RefusedExchange(401, "the secret is missing or wrong")
        if head.target.partition("?")[0] != "/mcp":
            raise RefusedExchange(404, "the server is at /mcp")
        if head.method != "POST":
            raise RefusedExchange(405, "this server takes POST only")
        if head.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RefusedExchange(415, "send application/json")

    async def _reply(
        self, head: RequestHead, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        message = _decoded(body)
        if cancelled := _cancelled(message):
            self._calls.cancel((head.headers.get("mcp-session-id", ""), *cancelled))
        key = _call_key(head, message)
        answer = self._calls.start(self._respond(body), key=key, name="stagedoor mcp call")
        hangup = self._connections.tasks.start(reader.read(1), name="stagedoor mcp client")
        try:
            await asyncio.wait([answer, hangup], timeout=STREAM_AFTER, return_when=asyncio.FIRST_COMPLETED)
            streaming = False
            if not answer.done() and not hangup.done() and head.streams:
                streaming = True
                await self._keep_alive(answer, hangup, message, writer)
            elif not answer.done() and not hangup.done():
                await asyncio.wait([answer, hangup], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() and hangup.done():  # it has hung up, or talks out of turn
                return False
            reply = _reply_of(answer, message)
        finally:
            # The stream's reader allows one waiting at a time.
            hangup.cancel()
            await asyncio.wait([hangup])
            if not answer.done():
                answer.cancel()
                await asyncio.wait([answer])
        goes_on = hangup.cancelled() and head.headers.get("connection", "").lower() != "close"
        if streaming:
            event = b"" if reply is None else b"event: message\ndata: " + msgspec.json.encode(reply) + b"\n\n"
            writer.write(chunk(event) + b"0\r\n\r\n")
            await writer.drain()
        elif reply is None:
            await write_reply(writer, 202, b"", last=not goes_on)
        else:
            session = {"Mcp-Session-Id": secrets.token_hex(16)} if message.get("method") == "initialize" else {}
            status, body = http_status(message, reply), msgspec.json.encode(reply)
            await write_reply(writer, status, body, last=not goes_on, kind="application/json", more=session)
        return goes_on

    async def _keep_alive(
        self,
        answer: asyncio.Task[Any],
        hangup: asyncio.Task[bytes],
        message: Mapping[str, Any],
        writer: asyncio.StreamWriter,
    ) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        params = message.get("params")
        token = meta_of(params).get("progressToken") if isinstance(params, dict) else None  # pyright: ignore[reportUnknownArgumentType]
        progress = 0
        while True:
            progress += 1
            sign = b": working\n\n"
            if isinstance(token, int | str):
                params = {"progressToken": token, "progress": progress}
                note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
                sign = b"event: message\ndata: " + msgspec.json.encode(note) + b"\n\n"
            writer.write(chunk(sign))
            await writer.drain()
            done, _ = await asyncio.wait([answer, hangup], timeout=SIGN_OF_LIFE, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return


def _reply_of(answer: asyncio.Task[dict[str, Any] | None], message: Mapping[str, Any]) -> dict[str, Any] | None:
    """What to send; a call that was cancelled has failed."""
    if answer.cancelled():
        content = [{"type": "text", "text": "the call was cancelled"}]
        return {"jsonrpc": "2.0", "id": message.get("id"), "result": {"content": content, "isError": True}}
    if (fault := answer.exception()) is not None:
        error = {"code": -32603, "message": f"the server failed: {fault!r}"}
        return {"jsonrpc": "2.0", "id": message.get("id"), "error": error}
    return answer.result()


def _call_key(head: RequestHead, message: Mapping[str, Any]) -> tuple[str, str, Any] | None:
    """What a client cancels a call by; only calls of tools are worth it."""
    number = message.get("id")
    if message.get("method") != "tools/call" or not isinstance(number, int | str):
        return None
    session = head.headers.get("mcp-session-id", "")
    # Without a session two clients may count alike, and the newer call must not end the older one.
    return (session, type(number).__name__, number) if session else None


def _cancelled(message: Mapping[str, Any]) -> tuple[str, Any] | None:
    match message:
        case {"method": "notifications/cancelled", "params": {"requestId": int() | str() as number}}:
            return type(number).__name__, number
        case _:
            return None


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        whole = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return whole if isinstance(whole, dict) else {}  # pyright: ignore[reportUnknownVariableType]
