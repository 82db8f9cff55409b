"""How much at once: bodies, heads, connections, messages; always a clear answer, and the server goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

import httpx
import pytest
from msgspec.structs import replace
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from stagedoor.server import arrivals
from stagedoor.server.access.sizes import HEAD_BYTES, SizeLimits
from stagedoor.server.connections import HttpConnection
from stagedoor.server.problems import RefusedRequest
from stagedoor.service.config.settings import Limits

BOUND = 240.0
SMALL = replace(Limits(), body=10_000)
Value = TypeVar("Value")


def run(work: Coroutine[Any, Any, Value]) -> Value:
    return asyncio.run(asyncio.wait_for(work, BOUND))


async def raw(server: Any, sent: bytes) -> bytes:
    """What comes back until the server closes."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(sent)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def test_a_large_body_is_refused_with_or_without_its_length(serve: Any) -> None:
    async def endless() -> Any:
        for _ in range(100):
            yield b"x" * 1000

    async def main() -> None:
        async with serve(limits=SMALL) as server, server.client() as client:
            headers = {"Content-Type": "application/json"}
            known = await client.post("/api/sessions", content=b"x" * 10_001, headers=headers)
            unknown = await client.post("/api/sessions", content=endless(), headers=headers)
            for answer in (known, unknown):
                assert (answer.status_code, answer.json()["type"]) == (413, "urn:stagedoor:problem:too-large")
            assert (await client.get("/healthz")).status_code == 200
            within = await client.post("/api/sessions", content=b"x" * 9_999, headers=headers)
            assert within.status_code == 400

    run(main())


def test_a_strange_content_length_is_refused(serve: Any) -> None:
    async def main() -> list[bytes]:
        async with serve() as server:
            head = "POST /api/pair HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n"
            lengths = ("-1", "1e3", "9" * 30, "x")
            return [(await raw(server, head.format(length).encode())).split()[1] for length in lengths]

    assert set(run(main())) <= {b"400", b"413"}


def test_a_long_head_is_refused(serve: Any) -> None:
    async def main() -> bytes:
        async with serve() as server:
            head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Long: "
            return await raw(server, head + b"x" * (2 * HEAD_BYTES) + b"\r\n\r\n")

    assert run(main()).split()[1:2] in ([b"400"], [b"431"], [])


def test_a_head_that_does_not_come_in_time_is_hung_up_on(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpConnection, "head_seconds", 0.2)

    async def main() -> list[bytes]:
        async with serve() as server:
            async with connect(f"{server.ws_url}/ws", additional_headers=server.headers) as socket:
                responses = [await raw(server, b""), await raw(server, b"GET /healthz HTTP/1.1\r\nHost: loc")]
                reader, writer = await asyncio.open_connection(server.host, server.port)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
                writer.write(b"GET /healthz HTTP/1.1\r\nHo")
                with contextlib.suppress(ConnectionResetError):
                    responses.append((await reader.read())[-15:])
                writer.close()
                await (await socket.ping())  # it has said what it wants
            return responses

    assert run(main())[:2] == [b"", b""]


def test_a_body_that_does_not_come_in_time_is_refused() -> None:
    async def main() -> str:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()

        async def never() -> Any:
            await asyncio.Event().wait()

        async def unheard(message: Any) -> None: ...

        limited = SizeLimits(app, max_body=10, seconds=0.01)
        with pytest.raises(RefusedRequest) as fault:
            await limited({"type": "http", "path": "/", "query_string": b"", "headers": []}, never, unheard)
        return fault.value.kind.slug

    assert run(main()) == "request-timeout"


def test_guests_beyond_the_limit_make_room_for_whoever_comes_and_never_take_a_place_from_those_who_are_in(
    serve: Any,
) -> None:
    async def main() -> None:
        async with serve(limits=replace(Limits(), connections=4)) as server:
            where, headers = f"{server.ws_url}/ws", server.headers
            async with connect(where, additional_headers=headers) as inside:
                idle = [await asyncio.open_connection(server.host, server.port) for _ in range(20)]
                async with server.client() as client:
                    assert (await client.get("/api/sessions")).status_code == 200
                for reader, _ in idle[:10]:
                    with contextlib.suppress(ConnectionResetError):
                        assert await reader.read() == b""  # the oldest had to leave
                await (await inside.ping())
                for _, writer in idle:
                    writer.close()

    run(main())


UNFINISHED = {
    "nothing at all": b"",
    "half a head": b"GET /healthz HTTP/1.1\r\nHost: loc",
    "half a body": b"POST /api/pair HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 90\r\n\r\n{",
    "half a body in chunks": b"POST /api/pair HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
    "an answer that came before the body": b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Length: 90\r\n\r\n",
    "a stream without a token": b"GET /api/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n",
    "a socket without a token": b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "a page file, then silence": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("sent", UNFINISHED.values(), ids=UNFINISHED)
def test_whoever_shows_no_token_is_hung_up_on_whatever_it_sends(
    serve: Any, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    async def main() -> None:
        async with (
            serve() as server,
            connect(f"{server.ws_url}/ws", additional_headers=server.headers) as inside,
        ):
            monkeypatch.setattr(arrivals, "GUEST_SECONDS", 0.3)  # only now: whoever has a token may take longer
            await raw(server, sent)  # returns when the server has closed the connection
            await (await inside.ping())

    run(main())


def test_websockets_count_as_connections(serve: Any) -> None:
    async def main() -> None:
        async with serve(limits=replace(Limits(), connections=2)) as server:
            where, headers = f"{server.ws_url}/ws", server.headers
            async with connect(where, additional_headers=headers), connect(where, additional_headers=headers):
                assert (await raw(server, b"")).startswith(b"HTTP/1.1 503")

    run(main())


def test_a_large_websocket_message_closes_that_socket_alone(serve: Any) -> None:
    async def main() -> int | None:
        async with serve(limits=SMALL) as server:
            where, headers = f"{server.ws_url}/ws", server.headers
            async with (
                connect(where, additional_headers=headers) as rude,
                connect(where, additional_headers=headers) as kept,
            ):
                await rude.send("x" * 20_000)
                with pytest.raises(ConnectionClosed) as closed:
                    await asyncio.gather(*[rude.recv()])
                await (await kept.ping())
                return closed.value.rcvd.code if closed.value.rcvd else None

    assert run(main()) == 1009


GARBAGE = (
    b"\x00\x01\x02\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
    b"POST /api/pair HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)


def test_garbage_harms_nobody(serve: Any) -> None:
    async def main() -> None:
        async with serve() as server, httpx.AsyncClient(base_url=server.url, timeout=240) as client:
            for sent in GARBAGE:
                reader, writer = await asyncio.open_connection(server.host, server.port)
                writer.write(sent)
                writer.write_eof()
                with contextlib.suppress(ConnectionResetError):
                    await reader.read()
                writer.close()
                assert (sent, (await client.get("/healthz")).status_code) == (sent, 200)

    run(main())
