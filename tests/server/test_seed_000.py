"""What seed 000 shows of its server (§2.2, §3.1 to §3.5, §8), word for word: with the embedded agent and a real CLI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from stagedoor.catalog import names
from stagedoor.dialects.schemas import board_schema, lifecycle_schema, session_request_schema
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.testing import ScriptedModel, edit_file, find_cli, read_file, say

Script = Callable[..., str]
Json = dict[str, Any]
PROMPT = "Refactor the authentication module"
STATES = ("running", "done", "failed", "cancelled")
BOARD = jsonschema.Draft7Validator(board_schema())
LIFECYCLE = jsonschema.Draft7Validator(lifecycle_schema(names()))
REQUEST = jsonschema.Draft7Validator(session_request_schema(names()))
OLD, NEW = "function login() {}\n", "async function login() {}\n"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The project of the seed's request."""
    project = Path(settings.roots[0]) / "my-project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "auth.ts").write_text(OLD)
    return settings


async def _nothing(_: Json) -> None:
    return


async def _watched(
    server: Any, session_id: str, react: Callable[[Json], Any] = _nothing, *, dialect: str = "board"
) -> list[Json]:
    """§3.5: connect, hear everything from the start, then what comes, until the server closes."""
    events: list[Json] = []
    where = f"{server.ws_url}/ws/sessions/{session_id}?dialect={dialect}"
    async with connect(where, additional_headers=server.headers, proxy=None) as socket:
        async for message in socket:
            events.append(json.loads(message))
            await react(events[-1])
        assert socket.close_code == 1000
    return events


async def _play(server: Any, agent: str, prompt: str) -> tuple[Json, list[Json]]:
    """The whole of §2.2 and §3.1; every question is answered with yes."""
    async with server.client() as client:
        body = {"agentId": agent, "projectId": "my-project", "prompt": prompt}
        made = await client.post("/api/sessions", json=body)
        assert made.status_code == 201
        assert made.json()["state"] == "running"
        session_id = made.json()["id"]

        async def answer(event: Json) -> None:
            if event["type"] == "permission_request":
                question = event["requestId"]
                await client.post(f"/api/permissions/{question}", json={"decision": "allow"})

        live, _ = await asyncio.gather(
            _watched(server, session_id), _watched(server, session_id, answer, dialect="stagedoor")
        )
        assert await _watched(server, session_id) == live  # whoever comes late hears the same
        assert await _paged(client, session_id) == live
        view = (await client.get(f"/api/sessions/{session_id}")).json()
        late = (await client.post(f"/api/sessions/{session_id}/cancel")).json()
        assert late["state"] == view["state"]  # what has ended stays as it is
    for event in live:
        BOARD.validate(event)
        assert event["sessionId"] == session_id
    assert len({event["id"] for event in live}) == len(live)
    return view, live


async def _paged(client: httpx.AsyncClient, session_id: str) -> list[Json]:
    found: list[Json] = []
    while True:
        params = {"offset": len(found), "limit": 3, "dialect": "board"}
        page = (await client.get(f"/api/sessions/{session_id}/events", params=params)).json()
        assert page["state"] in STATES
        found += page["events"]
        if not page["events"]:
            return found


def _refactored(server: Any, view: Json, live: list[Json]) -> None:
    project = server.workspace / "my-project"
    assert (view["state"], view["projectId"], view["cwd"]) == ("done", "my-project", str(project))
    assert (project / "src" / "auth.ts").read_text() == NEW
    shown = {event["type"]: event["payload"] for event in live}
    assert {"log", "action", "diff", "toolResult"} <= set(shown)
    assert shown["action"].keys() >= {"tool", "args"}
    assert {name: shown["toolResult"][name] for name in ("tool", "success")} == {
        "tool": shown["action"]["tool"],
        "success": True,
    }
    assert shown["diff"]["file"].endswith("src/auth.ts")
    assert "+async function login() {}" in shown["diff"]["diff"]


