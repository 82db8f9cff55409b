"""The listener for our own agents: who is let in, what of HTTP it speaks, and the official client in both eras."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from stagedoor.mcp import http_exchange, loopback
from stagedoor.mcp.loopback import LoopbackListener
from stagedoor.mcp.protocol import ToolCall, ToolServer
from stagedoor.transports.callbacks import run_callback

BOUND = 120.0
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}
PONG = {"jsonrpc": "2.0", "id": 1, "result": {}}


class Running:
    """A server with a slow tool, and whether that was cancelled."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.release = asyncio.Event()

        async def add(a: int, b: int = 2) -> int:
            """Adds."""
            return a + b

        async def wait() -> str:
            """Waits."""
            self.started.set()
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "waited"

        self.server = ToolServer([add, wait], name="desk")

    async def respond(self, message: bytes) -> dict[str, Any] | None:
        async def made(call: ToolCall) -> Any:
            return await run_callback(call.tool.bound(call.arguments))

        return await self.server.respond(message, made)


def run(scene: Callable[[Running, LoopbackListener], Awaitable[None]]) -> None:
    async def main() -> None:
        running = Running()
        async with asyncio.timeout(BOUND):
            listener = await LoopbackListener.open(running.respond)
            try:
                await scene(running, listener)
            finally:
                await listener.close()

    asyncio.run(main())


def call(tool: str, number: int = 1, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        pytest.param({}, 200, id="our own agent"),
        pytest.param({"authorization": None}, 401, id="no secret"),
        pytest.param({"authorization": "Bearer"}, 401, id="an empty secret"),
        pytest.param({"authorization": "Bearer guessed"}, 401, id="a wrong secret"),
        pytest.param({"origin": "https://example.org"}, 403, id="a page of another site, were the secret known"),
        pytest.param({"origin": "http://127.0.0.1"}, 403, id="a page of this machine"),
        pytest.param({"origin": "null"}, 403, id="a page without an origin"),
        pytest.param({"host": "attacker.example"}, 403, id="a rebound name"),
        pytest.param({"host": "127.0.0.1:1"}, 403, id="another port"),
        pytest.param({"content-type": "text/plain"}, 415, id="a form or a simple request of a page"),
    ],
)
def test_who_is_let_in(changes: dict[str, str | None], status: int) -> None:
    async def scene(running: Running, listener: LoopbackListener) -> None:
        headers = {"content-type": "application/json", **{k.lower(): v for k, v in listener.headers.items()}, **changes}
        given = {name: value for name, value in headers.items() if value is not None}
        async with httpx.AsyncClient(timeout=240) as client:
            answer = await client.post(listener.url, headers=given, content=json.dumps(PING))
        assert answer.status_code == status
        assert (answer.json() == PONG) if status == 200 else ("PONG" not in answer.text)
        assert not [name for name in answer.headers if name.startswith("access-control")]

    run(scene)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /mcp HTTP/1.1\r\n{auth}\r\n", 405),
        (b"OPTIONS /mcp HTTP/1.1\r\nHost: {host}\r\nOrigin: https://example.org\r\n\r\n", 403),
        (b"POST /else HTTP/1.1\r\n{auth}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 404),
        (b"POST /mcp HTTP/1.1\r\n{auth}Content-Type: application/json\r\n\r\n", 411),
        (b"POST /mcp HTTP/1.1\r\n{auth}Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST /mcp HTTP/1.1\r\n{auth}Content-Type: application/json\r\nContent-Length: -1\r\n\r\n", 400),
        (
            b"POST /mcp HTTP/1.1\r\n{auth}Content-Type: application/json\r\nContent-Length: 2\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n{}",
            411,
        ),
        (b"POST /mcp HTTP/1.1\r\n{auth}Host: {host}\r\n\r\n", 400),
        (b"POST /mcp HTTP/1.0\r\n{auth}\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"POST /mcp HTTP/1.1\r\nX: " + b"x" * (http_exchange.LONGEST_HEAD + 9) + b"\r\n\r\n", 431),
    ],
)
def test_what_is_no_request_ends_the_connection(request_bytes: bytes, status: int) -> None:
    async def scene(running: Running, listener: LoopbackListener) -> None:
        host = listener.url.split("/")[2]
        reader, writer = await asyncio.open_connection(*host.split(":"))
        auth = f"Host: {host}\r\nAuthorization: {listener.headers['Authorization']}\r\n"
        writer.write(request_bytes.replace(b"{auth}", auth.encode()).replace(b"{host}", host.encode()))
        answer = await reader.read()  # to its end
        writer.close()
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())

    run(scene)


