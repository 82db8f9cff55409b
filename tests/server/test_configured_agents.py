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
            await call(3, "agent/run", prompt=script([{"say": "Hello"}]), mode="new")
            while not any('"Hello"' in message and "mine" in message for message in notifications):
                notifications.append(str(await socket.recv()))

    asyncio.run(main())
