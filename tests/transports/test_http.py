"""The HTTP transport against a real server on a loopback socket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from stagedoor.errors import AgentRefused, ConnectionLost, MessageTooLarge
from stagedoor.transports.http import Backoff, HttpTransport
from stagedoor.wire.http import HttpAnswer, HttpRequest
from stagedoor.wire.shapes import UnknownMessage

BOUND = 240.0
QUICK = Backoff(first=0.01, longest=0.05, patience=BOUND)
EVENTS = HttpRequest("GET", "/event", query={"directory": "/a b"})
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


class Call(msgspec.Struct, frozen=True):
    line: str
    headers: dict[str, str]
    body: bytes


Reply = Callable[[Call, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def server(reply: Reply) -> AsyncIterator[str]:
    """An HTTP server that hands each call to ``reply`` and then closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(
                line.lower().split(": ", 1) if "basic" not in line.lower() else ("authorization", line)
                for line in head[1:]
                if line
            )
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            await reply(Call(head[0], headers, body), writer)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


def whole(status: str, body: bytes, content_type: str = "application/json") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


async def collect(transport: HttpTransport, count: int) -> list[bytes | UnknownMessage]:
    found: list[bytes | UnknownMessage] = []
    async with asyncio.timeout(BOUND), contextlib.aclosing(transport.batches()) as batches:  # type: ignore[type-var]
        async for batch in batches:
            found += batch
            if len(found) >= count:
                break
    return found


def test_calls_carry_method_target_body_and_password() -> None:
    seen: list[Call] = []

    async def reply(call: Call, writer: asyncio.StreamWriter) -> None:
        seen.append(call)
        writer.write(whole("404 Not Found", b'{"_tag":"PermissionNotFoundError"}'))

    async def main() -> None:
        async with server(reply) as url, HttpTransport(url, auth=("opencode", "secret")) as transport:
            answer = await transport.send(HttpRequest("POST", "/session", b'{"title":"x"}', {"directory": "/a b"}))
        assert answer == HttpAnswer(404, b'{"_tag":"PermissionNotFoundError"}')
        assert not answer.ok

    asyncio.run(main())
    (call,) = seen
    assert (call.line, call.body) == ("POST /session?directory=/a%20b HTTP/1.1", b'{"title":"x"}')
    assert base64.b64encode(b"opencode:secret").decode() in call.headers["authorization"]
    assert call.headers["content-type"] == "application/json"


def test_a_broken_stream_is_resumed_with_the_last_event_id() -> None:
    asked_after: list[str | None] = []

    async def reply(call: Call, writer: asyncio.StreamWriter) -> None:
        asked_after.append(call.headers.get("last-event-id"))
        if len(asked_after) == 2:
            writer.write(whole("503 Service Unavailable", b"starting"))
            return
        first = 1 if len(asked_after) == 1 else 3
        writer.write(STREAM)
        for number in (first, first + 1):
            writer.write(f"id: {number}\ndata: message {number}\n\n".encode())
        writer.write(b"data: cut off he")

    async def main() -> None:
        async with server(reply) as url, HttpTransport(url, events=EVENTS, backoff=QUICK) as transport:
            cut = UnknownMessage(b"cut off he", "the stream ended inside this event")
            assert (await collect(transport, 6)) == [b"message 1", b"message 2", cut, b"message 3", b"message 4", cut]

    asyncio.run(main())
    assert asked_after[:3] == [None, "2", "2"]


def test_a_stream_that_falls_silent_is_taken_for_dead() -> None:
    async def main() -> None:
        over = asyncio.Event()
        calls = 0

        async def reply(call: Call, writer: asyncio.StreamWriter) -> None:
            nonlocal calls
            calls += 1
            writer.write(STREAM + f"data: {calls}\n\n".encode())
            await writer.drain()
            await over.wait()

        async with (
            server(reply) as url,
            HttpTransport(url, events=EVENTS, backoff=QUICK, silence=0.05) as transport,
        ):
            assert await collect(transport, 2) == [b"1", b"2"]
            over.set()

    asyncio.run(main())


