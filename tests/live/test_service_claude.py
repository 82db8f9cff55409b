"""The service over the real Claude Code: sleep and wake, and a question that outlives the server."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.service import Service
from stagedoor.service.views import SessionSpec
from stagedoor.testing import Script, ScriptedModel, find_cli, say, shell
from stagedoor.unified.decisions import Allow
from stagedoor.unified.events import Event, Notice, PermissionRequest, PermissionResolved, TurnCompleted, decode

CLI = find_cli("claude")
pytestmark = [pytest.mark.live, pytest.mark.skipif(CLI is None, reason="Claude Code is not installed")]
BOUND = 300.0


@pytest.fixture(autouse=True)
def _nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC", "CLAUDE"))]:
        monkeypatch.delenv(name)


def _settings(folder: Path, model: ScriptedModel, **more: Any) -> Settings:
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    env = model.environment("claude", cwd=workspace, home=folder / "home").env
    return Settings(
        home=str(folder / "stagedoor"),
        roots=(str(workspace),),
        default_agent="claude",
        agents={"claude": AgentSettings(command=str(CLI), env=env)},
        **more,
    )


async def _until(service: Service, session_id: str, last: Any, after: int = 0) -> list[Event]:
    heard: list[Event] = []
    async with asyncio.timeout(BOUND), aclosing(service.events.follow(session_id, after)) as batches:
        async for batch in batches:
            for record in batch:
                heard.append(decode(record.body))
                if last(heard[-1]):
                    return heard
    return heard


def test_it_sleeps_and_is_woken_by_resume(tmp_path: Path) -> None:
    script: Script = [say("one"), say("two")]

    async def main(model: ScriptedModel) -> None:
        async with Service(_settings(tmp_path, model, sleep_after=0.0)) as service:
            view = await service.sessions.create(SessionSpec(prompt="first", keep_open=True))
            heard = await _until(service, view.id, lambda event: getattr(event, "code", "") == "asleep")
            await service.sessions.send(view.id, "second")
            again = lambda event: getattr(event, "code", "") == "asleep"  # noqa: E731
            heard += await _until(service, view.id, again, heard[-1].seq)
            results = [event.result for event in heard if isinstance(event, TurnCompleted)]
            assert results == ["one", "two"]
            assert [event.seq for event in heard] == list(range(1, len(heard) + 1))
            codes = [one.code for one in heard if isinstance(one, Notice) and one.code in ("asleep", "woken")]
            assert codes == ["asleep", "woken", "asleep"]
            ended = await service.sessions.cancel(view.id)
            assert (ended.state, ended.turn) == ("done", 2)

    with ScriptedModel(script) as model:
        asyncio.run(main(model))


def test_a_question_outlives_the_server(tmp_path: Path) -> None:
    script: Script = [shell("touch made"), shell("touch made"), say("made it")]

    async def main(model: ScriptedModel) -> None:
        settings = _settings(tmp_path, model)
        async with Service(settings) as service:
            view = await service.sessions.create(SessionSpec(prompt="make it"))
            await _until(service, view.id, lambda event: isinstance(event, PermissionRequest))
            [question] = await service.questions.list()
        assert not (tmp_path / "workspace" / "made").exists()
        async with Service(settings) as service:
            assert [(one.id, one.rearmed) for one in await service.questions.list()] == [(question.id, True)]
            await service.questions.answer(question.id, Allow(), who="hours later")
            heard = await _until(service, view.id, lambda event: False)
            ended = await service.sessions.get(view.id)
            assert (ended.state, ended.result, ended.turn) == ("done", "made it", 2)
            resolved = [(event.decision, event.by) for event in heard if isinstance(event, PermissionResolved)]
            assert resolved == [("allow", "client")] * 2
            assert {one.who for one in await service.questions.list(open_only=False)} == {"hours later"}
        assert (tmp_path / "workspace" / "made").exists()

    with ScriptedModel(script) as model:
        asyncio.run(main(model))
