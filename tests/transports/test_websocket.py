"""The WebSocket transport against a real server on a loopback socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve

from stagedoor.errors import AgentRefused, ConnectionLost, MessageTooLarge
from stagedoor.transports.websocket import WebSocket
from stagedoor.wire.jsonrpc import Peer, Response, parse
from stagedoor.wire.shapes import UnknownMessage

BOUND = 240.0


@contextlib.asynccontextmanager
async def server(talk: Callable[[ServerConnection], Awaitable[None]], **options: Any) -> AsyncIterator[str]:
    async with serve(talk, "127.0.0.1", 0, max_size=None, **options) as listening:
        yield f"ws://127.0.0.1:{next(iter(listening.sockets)).getsockname()[1]}"


async def collect(socket: WebSocket) -> list[bytes | UnknownMessage]:
    async with asyncio.timeout(BOUND):
        return [message async for batch in socket.batches() for message in batch]


def test_one_json_rpc_protocol_travels_over_it() -> None:
    async def talk(connection: ServerConnection) -> None:
        request = msgspec.json.decode(await connection.recv())
        await connection.send(msgspec.json.encode({"id": request["id"], "result": {"text": "grüß 🎭"}}).decode())
        await connection.send(b'{"method":"bye"}')

    async def main() -> None:
        async with server(talk) as url, await WebSocket.connect(url) as socket:
            peer = Peer()
            peer.call("initialize", {"protocolVersion": 1})
            for message in peer.outgoing():
                await socket.send(message)
            answer, bye = await collect(socket)
        assert isinstance(answer, bytes)
        response = parse(answer)
        assert isinstance(response, Response)
        assert peer.settle(response) == "initialize"
        assert bye == b'{"method":"bye"}'

    asyncio.run(main())


def test_long_messages_pass_and_the_bound_is_an_error() -> None:
    async def talk(connection: ServerConnection) -> None:
        await connection.send("x" * 3_000_000)

    async def main() -> None:
        async with server(talk) as url:
            async with await WebSocket.connect(url) as socket:
                assert await collect(socket) == [b"x" * 3_000_000]
            async with await WebSocket.connect(url, max_message=1000) as socket:
                with pytest.raises(MessageTooLarge, match="larger than the limit"):
                    await collect(socket)

    asyncio.run(main())


def test_a_connection_that_breaks_off_is_lost_and_one_that_is_refused_is_refused() -> None:
    async def talk(connection: ServerConnection) -> None:
        await connection.send("first")
        connection.transport.abort()

    async def main() -> None:
        async with server(talk) as url, await WebSocket.connect(url) as socket:
            with pytest.raises(ConnectionLost, match="broke off"):
                await collect(socket)
            with pytest.raises(ConnectionLost, match="is closed"):
                await socket.send(b"late")
        with pytest.raises(ConnectionLost, match="could not connect"):
            await WebSocket.connect(url)

        def refuse(connection: ServerConnection, request: object) -> Any:
            return connection.respond(HTTPStatus.UNAUTHORIZED, "no")

        async with server(talk, process_request=refuse) as url:
            with pytest.raises(AgentRefused, match="status 401"):
                await WebSocket.connect(url)

    asyncio.run(main())


def test_close_ends_a_reader_that_waits() -> None:
    async def talk(connection: ServerConnection) -> None:
        await connection.wait_closed()

    async def main() -> None:
        async with server(talk) as url:
            socket = await WebSocket.connect(url)
            reading = asyncio.create_task(collect(socket))
            await socket.close()
            assert await reading == []

    asyncio.run(main())
