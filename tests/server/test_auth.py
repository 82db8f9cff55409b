"""Who comes in: tokens, scopes, revocation, and the file that holds the server's own token."""

from __future__ import annotations

import asyncio
import hmac
import re
import stat
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from stagedoor.errors import NotAllowed
from stagedoor.server.access.devices import RIGHTS, Caller, Devices, demand
from stagedoor.server.access.tokens import new_token, server_token, token_path
from stagedoor.server.rest.door import OPERATIONS
from stagedoor.service.config.settings import Settings
from stagedoor.service.service import Service
from stagedoor.service.views import Device, SessionSpec, SessionView

BOUND = 240.0
Value = TypeVar("Value")
OPEN_PATHS = ("/healthz", "/readyz")
CLOSED_PATHS = ("/api/me", "/api/devices", "/metrics", "/api/sessions", "/api/permissions", "/nothing/here")


def run(work: Coroutine[Any, Any, Value]) -> Value:
    return asyncio.run(asyncio.wait_for(work, BOUND))


async def paired(server: Any, scope: str, name: str = "phone") -> tuple[str, str]:
    """A device of that scope: its id and token."""
    async with server.client() as client:
        code = (await client.post("/api/pairing", json={"scope": scope})).json()["code"]
        answer = (await client.post("/api/pair", json={"code": code, "name": name})).json()
    return answer["deviceId"], answer["token"]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def open_session(server: Any, session_id: str = "idle-one") -> str:
    """A session that says nothing and does not end."""
    view = SessionView(id=session_id, agent="understudy", cwd=str(server.workspace), activity="asleep", keep_open=True)
    await server.service._journal.write(view)
    return session_id


def test_every_path_but_the_public_ones_needs_a_token(server: Any) -> None:
    with httpx.Client(base_url=server.url, timeout=240) as stranger:
        for path in OPEN_PATHS:
            assert (path, stranger.get(path).status_code) == (path, 200)
        for path in CLOSED_PATHS:
            answer = stranger.get(path)
            assert (path, answer.status_code) == (path, 401)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.json()["type"] == "urn:stagedoor:problem:not-signed-in"


WRONG = (
    "Bearer",
    "Bearer nonsense",
    "Bearer stagedoor_nonsense-that-is-long-enough-to-be-one",
    "Basic YTpi",
    "Bearer caf\u00e9",
)


def test_wrong_tokens_are_refused(server: Any) -> None:
    for shown in WRONG:
        answer = httpx.get(f"{server.url}/api/me", headers={"Authorization": shown.encode("latin-1")}, timeout=240)
        assert (shown, answer.status_code) == (shown, 401)


def test_a_token_in_the_url_counts_for_nothing(server: Any) -> None:
    for name in ("token", "access_token", "bearer"):
        assert httpx.get(f"{server.url}/metrics?{name}={server.token}", timeout=240).status_code == 401


def test_the_token_is_taken_from_the_header_the_cookie_and_the_subprotocol(serve: Any) -> None:
    async def main() -> None:
        async with serve() as server:
            session = await open_session(server)
            _, token = await paired(server, "watch")
            async with httpx.AsyncClient(base_url=server.url, timeout=240) as client:
                by_header = await client.get("/api/me", headers=bearer(token))
                by_cookie = await client.get("/api/me", headers={"Cookie": f"other=1; stagedoor={token}"})
                assert by_header.json() == by_cookie.json()
                assert by_header.json()["scopes"] == ["watch"]
            where = f"{server.ws_url}/ws/sessions/{session}"
            async with connect(where, subprotocols=["stagedoor", f"bearer.{token}"]) as socket:  # type: ignore[list-item]
                assert socket.subprotocol == "stagedoor"
                assert "verdict" in str(await socket.recv())
            with pytest.raises(InvalidStatus) as refused:
                async with connect(where, subprotocols=["stagedoor", "bearer.wrong"]):  # type: ignore[list-item]
                    pass
            assert refused.value.response.status_code == 401
            with pytest.raises(InvalidStatus):
                await connect(where)

    run(main())