def test_chunks_and_a_connection_that_goes_on() -> None:
    async def scene(running: Running, listener: LoopbackListener) -> None:
        async def pieces() -> Any:
            whole = json.dumps(call("add", a=40)).encode()
            yield whole[:9]
            yield whole[9:]

        headers = {**listener.headers, "content-type": "application/json"}
        async with httpx.AsyncClient(headers=headers, timeout=240) as client:
            first = await client.post(listener.url, content=pieces())
            assert first.json()["result"] == {"content": [{"type": "text", "text": "42"}]}
            told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            assert (await client.post(listener.url, content=json.dumps(told))).status_code == 202
            broken = await client.post(listener.url, content=b"{nonsense")
            assert broken.json()["error"]["code"] == -32700

    run(scene)


def test_a_call_that_takes_long_becomes_a_stream_with_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "STREAM_AFTER", 0.01)
    monkeypatch.setattr(loopback, "SIGN_OF_LIFE", 0.01)

    async def scene(running: Running, listener: LoopbackListener) -> None:
        slow = call("wait")
        slow["params"]["_meta"] = {"progressToken": "p1"}
        headers = {**listener.headers, "content-type": "application/json", "accept": "text/event-stream"}
        async with (
            httpx.AsyncClient(headers=headers, timeout=BOUND) as client,
            client.stream("POST", listener.url, content=json.dumps(slow)) as answer,
        ):
            messages = []
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    messages.append(json.loads(line[6:]))
                    running.release.set()
        assert messages[0]["params"] == {"progressToken": "p1", "progress": 1}
        assert messages[-1]["result"]["content"] == [{"type": "text", "text": "waited"}]

    run(scene)


def test_who_hangs_up_cancels_the_call() -> None:
    async def scene(running: Running, listener: LoopbackListener) -> None:
        host = listener.url.split("/")[2]
        _, writer = await asyncio.open_connection(*host.split(":"))
        body = json.dumps(call("wait")).encode()
        head = (
            f"Host: {host}\r\nAuthorization: {listener.headers['Authorization']}\r\nContent-Type: application/json\r\n"
        )
        writer.write(f"POST /mcp HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await running.started.wait()
        writer.close()
        await running.cancelled.wait()

    run(scene)


def test_a_call_is_cancelled_by_its_number_in_its_own_session_only() -> None:
    async def scene(running: Running, listener: LoopbackListener) -> None:
        headers = {**listener.headers, "content-type": "application/json"}
        async with httpx.AsyncClient(headers=headers, timeout=BOUND) as client:

            async def post(message: dict[str, Any], session: str) -> httpx.Response:
                return await client.post(listener.url, json=message, headers={"mcp-session-id": session})

            hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
            mine = (await client.post(listener.url, json=hello)).headers["mcp-session-id"]
            give_up = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(post(call("wait", 5), mine))
                await running.started.wait()
                await post(give_up, "somebody-elses")
                assert not running.cancelled.is_set()
                await post(give_up, mine)
            assert waiting.result().json()["result"] == {
                "content": [{"type": "text", "text": "the call was cancelled"}], "isError": True,
            }  # fmt: skip
            assert running.cancelled.is_set()

    run(scene)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_the_official_client(mode: str) -> None:
    """The ``mcp`` package, which validates what it reads, in both eras of the protocol."""
    from mcp.client.streamable_http import streamable_http_client

    from mcp import Client

    async def scene(running: Running, listener: LoopbackListener) -> None:
        async with httpx_client(listener) as http:
            transport = streamable_http_client(listener.url, http_client=http)
            async with Client(transport, mode=mode) as client:
                tools = await client.list_tools()
                assert [tool.name for tool in tools.tools] == ["add", "wait"]
                result = await client.call_tool("add", {"a": 40})
                assert result.content[0].text == "42"  # type: ignore[union-attr]
                wrong = await client.call_tool("add", {"a": "x"})
                assert wrong.is_error

    run(scene)


def httpx_client(listener: LoopbackListener) -> Any:
    import httpx2

    return httpx2.AsyncClient(headers=listener.headers, timeout=BOUND)
