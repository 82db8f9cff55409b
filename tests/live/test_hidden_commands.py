"""A command hidden in a here-document, with the real CLIs: asked about under ``askDangerous``, and denied by a rule.

What is hidden how is the matter of ``tests/permissions/test_against_bash.py``; this is the way of one line through
each agent, which may run what it takes for a reader without a question.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor import catalog
from stagedoor.permissions.policy import Policy
from stagedoor.testing import ScriptedModel, say, shell

BOUND = 300.0
HIDDEN = "cat <<X\n`touch made`\nX"


@pytest.mark.live
@pytest.mark.parametrize("ruled", [False, True], ids=["asked", "denied-by-rule"])
def test_a_hidden_command_does_not_run_unasked(rig: Any, tmp_path: Path, *, ruled: bool) -> None:
    if rig.is_embedded or rig.second or rig.driver != next(iter(catalog.agent(rig.agent).drivers)):
        pytest.skip("one driver of each agent is enough")
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    questions: list[stagedoor.PermissionRequest] = []

    async def answer(request: stagedoor.PermissionRequest) -> stagedoor.Allow | stagedoor.Deny:
        questions.append(request)
        return stagedoor.Allow() if ruled else stagedoor.Deny("no")

    async def run(model: ScriptedModel) -> None:
        more: dict[str, Any] = {"policy": Policy(deny_patterns=("touch *",))} if ruled else {}
        async with (
            asyncio.timeout(BOUND),
            stagedoor.open(
                rig.agent,
                driver=rig.driver,
                executable=rig.executable,
                cwd=str(workspace),
                env=model.environment(rig.agent, home=home, cwd=workspace).env,
                inherit_env=False,
                approval="askDangerous",
                can_use_tool=answer,
                **more,
            ) as session,
            contextlib.aclosing(session.send("Go.")) as turn,
        ):
            async for _ in turn:
                pass

    with ScriptedModel([shell(HIDDEN), say("Done.")]) as model:
        asyncio.run(run(model))
    assert (not (workspace / "made").exists(), bool(questions)) == (True, not ruled)
