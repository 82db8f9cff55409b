"""The real programs remember a conversation that began on another machine: its transcript was carried there."""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from stagedoor import catalog
from stagedoor.engine import milliseconds
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.journal import LocalHub
from stagedoor.service.machines import lost_rings
from stagedoor.service.service import Service
from stagedoor.service.views import SessionSpec
from stagedoor.testing import ScriptedModel, find_cli, say
from stagedoor.unified.events import Event, Notice, TurnCompleted, decode
from tests.service.test_machines import SharedLog
from tests.shadow_git.hostile import WHO

BOUND = 300.0
SECRET, ANSWER = "the first prompt about marmots", "Marmots whistle."
AGENTS = [name for name in catalog.names() if catalog.agent(name).transcript is not None and name != "understudy"]


@pytest.mark.live
@pytest.mark.parametrize("agent", AGENTS)
def test_a_second_machine_recalls_what_was_said(agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = find_cli(agent)
    if executable is None:
        pytest.skip(f"{agent} is not installed")
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC", "CLAUDE", "OPENAI", "CODEX", "GEMINI"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(lost_rings, "LOOK_EVERY", 3600.0)  # its looks would renew the lease that is over
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("one\n")
    env = {**WHO, "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=source, env=env, check=True, capture_output=True)

    def settings(name: str, model: ScriptedModel) -> Settings:
        home = tmp_path / name
        workspace = home / "workspace"
        workspace.mkdir(parents=True)
        own = dict(model.environment(agent, cwd=workspace, home=home / "agent").env)
        return Settings(
            home=str(home / "stagedoor"), roots=(str(workspace),), machine_name=name, lease=3600,
            clone=(f"file://{tmp_path}/",), agents={agent: AgentSettings(command=str(executable), env=own)},
        )  # fmt: skip

    async def main(model: ScriptedModel) -> None:
        store, hub = SharedLog(tmp_path / "log.db"), LocalHub()
        async with asyncio.timeout(BOUND), AsyncExitStack() as stack:
            one, two = [
                await stack.enter_async_context(Service(settings(name, model), store=store, hub=hub))
                for name in ("one", "two")
            ]
            spec = SessionSpec(prompt=SECRET, agent=agent, place=f"git:file://{source}@main", keep_open=True)
            view = await one._own_verbs[0].create(spec)
            heard = await _turn(one, view.id, 0)
            while await store.carried(view.id) is None:
                await asyncio.sleep(0.02)
            row = next(row for row in await store.workers() if row.name == "one")
            assert await store.renew(row.id, row.incarnation, milliseconds())
            await two._running.recover()
            await two._own_verbs[0].send(view.id, "what did I ask?")
            later = await _turn(two, view.id, heard[-1].seq)
            codes = {event.code for event in later if isinstance(event, Notice)}
            assert "taken_over" in codes
            assert "conversation_not_carried" not in codes
            last = model.requests[-1]
            assert SECRET in str(last.body)
            assert ANSWER in str(last.body)
            assert (Path((await store.session(view.id)).cwd) / "a.txt").is_file()  # type: ignore[union-attr]
            await two._own_verbs[0].cancel(view.id)

    with ScriptedModel([say(ANSWER), say("About marmots.")]) as model:
        asyncio.run(main(model))


async def _turn(service: Service, session_id: str, after: int) -> list[Event]:
    heard: list[Event] = []
    async with aclosing(service.events.follow(session_id, after)) as batches:
        async for batch in batches:
            heard += [decode(record.body) for record in batch]
            if any(isinstance(event, TurnCompleted) for event in heard):
                return heard
    raise AssertionError([getattr(event, "message", "") for event in heard])
