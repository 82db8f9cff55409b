"""An answer that comes after its time is a no, through every native client and whatever kind of function gives it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stagedoor.agents.acp import AcpClient, AcpSessionConfig
from stagedoor.agents.claude import ClaudeClient, ClaudeSessionConfig
from stagedoor.agents.codex.client import CodexClient
from stagedoor.agents.codex.config import ApprovalPolicy, CodexSessionConfig
from stagedoor.agents.opencode.client import OpenCodeClient
from stagedoor.agents.opencode.config import OpenCodeSessionConfig
from stagedoor.testing import ScriptedModel, find_cli, say, shell
from stagedoor.wire.permission import PermissionBehavior

pytestmark = pytest.mark.live

BOUND = 240.0
IN_TIME = 1.0
"""Seconds for an answer. None of them is in time."""
Start = Callable[[Path, str, dict[str, str], str, Any], Any]


def claude(cwd: Path, executable: str, env: dict[str, str], prompt: str, ask: Any) -> Any:
    config = ClaudeSessionConfig(can_use_tool=ask, permission_timeout=IN_TIME)
    return ClaudeClient(cwd, executable, env).create_session(prompt, config)


def codex(cwd: Path, executable: str, env: dict[str, str], prompt: str, ask: Any) -> Any:
    config = CodexSessionConfig(
        can_use_tool=ask, permission_timeout=IN_TIME, approval_policy=ApprovalPolicy.UNTRUSTED, model="scripted-model"
    )
    return CodexClient(cwd, executable, env).create_session(prompt, config)


def opencode(cwd: Path, executable: str, env: dict[str, str], prompt: str, ask: Any) -> Any:
    config = OpenCodeSessionConfig(can_use_tool=ask, permission_timeout=IN_TIME, permission={"*": "ask"})
    return OpenCodeClient(cwd, executable, env).create_session(prompt, config)


def copilot(cwd: Path, executable: str, env: dict[str, str], prompt: str, ask: Any) -> Any:
    client = AcpClient([executable, "--acp", "--no-auto-update"], cwd, env)
    return client.create_session(prompt, AcpSessionConfig(can_use_tool=ask, permission_timeout=IN_TIME))


CLIENTS: dict[str, Start] = {"claude": claude, "codex": codex, "copilot": copilot, "opencode": opencode}
CHEAP = ("claude", "codex")
"""What ``make test`` plays; ``STAGEDOOR_CONTRACT=1`` plays all of them."""


class Late:
    """Yes, three times: too late from a thread, too late from the loop itself, and never."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, question: Any) -> Any:
        self.calls += 1
        match self.calls:
            case 1:
                time.sleep(IN_TIME + 1)
            case 2:
                return self._block()
            case _:
                return self._never()
        return PermissionBehavior.allow

    async def _block(self) -> PermissionBehavior:
        time.sleep(IN_TIME + 1)
        return PermissionBehavior.allow

    async def _never(self) -> PermissionBehavior:
        await asyncio.Event().wait()
        return PermissionBehavior.allow


@pytest.mark.parametrize("agent", CLIENTS)
def test_an_answer_that_comes_late_is_a_no(agent: str, tmp_path: Path) -> None:
    if agent not in CHEAP and os.environ.get("STAGEDOOR_CONTRACT") != "1":
        pytest.skip("STAGEDOOR_CONTRACT=1 plays all clients")
    executable = find_cli(agent)
    if executable is None:
        pytest.skip(f"{agent} is not installed: run `make clis`")
    home, workspace, late = tmp_path / "home", tmp_path / "workspace", Late()
    for folder in (home, workspace):
        folder.mkdir()
    names = ["from-a-thread", "from-the-loop", "never"]
    # Some end their turn when a call is refused: each call has a turn of its own.
    routes = {f"Make {name}.": [shell(f"touch {name}"), say("Done.")] for name in names}

    async def main(env: dict[str, str]) -> None:
        async with asyncio.timeout(BOUND):
            session = await CLIENTS[agent](workspace, str(executable), env, f"Make {names[0]}.", late)
            await session.wait()
            for name in names[1:]:
                await session.send(f"Make {name}.")
                await session.wait()
            await session.close()

    with ScriptedModel(routes=routes) as model:
        asyncio.run(main(dict(model.environment(agent, home=home, cwd=workspace).env)))
    assert late.calls == len(names)
    assert [path.name for path in workspace.iterdir() if path.name in names] == []
