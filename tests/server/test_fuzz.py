"""Every door at once: strange queries and headers, answers out of order, clients that vanish. Nothing of it is an error
of ours (nothing is logged as one), and the server goes on."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import socket
import struct
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

Script = Callable[..., str]
NASTY = (
    "", "?", "&&=&", "=1", "after", "after=", "after=-1", "after=1e9", "after=" + "9" * 400, "after=%00", "after=１",
    "after=0&after=1", "after[]=1", "after=true", "after=0x10", "after= 1", "%ff=%fe", "after=%ed%a0%80", "x=%",
    "dialect=", "dialect=../../etc/passwd", "dialect=stagedoor%0d%0aSet-Cookie:%20a=b",
    "wait=nan", "wait=inf", "wait=-0",
    "wait=1e-400", "wait=61", "limit=0", "limit=-1", "limit=99999999999999999999", "offset=99999999999999999999",
    "offset=9223372036854775807", "after=9223372036854775807", "heartbeat=nan", "heartbeat=0", "heartbeat=1e999",
    "verdict=maybe", "seq=2", "path=%00", "path=" + "../" * 50, "path=" + "a" * 5000, "path=%ed%b2%80", "by=;drop",
    "since=-1", "search=%25%27%22%5c", "format=exe", "open=2", "firstLine=5&path=x&lastLine=2", "a=" * 200,
)  # fmt: skip
HEADERS = (
    {"Last-Event-ID": "9" * 5000}, {"Last-Event-ID": "-1"}, {"Last-Event-ID": "1.1.1"}, {"Last-Event-ID": b"\xb2\xff"},
    {"Last-Event-ID": ""}, {"Last-Event-ID": "0." + "9" * 18}, {"Idempotency-Key": ""}, {"Idempotency-Key": "x" * 256},
    {"Accept": "\x7f" * 100}, {"Content-Type": "application/json; charset=utf-99"}, {"Content-Encoding": "gzip"},
    {"If-None-Match": "*"}, {"Range": "bytes=9-1"}, {"Cookie": "stagedoor=\"; stagedoor=a; =;;"},
    {"Expect": "100-continue"},
    {"Connection": "upgrade", "Upgrade": "h2c"}, {"X-HTTP-Method-Override": "DELETE"},
)  # fmt: skip
PATHS = (
    "/api/sessions", "/api/sessions/{id}", "/api/sessions/{id}/events", "/api/sessions/{id}/stream",
    "/api/sessions/{id}/poll", "/api/sessions/{id}/export", "/api/sessions/{id}/files", "/api/sessions/{id}/file",
    "/api/sessions/{id}/diff", "/api/sessions/{id}/git", "/api/sessions/{id}/permissions", "/api/permissions",
    "/api/usage", "/api/audit", "/api/projects", "/api/me", "/api/devices", "/api/policy", "/metrics", "/",
    "/static/app.js", "/docs", "/openapi.json", "/healthz", "/readyz", "/api/rules/{id}:x", "/api/sessions/%00",
    "/api/sessions/..%2f..%2f", "/static/..%2fapp.py", "//api/sessions", "/api/sessions/%ff", "/api/" + "a" * 9000,
)  # fmt: skip


def sound(caplog: pytest.LogCaptureFixture) -> bool:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []


async def ended(client: httpx.AsyncClient, prompt: str) -> str:
    session_id: str = (await client.post("/api/sessions", json={"prompt": prompt})).json()["id"]
    async with client.stream("GET", f"/api/sessions/{session_id}/stream") as answer:
        await answer.aread()
    return session_id


def test_any_query_and_header_at_every_path(serve: Any, script: Script, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            session_id = await ended(client, script([{"say": "Hello"}]))
            for path in PATHS:
                where = path.replace("{id}", session_id)
                for query in NASTY:
                    answer = await client.get(f"{where}?{query}")
                    assert answer.status_code < 500, (where, query, answer.text)
                    assert "set-cookie" not in answer.headers
                for headers in HEADERS if path in PATHS[::4] else ():
                    for method in ("GET", "HEAD", "OPTIONS"):
                        answer = await client.request(method, where, headers=headers)
                        assert answer.status_code < 500, (method, where, headers)

    asyncio.run(main())
    assert sound(caplog)


def test_any_query_at_the_sockets(serve: Any, script: Script, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            session_id = await ended(client, script([{"say": "Hello"}]))
            for name in (session_id, "nobody", "%00", "%ff", "..%2f", "a" * 5000):
                for query in NASTY if name == session_id else NASTY[:5]:
                    where = f"{server.ws_url}/ws/sessions/{name}?{query.replace('１', '%EF%BC%91')}"
                    code: int | None = 1000
                    try:
                        async with connect(where, additional_headers=server.headers, proxy=None) as door:
                            with contextlib.suppress(ConnectionClosed):
                                while True:
                                    await door.recv()
                            code = door.close_code
                    except InvalidStatus as refused:
                        code = 4000 + refused.response.status_code
                    assert code == 1000 or 4400 <= (code or 0) < 4500, (name, query, code)

    asyncio.run(main())
    assert sound(caplog)


def test_answers_out_of_order(serve: Any, script: Script, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            asks = script([{"shell": "echo one"}], [{"say": "ok"}])
            first, second = [(await client.post("/api/sessions", json={"prompt": asks})).json()["id"] for _ in range(2)]
            yes = {"decision": "allow"}
            early = await client.post("/api/permissions/never-asked", json=yes)
            assert early.status_code == 404
            request_ids: dict[str, str] = {}
            while len(request_ids) < 2:
                found = (await client.get("/api/permissions")).json()["permissions"]
                request_ids = {one["sessionId"]: one["request"]["requestId"] for one in found}
            crossed = await client.post(f"/api/sessions/{first}/permissions/{request_ids[second]}", json=yes)
            assert crossed.status_code == 404
            wrongs: list[Any] = [{"decision": "perhaps"}, {"decision": "deny", "updatedInput": {}}, {}, [], "allow"]
            for wrong_body in wrongs:
                wrong = await client.post(f"/api/permissions/{request_ids[first]}", json=wrong_body)
                assert wrong.status_code == 400
            where = [f"/api/permissions/{request_ids[one]}" for one in (second, first, second, first)]
            given = await asyncio.gather(*[client.post(path, json=yes) for path in where])
            assert sorted(one.status_code for one in given) == [200, 200, 409, 409]
            for session_id in (first, second):
                async with client.stream("GET", f"/api/sessions/{session_id}/stream") as answer:
                    await answer.aread()
                late = await client.post(f"/api/permissions/{request_ids[session_id]}", json=yes)
                assert late.status_code == 409

    asyncio.run(main())
    assert sound(caplog)


HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(b"0" * 16).decode() + "\r\n\r\n"
)


def masked(opcode: int, payload: bytes, *, claims: int | None = None) -> bytes:
    """A client's frame with a mask of zeros; ``claims``: it says that it is longer than it is."""
    return struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, claims or len(payload)) + bytes(4) + payload