def test_a_session_of_the_board_from_request_to_end(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server:
            edit = {"edit_file": {"path": "src/auth.ts", "old": OLD, "new": NEW}}
            prompt = script([{"say": "Reading file: src/auth.ts"}, edit], [{"say": "ok"}])
            _refactored(server, *await _play(server, "understudy", prompt))

    asyncio.run(main())


def test_a_session_request_and_its_events_as_their_schemas_say(serve: Any, settings: Settings, script: Script) -> None:
    """§8.2 with every field that this agent knows; §8.1."""

    async def main() -> list[Json]:
        async with serve() as server, server.client() as client:
            config = {
                "projectId": "my-project", "workingDirectory": str(server.workspace / "my-project"), "model": "fast",
                "approvalMode": "autoAll", "sandboxMode": "none",
            }  # fmt: skip
            body = {
                "agentType": "understudy",
                "prompt": script([{"shell": "echo tested"}], [{"say": "ok"}]),
                "config": config,
            }
            REQUEST.validate(body)
            made = await client.post("/api/sessions", json=body)
            assert made.status_code == 201, made.text

            return await _watched(server, made.json()["id"], dialect="lifecycle")

    live = asyncio.run(main())
    for event in live:
        LIFECYCLE.validate(event)
    assert (live[0]["type"], live[-1]["type"]) == ("sessionStarted", "sessionEnded")


def test_a_running_session_is_cancelled(serve: Any, script: Script) -> None:
    """§2.2, §3.1, §3.2: the state, and the event that confirms it, after which the stream closes."""

    async def main() -> None:
        async with serve() as server, server.client() as client:
            body = {"agentId": "understudy", "projectId": "my-project", "prompt": script([{"shell": "echo never"}])}
            session_id = (await client.post("/api/sessions", json=body)).json()["id"]

            async def cancel(event: Json) -> None:
                if event["type"] == "action":
                    assert (await client.get(f"/api/sessions/{session_id}")).json()["state"] == "running"
                    over = await client.post(f"/api/sessions/{session_id}/cancel")
                    assert (over.status_code, over.json()["state"]) == (200, "cancelled")

            live = await _watched(server, session_id, cancel)
            assert live[-1]["type"] == "cancelled"
            assert (await client.get(f"/api/sessions/{session_id}")).json()["state"] == "cancelled"

    asyncio.run(main())


def test_a_session_that_is_not_there(serve: Any) -> None:
    """§3.5: the server looks first whether the session exists."""

    async def main() -> None:
        async with serve() as server, server.client() as client:
            assert (await client.get("/api/sessions/550e8400-e29b-41d4-a716-446655440000")).status_code == 404
            where = f"{server.ws_url}/ws/sessions/550e8400-e29b-41d4-a716-446655440000"
            async with connect(where, additional_headers=server.headers, proxy=None) as socket:
                with pytest.raises(ConnectionClosed):
                    await socket.recv()
                assert socket.close_code == 4404

    asyncio.run(main())


@pytest.mark.live
@pytest.mark.skipif(find_cli("claude") is None, reason="Claude Code is not installed")
def test_a_session_of_the_board_with_the_real_claude_code(serve: Any, settings: Settings, tmp_path: Path) -> None:
    project = Path(settings.roots[0]) / "my-project"
    script = [read_file("src/auth.ts"), edit_file("src/auth.ts", OLD, NEW), say("Done.")]
    with ScriptedModel(script) as model:
        env = model.environment("claude", cwd=project, home=tmp_path / "claude").env
        how = AgentSettings(command=str(find_cli("claude")), env=env)

        async def main() -> None:
            async with serve(agents={**settings.agents, "claude": how}) as server:
                _refactored(server, *await _play(server, "claude", PROMPT))

        asyncio.run(main())
        model.assert_consumed()


def test_a_server_and_a_device_that_speak_the_board_by_themselves(serve: Any, script: Script) -> None:
    """§3.5 word for word: a client that knows of no dialects. A query still wins, then the device."""

    async def main() -> None:
        async with serve(dialect="board") as server, server.client() as client:
            body = {"agentId": "understudy", "projectId": "my-project", "prompt": script([{"say": "Hello"}])}
            session_id = (await client.post("/api/sessions", json=body)).json()["id"]
            live = await _watched(server, session_id)
            where = f"/api/sessions/{session_id}/events"

            async def types(headers: dict[str, str], **query: str) -> set[str]:
                page = (await client.get(where, params=query, headers=headers)).json()
                return {event["type"] for event in page["events"]}

            async with connect(
                f"{server.ws_url}/ws/sessions/{session_id}", additional_headers=server.headers, proxy=None
            ) as socket:
                assert [json.loads(message) async for message in socket] == live
            assert await types({}) == {event["type"] for event in live}
            assert "init" in await types({}, dialect="stagedoor")
            code = (await client.post("/api/pairing", json={"scope": "watch", "dialect": "lifecycle"})).json()["code"]
            paired = (await client.post("/api/pair", json={"code": code})).json()
            device = {"Authorization": f"Bearer {paired['token']}"}
            assert "sessionStarted" in await types(device)
            changed = await client.patch(f"/api/devices/{paired['deviceId']}", json={"dialect": ""}, headers=device)
            assert changed.json()["dialect"] == ""
            assert await types(device) == {event["type"] for event in live}

    asyncio.run(main())
