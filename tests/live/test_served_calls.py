"""Kimi Code leaves its files and commands to us: what we refuse, it does not do by itself."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from stagedoor.agents.acp import AcpClient, AcpSessionConfig
from stagedoor.agents.acp.commands import ClientCapabilities
from stagedoor.testing import ScriptedModel, say, shell, write_file

BOUND = 300.0


@pytest.mark.live
@pytest.mark.skipif(os.environ.get("STAGEDOOR_CONTRACT") != "1", reason="played by make contract")
def test_what_is_refused_is_not_done_by_itself(rig: Any, tmp_path: Path) -> None:
    if rig.agent != "kimi":
        pytest.skip("the others run their commands themselves")
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    asked: list[str] = []

    async def authorize(request: Any) -> str:
        asked.append(type(request).__name__)
        return "the rules of this session do not allow it"

    async def run(model: ScriptedModel) -> None:
        env = model.environment("kimi", home=home, cwd=workspace).env
        offered = ClientCapabilities(read_files=True, write_files=True, terminals=True)
        client = AcpClient([rig.executable, "acp"], workspace, env, capabilities=offered)
        config = AcpSessionConfig(can_use_tool=lambda question: "allow_once", authorize=authorize)
        async with asyncio.timeout(BOUND), await client.create_session("Go.", config) as session:
            await session.turn_ended()

    steps = [shell("touch made"), write_file(str(workspace / "written"), "x"), say("Done.")]
    with ScriptedModel(steps) as model:
        asyncio.run(run(model))
    assert {"CreateTerminal", "WriteTextFile"} <= set(asked)
    assert list(workspace.iterdir()) == []
