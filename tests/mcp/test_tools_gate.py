"""The gate in front of servers over HTTP: everything passes but what is about resources."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from stagedoor.mcp.tools_gate import ToolsGate

BOUND = 60.0
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n{}"


class Upstream:
    """A server that answers everything with ``reply`` and keeps what it was sent."""

    def __init__(self, reply: bytes) -> None:
        self.reply = reply
        self.requests: list[bytes] = []
        self.hung_up = asyncio.Event()
        self.held = asyncio.Event()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, reply: bytes = OK) -> AsyncGenerator[tuple[Upstream, str]]:
        upstream = cls(reply)
        server = await asyncio.start_server(upstream._answer, "127.0.0.1", 0)
        try:
            yield upstream, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            upstream.held.set()
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"), 0
            )
            self.requests.append(head + await reader.readexactly(length))
            writer.write(self.reply)
            await writer.drain()
            if b"text/event-stream" in self.reply:
                assert await reader.read(1) == b""  # it stays open until the client goes
                self.hung_up.set()
            else:
                await self.held.wait()  # it keeps the connection, though it was asked not to
        finally:
            writer.close()


async def exchange(address: str, request: bytes) -> tuple[int, bytes]:
    host, _, path = address.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    writer.write(request.replace(b"PATH", f"/{path}".encode()).replace(b"HOST", host.encode()))
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    body = await reader.readexactly(length)
    writer.close()
    return int(head.split(b" ")[1]), body


def post(message: Any, *headers: str) -> bytes:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    lines = ["POST PATH HTTP/1.1", "Host: HOST", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def play(main: Callable[[], Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await main()

    asyncio.run(bounded())


READ = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x://secret"}}
CALL = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "add"}}
REFUSED = {"code": -32601, "message": "the rules of this session allow no resources"}


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (READ, (200, {"jsonrpc": "2.0", "id": 1, "error": REFUSED})),
        (
            [CALL, READ],
            (200, [{"jsonrpc": "2.0", "id": 2, "error": REFUSED}, {"jsonrpc": "2.0", "id": 1, "error": REFUSED}]),
        ),
        ({"jsonrpc": "2.0", "method": "resources/list"}, (202, None)),
        (b'{"id": 1, "method": "resources\\u002fread"}', (200, {"jsonrpc": "2.0", "id": 1, "error": REFUSED})),
        (b"not a message", (400, None)),
    ],
)
def test_what_is_about_resources_does_not_pass(message: Any, answer: tuple[int, Any]) -> None:
    async def main() -> None:
        async with Upstream.open() as (upstream, place):
            gate = await ToolsGate.open({"tiny": f"http://{place}/mcp"}, {})
            status, body = await exchange(gate.addresses["tiny"], post(message))
            assert (status, json.loads(body) if answer[1] is not None else None) == answer
            assert upstream.requests == []
            await gate.close()

    play(main)


def test_the_rest_passes_with_its_keys() -> None:
    async def main() -> None:
        async with Upstream.open() as (upstream, place):
            gate = await ToolsGate.open({"tiny": f"http://{place}/mcp?team=1"}, {})
            request = post(CALL, "Authorization: Bearer k", "Mcp-Session-Id: s", "Connection: keep-alive")
            assert await exchange(gate.addresses["tiny"], request) == (200, b"{}")
            head, _, body = upstream.requests[0].partition(b"\r\n\r\n")
            assert head.decode().split("\r\n") == [
                "POST /mcp?team=1 HTTP/1.1",
                f"Host: {place}",
                "Connection: close",
                "authorization: Bearer k",
                "mcp-session-id: s",
                f"Content-Length: {len(body)}",
            ]
            assert json.loads(body) == CALL
            await gate.close()

    play(main)


def test_a_stream_passes_as_it_comes_and_ends_with_its_reader() -> None:
    begun = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: message\ndata: {}\n\n"

    async def main() -> None:
        async with Upstream.open(begun) as (upstream, place):
            gate = await ToolsGate.open({"tiny": f"http://{place}/mcp"}, {})
            host, _, path = gate.addresses["tiny"].removeprefix("http://").partition("/")
            reader, writer = await asyncio.open_connection("127.0.0.1", int(host.partition(":")[2]))
            writer.write(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode())
            assert (await reader.readuntil(b"{}\n\n")).endswith(b"data: {}\n\n")
            writer.close()
            await upstream.hung_up.wait()
            await gate.close()

    play(main)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (post(CALL).replace(b"PATH", b"/mcp"), 404),
        (post(CALL, "Origin: http://evil.example"), 403),
        (post(CALL).replace(b"HOST", b"evil.example"), 403),
        (post(CALL).replace(b"POST", b"PUT"), 405),
        (post(CALL), 502),
    ],
    ids=["another path", "a web page", "another name", "another method", "a server that sends its clients elsewhere"],
)
def test_what_must_not_pass(request_bytes: bytes, status: int) -> None:
    elsewhere = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"

    async def main() -> None:
        async with Upstream.open(elsewhere) as (_, place):
            gate = await ToolsGate.open({"tiny": f"http://{place}/mcp"}, {})
            assert (await exchange(gate.addresses["tiny"], request_bytes))[0] == status
            await gate.close()

    play(main)


def test_a_server_that_is_not_there_is_told_as_such() -> None:
    async def main() -> None:
        gate = await ToolsGate.open({"tiny": "http://127.0.0.1:1/mcp"}, {})
        status, body = await exchange(gate.addresses["tiny"], post(CALL))
        assert (status, body.startswith(b"127.0.0.1:1 cannot be reached: ")) == (502, True)
        await gate.close()

    play(main)


def test_servers_are_reached_by_the_proxy_that_the_agent_would_use() -> None:
    async def main() -> None:
        async with Upstream.open() as (proxy, place):
            servers = {"far": "http://tools.example/mcp", "near": f"http://{place}/mcp"}
            gate = await ToolsGate.open(servers, {"http_proxy": f"http://{place}", "no_proxy": "127.0.0.1"})
            for name in servers:
                assert (await exchange(gate.addresses[name], post(CALL)))[0] == 200
            first_lines = [request.partition(b"\r\n")[0].decode() for request in proxy.requests]
            assert first_lines == ["POST http://tools.example/mcp HTTP/1.1", "POST /mcp HTTP/1.1"]
            await gate.close()

    play(main)
