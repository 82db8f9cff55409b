"""The real OpenCode through ``stagedoor.open``, what the contract suite does not ask: its rights, its questions."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.testing import ScriptedModel, edit_file, find_cli, mcp, question, read_file, say, shell, task, write_file
from stagedoor.testing.script import Script

CLI = find_cli("opencode")
pytestmark = [pytest.mark.live, pytest.mark.skipif(CLI is None, reason="OpenCode is not installed")]
BOUND = 300.0
SUMS = Path(__file__).parent / "contract" / "sums_server.py"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


class Stage:
    """A repository with a folder in it to work in, a home, and a model that follows ``routes``."""

    def __init__(self, model: ScriptedModel, root: Path) -> None:
        self.model = model
        self.repo = root / "repo"
        self.work = self.repo / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "-q", str(self.repo)], check=True)
        self.environment = model.environment("opencode", home=root / "home", cwd=self.work)
        self.requests: list[stagedoor.PermissionRequest] = []
        self.decide: Callable[[stagedoor.PermissionRequest], stagedoor.Allow | stagedoor.Deny] = lambda request: (
            stagedoor.Allow()
        )

    def open(self, **more: Any) -> stagedoor.Session:
        fixed = {
            "cwd": str(self.work),
            "executable": str(CLI),
            "model": self.environment.model,
            "env": self.environment.env,
            "inherit_env": False,
        }
        return stagedoor.open("opencode", **{**fixed, **more})

    async def callback(self, request: stagedoor.PermissionRequest) -> stagedoor.Allow | stagedoor.Deny:
        self.requests.append(request)
        return self.decide(request)

    async def turn(self, session: stagedoor.Session, prompt: str) -> list[stagedoor.Event]:
        self.requests.clear()
        async with asyncio.timeout(BOUND), contextlib.aclosing(session.send(prompt)) as events:
            return [event async for event in events]


def play(folder: Path, routes: dict[str, Script], scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(2 * BOUND), ScriptedModel(routes=routes) as model:
            await scene(Stage(model, folder))

    asyncio.run(main())


def of(events: list[stagedoor.Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def outcomes(events: list[stagedoor.Event]) -> list[tuple[str, str]]:
    return [(event.name, event.status) for event in of(events, stagedoor.ToolResult)]


def test_serve_supervised(tmp_path: Path) -> None:
    work, above = tmp_path / "repo" / "work", tmp_path / "repo" / "above.txt"
    sums = stagedoor.McpServer(command="python3", args=("-I", "-S", str(SUMS)))

    async def scene(stage: Stage) -> None:
        (work / "old.txt").write_text("old\n")
        (work / "pixel.png").write_bytes(PIXEL)
        session = stage.open(
            can_use_tool=stage.callback,
            mcp_servers={"sums": sums},
            system_prompt="You are a TESTER.",
            append_system_prompt="Be BRIEF.",
            images=("pixel.png",),
        )
        async with session:
            await edits(stage, session)
            await questions(stage, session)
            resumed = session.id
        with pytest.raises(stagedoor.SessionNotFound, match="belongs to"):
            async with stage.open(cwd=str(tmp_path), resume=resumed) as elsewhere:
                await stage.turn(elsewhere, "Edit inside")

    async def edits(stage: Stage, session: stagedoor.Session) -> None:
        events = await stage.turn(session, "Edit inside")
        assert stage.requests == []  # edits in the working directory run
        assert [(change.path, change.change, change.before) for change in of(events, stagedoor.FileChange)] == [
            ("new.txt", "created", None),
            ("new.txt", "modified", None),
            ("old.txt", "modified", None),
        ]
        assert all("\n+" in change.diff for change in of(events, stagedoor.FileChange))
        messages = json.dumps(stage.model.requests[-1].body["messages"])
        assert "You are a TESTER." in messages
        assert "Be BRIEF." in messages
        assert "pixel.png" in messages  # OpenCode tells a model that cannot see that there was a picture

        events = await stage.turn(session, "Edit above")
        [request] = stage.requests  # in the same repository, but not in the working directory
        assert (request.tool_name, request.operation, request.target) == ("write_file", "write", str(above))
        assert "+above" in request.input["diff"]
        assert above.read_text() == "above\n"
        events = await stage.turn(session, "Leave the repository")
        [request] = stage.requests  # once, though OpenCode asks for the place and for the command
        assert (request.tool_name, request.target) == ("shell", f"touch {tmp_path}/outside.txt")
        assert (tmp_path / "outside.txt").exists()

    async def questions(stage: Stage, session: stagedoor.Session) -> None:
        events = await stage.turn(session, "Delegate")
        [request] = stage.requests
        [(started, _)] = [(use.tool_use_id, use) for use in of(events, stagedoor.ToolUse) if use.name == "task"]
        assert (request.target, request.parent_tool_use_id) == ("touch below.txt", started)
        events = await stage.turn(session, "Add")
        [request] = stage.requests
        assert (request.tool_name, request.native_name, request.input) == ("mcp", "sums_add", {"a": 20, "b": 3})
        assert outcomes(events) == [("mcp", "success")]

        stage.decide = lambda request: stagedoor.Allow() if "cd" in request.target else stagedoor.Deny("No.")
        events = await stage.turn(session, "Redirect")
        assert [request.target for request in stage.requests] == ["> hole.txt", "[[ 1 ]] > hole.txt", "cd . > gap.txt"]
        assert outcomes(events) == [("shell", "denied"), ("shell", "denied"), ("shell", "success")]
        assert (work / "gap.txt").exists()
        assert not (work / "hole.txt").exists()
        assert of(events, stagedoor.Notice) == []

        stage.decide = lambda request: stagedoor.Allow(updated_input={"answers": [["B"]]})
        events = await stage.turn(session, "Ask me")
        assert [(request.tool_name, request.choices) for request in stage.requests] == [("question", ["A", "B"])]
        [result] = of(events, stagedoor.ToolResult)
        assert '"Which?"="B"' in result.output
        stage.decide = lambda request: stagedoor.Deny("Leave me alone.")
        events = await stage.turn(session, "Once more")
        [result] = of(events, stagedoor.ToolResult)
        assert "Leave me alone." in result.output
        assert of(events, stagedoor.TurnCompleted)[0].result == "None, then."

    routes: dict[str, Script] = {
        "Edit inside": [
            write_file(str(work / "new.txt"), "one\n"),
            edit_file(str(work / "new.txt"), "one\n", "two\n"),
            read_file(str(work / "old.txt")),
            write_file(str(work / "old.txt"), "renewed\n"),
            say("Edited."),
        ],
        "Edit above": [write_file(str(above), "above\n"), say("Edited.")],
        "Leave the repository": [shell(f"touch {tmp_path}/outside.txt"), say("Left.")],
        "Delegate": [task("Do it", [shell("touch below.txt"), say("Below.")]), say("Delegated.")],
        "Add": [mcp("sums", "add", a=20, b=3), say("23.")],
        "Redirect": [shell("> hole.txt"), shell("[[ 1 ]] > hole.txt"), shell("cd . > gap.txt"), say("Done.")],
        "Ask me": [question("Which?", ["A", "B"]), say("B it is.")],
        "Once more": [question("Which?", ["A", "B"]), say("None, then.")],
    }
    play(tmp_path, routes, scene)


def test_run_asks_nobody_and_goes_on(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        async with stage.open(driver="run") as session:
            events = await stage.turn(session, "Try everything")
        assert outcomes(events) == [("write_file", "denied"), ("shell", "denied"), ("write_file", "denied")]
        assert (of(events, stagedoor.TurnCompleted)[0].status, (tmp_path / "out.txt").exists()) == ("success", False)
        async with stage.open(driver="run", tier="autonomous", disallowed_tools=("shell",)) as session:
            events = await stage.turn(session, "Run it")
        assert outcomes(events) == [("shell", "denied")]

    routes: dict[str, Script] = {
        "Try everything": [
            write_file(str(tmp_path / "repo" / "work" / "in.txt"), "in\n"),
            shell("touch never.txt"),
            write_file(str(tmp_path / "out.txt"), "out\n"),
            say("Tried."),
        ],
        "Run it": [shell("touch never.txt"), say("Tried.")],
    }
    play(tmp_path, routes, scene)


def test_acp_goes_on_after_a_refusal(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        async with stage.open(driver="acp", can_use_tool=stage.callback) as session:
            stage.decide = lambda request: stagedoor.Deny("No.")
            events = await stage.turn(session, "Try")
            assert [(request.tool_name, request.target) for request in stage.requests] == [
                ("shell", "touch never.txt"),
                ("shell", "> hole.txt"),
            ]
            assert outcomes(events) == [("write_file", "success"), ("shell", "denied"), ("shell", "denied")]
            assert [path.name for path in (tmp_path / "repo" / "work").iterdir()] == ["in.txt"]
            assert of(events, stagedoor.TurnCompleted)[0].result == "I tried."

    routes: dict[str, Script] = {
        "Try": [
            write_file(str(tmp_path / "repo" / "work" / "in.txt"), "in\n"),
            shell("touch never.txt"),
            shell("> hole.txt"),
            say("I tried."),
        ]
    }
    play(tmp_path, routes, scene)
