"""A door and a worker on one PostgreSQL: what is asked at the one is done at the other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stagedoor.errors import WorkerAway
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.service import Service
from stagedoor.service.views import SessionSpec
from stagedoor.unified.decisions import Allow
from tools.postgres import empty_database

BOUND = 240.0


def test_what_is_asked_at_a_door_is_done_where_the_agent_is(tmp_path: Path) -> None:
    url = empty_database()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "there.txt").write_text("here it is\n")
    env = {"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "understudy")}

    def settings(name: str) -> Settings:
        return Settings(
            home=str(tmp_path / name), database=url, roots=(str(workspace),), machine_name=name, labels=("gpu",),
            default_agent="understudy", agents={"understudy": AgentSettings(env=env)}, checkpoints=False,
        )  # fmt: skip

    script = '{"script": [[{"shell": "touch made"}], [{"say": "done"}]]}'

    async def main() -> None:
        (tmp_path / "box").mkdir()
        (tmp_path / "door").mkdir()
        async with (
            asyncio.timeout(BOUND),
            Service(settings("door"), role="door") as door,
            Service(settings("box"), role="worker") as worker,
        ):
            [machine] = await door.machines.list()
            assert (machine.name, {"host:box", "agent:understudy", "gpu"} <= set(machine.labels)) == ("box", True)
            assert (await door.ground.projects(place="host:box")).roots == [str(workspace)]
            assert (await door.ground.folders("")).path == str(workspace)  # the door itself runs nothing
            with pytest.raises(WorkerAway, match="no machine has the labels host:nowhere"):
                await door.ground.trust(cwd="", project_id="", agent="", place="host:nowhere")
            seen = {view.agent: view.installed for view in await door.agents.list()}
            assert seen["understudy"]
            with pytest.raises(WorkerAway, match="no machine has the labels quantum"):
                await door.sessions.create(SessionSpec(prompt="x", agent="understudy", needs=("quantum",)))
            spec = SessionSpec(prompt=script, agent="understudy", needs=("gpu",), place="host:box")
            view = await door.sessions.create(spec, who="phone")
            assert (await door.workspaces.read(view.id, "there.txt")).content == "here it is\n"
            bell = door.sessions.bell()
            while not (questions := await door.questions.list(session_id=view.id)):
                await bell.rung()
            await door.questions.answer(questions[0].id, Allow(), who="phone")
            async for _ in door.events.follow(view.id, 0):
                pass
            ended = await door.sessions.get(view.id)
            assert (ended.state, ended.place, (workspace / "made").exists()) == ("done", "host:box", True)
            await door.machines.drain(machine.id, draining=True)
            with pytest.raises(WorkerAway, match=r"away or draining: .*box"):
                await door.sessions.create(spec)
            left = asyncio.Event()
            worker.worker.on_revoked = left.set
            await door.machines.revoke(machine.id)
            await left.wait()
            assert worker.worker.is_revoked
            bell.close()

    asyncio.run(main())
