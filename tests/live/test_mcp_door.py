"""Real agents as callers of the MCP door: each starts another agent through ``stagedoor mcp`` and reads its result."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.server.app import create_app
from stagedoor.server.listening import listening, open_socket
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.service import Service
from stagedoor.service.store import Query
from stagedoor.service.views import SessionSpec
from stagedoor.testing import ScriptedModel, find_cli, mcp, say
from stagedoor.unified.options import McpServer

pytestmark = pytest.mark.live
BOUND = 300.0
INNER = json.dumps({"script": [[{"shell": "touch made-below"}], [{"say": "done below"}]]})


class Posts:
    """Counts what comes to the door: it tells when somebody has read the list of tools."""

    def __init__(self, app: Any, seen: list[str]) -> None:
        self._app = app
        self._seen = seen

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)
        if scope.get("path") == "/mcp":
            self._seen.append(scope["method"])


CASES = [("claude", "stdio"), ("codex", "stdio"), ("kimi", "stdio"), ("codex", "http"), ("claude", "http")]


@pytest.mark.parametrize(("agent", "over"), CASES, ids=lambda word: word)
def test_an_agent_uses_another_agent(
    agent: str, over: str, tmp_path: Path, scripted_model: Callable[..., ScriptedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of a real agent starts one of the embedded agent: seen as its child, with its rights, in its folder.
    Over streamable HTTP it is a caller with a token for this door, and with the rights of that."""
    if (agent, over) == ("claude", "http") and os.environ.get("STAGEDOOR_CONTRACT") != "1":
        pytest.skip("played by make contract")
    executable = find_cli(agent)
    if executable is None:
        pytest.skip(f"{agent} is not installed: run `make clis`")
    repo, home = tmp_path / "repo", tmp_path / "stagedoor-home"
    repo.mkdir()
    monkeypatch.setenv("STAGEDOOR_HOME", str(home))
    work = [
        mcp("stagedoor", "list"),  # the first turn may be faster than the program that serves the tools
        mcp("stagedoor", "start", prompt=INNER, agent="understudy", tier="autonomous"),
        mcp("stagedoor", "start", prompt=INNER, agent="understudy", cwd=str(repo)),
        *([mcp("stagedoor", "wait", seconds=50)] * 3),
        say("Done."),
    ]
    model = scripted_model(routes={"greet": [say("Hello.")], "delegate": work})
    environment = model.environment(agent, home=tmp_path / "home", cwd=repo)
    settings = Settings(
        home=str(home), roots=(str(tmp_path),), tier="supervised",
        agents={
            agent: AgentSettings(command=str(executable), env=environment.env, model=environment.model),
            "understudy": AgentSettings(env={"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "understudy")}),
        },
    )  # fmt: skip
    token = tmp_path / "token"
    token.write_text("stagedoor_a-token-for-this-test-alone")
    service = Service(settings)
    app = create_app(service, token=token.read_text())
    posts: list[str] = []
    app.add_middleware(Posts, seen=posts)

    async def scene() -> None:
        socket = open_socket("127.0.0.1", 0)
        url = f"http://127.0.0.1:{socket.getsockname()[1]}"
        arguments = ("-m", "stagedoor.cli", "mcp", "--server", url, "--token-file", str(token))
        async with asyncio.timeout(BOUND), listening(app, settings, socket):
            servers = {"stagedoor": McpServer(command=sys.executable, args=arguments)}
            if over == "http":
                _, secret = await app.state.devices.add("device-model", "model", "call")
                headers = {"Authorization": f"Bearer {secret}"}
                servers = {"stagedoor": McpServer(transport="http", url=f"{url}/mcp", headers=headers)}
            spec = SessionSpec(prompt="greet", agent=agent, cwd=str(repo), mcp_servers=servers, keep_open=True)
            top = await service.sessions.create(spec)
            while len(posts) < 3:  # initialize, initialized, tools/list
                await asyncio.sleep(0.05)
            await service.sessions.send(top.id, "delegate")
            while (view := await service.sessions.get(top.id)).turn < 2 or view.activity != "idle":
                for question in await service.questions.list():
                    with contextlib.suppress(stagedoor.AlreadyAnswered):
                        await service.questions.answer(question.id, stagedoor.Allow(), who="a person")
                await asyncio.sleep(0.05)
            outputs = [
                json.loads(record.body).get("output", "")
                for record in await service.events.read(top.id)
                if record.type == "tool_result"
            ]
            children = [view for view in await service.sessions.list(Query()) if view.id != top.id]
            assert [view.parent for view in children] == [top.id if over == "stdio" else ""], outputs
            assert [(view.agent, view.tier, view.cwd) for view in children] == [
                ("understudy", "supervised", str(repo))
            ], outputs
            assert children[0].result == "done below"
            assert (repo / "made-below").exists()
            refusal = "may do more than the one that starts it" if over == "stdio" else "is more than you may ask for"
            assert refusal in outputs[1], outputs
            assert "done below" in outputs[-1], outputs

    asyncio.run(scene())
