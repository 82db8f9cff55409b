"""JSON-RPC on two file descriptors, one message per line: what ``stagedoor rpc`` speaks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from stagedoor.errors import ConnectionLost
from stagedoor.service.service import Service
from stagedoor.transports.pipes import ReadEnd, WriteEnd
from stagedoor.transports.websocket import WebSocket
from stagedoor.wire.jsonl import LineBuffer
from stagedoor.wire.shapes import Unrecognized

from ..access.auth import LOCAL, Caller
from .dispatch import too_large
from .peer import Peer, Shared

CALLER = Caller(LOCAL, "stdio", ("admin",))
"""Whoever started us could as well run the agents themselves."""


class Lines:
    """Both ends. Messages in, messages out; a line over ``most`` bytes is refused, and the next one is read."""

    def __init__(self, read_fd: int, write_fd: int, most: int) -> None:
        self._input = ReadEnd(read_fd)
        self._output = WriteEnd(write_fd)
        self._most = most

    async def messages(self) -> AsyncIterator[bytes]:
        """Until the other side has said all it will."""
        buffer = LineBuffer(self._most)
        while True:
            chunk = self._input.take()
            if chunk is None:
                await self._input.ready(None)
                continue
            for line in buffer.feed(chunk) if chunk else buffer.finish():
                if isinstance(line, Unrecognized):
                    await self.write(too_large(self._most))
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
async def standard_streams(most: int) -> AsyncGenerator[Lines]:
    """Our own stdin and stdout; left as they were found."""
    ends = os.dup(0), os.dup(1)
    blocked = [os.get_blocking(end) for end in ends]
    for end in ends:
        os.set_blocking(end, False)
    lines = Lines(*ends, most)
    try:
        yield lines
    finally:
        for end, was in zip(ends, blocked, strict=True):
            os.set_blocking(end, was)  # others hold the same pipe or terminal
        lines.close()


async def converse(service: Service, lines: Lines) -> None:
    """Answer until the input ends. What is being answered then is answered still."""
    peer = Peer(service, Shared(service), CALLER, send=lines.write)
    try:
        async for message in lines.messages():
            await peer.receive(message)
        await peer.finish()
    finally:
        await peer.close()


async def bridge(url: str, token: str, lines: Lines) -> None:
    """Everything goes to the server at ``url`` and comes back. When the input has ended, what was asked is answered."""
    there = Bridge(lines)
    address = "ws" + url.removeprefix("http").rstrip("/") + "/ws"
    async with await WebSocket.connect(address, headers={"Authorization": f"Bearer {token}"}) as socket:
        going, coming = asyncio.ensure_future(there.go(socket)), asyncio.ensure_future(there.come(socket))
        try:
            await asyncio.wait([going, coming], return_when=asyncio.FIRST_COMPLETED)
            if going.done() and not coming.done():
                going.result()
                return
            coming.result()
            raise ConnectionLost(f"the server at {url} closed the connection; start it again, then this")
        finally:
            going.cancel()
            coming.cancel()
            await asyncio.wait([going, coming])


class _Glance(msgspec.Struct, frozen=True):
    id: msgspec.Raw = msgspec.Raw(b"")
    method: msgspec.Raw = msgspec.Raw(b"")


class Bridge:
    """Counts what was asked and what was answered, to know when it is over."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._open = 0
        self._settled = asyncio.Event()

    async def go(self, socket: WebSocket) -> None:
        async for message in self._lines.messages():
            self._open += _is_answered(message)
            await socket.send(message)
        while self._open > 0:
            self._settled.clear()
            await self._settled.wait()

    async def come(self, socket: WebSocket) -> None:
        async for batch in socket.batches():
            for message in batch:
                if isinstance(message, Unrecognized):
                    continue
                await self._lines.write(message)
                if _is_answer(message):
                    self._open -= 1
                    self._settled.set()


def _is_answered(message: bytes) -> bool:
    """Whether the server will answer ``message``: all but notifications, and batches of nothing else."""
    try:
        calls = [message] if message.lstrip()[:1] != b"[" else msgspec.json.decode(message, type=list[msgspec.Raw])
        seen = [msgspec.json.decode(call, type=_Glance) for call in calls]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return True
    return not seen or any(bytes(one.id) or bytes(one.method)[:1] != b'"' for one in seen)


def _is_answer(message: bytes) -> bool:
    return message[:1] == b"[" or not bytes(msgspec.json.decode(message, type=_Glance).method)
