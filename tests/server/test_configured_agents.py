"""An agent that the configuration adds, through every door of the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from websockets.asyncio.client import connect

from stagedoor import AcpAgent, catalog
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.understudy import command

Script = Callable[..., str]


@pytest.fixture
def settings(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(catalog, "_configured", None)  # put back at the end
    modes: Any = {"supervised": "ask", "autonomous": "auto"}
    mine = AcpAgent(command=command(home=str(tmp_path / "mine")), modes=modes, name="mine", title="Mine")
    missing = AcpAgent(command=["no-such-agent"], name="missing", install="npm i -g no-such-agent")
    agents = {"mine": AgentSettings(acp=mine), "missing": AgentSettings(acp=missing)}
    return replace(settings, agents={**settings.agents, **agents})


def test_rest(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            agents = {agent["agent"]: agent for agent in (await client.get("/api/agents")).json()["agents"]}
            assert (agents["mine"]["title"], agents["mine"]["installed"]) == ("Mine", True)
            assert agents["mine"]["drivers"]["acp"]["supervised"] is True
            assert agents["mine"]["drivers"]["acp"]["dryRun"] is False
            assert (agents["missing"]["installed"], agents["missing"]["fix"]) == (False, "npm i -g no-such-agent")
            described = (await client.get("/openapi.json")).json()
            assert "mine" in described["components"]["schemas"]["SessionSpec"]["properties"]["agent"]["enum"]

            refused = await client.post("/api/sessions", json={"agent": "mine", "prompt": "x", "tier": "dry-run"})
            assert refused.status_code == 400
            assert "tier='dry-run' cannot be promised" in refused.json()["detail"]

            body = {"agent": "mine", "prompt": script([{"shell": "echo x > a.txt"}], [{"say": "Done"}])}
            session = (await client.post("/api/sessions", json=body)).json()
            path, after = f"/api/sessions/{session['id']}", 0
            while not (questions := (await client.get("/api/permissions")).json()["permissions"]):
                after = (await client.get(f"{path}/poll", params={"after": after})).json()["lastSeq"]
            assert questions[0]["request"]["input"]["command"] == "echo x > a.txt"
            await client.post(f"/api/permissions/{questions[0]['id']}", json={"decision": "allow"})
            while (view := (await client.get(path)).json())["state"] == "running":
                after = (await client.get(f"{path}/poll", params={"after": after})).json()["lastSeq"]
            assert (view["agent"], view["state"], view["result"]) == ("mine", "done", "Done")
            assert (server.workspace / "a.txt").read_text() == "x\n"

    asyncio.run(main())


def test_settings_over_rest(serve: Any, script: Script) -> None:
    """Before there is a session, while it runs, and after its program was put away."""

    async def main() -> None:
        async with serve() as server, server.client() as client:

            def shown(answer: Any) -> dict[str, str]:
                assert answer.status_code == 200, answer.text
                return {setting["id"]: setting["value"] for setting in answer.json()["settings"]}

            offered = await client.get("/api/agents/settings", params={"agent": "mine"})
            assert shown(offered) == {"mode": "ask", "model": "understudy", "effort": "medium"}
            agents = {agent["agent"]: agent for agent in (await client.get("/api/agents")).json()["agents"]}
            assert agents["mine"]["settings"] == offered.json()["settings"]
            missing = await client.get("/api/agents/settings", params={"agent": "missing"})
            assert (missing.status_code, "npm i -g no-such-agent" in missing.text) == (404, True)

            body = {"agent": "mine", "prompt": script([{"say": "Hello"}]), "effort": "high", "keepOpen": True}
            refused = await client.post("/api/sessions", json={**body, "mode": "auto"})
            assert (refused.status_code, "by its mode 'ask'" in refused.text) == (400, True)
            session = (await client.post("/api/sessions", json=body)).json()
            path, after = f"/api/sessions/{session['id']}", 0
            while (await client.get(path)).json()["activity"] != "idle":
                after = (await client.get(f"{path}/poll", params={"after": after})).json()["lastSeq"]
            assert shown(await client.get(f"{path}/settings")) == {
                "mode": "ask", "model": "understudy", "effort": "high",
            }  # fmt: skip
            change = {"id": "model", "value": "understudy-mini"}
            assert shown(await client.patch(f"{path}/settings", json=change))["model"] == "understudy-mini"
            assert (await client.get(path)).json()["model"] == "understudy-mini"
            for change, status in (
                ({"id": "mode", "value": "auto"}, 403),
                ({"id": "mode", "value": "nope"}, 400),
                ({"id": "nope", "value": "x"}, 400),
            ):
                assert (await client.patch(f"{path}/settings", json=change)).status_code == status, change
            by_settings = await client.patch(f"{path}/settings", json={"id": "model", "value": "nope"})
            by_session = await client.patch(path, json={"model": "nope"})
            assert (by_settings.status_code, by_session.status_code) == (400, 400)
            assert by_settings.json()["detail"] == by_session.json()["detail"]
            await client.post(f"{path}/cancel")
            assert (await client.patch(f"{path}/settings", json=change)).status_code == 409
            assert shown(await client.get(f"{path}/settings")) == {}

    asyncio.run(main())


def test_jsonrpc(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with (
            serve() as server,
            connect(f"{server.ws_url}/ws", additional_headers=server.headers, proxy=None) as socket,
        ):

            async def call(number: int, method: str, **params: Any) -> Any:
                await socket.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
                while (message := json.loads(await socket.recv())).get("id") != number:
                    notifications.append(json.dumps(message))
                return message["result"]

            notifications: list[str] = []

            discovered = await call(1, "agent/discover")
            assert "mine" in [agent["type"] for agent in discovered["available"]]
            assert "missing" in [agent["type"] for agent in discovered["unavailable"]]
            assert (await call(2, "agent/select", type="mine"))["name"] == "Mine"
            offered = await call(3, "agent/settings", type="mine")
            assert [setting["kind"] for setting in offered["settings"]] == ["mode", "model", "effort"]
            options = {"effort": "low", "tier": "autonomous", "mode": "plan"}
            prompt = script([{"say": "Hello"}])
            await call(4, "agent/run", prompt=prompt, mode="new", keepOpen=True, options=options)
            while not any('"Hello"' in message and "mine" in message for message in notifications):
                notifications.append(str(await socket.recv()))
            settings = (await call(5, "session/settings"))["settings"]
            assert [setting["value"] for setting in settings] == ["plan", "understudy", "low"]
            settings = (await call(6, "session/set", id="mode", value="auto"))["settings"]
            assert [setting["value"] for setting in settings] == ["auto", "understudy", "low"]

    asyncio.run(main())
