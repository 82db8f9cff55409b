"""Document 003 as its own client uses it: against the embedded agent, and against the real CLIs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from tests.seeds.client_003 import Adapter, Json, check_stream, of

BOUND = 120.0

COVERS: dict[str, str] = {
    "Driver-Adapter Architecture": "test_a_whole_run",
    "Unified Event Stream": "test_a_whole_run",
    "Unified Event Stream | `init`": "test_a_whole_run",
    "Unified Event Stream | `text`": "test_a_whole_run",
    "Unified Event Stream | `text_delta`": "test_a_whole_run",
    "Unified Event Stream | `tool_use`": "test_a_whole_run",
    "Unified Event Stream | `tool_result`": "test_a_whole_run",
    "Unified Event Stream | `thinking`": "test_a_whole_run",
    "Unified Event Stream | `permission_request`": "test_a_refused_call_has_its_result",
    "Unified Event Stream | `done`": "test_a_whole_run",
    "Base Event": "test_a_whole_run",
    "Key Payloads": "test_a_whole_run test_a_refused_call_has_its_result",
    "Session Control": "test_abort",
}
DIFFERS: dict[str, str] = {}
HEADINGS: dict[str, str] = {
    "DR-002: Unified Event Stream and Adapter Interface": "the title",
    "Status": "a heading",
    "Context": "a heading",
    "Decision": "below",
    "References": "links",
}


def script(*replies: object) -> str:
    return json.dumps({"script": list(replies)})


@pytest.fixture
def adapter(tmp_path: Path) -> Adapter:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Adapter("understudy", cwd=str(workspace), env={"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "home")})


def collect(adapter: Adapter, prompt: str, **options: Any) -> list[Json]:
    async def main() -> list[Json]:
        async with asyncio.timeout(BOUND):
            return [event async for event in adapter.run(prompt, **options)]

    events = asyncio.run(main())
    check_stream(events)
    return events


def test_a_whole_run(adapter: Adapter) -> None:
    prompt = script([{"think": "hm"}, {"say": "Hello"}, {"shell": "echo out"}], [{"say": "Bye"}])
    events = collect(adapter, prompt, tier="autonomous")
    assert {"init", "thinking", "text", "text_delta", "tool_use", "tool_result", "done"} <= {e["type"] for e in events}
    assert events[0]["payload"]["cwd"] == adapter.surroundings["cwd"]
    [use], [result] = of(events, "tool_use"), of(events, "tool_result")
    assert (use["payload"]["input"], result["payload"]["status"]) == ({"command": "echo out"}, "success")
    assert "out" in result["payload"]["output"]
    done = events[-1]["payload"]
    assert (done["status"], done["result"], done["usage"]["toolUses"]) == ("success", "Bye", 1)


def test_a_refused_call_has_its_result(adapter: Adapter) -> None:
    questions: list[tuple[str, Json]] = []

    async def can_use_tool(request: stagedoor.PermissionRequest) -> stagedoor.Deny:
        questions.append((request.tool_name, request.input))
        return stagedoor.Deny("not today")

    events = collect(adapter, script([{"shell": "touch made"}], [{"say": "Then not."}]), can_use_tool=can_use_tool)
    assert questions == [("shell", {"command": "touch made"})]
    [request], [result] = of(events, "permission_request"), of(events, "tool_result")
    assert request["payload"]["toolUseId"] == result["payload"]["toolUseId"]
    assert (result["payload"]["toolName"], result["payload"]["status"]) == ("shell", "denied")
    assert not (Path(adapter.surroundings["cwd"]) / "made").exists()


def test_abort(adapter: Adapter) -> None:
    """``controller.abort()`` is ``token.cancel()``: the generator goes on to its ``done``."""

    async def main() -> list[Json]:
        token, events = stagedoor.CancelToken(), list[Json]()
        async with asyncio.timeout(BOUND):
            async for event in adapter.run(script([{"shell": "sleep 600"}]), tier="autonomous", cancel=token):
                events.append(event)
                if event["type"] == "tool_use":
                    token.cancel()
        return events

    events = asyncio.run(main())
    check_stream(events)
    assert events[-1]["payload"]["status"] == "interrupted"
