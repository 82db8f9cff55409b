"""Ways around the door, tried by hand: none of them lets a stranger in, and none forges what an answer says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

STRANGE_PATHS = (
    "/api/sessions", "//api/sessions", "/./api/sessions", "/static/../api/sessions", "/static/..%2fapi/sessions",
    "/docs/%2e%2e/api/sessions", "/docs/..;/api/sessions", "/%61pi/sessions", "/api%2fsessions", "/API/sessions",
    "/api/sessions/", "/api/sessions;/docs", "/api/sessions%00/docs", "/api/sessions%3f/docs", "/healthz/../api/me",
    "/api/pair/../me", "/api/pair%2f..%2fme", "/api/me#/docs", "/rpc", "/metrics", "/ws", "/ws/sessions/x",
    "http://localhost/api/me", "http://localhost/docs/../api/me", "/sw.js/../api/me", "/\u00e1pi/me", "*", "",
)  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "get", "PROPFIND")
INNOCENT = ("400", "401", "403", "404", "405", "421", "426", "501")


async def _response(server: Any, head: str, body: bytes = b"") -> str:
    """What is answered to ``head``, as it is."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(head.encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body)
    try:
        return (await reader.read()).decode("latin-1")
    except ConnectionResetError:
        return ""
    finally:
        writer.close()


def test_no_spelling_of_a_path_and_no_method_lets_a_stranger_in(serve: Any) -> None:
    async def main() -> None:
        async with serve() as server:
            for method in METHODS:
                for path in STRANGE_PATHS:
                    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close"
                    response = await _response(server, head)
                    status = response.partition(" ")[2][:3]
                    assert response == "" or status in INNOCENT, (method, path, response[:200])
                    assert "deviceId" not in response

    asyncio.run(main())


@pytest.mark.parametrize(
    "trick",
    [
        "X-Original-URL: /docs", "X-Rewrite-URL: /healthz", "X-Forwarded-Prefix: /docs", "X-HTTP-Method-Override: GET",
        "X-Forwarded-For: 127.0.0.1", "X-Real-IP: 127.0.0.1", "Forwarded: for=127.0.0.1", "Authorization: Bearer ",
        "Authorization: Bearer null", "Authorization: Bearer undefined", "Authorization:", "Cookie: stagedoor=",
        "Cookie: stagedoor=null; stagedoor=", "Sec-WebSocket-Protocol: stagedoor, bearer.",
        "Proxy-Authorization: Bearer x",
        "Authorization: Bearer local", "Authorization: Bearer admin", "Cookie: $Version=1; stagedoor=local",
    ],
)  # fmt: skip
def test_no_header_lets_a_stranger_in(serve: Any, trick: str) -> None:
    async def main() -> str:
        async with serve() as server:
            return await _response(server, f"GET /api/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{trick}")

    assert asyncio.run(main()).startswith("HTTP/1.1 401")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/sessions/%0d%0aSet-Cookie:%20stagedoor=evil", ""),
        ("/nowhere%0d%0aSet-Cookie:%20stagedoor=evil", ""),
        ("/api/me?x=%0d%0aSet-Cookie:%20stagedoor=evil", ""),
        ("/api/me", "Idempotency-Key: a\tb"),
        ("/api/me", "Sec-WebSocket-Protocol: stagedoor\t, x"),
    ],
)
def test_nothing_that_is_sent_becomes_a_header(serve: Any, path: str, words: str) -> None:
    async def main() -> str:
        async with serve() as server:
            token = server.headers["Authorization"]
            lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Authorization: {token}"]
            return await _response(server, "\r\n".join([*lines, words] if words else lines))

    head = asyncio.run(main()).partition("\r\n\r\n")[0].lower()
    assert head.startswith("http/1.1 ")
    assert not head.startswith("http/1.1 500")
    assert "\r\nset-cookie" not in head


def test_two_requests_in_one_are_not_taken_for_somebody_elses(serve: Any) -> None:
    """Smuggling: lengths that contradict each other are refused, and what follows is not carried out."""
    inner = b"GET /api/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    heads = (
        "Content-Length: 3\r\nContent-Length: 300", "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: xchunked", "Transfer-Encoding: chunked, identity", "Content-Length: +3",
        "Content-Length: 3, 3, 4", "Transfer-Encoding : chunked",
    )  # fmt: skip

    async def main() -> None:
        async with serve() as server:
            token = server.headers["Authorization"]
            for head in heads:
                start = f"POST /api/pair HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n{head}"
                response = await _response(server, start, b"0\r\n\r\n" + inner)
                assert response.count("HTTP/1.1 ") <= 1, (head, response)
                assert response.partition(" ")[2][:1] in ("4", "5"), (head, response)
                assert "deviceId" not in response

    asyncio.run(main())


def test_no_more_is_rendered_at_once_than_one_long_text(serve: Any) -> None:
    async def main() -> list[str]:
        async with serve() as server, server.client() as client:
            texts = ["*a*", "b" * 150_000, "*c* " * 30_000, "*d*"]
            answer = await client.post("/api/render", json={"texts": texts})
            assert answer.status_code == 200
            html: list[str] = answer.json()["html"]
            return html

    first, second, third, last = asyncio.run(main())
    assert (first.strip(), second[:3], third[:9], last) == ("<p><em>a</em></p>", "<p>", "<pre>*c* ", "<pre>*d*</pre>")
