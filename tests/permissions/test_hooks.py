"""The user's own commands around a call: with the embedded agent, end to end."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.errors import BadRequest
from stagedoor.unified.events import Event, Notice, PermissionRequest, PermissionResolved, ToolResult, encode
from stagedoor.unified.options import HOOKED_EVENTS

SCRIPT = json.dumps({"script": [[{"shell": "echo made > made"}], [{"say": "ok"}]]})


def hook(folder: Path, name: str, body: str) -> Path:
    file = folder / name
    file.write_text(f"#!{sys.executable}\nimport json, sys, time\ncall = json.load(sys.stdin)\n{body}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def play(workspace: Path, **options: Any) -> list[Event]:
    env = {"STAGEDOOR_UNDERSTUDY_HOME": str(workspace.parent / "understudy")}

    async def main() -> list[Event]:
        async with asyncio.timeout(120):
            async with stagedoor.open("understudy", cwd=str(workspace), env=env, **options) as session:
                return [event async for event in session.send(SCRIPT)]

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "tier", "ran", "words"),
    [
        ("print('allow')", "supervised", True, ""),
        ("print(json.dumps({'decision': 'deny', 'message': 'not today'}))", "autonomous", False, "not today"),
        ("print('ask')", "autonomous", True, ""),
        ("print('ask')", "supervised", False, "nobody can be asked"),
        ("print('perhaps')", "autonomous", False, "not valid"),
        ("pass", "autonomous", False, "not valid"),
        ("print('allow'); sys.exit(3)", "autonomous", False, "ended with code 3"),
        ("print(json.dumps({'decision': 'allow', 'else': 1}))", "autonomous", False, "not valid"),
    ],
)
def test_it_decides_and_whatever_goes_wrong_is_a_no(
    tmp_path: Path, workspace: Path, body: str, tier: Any, ran: bool, words: str
) -> None:
    before = hook(tmp_path, "before", body)
    events = play(workspace, tier=tier, before_tool_call=[str(before)])
    assert (workspace / "made").exists() is ran
    (answer,) = (event for event in events if isinstance(event, PermissionResolved))
    assert answer.decision == ("allow" if ran else "deny")
    assert words in answer.message
    assert [event.automatic for event in events if isinstance(event, PermissionRequest)] == [True]


def test_no_answer_in_time_is_a_no(tmp_path: Path, workspace: Path) -> None:
    before = hook(tmp_path, "before", "time.sleep(600)")
    events = play(workspace, tier="autonomous", before_tool_call=[str(before)], hook_timeout=1.0)
    (answer,) = (event for event in events if isinstance(event, PermissionResolved))
    assert (answer.decision, "did not answer within 1 s" in answer.message) == ("deny", True)
    assert not (workspace / "made").exists()


def test_what_both_receive(tmp_path: Path, workspace: Path) -> None:
    record = tmp_path / "record"
    body = f"open({str(record)!r}, 'a').write(json.dumps(call) + '\\n'); print('allow')"
    both = str(hook(tmp_path, "both", body))
    events = play(workspace, tier="supervised", before_tool_call=[both], after_tool_call=[both])
    calls = [json.loads(line) for line in record.read_text().splitlines()]
    (result,) = (event for event in events if isinstance(event, ToolResult))
    assert [call["hook"] for call in calls] == ["beforeToolCall", "afterToolCall"]
    for call in calls:
        assert (call["agent"], call["cwd"], call["toolName"]) == ("understudy", str(workspace), "shell")
        assert call["arguments"]["command"] == "echo made > made"
        assert (call["toolId"], call["sessionId"]) == (result.tool_use_id, result.session_id)
    assert (calls[1]["status"], calls[1]["exitCode"]) == ("success", 0)


@pytest.mark.parametrize("place", ["workspace/hook", "missing"])
def test_a_hook_that_the_agent_could_change_or_that_is_none(tmp_path: Path, workspace: Path, place: str) -> None:
    if place != "missing":
        hook(workspace, "hook", "print('allow')")
    with pytest.raises(BadRequest, match=r"in the workspace|not a program"):
        play(workspace, before_tool_call=[str(tmp_path / place)])


def test_a_script_in_the_workspace_is_no_hook_under_an_interpreter_either(workspace: Path) -> None:
    script = hook(workspace, "hook", "print('allow')")
    with pytest.raises(BadRequest, match="in the workspace"):
        play(workspace, before_tool_call=[sys.executable, str(script)])


def test_commands_are_told_of_events(tmp_path: Path, workspace: Path) -> None:
    """Those of their type, whole and in order, the last one too; one that fails is named once, and disturbs nothing."""
    record = tmp_path / "record"
    tell = [str(hook(tmp_path, "tell", f"open({str(record)!r}, 'a').write(json.dumps(call) + '\\n')"))]
    fails = [str(hook(tmp_path, "fails", "sys.exit(7)"))]
    commands = {"init": tell, "tool_result": tell, "turn_completed": tell, "done": tell, "tool_use": fails}
    env = {"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "understudy")}

    async def main() -> list[Event]:
        options: Any = {"cwd": str(workspace), "env": env, "tier": "autonomous", "on_event": commands}
        events: list[Event] = []
        async with asyncio.timeout(120), stagedoor.open("understudy", **options) as session:
            reader = session.events
            async for _ in session.send(SCRIPT):
                pass
            async for event in reader:
                events.append(event)
                if isinstance(event, Notice) and event.code == "hook_failed":
                    break
            await session.close()
            return events + [event async for event in reader]

    events = asyncio.run(main())
    calls = [json.loads(line) for line in record.read_text().splitlines()]
    told = [event for event in events if event.type in ("init", "tool_result", "turn_completed", "done")]
    assert [(call["hook"], call["agent"], call["cwd"]) for call in calls] == [
        ("onEvent", "understudy", str(workspace))
    ] * len(calls)
    assert [call["event"] for call in calls] == [json.loads(encode(event)) for event in told]
    notices = [event.message for event in events if isinstance(event, Notice) and event.code == "hook_failed"]
    assert notices == ["the hook onEvent tool_use ended with code 7"]


@pytest.mark.parametrize("kind", ["text_delta", "turn_complete"])
def test_an_event_that_no_command_is_told_of(workspace: Path, kind: str) -> None:
    with pytest.raises(BadRequest, match="choose from init, turn_started"):
        play(workspace, on_event={kind: ["true"]})


def test_every_whole_event_can_have_a_command() -> None:
    kinds = {kind.__struct_config__.tag for kind in typing.get_args(Event)}
    assert kinds - set(HOOKED_EVENTS) == {"text_delta", "thinking_delta", "tool_progress"}
