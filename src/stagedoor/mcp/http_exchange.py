"""The small part of HTTP/1.1 that programs on this machine speak with us, read and written strictly: anything else ends
the connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from ..transports.tasks import TaskOwner

LONGEST_HEAD = 64 * 1024
LONGEST_BODY = 32 * 1024 * 1024
REASONS = {
    200: "OK", 202: "Accepted", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 411: "Length Required", 413: "Content Too Large", 415: "Unsupported Media Type",
    431: "Request Header Fields Too Large", 500: "Internal Server Error", 502: "Bad Gateway",
}  # fmt: skip


class RefusedExchange(Exception):
    """The request is answered with a status and nothing else, and the connection ends."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class LoopbackConnections:
    """Whoever connects to a port of ours on the loopback address. ``exchange`` answers one request and returns whether
    the connection goes on; ``tasks`` owns what it starts."""

    def __init__(self, exchange: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]) -> None:
        self._exchange = exchange
        self._listener: asyncio.Server | None = None
        self.tasks = TaskOwner()
        self.port = 0

    async def open(self) -> None:
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=LONGEST_HEAD)
        self.port = self._listener.sockets[0].getsockname()[1]

    def abandon(self) -> None:
        """For finalizers: stop listening, without waiting."""
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self.stop_listening()
            self.tasks.cancel_all()

    def stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def close(self) -> None:
        self.stop_listening()
        await self.tasks.close()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.start(self._serve(reader, writer), name="stagedoor mcp connection")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            await close_writer(writer)


async def close_writer(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


class RequestHead(msgspec.Struct, frozen=True):
    method: str
    target: str
    headers: Mapping[str, str]

    @property
    def streams(self) -> bool:
        return "text/event-stream" in self.headers.get("accept", "")


def parse_head(text: bytes) -> RequestHead:
    lines = text[:-4].split(b"\r\n")
    words = lines[0].split(b" ")
    if len(words) != 3 or words[2] != b"HTTP/1.1":
        raise RefusedExchange(400, "speak HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        key = name.decode("latin-1").lower()
        if not colon or not key or key != key.strip() or key in headers:
            raise RefusedExchange(400, "the head of the request is not well formed")
        headers[key] = value.decode("latin-1").strip()
    return RequestHead(words[0].decode("latin-1"), words[1].decode("latin-1"), headers)


async def read_body(head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    length, coding = head.headers.get("content-length"), head.headers.get("transfer-encoding", "").lower()
    if (length is None) == (not coding) or coding not in ("", "chunked"):
        raise RefusedExchange(411, "send either a Content-Length or chunks")
    if length is not None and not (length.isascii() and length.isdigit()):
        raise RefusedExchange(400, "the Content-Length is not a number")
    if length is not None and (len(length) > 12 or int(length) > LONGEST_BODY):
        raise RefusedExchange(413, "the request is too long")
    if head.headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if length is not None:
        return await reader.readexactly(int(length))
    body = b""
    while True:
        size = (await reader.readuntil(b"\r\n")).partition(b";")[0].strip()
        if not size or len(size) > 8 or any(digit not in b"0123456789abcdefABCDEF" for digit in size):
            raise RefusedExchange(400, "a chunk has no size")
        count = int(size, 16)
        if len(body) + count > LONGEST_BODY:
            raise RefusedExchange(413, "the request is too long")
        if count == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return body
        body += await reader.readexactly(count)
        if await reader.readexactly(2) != b"\r\n":
            raise RefusedExchange(400, "a chunk is longer than its size")


def chunk(content: bytes) -> bytes:
    return b"" if not content else f"{len(content):x}\r\n".encode() + content + b"\r\n"


async def write_reply(
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
    lines = [f"HTTP/1.1 {status} {REASONS[status]}", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    await writer.drain()
