"""The rules of a session hold in one that goes on with it, and in a copy: lists of tools, and protected files.

``STAGEDOOR_CONTRACT=1`` plays every agent and driver; without it a few stand for all. The oracle is the disk.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.testing import ScriptedModel, say, shell, write_file

BOUND = 300.0
EVERY_CELL = os.environ.get("STAGEDOOR_CONTRACT") == "1"
STAND_FOR_ALL = {("codex", "app-server")}
FIRST, LISTED, PROTECTED = "First prompt", "Try the list", "Try the file"


@pytest.mark.live
@pytest.mark.parametrize("fork", [False, True], ids=["resumed", "forked"])
def test_lists_and_protected_files_after_a_resume(rig: Any, fork: bool, tmp_path: Path) -> None:
    if not EVERY_CELL and (rig.agent, rig.driver) not in STAND_FOR_ALL:
        pytest.skip("STAGEDOOR_CONTRACT=1 plays it")
    if rig.is_embedded or rig.missing:
        pytest.skip(rig.missing or "it is scripted otherwise")
    can = rig.capabilities
    if (fork and not can.fork) or can.permissions == "none":
        pytest.skip("it cannot: its capabilities say so")
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    for folder in (home, workspace, workspace / "deploy"):
        folder.mkdir()
    routes = {
        FIRST: [say("Hello.")],
        LISTED: [shell("touch listed.txt"), say("Done.")],
        PROTECTED: [write_file(str(workspace / "deploy" / "run.sh"), "x"), say("Done.")],
    }
    requests: list[stagedoor.PermissionRequest] = []

    def decide(request: stagedoor.PermissionRequest) -> stagedoor.Allow | stagedoor.Deny:
        requests.append(request)
        return stagedoor.Allow() if request.tool_name == "shell" else stagedoor.Deny("no")

    async def play(prompt: str, **more: Any) -> str:
        async with asyncio.timeout(BOUND), stagedoor.open(rig.agent, **options, **more) as session:
            async for _ in session.send(prompt):
                pass
            return session.id

    with ScriptedModel(routes=routes) as model:
        env = dict(model.environment(rig.agent, home=home, cwd=workspace).env)
        options: dict[str, Any] = {
            "cwd": workspace, "env": env, "inherit_env": False, "driver": rig.driver, "executable": rig.executable,
            "can_use_tool": decide,
        }  # fmt: skip
        session_id = asyncio.run(play(FIRST))
        asyncio.run(play(LISTED, resume=session_id, fork=fork, disallowed_tools=["shell"]))
        asyncio.run(play(PROTECTED, resume=session_id, fork=fork, protected=["./deploy/**"]))
    assert sorted(path.name for path in workspace.rglob("*") if path.suffix in (".txt", ".sh")) == []
    assert [request.operation for request in requests if "deploy" in f"{request.target} {request.input}"] == ["write"]
