"""Document 003 as its own client uses it: against the embedded agent, and against the real CLIs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor import catalog
from stagedoor.testing import ScriptedModel, find_cli, say, shell
from tests.seeds.client_003 import Adapter, Json, check_stream, of

BOUND = 120.0

COVERS: dict[str, str] = {
    "Driver-Adapter Architecture": "test_a_whole_run test_the_real_clis",
    "Unified Event Stream": "test_a_whole_run test_the_real_clis",
    "Unified Event Stream | `init`": "test_a_whole_run test_the_real_clis",
    "Unified Event Stream | `text`": "test_a_whole_run test_the_real_clis",
    "Unified Event Stream | `text_delta`": "test_a_whole_run",
    "Unified Event Stream | `tool_use`": "test_a_whole_run test_the_real_clis",
    "Unified Event Stream | `tool_result`": "test_a_whole_run test_the_real_clis",
    "Unified Event Stream | `thinking`": "test_a_whole_run",
    "Unified Event Stream | `error`": "test_an_error",
    "Unified Event Stream | `permission_request`": "test_a_refused_call_has_its_result test_the_real_clis",
    "Unified Event Stream | `done`": "test_a_whole_run test_the_real_clis",
    "Base Event": "test_a_whole_run test_the_real_clis",
    "Key Payloads": "test_a_whole_run test_a_refused_call_has_its_result test_lists_of_tools "
    "test_a_limit_of_the_real_claude_code",
    "Unified Permission Model (UPM)": "test_tiers_and_modes",
    "Unified Permission Model (UPM) | `dry-run`": "test_tiers_and_modes",
    "Unified Permission Model (UPM) | `supervised`": "test_tiers_and_modes",
    "Unified Permission Model (UPM) | `autonomous`": "test_tiers_and_modes",
    "Adapter Interface": "test_lists_of_tools test_resume_the_last_session test_is_available test_the_real_clis",
    "Session Control": "test_abort",
    "Parallel Execution": "test_parallel",
    "Consequences": "test_lists_of_tools test_what_cannot_be_done_is_refused test_the_real_clis "
    "test_a_limit_of_the_real_claude_code",
}
DIFFERS: dict[str, str] = {
    "Unified Permission Model (UPM)": "`permissionTier` is `tier` and `permissionMode` is `approval`, never ignored; "
    "it knows more words (`askDangerous`), and `plan` is the tier `dry-run`",
    "Adapter Interface": "`canUseTool` gets one request (`tool_name`, `input`, risk …) and returns `Allow` or `Deny`; "
    "it works headless on every agent; `isAvailable` is `discover`",
    "Session Control": "the signal is a `CancelToken`, and asyncio's own cancellation works too",
}
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
    assert done["usage"]["totalCostUsd"] == 0.0  # it costs nothing, and says so
    assert isinstance(result["payload"]["durationMs"], int | float)
    more = {event["type"] for event in events if ":" in event["type"]}
    assert more  # further types have a namespace, and whoever ignores them misses none of the nine
    assert all(kind.split(":")[0] for kind in more)


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


def test_an_error(adapter: Adapter) -> None:
    events = collect(adapter, script([{"http_error": 401}]), tier="autonomous")
    error = of(events, "error")[-1]["payload"]
    assert isinstance(error["message"], str)
    assert error["message"]
    assert error["recoverable"] is False
    assert events[-1]["payload"]["status"] == "error"


@pytest.mark.parametrize(
    ("options", "status", "made"),
    [
        ({"tier": "dry-run"}, "error", []),
        ({"tier": "supervised"}, "denied", []),
        ({"tier": "autonomous"}, "success", ["made"]),
        ({"tier": "autonomous", "approval": "plan"}, "error", []),
        ({"approval": "plan"}, "error", []),
        ({"approval": "default"}, "denied", []),
        ({"tier": "autonomous", "approval": "default"}, "success", ["made"]),
        ({"approval": "ask"}, "denied", []),
        ({"approval": "accept_edits"}, "denied", []),
        ({"approval": "bypass"}, "success", ["made"]),
    ],
)
def test_tiers_and_modes(adapter: Adapter, options: Json, status: str, made: list[str]) -> None:
    """Nobody answers, so whatever is asked about is denied; and every call has its result. In a dry run the agent does
    not even ask: it refuses by itself."""
    events = collect(adapter, script([{"shell": "touch made"}], [{"say": "Done."}]), **options)
    assert [event["payload"]["status"] for event in of(events, "tool_result")] == [status]
    assert [path.name for path in Path(adapter.surroundings["cwd"]).iterdir()] == made


TOOLS = [
    "shell", "read_file", "write_file", "edit_file", "delete_file", "search_content", "find_files", "task", "plan",
    "question",
]  # fmt: skip


@pytest.mark.parametrize(
    ("lists", "made", "tools"),
    [
        ({}, ["a.txt", "made"], TOOLS),
        ({"allowed_tools": ["write"]}, ["a.txt"], ["write_file"]),
        ({"disallowed_tools": ["shell"]}, ["a.txt"], TOOLS[1:]),
        ({"allowed_tools": ["write", "shell"], "disallowed_tools": ["write"]}, ["made"], ["shell"]),
    ],
)
def test_lists_of_tools(adapter: Adapter, lists: Json, made: list[str], tools: list[str]) -> None:
    """Only those can be used, and ``init.tools`` says so."""
    prompt = script([{"shell": "touch made"}, {"write_file": {"path": "a.txt", "content": "x"}}], [{"say": "Done."}])
    events = collect(adapter, prompt, tier="autonomous", **lists)
    assert sorted(path.name for path in Path(adapter.surroundings["cwd"]).iterdir()) == made
    statuses = [event["payload"]["status"] for event in of(events, "tool_result")]
    assert len(statuses) == 2
    assert statuses.count("success") == len(made)
    assert events[0]["payload"]["tools"] == tools
    assert events[0]["payload"]["capabilities"]["toolList"] is True


def test_resume_the_last_session(adapter: Adapter) -> None:
    with pytest.raises(stagedoor.SessionNotFound, match="has no session in"):
        collect(adapter, script([{"say": "None."}]), resume="last")
    collect(adapter, script([{"say": "One."}]))
    first = collect(adapter, script([{"say": "Two."}]))
    again = collect(adapter, script([{"say": "Three."}]), resume="last")
    native = [events[0]["metadata"]["nativeSessionId"] for events in (first, again)]
    assert native[0] == native[1]
    assert again[0]["metadata"]["resumed"] is True
    by_id = collect(adapter, script([{"say": "Four."}]), resume=native[0])
    assert by_id[0]["metadata"]["nativeSessionId"] == native[0]
    assert by_id[-1]["payload"]["result"] == "Four."


def test_is_available(adapter: Adapter, tmp_path: Path) -> None:
    assert asyncio.run(adapter.is_available())
    nowhere = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    assert not asyncio.run(Adapter("kimi", env=nowhere).is_available())


def test_what_cannot_be_done_is_refused(adapter: Adapter) -> None:
    for limit in ({"max_turns": 3}, {"max_budget_usd": 1.0}):
        with pytest.raises(stagedoor.NotSupported, match=next(iter(limit))):
            collect(adapter, script([{"say": "Hello."}]), **limit)


def test_parallel(adapter: Adapter) -> None:
    async def main() -> dict[str, list[str]]:
        tasks = [stagedoor.Task("understudy", script([{"say": word}]), name=word) for word in ("One.", "Two.")]
        streams: dict[str, list[str]] = {}
        async with asyncio.timeout(BOUND):
            async for tagged in stagedoor.run_parallel(tasks, **adapter.surroundings):
                streams.setdefault(tagged.task.name, []).append(tagged.event.type)
                assert tagged.agent == "understudy"
        return streams

    streams = asyncio.run(main())
    assert {name: (types[0], types[-1]) for name, types in streams.items()} == {
        "One.": ("init", "done"),
        "Two.": ("init", "done"),
    }


LIMITS = {"claude": {"max_turns": 5, "max_budget_usd": 5.0}, "gemini": {"max_turns": 5}}
"""Those of the document that the agent has."""


@pytest.mark.live
@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "opencode"])
def test_the_real_clis(tmp_path: Path, agent: str) -> None:
    """One refused and one allowed call; the same client, whichever CLI it is."""
    program = find_cli(agent)
    if program is None:
        pytest.skip(f"{agent} is not installed: run `make clis`")
    (tmp_path / "repo").mkdir()

    def decide(request: stagedoor.PermissionRequest) -> stagedoor.Allow | stagedoor.Deny:
        return stagedoor.Deny("no") if "not" in str(request.input) else stagedoor.Allow()

    offered: set[str] = set()

    async def main() -> list[Json]:
        async with ScriptedModel([shell("touch not"), shell("touch made"), say("Done.")]) as model:
            place = model.environment(agent, home=tmp_path / "home", cwd=tmp_path / "repo")
            real = Adapter(
                agent, cwd=str(tmp_path / "repo"), env=place.env, inherit_env=False, executable=str(program),
                model=place.model, **LIMITS.get(agent, {}),
            )  # fmt: skip
            async with asyncio.timeout(BOUND):
                events = [event async for event in real.run("Go.", approval="ask", can_use_tool=decide)]
            offered.update(name for request in model.requests if not request.side for name in request.tools)
            return events

    events = asyncio.run(main())
    check_stream(events)
    own = catalog.agent(agent).tools
    assert events[0]["agent"] == {"claude": "claude-code"}.get(agent, agent)
    # The program's own word, which the model's requests bear out; Codex and Gemini CLI say nothing of it.
    tools, plumbing = events[0]["payload"]["tools"], {tool.name for tool in own if tool.control == "plumbing"}
    assert bool(tools) is events[0]["payload"]["capabilities"]["toolList"] is (agent in ("claude", "opencode"))
    assert not tools or offered - plumbing <= set(tools)
    assert len(of(events, "permission_request")) == 2
    assert [event["payload"]["status"] for event in of(events, "tool_result")] == ["denied", "success"]
    assert [path.name for path in (tmp_path / "repo").iterdir()] == ["made"]
    assert events[-1]["payload"]["result"] == "Done."
    assert catalog.agent(agent).title


@pytest.mark.live
@pytest.mark.parametrize(
    ("limit", "status"), [({"max_turns": 1}, "max_turns"), ({"max_budget_usd": 1e-9}, "max_budget")]
)
def test_a_limit_of_the_real_claude_code(tmp_path: Path, limit: Json, status: str) -> None:
    """``DonePayload.status`` says which limit has ended it."""
    if (program := find_cli("claude")) is None:
        pytest.skip("claude is not installed: run `make clis`")
    (tmp_path / "repo").mkdir()
    with ScriptedModel([shell("echo one"), shell("echo two"), say("Done.")]) as model:
        place = model.environment("claude", home=tmp_path / "home", cwd=tmp_path / "repo")
        real = Adapter(
            "claude", cwd=str(tmp_path / "repo"), env=place.env, inherit_env=False, executable=str(program),
            model=place.model,
        )  # fmt: skip
        events = collect(real, "Go.", tier="autonomous", **limit)
        assert events[-1]["payload"]["status"] == status
        assert events[-1]["payload"]["usage"]["toolUses"] <= 1
