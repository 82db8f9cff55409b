"""The app as a whole, over real sockets: every door is there, TLS, our own mistakes, and stopping in order."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec
import pytest
from msgspec.structs import replace
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from stagedoor.errors import ConnectionLost, StagedoorError
from stagedoor.server.access.tokens import token_path
from stagedoor.server.listening import KEEP_ALIVE_SECONDS
from stagedoor.server.running import find_server, is_loopback, public_url, send_request, server_file
from stagedoor.service.config.settings import Settings
from stagedoor.service.views import SessionSpec, SessionView

BOUND = 240.0
Value = TypeVar("Value")


def run(work: Coroutine[Any, Any, Value]) -> Value:
    return asyncio.run(asyncio.wait_for(work, BOUND))


def test_a_session_runs_while_the_server_does(serve: Any, script: Callable[..., str]) -> None:
    async def main() -> list[str]:
        async with serve() as server:
            view = await server.service.sessions.create(
                SessionSpec(prompt=script([{"say": "Hello"}]), agent="understudy")
            )
            return [record.type async for batch in server.service.events.follow(view.id, 0) for record in batch]

    kinds = run(main())
    assert (kinds[0], kinds[-1]) == ("init", "done")


def test_every_door_is_there(server: Any) -> None:
    for path in ("/api/sessions", "/api/permissions", "/openapi.json", "/docs", "/healthz", "/", "/static/app.js"):
        assert (path, server.http.get(path).status_code) == (path, 200)
    assert server.http.post("/rpc", json={"jsonrpc": "2.0", "id": 1, "method": "agent/status"}).status_code == 200
    for path in ("/nothing/here", "/api/nothing", "/static/../token", "/static/%2e%2e/token"):
        answer = server.http.get(path)
        assert (path, answer.status_code, answer.headers["content-type"]) == (path, 404, "application/problem+json")


def test_a_client_lets_go_of_a_connection_before_the_server_does() -> None:
    expiry = httpx.Limits().keepalive_expiry
    assert expiry is not None
    assert expiry * 2 <= KEEP_ALIVE_SECONDS


def test_what_is_our_own_mistake_tells_a_client_nothing(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> Any:
        raise RuntimeError("the innermost secret")

    async def main() -> httpx.Response:
        async with serve() as server, server.client() as client:
            monkeypatch.setattr(server.service._store, "write", broken)
            answer = await client.get("/readyz")
            monkeypatch.undo()
            assert (await client.get("/readyz")).status_code == 200
            return answer

    answer = run(main())
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:stagedoor:problem:fault")
    assert "secret" not in answer.text


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(["openssl", *words, *names, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


def test_tls_by_a_given_certificate(serve: Any, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    trusting = ssl.create_default_context(cafile=str(cert))

    async def main() -> None:
        async with serve(tls_cert=str(cert), tls_key=str(key)) as server:
            url = f"https://localhost:{server.port}"
            async with httpx.AsyncClient(base_url=url, headers=server.headers, verify=trusting, timeout=240) as client:
                assert (await client.get("/api/me")).json()["name"] == "local"
                invitation = (await client.post("/api/pairing", headers={"Origin": url})).json()
                assert invitation["url"].startswith("https://")
                paired = await client.post("/api/pair", json={"code": invitation["code"], "cookie": True})
                assert "secure" in paired.headers["set-cookie"].lower()
            where = f"wss://localhost:{server.port}/ws"
            async with connect(where, additional_headers=server.headers, ssl=trusting) as socket:
                await (await socket.ping())
            with pytest.raises(httpx.HTTPError):
                async with server.client() as plain:
                    await plain.get("/healthz")

    run(main())


def test_commands_on_this_machine_find_the_server_and_trust_its_certificate_alone(
    serve: Any, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate

    async def main() -> Any:
        async with serve(tls_cert=str(cert), tls_key=str(key)) as server:
            token_path(server.home).write_text(server.token)
            token_path(server.home).chmod(0o600)
            with server_file(server.home, server.service.settings, (server.host, server.port)) as note:
                me = await asyncio.to_thread(send_request, server.home, "GET", "/api/me")
                with pytest.raises(StagedoorError, match="device 'nobody' not found"):
                    await asyncio.to_thread(send_request, server.home, "DELETE", "/api/devices/nobody")
                other = replace(note, certificate=ssl.get_default_verify_paths().cafile or "")
                (server.home / "server.json").write_bytes(msgspec.json.encode(other))
                with pytest.raises(ConnectionLost):
                    await asyncio.to_thread(send_request, server.home, "GET", "/api/me")
            with pytest.raises(ConnectionLost, match="stagedoor serve"):
                find_server(server.home)
            return me

    assert run(main()) == {"deviceId": "local", "name": "local", "scopes": ["admin"]}


def test_stopping_ends_what_would_last_and_takes_nothing_new(serve: Any) -> None:
    async def main() -> tuple[int | None, int]:
        async with serve() as server, server.client() as client:
            view = SessionView(
                id="idle", agent="understudy", cwd=str(server.workspace), activity="asleep", keep_open=True
            )
            await server.service._journal.write(view)
            async with connect(f"{server.ws_url}/ws/sessions/idle", additional_headers=server.headers) as socket:
                await socket.recv()
                polled = asyncio.create_task(client.get("/api/sessions/idle/poll?wait=50"))
                while server.app.state.devices.open_visits < 2:
                    await asyncio.sleep(0.01)
                server.app.state.devices.stop()
                with pytest.raises(ConnectionClosed) as closed:
                    await socket.recv()
                return closed.value.rcvd.code if closed.value.rcvd else None, (await polled).status_code

    assert run(main()) == (1012, 503)


def test_a_server_with_open_streams_stops_soon(serve: Any) -> None:
    async def main() -> int | None:
        async with serve() as server:
            socket = await connect(f"{server.ws_url}/ws", additional_headers=server.headers)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        await socket.close()
        return closed.value.rcvd.code if closed.value.rcvd else None

    assert run(main()) == 1012


def test_a_websocket_to_nowhere_is_refused(serve: Any) -> None:
    async def main() -> int:
        async with serve() as server:
            with pytest.raises(InvalidStatus) as refused:
                await connect(f"{server.ws_url}/ws/nothing/here", additional_headers=server.headers)
            return refused.value.response.status_code

    assert run(main()) in (403, 404)


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (Settings(), "http://127.0.0.1:16180"),
        (Settings(host="::1"), "http://[::1]:16180"),
        (Settings(host="0.0.0.0", hosts=("stagedoor.example",), tls_cert="c", port=443), "https://stagedoor.example"),
        (Settings(hosts=("stagedoor.example:8443",), tls_cert="c"), "https://stagedoor.example:8443"),
        (Settings(port=80), "http://127.0.0.1"),
    ],
)
def test_where_it_is_reached(settings: Settings, url: str) -> None:
    assert public_url(settings) == url


@pytest.mark.parametrize(
    ("host", "local"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "192.0.2.1", "localhost.example", "")),
    ],
)
def test_what_only_this_machine_reaches(host: str, local: bool) -> None:
    assert is_loopback(host) is local
