"""Programs of others that speak the Agent Client Protocol, driven as any agent of which only the command is known.

``python -m tools.acp_agents`` installs them (``make compatibility`` does); else they are skipped.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor import AcpAgent
from stagedoor.testing import ScriptedModel, say, shell, write_file
from stagedoor.testing.clis import path_with_node
from tools.acp_agents import WRAPPERS, examples_in, folder_in
from tools.clis import FOLDER

BOUND = 300.0
CLIS = Path(os.environ.get("STAGEDOOR_CLIS") or Path(__file__).resolve().parents[2] / FOLDER)
PROGRAMS = {
    "@agentclientprotocol/claude-agent-acp": ("claude", "dist/index.js"),
    "@agentclientprotocol/codex-acp": ("codex", "dist/index.js"),
    "@zed-industries/codex-acp": ("codex", "bin/codex-acp.js"),
}
"""Package → the agent whose settings it reads, and its program."""
pytestmark = pytest.mark.live


@pytest.mark.parametrize("package", WRAPPERS)
def test_a_wrapper(package: str, tmp_path: Path) -> None:
    """A command with its output and code, a file with its change, an answer, the choices, and a second turn."""
    agent, program = PROGRAMS[package]
    script = folder_in(CLIS) / "node_modules" / package / program
    if not script.exists():
        pytest.skip(f"{package} is not installed: run python -m tools.acp_agents")
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    home.mkdir()
    workspace.mkdir()
    words = "echo out; echo x > b.txt; exit 3"
    steps = [shell(words), write_file(str(workspace / "a.txt"), "x"), say("Done.")]

    async def main(env: dict[str, str]) -> tuple[list[stagedoor.Event], list[stagedoor.Event], set[str]]:
        options: dict[str, Any] = {"cwd": workspace, "tier": "autonomous", "env": env, "inherit_env": False}
        wrapper = AcpAgent(command=["node", str(script)], name="wrapper")
        async with asyncio.timeout(BOUND), stagedoor.open(wrapper, **options) as session:
            first = [event async for event in session.send("Go")]
            kinds = {setting.kind for setting in session.settings}
            return first, [event async for event in session.send("Again")], kinds

    with ScriptedModel([*steps, say("Once more.")]) as model:
        env = dict(model.environment(agent, home=home, cwd=workspace).env)
        env["PATH"] = path_with_node()
        first, second, kinds = asyncio.run(main(env))
    command, written = (event for event in first if isinstance(event, stagedoor.ToolUse))
    assert (command.name, command.target, command.input["command"]) == ("shell", words, words)
    assert (written.operation, Path(written.target).name) == ("write", "a.txt")
    result = next(event for event in first if isinstance(event, stagedoor.ToolResult))
    assert (result.status, result.exit_code, result.output.strip()) == ("error", 3, "out")
    changes = {event.path: event.change for event in first if isinstance(event, stagedoor.FileChange)}
    assert changes == {"a.txt": "created", "b.txt": "created"}
    for events, answer in ((first, "Done."), (second, "Once more.")):
        assert isinstance(events[-1], stagedoor.TurnCompleted)
        assert (events[-1].status, events[-1].result) == ("success", answer)
        assert not [event for event in events if isinstance(event, stagedoor.Unrecognized)]
    assert kinds >= {"mode", "model"}


@pytest.mark.parametrize(("name", "answer"), [("echo_agent.py", "Hello"), ("agent.py", "Client sent:Hello")])
def test_an_example_of_the_python_sdk(name: str, answer: str, tmp_path: Path) -> None:
    program = examples_in(CLIS) / name
    if not program.exists():
        pytest.skip("the examples are not there: run python -m tools.acp_agents")
    example = AcpAgent(command=[sys.executable, str(program)], name="example")

    async def main() -> list[stagedoor.Event]:
        async with asyncio.timeout(BOUND):
            return [event async for event in stagedoor.run(example, "Hello", cwd=tmp_path, tier="autonomous")]

    events = asyncio.run(main())
    assert isinstance(events[-1], stagedoor.Done)
    assert (events[-1].status, events[-1].result) == ("success", answer)
    assert not [event for event in events if isinstance(event, stagedoor.Unrecognized)]
