"""JSON-RPC on two file descriptors, one message per line: what ``stagedoor rpc`` uses."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from stagedoor.errors import ConnectionLost
from stagedoor.service.service import Service
from stagedoor.transports.pipes import ReadEnd, WriteEnd
from stagedoor.transports.tasks import TaskOwner
from stagedoor.transports.websocket import WebSocket
from stagedoor.wire.jsonl import LineBuffer
from stagedoor.wire.shapes import UnknownMessage

from ..access.devices import LOCAL, Caller
from .client import DefaultsByDevice, RpcClient, SharedReaders
from .dispatch import too_large

CALLER = Caller(LOCAL, "stdio", ("admin",))
"""Whoever started us could as well run the agents themselves."""


class StdioLines:
    """Both ends. Messages in, messages out; a line over ``most`` bytes is refused, and the next one is read."""

    def __init__(self, read_fd: int, write_fd: int, max_bytes: int) -> None:
        self._input = ReadEnd(read_fd)
        self._output = WriteEnd(write_fd)
        self._max_bytes = max_bytes

    async def messages(self) -> AsyncIterator[bytes]:
        """Until the other side closes its end."""
        buffer = LineBuffer(self._max_bytes)
        while True:
            chunk = self._input.take()
            if chunk is None:
                await self._input.ready(None)
                continue
            for line in buffer.feed(chunk) if chunk else buffer.finish():
                if isinstance(line, UnknownMessage):
                    await self.write(too_large(self._max_bytes))
                else:
                    yield line
            if not chunk:
                return

    async def write(self, message: bytes) -> None:
        await self._output.write(message + b"\n")

    def close(self) -> None:
        self._input.close()
        self._output.close()


@asynccontextmanager
async def standard_streams(max_bytes: int) -> AsyncGenerator[StdioLines]:
    """Our own stdin and stdout; afterwards they are as before."""
    ends = os.dup(0), os.dup(1)
    modes = [os.get_blocking(end) for end in ends]
    for end in ends:
        os.set_blocking(end, False)
    lines = StdioLines(*ends, max_bytes)
    try:
        yield lines
    finally:
        for end, blocking in zip(ends, modes, strict=True):
            os.set_blocking(end, blocking)  # others hold the same pipe or terminal
        lines.close()


async def serve_stdio(service: Service, lines: StdioLines) -> None:
    """Answer until the input ends; calls that run then are still answered."""
    defaults = await DefaultsByDevice(service).of(CALLER)
    client = RpcClient(service, SharedReaders(service), CALLER, send=lines.write, defaults=defaults)
    client.broadcast.start()
    try:
        async for message in lines.messages():
            await client.receive(message)
        await client.finish()
    finally:
        await client.close()


async def bridge(url: str, token: str, lines: StdioLines, tls: ssl.SSLContext | None = None) -> None:
    """Pass everything to the server at ``url`` and back. When the input has ended, open calls are still answered."""
    traffic = BridgeTraffic(lines)
    address = "ws" + url.removeprefix("http").rstrip("/") + "/ws"
    async with await WebSocket.connect(address, headers={"Authorization": f"Bearer {token}"}, tls=tls) as socket:
        owner = TaskOwner()
        forward, backward = owner.start(traffic.forward(socket)), owner.start(traffic.backward(socket))
        try:
            await asyncio.wait([forward, backward], return_when=asyncio.FIRST_COMPLETED)
            if forward.done() and not backward.done():
                forward.result()
                return
            backward.result()
            raise ConnectionLost(f"the server at {url} closed the connection; start it again, then run this again")
        finally:
            await owner.close()


class _CallHead(msgspec.Struct, frozen=True):
    id: msgspec.Raw = msgspec.Raw(b"")
    method: msgspec.Raw = msgspec.Raw(b"")


class BridgeTraffic:
    """Counts calls and answers, to know when all are answered."""

    def __init__(self, lines: StdioLines) -> None:
        self._lines = lines
        self._open = 0
        self._all_answered = asyncio.Event()

    async def forward(self, socket: WebSocket) -> None:
        async for message in self._lines.messages():
            self._open += _is_answered(message)
            await socket.send(message)
        while self._open > 0:
            self._all_answered.clear()
            await self._all_answered.wait()

    async def backward(self, socket: WebSocket) -> None:
        async for batch in socket.batches():
            for message in batch:
                if isinstance(message, UnknownMessage):
                    continue
                await self._lines.write(message)
                if _is_answer(message):
                    self._open -= 1
                    self._all_answered.set()


def _is_answered(message: bytes) -> bool:
    """Whether the server will answer ``message``: all but notifications, and batches of nothing else."""
    try:
        calls = [message] if message.lstrip()[:1] != b"[" else msgspec.json.decode(message, type=list[msgspec.Raw])
        heads = [msgspec.json.decode(call, type=_CallHead) for call in calls]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return True
    return not heads or any(bytes(head.id) or bytes(head.method)[:1] != b'"' for head in heads)


def _is_answer(message: bytes) -> bool:
    return message[:1] == b"[" or not bytes(msgspec.json.decode(message, type=_CallHead).method)