@pytest.mark.parametrize("scope", RIGHTS)
def test_each_scope_implies_those_before_it(scope: Any) -> None:
    caller = Caller("id", "phone", (scope,))
    reach = RIGHTS.index(scope) + 1
    for right in RIGHTS[:reach]:
        demand(caller, right)
    for right in RIGHTS[reach:]:
        with pytest.raises(NotAllowed, match=right):
            demand(caller, right)


def test_scopes_hold_at_the_doors(serve: Any) -> None:
    async def main() -> None:
        async with serve() as server:
            session = await open_session(server)
            for scope in RIGHTS:
                _, token = await paired(server, scope)
                async with httpx.AsyncClient(base_url=server.url, headers=bearer(token), timeout=240) as client:
                    got = {
                        "watch": (await client.get(f"/api/sessions/{session}")).status_code,
                        "answer": (await client.post(f"/api/permissions/{session}:x", json={})).status_code,
                        "run": (await client.post(f"/api/sessions/{session}/interrupt")).status_code,
                        "admin": (await client.get("/api/devices")).status_code,
                    }
                    may = RIGHTS[: RIGHTS.index(scope) + 1]
                    assert {right: status != 403 for right, status in got.items()} == {
                        right: right in may for right in RIGHTS
                    }, (scope, got)

    run(main())


def test_each_operation_takes_its_scope_and_no_less(serve: Any) -> None:
    """Whoever may not is told so before anything else is looked at: what these requests ask for is nonsense."""

    async def main() -> None:
        async with serve() as server:
            tokens = {scope: (await paired(server, scope))[1] for scope in RIGHTS}
            for operation in OPERATIONS:
                path = re.sub(r"\{\w+\}", "nobody", operation.path) + "?nonsense=1"
                got: dict[str, int] = {}
                for scope, headers in {"": {}, **{scope: bearer(token) for scope, token in tokens.items()}}.items():
                    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=240) as client:
                        body = {"json": {"nonsense": 1}} if operation.method in ("POST", "PATCH") else {}
                        got[scope] = (await client.request(operation.method, path, **body)).status_code
                if operation.scope is None:
                    assert 401 not in got.values()
                    continue
                may = RIGHTS[RIGHTS.index(operation.scope) :]
                refused = {"": 401, **{scope: 403 for scope in RIGHTS if scope not in may}}
                assert {scope: got[scope] for scope in refused} == refused, operation.name
                assert not {got[scope] for scope in may} & {401, 403, 500}, (operation.name, got)

    run(main())


def test_revoking_a_device_ends_its_open_streams_at_once_and_nobody_elses(serve: Any) -> None:
    async def main() -> None:
        async with serve() as server:
            session = await open_session(server)
            device, token = await paired(server, "watch")
            _, other = await paired(server, "watch", "laptop")
            where = f"{server.ws_url}/ws/sessions/{session}"
            async with (
                connect(where, additional_headers=bearer(token)) as theirs,
                connect(where, additional_headers=bearer(other)) as kept,
                httpx.AsyncClient(base_url=server.url, timeout=30) as client,
                client.stream("GET", f"/api/sessions/{session}/stream", headers=bearer(token)) as sse,
                server.client() as admin,
            ):
                await theirs.recv()
                await kept.recv()
                chunks = sse.aiter_text()
                assert "verdict" in await anext(chunks)
                poll = f"/api/sessions/{session}/poll?wait=30"
                polled = asyncio.create_task(client.get(poll, headers=bearer(token)))
                while server.app.state.devices.open_visits < 4:
                    await asyncio.sleep(0.01)
                assert (await admin.delete(f"/api/devices/{device}")).status_code == 204
                with pytest.raises(ConnectionClosed) as closed:
                    await theirs.recv()
                assert closed.value.rcvd is not None
                assert (closed.value.rcvd.code, "revoked" in closed.value.rcvd.reason) == (4401, True)
                assert "verdict" not in "".join([part async for part in chunks])
                assert (await polled).status_code == 401
                assert (await client.get("/api/me", headers=bearer(token))).status_code == 401
                assert (await client.get("/api/me", headers=bearer(other))).status_code == 200
                await (await kept.ping())

    run(main())


