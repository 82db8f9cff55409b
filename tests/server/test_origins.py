"""From where: Host against DNS rebinding, Origin against other sites' pages, and what browsers are told."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from stagedoor.server.access.origins import HEADERS, host_of, own_names, own_page, proxied_origins
from stagedoor.service.config.settings import Settings


@pytest.mark.parametrize(
    ("netloc", "host"),
    [
        ("localhost", "localhost"),
        ("LocalHost:80", "localhost"),
        ("localhost.:80", "localhost"),
        ("[::1]:8080", "::1"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("", ""),
        ("[::1", ""),
        ("user@localhost", ""),
        ("evil.example/localhost", "evil.example"),
        ("evil.example#localhost", "evil.example"),
    ],
)
def test_the_name_in_a_host(netloc: str, host: str) -> None:
    assert host_of(netloc) == host


def test_own_names_are_those_of_the_settings_but_never_all_addresses() -> None:
    settings = Settings(host="0.0.0.0", hosts=("Stagedoor.example:8443", "10.0.0.7"))
    assert own_names(settings) == {"localhost", "127.0.0.1", "::1", "stagedoor.example", "10.0.0.7"}
    assert "192.0.2.3" in own_names(Settings(host="192.0.2.3"))


HOSTS = {
    "localhost:{port}": 200,
    "127.0.0.1:{port}": 200,
    "LOCALHOST": 200,
    "[::1]:{port}": 200,
    "evil.example": 421,
    "127.0.0.1.evil.example": 421,
    "localhost.evil.example:{port}": 421,
    "169.254.169.254": 421,
    "0.0.0.0:{port}": 421,
    "evil.example@localhost:{port}": 421,
}


def test_only_our_own_names_are_answered_to(server: Any) -> None:
    for path in ("/api/me", "/healthz"):
        assert {
            host: server.http.get(path, headers={"Host": host.format(port=server.port)}).status_code for host in HOSTS
        } == HOSTS


@pytest.mark.parametrize("head", ["", "Host: localhost\r\nHost: evil.example\r\n"])
def test_a_request_names_one_host(serve: Any, head: str) -> None:
    async def main() -> bytes:
        async with serve() as server:
            reader, writer = await asyncio.open_connection(server.host, server.port)
            version = "1.1" if head else "1.0"
            writer.write(f"GET /healthz HTTP/{version}\r\n{head}Connection: close\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            return answer

    assert asyncio.run(main()).split()[1] in (b"400", b"421")


def test_configured_names_are_answered_to(serve: Any) -> None:
    async def main() -> list[int]:
        async with serve(hosts=("stagedoor.example",)) as server, server.client() as client:
            names = ("stagedoor.example", "stagedoor.example:443", "other.example")
            return [(await client.get("/api/me", headers={"Host": name})).status_code for name in names]

    assert asyncio.run(main()) == [200, 200, 421]


PROXIED = proxied_origins(Settings(hosts=("https://proxy.example", "https://box:8443", "plain.example")))


@pytest.mark.parametrize(
    ("origin", "host", "scheme", "ours"),
    [
        ("http://box", "box", "http", True),
        ("http://box", "box:80", "http", True),
        ("http://BOX:80", "box", "http", True),
        ("https://box", "box", "wss", True),
        ("https://box:443", "box", "https", True),
        ("http://[::1]:8080", "[::1]:8080", "http", True),
        ("http://[::1]", "[::1]:80", "ws", True),
        ("https://proxy.example", "proxy.example", "http", True),  # a proxy does TLS for us
        ("https://proxy.example", "proxy.example:443", "ws", True),
        ("https://box:8443", "box:8443", "http", True),
        ("http://box:8443", "box:8443", "http", True),
        ("https://box", "box", "http", False),
        ("https://localhost:8080", "localhost:8080", "http", False),
        ("https://localhost:8080", "localhost:8080", "ws", False),
        ("https://plain.example", "plain.example", "http", False),
        ("https://proxy.example", "box", "http", False),
        ("https://proxy.example:8443", "proxy.example:8443", "http", False),
        ("http://proxy.example", "proxy.example", "https", False),
        ("http://box", "box", "https", False),
        ("http://box:8443", "box:8443", "wss", False),
        ("http://box", "box:443", "http", False),
        ("https://box", "box:80", "http", False),
        ("http://[::1]:8080", "[::2]:8080", "http", False),
        ("http://::1", "[::1]", "http", False),
        ("http://box.", "box", "http", False),
        ("http://box", "box.", "http", False),
        ("http://user@box", "box", "http", False),
        ("http://box@evil.example", "box", "http", False),
        ("http://box", "user@box", "http", False),
        ("http://box/", "box", "http", False),
        ("http://box?", "box", "http", False),
        ("http://box#", "box", "http", False),
        ("http://box http://evil.example", "box", "http", False),
        (" http://box", "box", "http", False),
        ("http://box:", "box", "http", False),
        ("http://box:080a", "box", "http", False),
        ("http://box:65616", "box", "http", False),
        ("http://bo\u212a", "bok", "http", False),  # a sign that becomes a k in lower case
        ("null", "null", "http", False),
        ("", "", "http", False),
        ("file://", "", "http", False),
        ("ws://box", "box", "ws", False),
    ],
)
def test_a_page_is_ours_by_scheme_name_and_port(origin: str, host: str, scheme: str, *, ours: bool) -> None:
    assert own_page(origin, host, scheme, PROXIED) is ours


ORIGINS = [
    (None, True),
    ("{url}", True),
    ("https://127.0.0.1:{port}", False),
    ("http://localhost:{port}", False),
    ("http://127.0.0.1:1", False),
    ("http://127.0.0.1", False),
    ("https://evil.example", False),
    ("http://127.0.0.1:{port}.evil.example", False),
    ("null", False),
    ("", False),
    ("file://", False),
]


def test_changes_from_other_pages_are_refused(server: Any) -> None:
    for origin, ours in ORIGINS:
        headers = {} if origin is None else {"Origin": origin.format(url=server.url, port=server.port)}
        answer = server.http.post("/api/pairing", json={}, headers=headers)
        assert (origin, answer.status_code) == (origin, 201 if ours else 403)


def test_a_websocket_from_another_page_is_refused(serve: Any) -> None:
    async def main() -> dict[str, int]:
        async with serve() as server:
            found: dict[str, int] = {}
            for origin, _ in ORIGINS:
                given = None if origin is None else origin.format(url=server.url, port=server.port)
                try:
                    async with connect(f"{server.ws_url}/ws", additional_headers=server.headers, origin=given):  # type: ignore[arg-type]
                        found[str(origin)] = 101
                except InvalidStatus as fault:
                    found[str(origin)] = fault.response.status_code
            return found

    assert asyncio.run(main()) == {str(origin): 101 if ours else 403 for origin, ours in ORIGINS}


def test_no_other_site_may_read_an_answer(server: Any) -> None:
    for answer in (
        server.http.get("/api/me", headers={"Origin": "https://evil.example"}),
        server.http.options("/api/me", headers={"Origin": "https://evil.example"}),
        httpx.get(f"{server.url}/healthz", timeout=240),
        httpx.get(f"{server.url}/api/me", timeout=240),
        server.http.get("/healthz", headers={"Host": "evil.example"}),
        server.http.get("/nothing/here"),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


def test_the_policy_for_pages_allows_nothing_from_elsewhere_and_no_inline_script() -> None:
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "http" not in policy
