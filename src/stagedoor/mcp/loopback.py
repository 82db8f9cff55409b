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
from .protocol import http_status, meta_of

LONGEST_HEAD = 64 * 1024
LONGEST_BODY = 32 * 1024 * 1024
HEAD_SECONDS = 60.0
"""How long a connection may stay open with nothing asked."""
BODY_SECONDS = 30.0
STREAM_AFTER = 5.0
"""A reply that takes longer becomes a stream, with a sign of life now and then: clients give up on silence."""
SIGN_OF_LIFE = 10.0

Respond = Callable[[bytes], Coroutine[Any, Any, dict[str, Any] | None]]
_REASONS = {
    200: "OK", 202: "Accepted", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 411: "Length Required", 413: "Content Too Large", 415: "Unsupported Media Type",
    431: "Request Header Fields Too Large", 500: "Internal Server Error",
}  # fmt: skip


class _Refused(Exception):
    """The request is answered with a status and nothing else, and the connection ends."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class _Head(msgspec.Struct, frozen=True):
    method: str
    target: str
    headers: Mapping[str, str]

    @property
    def streams(self) -> bool:
        return "text/event-stream" in self.headers.get("accept", "")


class LoopbackListener:
    """A listener for one session. ``respond`` answers a message; it is cancelled when nobody waits any more.

    >>> server = await LoopbackListener.open(respond)
    >>> McpServer(url=server.url, headers=server.headers, transport="http")
    """

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._secret = secrets.token_urlsafe(32)
        self._tasks = TaskOwner()
        self._calls = TaskOwner()
        self._listener: asyncio.Server | None = None
        self._port = 0

    @classmethod
    async def open(cls, respond: Respond) -> LoopbackListener:
        server = cls(respond)
        server._listener = await asyncio.start_server(server._connected, "127.0.0.1", 0, limit=LONGEST_HEAD)
        server._port = server._listener.sockets[0].getsockname()[1]
        return server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/mcp"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._secret}"}

    def cancel_calls(self) -> None:
        """End what runs; whoever waits for it is answered that it was cancelled."""
        self._calls.cancel_all()

    def abandon(self) -> None:
        """For finalizers: stop listening, without waiting."""
        if self._listener is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                self._listener.close()
                self._calls.cancel_all()
                self._tasks.cancel_all()

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        await self._calls.close()
        await self._tasks.close()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.start(self._serve(reader, writer), name="stagedoor mcp connection")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its reply; whether the connection goes on."""
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = _head(await reader.readuntil(b"\r\n\r\n"))
            self._admit(head)
            async with asyncio.timeout(BODY_SECONDS):
                body = await _body(head, reader, writer)
        except asyncio.LimitOverrunError:
            await _write(writer, 431, b"the head of the request is too long", last=True)
            return False
        except _Refused as refused:
            await _write(writer, refused.status, str(refused).encode(), last=True)
            return False
        return await self._reply(head, body, reader, writer)

    def _admit(self, head: _Head) -> None:
        """Raises unless this is one of our own agents."""
        if "origin" in head.headers:
            raise _Refused(403, "no web page may call this server")
        if head.headers.get("host", "").lower() not in (f"127.0.0.1:{self._port}", f"localhost:{self._port}"):
            raise _Refused(403, "this server has another name")
        given = head.headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {self._secret}".encode()):
            raise _Refused(401, "the secret is missing or wrong")
        if head.target.partition("?")[0] != "/mcp":
            raise _Refused(404, "the server is at /mcp")
        if head.method != "POST":
            raise _Refused(405, "this server takes POST only")
        if head.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise _Refused(415, "send application/json")

    async def _reply(
        self, head: _Head, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        message = _decoded(body)
        if cancelled := _cancelled(message):
            self._calls.cancel((head.headers.get("mcp-session-id", ""), *cancelled))
        key = _call_key(head, message)
        answer = self._calls.start(self._respond(body), key=key, name="stagedoor mcp call")
        hangup = self._tasks.start(reader.read(1), name="stagedoor mcp client")
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
            writer.write(_chunk(event) + b"0\r\n\r\n")
            await writer.drain()
        elif reply is None:
            await _write(writer, 202, b"", last=not goes_on)
        else:
            session = {"Mcp-Session-Id": secrets.token_hex(16)} if message.get("method") == "initialize" else {}
            status, body = http_status(message, reply), msgspec.json.encode(reply)
            await _write(writer, status, body, last=not goes_on, kind="application/json", more=session)
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
            writer.write(_chunk(sign))
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


def _call_key(head: _Head, message: Mapping[str, Any]) -> tuple[str, str, Any] | None:
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


def _head(text: bytes) -> _Head:
    lines = text[:-4].split(b"\r\n")
    words = lines[0].split(b" ")
    if len(words) != 3 or words[2] != b"HTTP/1.1":
        raise _Refused(400, "speak HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        key = name.decode("latin-1").lower()
        if not colon or not key or key != key.strip() or key in headers:
            raise _Refused(400, "the head of the request is not well formed")
        headers[key] = value.decode("latin-1").strip()
    return _Head(words[0].decode("latin-1"), words[1].decode("latin-1"), headers)


async def _body(head: _Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    length, coding = head.headers.get("content-length"), head.headers.get("transfer-encoding", "").lower()
    if (length is None) == (not coding) or coding not in ("", "chunked"):
        raise _Refused(411, "send either a Content-Length or chunks")
    if length is not None and not (length.isascii() and length.isdigit()):
        raise _Refused(400, "the Content-Length is not a number")
    if length is not None and (len(length) > 12 or int(length) > LONGEST_BODY):
        raise _Refused(413, "the request is too long")
    if head.headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if length is not None:
        return await reader.readexactly(int(length))
    body = b""
    while True:
        size = (await reader.readuntil(b"\r\n")).partition(b";")[0].strip()
        if not size or len(size) > 8 or any(digit not in b"0123456789abcdefABCDEF" for digit in size):
            raise _Refused(400, "a chunk has no size")
        count = int(size, 16)
        if len(body) + count > LONGEST_BODY:
            raise _Refused(413, "the request is too long")
        if count == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return body
        body += await reader.readexactly(count)
        if await reader.readexactly(2) != b"\r\n":
            raise _Refused(400, "a chunk is longer than its size")


def _chunk(content: bytes) -> bytes:
    return b"" if not content else f"{len(content):x}\r\n".encode() + content + b"\r\n"


async def _write(
    writer: asyncio.StreamWriter,
    status: int,
    body: bytes,
    *,
    last: bool,
    kind: str = "text/plain",
    more: Mapping[str, str] | None = None,
) -> None:
    headers = {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store", **(more or {})}
    if last:
        headers["Connection"] = "close"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    lines = [f"HTTP/1.1 {status} {_REASONS[status]}", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    await writer.drain()