def test_a_revoked_device_stays_out_after_a_restart(serve: Any) -> None:
    async def main() -> None:
        async with serve() as server:
            device, token = await paired(server, "admin")
            _, kept = await paired(server, "watch")
            async with server.client() as admin:
                await admin.delete(f"/api/devices/{device}")
        async with serve() as server, httpx.AsyncClient(base_url=server.url, timeout=240) as client:
            assert (await client.get("/api/me", headers=bearer(token))).status_code == 401
            assert (await client.get("/api/me", headers=bearer(kept))).status_code == 200

    run(main())


def test_only_the_hash_of_a_devices_token_is_kept(serve: Any) -> None:
    async def main() -> tuple[str, list[Device], Path]:
        async with serve() as server:
            _, token = await paired(server, "watch")
            return token, await server.service._store.devices(), server.home

    token, devices, home = run(main())
    assert [device.token_hash == token for device in devices] == [False]
    for path in home.rglob("*"):
        assert not path.is_file() or token.encode() not in path.read_bytes(), path


def test_the_servers_token_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    token = server_token(home)
    assert server_token(home) == token
    assert len(token) > 40
    assert new_token() != token
    assert stat.S_IMODE(token_path(home).stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def _readable(path: Path) -> None:
    path.chmod(0o640)


def _empty(path: Path) -> None:
    path.write_text("\n")


def _linked(path: Path) -> None:
    moved = path.rename(path.with_name("moved"))
    path.symlink_to(moved)


@pytest.mark.parametrize("spoil", [_readable, _empty, _linked])
def test_a_token_file_that_is_no_secret_is_refused(tmp_path: Path, spoil: Any) -> None:
    server_token(tmp_path)
    spoil(token_path(tmp_path))
    with pytest.raises((NotAllowed, OSError)):
        server_token(tmp_path)


def test_a_caller_is_compared_with_every_device_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison goes through ``hmac.compare_digest`` for each of them, found or not."""
    genuine = hmac.compare_digest
    seen: list[tuple[bytes, bytes]] = []

    def counting(first: bytes, other: bytes) -> bool:
        seen.append((first, other))
        return genuine(first, other)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    known = Devices(None, "stagedoor_local", now=lambda: 0)  # type: ignore[arg-type]
    for n in range(3):
        known._devices[str(n)] = Device(id=str(n), name="", scopes=("watch",), token_hash="f" * 64, created_at=0)
    assert known.caller("stagedoor_local") is not None
    assert known.caller("stagedoor_other") is None
    assert len(seen) == 2 * (1 + 3)


def test_agents_do_not_get_the_servers_secrets(serve: Any, script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEDOOR_SERVER_TOKEN", "stagedoor_in-the-environment-of-the-server")

    async def main() -> str:
        async with serve() as server:
            spec = SessionSpec(prompt=script([{"shell": "env > env.txt"}], [{"say": "ok"}]), tier="autonomous")
            view = await server.service.sessions.create(spec)
            async for _ in server.service.events.follow(view.id, 0):
                pass
            return str((server.workspace / "env.txt").read_text())

    environment = run(main())
    assert "PATH=" in environment
    assert "stagedoor_in-the-environment" not in environment
    assert "STAGEDOOR_HOME=" not in environment


def test_what_one_door_does_to_a_device_holds_at_the_others(settings: Settings) -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND), Service(settings) as service:
            doors = [Devices(service.devices, "stagedoor_local") for _ in range(2)]
            for door in doors:
                await door.open()
            try:
                device, token = await doors[0].add("phone", "a phone", "run")
                while (caller := doors[1].caller(token)) is None:
                    await asyncio.sleep(0)  # until it has heard
                assert (caller.device_id, caller.scopes) == (device.id, ("run",))

                async def stays() -> str:
                    with doors[1].visit(caller) as visit:
                        entered.set()
                        try:
                            await asyncio.Event().wait()
                        except asyncio.CancelledError:
                            visit.absorb()
                        return visit.ended_by or ""

                entered = asyncio.Event()
                async with asyncio.TaskGroup() as group:
                    staying = group.create_task(stays())
                    await entered.wait()
                    await doors[0].revoke(device.id)
                    assert await staying == "revoked"
                assert doors[1].caller(token) is None
            finally:
                for door in doors:
                    await door.close()

    asyncio.run(main())