def test_clients_that_vanish_in_the_middle_of_something(
    serve: Any, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            token = server.headers["Authorization"]
            run = {"jsonrpc": "2.0", "id": 1, "method": "agent/run", "params": {"prompt": script([{"say": "Hi"}])}}
            call = json.dumps(run | {"params": {**run["params"], "keepOpen": False}}).encode()  # type: ignore[dict-item]
            body = json.dumps({"prompt": "never begun"}).encode()
            head, rpc, pair = [
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
                "Content-Type: application/json\r\n".encode()
                for path in ("/api/sessions", "/rpc", "/api/pair")
            ]
            long = b"Content-Length: 5000\r\n\r\n"
            upgrade = HANDSHAKE.format(path="/ws", token=token).encode()
            pieces = [
                upgrade[:40], upgrade, upgrade + masked(1, call[:20], claims=5000), upgrade + masked(1, call) * 3,
                upgrade + masked(1, b"[" + call), upgrade + b"\xff\xff", upgrade + masked(8, b"\x03"),
                head, head + long + body, rpc + long + call, pair + long + b"{",
                head + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"pr",
            ]  # fmt: skip
            for sent in pieces:
                for waits in (False, True):
                    reader, writer = await asyncio.open_connection(server.host, server.port)
                    writer.write(sent)
                    await writer.drain()
                    if waits and sent.startswith(upgrade):
                        await reader.read(10)
                    linger = struct.pack("ii", 1, 0)  # hang up with a reset
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.close()
                    with contextlib.suppress(ConnectionError):
                        await writer.wait_closed()
            while server.app.state.devices.open_visits > 1:
                await asyncio.sleep(0.01)
            sessions = (await client.get("/api/sessions")).json()["sessions"]
            assert all(one["prompt"] == run["params"]["prompt"] for one in sessions)  # type: ignore[index]

    asyncio.run(main())
    assert sound(caplog)