def test_a_server_that_does_not_stream_is_polled() -> None:
    answers = iter(
        [
            whole("200 OK", b'[{"id":"a","n":1},{"id":"b","n":2}]'),
            whole("200 OK", b""),
            whole("200 OK", b'{"id":7}\n{"n":4}\n'),
        ]
    )
    asked_after: list[str | None] = []

    async def reply(call: Call, writer: asyncio.StreamWriter) -> None:
        asked_after.append(call.headers.get("last-event-id"))
        writer.write(next(answers, whole("204 No Content", b"")))

    async def main() -> None:
        async with server(reply) as url, HttpTransport(url, events=EVENTS, backoff=QUICK) as transport:
            assert await collect(transport, 4) == [b'{"id":"a","n":1}', b'{"id":"b","n":2}', b'{"id":7}', b'{"n":4}']

    asyncio.run(main())
    assert asked_after[:3] == [None, "b", "b"]


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (whole("401 Unauthorized", b"who are you"), AgentRefused, "answered 401: who are you"),
        (whole("503 Service Unavailable", b""), ConnectionLost, "could not connect again"),
        (b"", ConnectionLost, "could not connect again"),
    ],
)
def test_a_server_that_will_not_have_us_is_an_error(answer: bytes, error: type[Exception], says: str) -> None:
    async def reply(call: Call, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async def main() -> None:
        impatient = Backoff(first=0.01, longest=0.01, patience=0.05)
        async with server(reply) as url, HttpTransport(url, events=EVENTS, backoff=impatient) as transport:
            with pytest.raises(error, match=says):
                await collect(transport, 1)

    asyncio.run(main())


def test_204_ends_the_listening() -> None:
    async def reply(call: Call, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")

    async def main() -> None:
        async with server(reply) as url, HttpTransport(url, events=EVENTS, backoff=QUICK) as transport:
            assert await collect(transport, 1) == []

    asyncio.run(main())


def test_nobody_there_is_a_lost_connection() -> None:
    async def main() -> None:
        async with server(lambda call, writer: asyncio.sleep(0)) as url:
            pass
        async with HttpTransport(url) as transport:
            with pytest.raises(ConnectionLost, match="no answer to GET /doc"):
                await transport.send(HttpRequest("GET", "/doc"))

    asyncio.run(main())


def test_what_is_over_the_bound_is_said_and_the_stream_goes_on() -> None:
    async def reply(call: Call, writer: asyncio.StreamWriter) -> None:
        if call.line.startswith("GET /big"):
            writer.write(whole("200 OK", b"x" * 1000))
        else:
            writer.write(STREAM + b"data: " + b"y" * 1000 + b"\n\ndata: small\n\n")

    async def main() -> None:
        async with (
            server(reply) as url,
            HttpTransport(url, events=EVENTS, max_message=100, backoff=QUICK) as transport,
        ):
            with pytest.raises(MessageTooLarge, match="GET /big is larger than the limit of 100 bytes"):
                await transport.send(HttpRequest("GET", "/big"))
            long, small = (await collect(transport, 2))[:2]
            assert isinstance(long, UnknownMessage)
            assert small == b"small"

    asyncio.run(main())


def test_close_ends_a_reader_that_waits() -> None:
    async def main() -> None:
        received, over = asyncio.Event(), asyncio.Event()

        async def reply(call: Call, writer: asyncio.StreamWriter) -> None:
            writer.write(STREAM + b"data: hello\n\n")
            await writer.drain()
            await over.wait()

        async def read(transport: HttpTransport) -> None:
            async for batch in transport.batches():
                if batch:
                    assert batch == [b"hello"]
                    received.set()

        async with server(reply) as url, asyncio.timeout(BOUND):
            transport = HttpTransport(url, events=EVENTS, backoff=QUICK)
            reading = asyncio.create_task(read(transport))
            await received.wait()
            await transport.close()
            await reading
            over.set()

    asyncio.run(main())
