"""Files and terminals that we serve, under the same rules as questions: an agent written with the official package."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor import AcpAgent, Allow, Deny
from stagedoor.agents.acp.requests import CreateTerminal, EnvVariable, WriteTextFile
from stagedoor.drivers.acp.serving import ServedCalls
from stagedoor.permissions.audit import read_log
from stagedoor.unified.decisions import Decision
from stagedoor.unified.events import Event, PermissionRequest
from stagedoor.unified.options import Options

BOUND = 120.0
EXAMPLE = Path(__file__).parents[2] / "agents" / "acp" / "example_agent.py"
AGENT = AcpAgent(
    command=[sys.executable, str(EXAMPLE)],
    name="example",
    modes={"dry-run": "ask", "supervised": "ask", "autonomous": "code"},
)


def run(prompts: list[str], **options: Any) -> list[Event]:
    async def main() -> list[Event]:
        events: list[Event] = []
        async with asyncio.timeout(BOUND), stagedoor.open(AGENT, **options) as session:
            for prompt in prompts:
                events += [event async for event in session.send(prompt)]
        return events

    return asyncio.run(main())


def calls(events: list[Event]) -> list[tuple[Any, ...]]:
    told: list[tuple[Any, ...]] = []
    for event in events:
        match event:
            case stagedoor.ToolUse():
                told.append(("use", event.name, event.target))
            case stagedoor.ToolResult():
                told.append(("result", event.name, event.status, event.exit_code, event.output))
            case PermissionRequest():
                told.append(("question", event.tool_name, event.target))
            case _:
                pass
    return told


def answers(*decisions: Decision) -> Callable[[PermissionRequest], Decision]:
    rest = iter(decisions)
    return lambda request: next(rest)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    for folder in (workspace, outside):
        folder.mkdir()
    return workspace, outside


def test_supervised(places: tuple[Path, Path], tmp_path: Path) -> None:
    """An edit of the workspace is free; what runs later, what lies outside, and commands are asked about."""
    workspace, outside = places
    (workspace / "link").symlink_to(outside)
    prompts = [
        f"write {workspace}/a.txt",
        f"write {workspace}/.github/workflows/ci.yml",
        f"write {workspace}/link/b.txt",
        "terminal echo out; exit 3",
        "terminal echo no",
    ]
    decide = answers(Allow(), Deny("not there"), Allow(), Deny("no"))
    audit = tmp_path / "audit.jsonl"
    events = run(prompts, cwd=workspace, can_use_tool=decide, audit=str(audit), watch_files=False)
    workflow, behind = f"{workspace}/.github/workflows/ci.yml", f"{outside}/b.txt"
    assert calls(events) == [
        ("use", "write_file", f"{workspace}/a.txt"),
        ("result", "write_file", "success", None, ""),
        ("use", "write_file", workflow),
        ("question", "write_file", workflow),
        ("result", "write_file", "success", None, ""),
        ("use", "write_file", f"{workspace}/link/b.txt"),
        ("question", "write_file", behind),
        ("result", "write_file", "denied", None, "not there"),
        ("use", "shell", "/bin/sh -c 'echo out; exit 3'"),
        ("question", "shell", "/bin/sh -c 'echo out; exit 3'"),
        ("result", "shell", "error", 3, "out\n"),
        ("use", "shell", "/bin/sh -c 'echo no'"),
        ("question", "shell", "/bin/sh -c 'echo no'"),
        ("result", "shell", "denied", None, "no"),
    ]
    assert (workspace / "a.txt").read_text() == "written\n"
    assert list(outside.iterdir()) == []
    decided = [record.entry.decision for record in read_log(audit)]
    assert sorted(decided) == ["allow", "allow", "allow", "deny", "deny"]


def test_dry_run_changes_nothing(places: tuple[Path, Path]) -> None:
    workspace, _ = places
    (workspace / "a.txt").write_text("before\n")
    prompts = [f"read {workspace}/a.txt", f"write {workspace}/a.txt", "terminal echo out > b.txt"]
    events = run(prompts, cwd=workspace, tier="dry-run")
    assert next(event.text for event in events if isinstance(event, stagedoor.Text)) == "before\n"
    assert [call[2] for call in calls(events) if call[0] == "result"] == ["success", "denied", "denied"]
    assert [path.name for path in workspace.iterdir()] == ["a.txt"]
    assert (workspace / "a.txt").read_text() == "before\n"


def test_autonomous_asks_nobody(places: tuple[Path, Path]) -> None:
    workspace, outside = places
    events = run([f"write {outside}/a.txt", "terminal echo out"], cwd=workspace, tier="autonomous")
    assert [call[:3] for call in calls(events)] == [
        ("use", "write_file", f"{outside}/a.txt"),
        ("result", "write_file", "success"),
        ("use", "shell", "/bin/sh -c 'echo out'"),
        ("result", "shell", "success"),
    ]
    assert (outside / "a.txt").read_text() == "written\n"


def test_no_piece_of_content_vanishes(places: tuple[Path, Path]) -> None:
    workspace, _ = places
    events = run(["updates"], cwd=workspace)
    notices = [(event.code, event.message) for event in events if isinstance(event, stagedoor.Notice)]
    assert ("attachment", "the agent sent an image: image/png, 3 bytes") in notices
    assert ("attachment", "the agent sent a link: file:///n") in notices
    assert ("plan", "# Plan") in notices


def request(tool: Any, operation: Any, **arguments: Any) -> PermissionRequest:
    target = arguments.get("command") or arguments.get("file_path", "")
    return PermissionRequest(request_id="1", tool_name=tool, operation=operation, target=target, input=arguments)


TERMINAL = CreateTerminal("s", "bash", ["-lc", "make test"])
COMMAND = request("shell", "execute", command="make test")


@pytest.mark.parametrize(
    ("granted", "question", "again"),
    [
        (COMMAND, TERMINAL, False),
        (COMMAND, CreateTerminal("s", "make test"), False),
        (COMMAND, CreateTerminal("s", "make", ["test"], env=[EnvVariable("NO_COLOR", "1")]), False),
        (COMMAND, CreateTerminal("s", "make", ["test"], env=[EnvVariable("LD_PRELOAD", "x.so")]), True),
        (COMMAND, CreateTerminal("s", "make", ["test", "install"]), True),
        (COMMAND, CreateTerminal("s", "make", ["test"], cwd="/"), True),
        (request("edit_file", "write", file_path="a.txt"), WriteTextFile("s", "{cwd}/a.txt", "x"), False),
        (request("edit_file", "write", file_path="a.txt"), WriteTextFile("s", "{cwd}/b.txt", "x"), True),
        (request("read_file", "read", file_path="a.txt"), WriteTextFile("s", "{cwd}/a.txt", "x"), True),
    ],
)
def test_what_was_allowed_is_served_once_without_a_second_question(
    tmp_path: Path, granted: PermissionRequest, question: Any, again: bool
) -> None:
    asked: list[PermissionRequest] = []

    async def ask(request: PermissionRequest) -> Decision:
        asked.append(request)
        return Deny("no")

    if isinstance(question, WriteTextFile):
        question = WriteTextFile("s", question.path.format(cwd=tmp_path.resolve()), question.content)
    served = ServedCalls(Options(cwd=str(tmp_path)), ask, lambda question: "", edits=False, free=False)
    served.grant(granted)
    assert asyncio.run(served.authorize(question)) == ("no" if again else "")
    assert len(asked) == int(again)
    assert asyncio.run(served.authorize(question)) == "no"
