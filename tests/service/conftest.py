"""The real service with the embedded agent. Prompts made with ``play`` say what the agent does."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stagedoor.service import worker as workers
from stagedoor.service.config.settings import AgentSettings, Limits, Settings
from stagedoor.service.machines import lost_rings
from stagedoor.service.service import Service
from stagedoor.service.views import Question, Record, SessionSpec, SessionView
from stagedoor.unified.events import Event, decode
from tests.service.sites import LONG_LEASE, Site
from tools.postgres import chosen_database

BOUND = 240.0


class House:
    """A workspace, a home for the server and one for the agent. ``script``: what the agent plays for plain prompts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.script = folder / "script.json"
        self.script.write_text(json.dumps([{"say": "ok"}]))
        self.database = chosen_database()

    def plays(self, *replies: object) -> None:
        self.script.write_text(json.dumps({"script": list(replies)}))

    def settings(self, **changes: Any) -> Settings:
        how = AgentSettings(
            args=("--script", str(self.script)), env={"STAGEDOOR_UNDERSTUDY_HOME": str(self.folder / "understudy")}
        )
        return replace(
            Settings(
                home=str(self.folder / "home"),
                roots=(str(self.workspace),),
                default_agent="understudy",
                agents={"understudy": how},
                limits=Limits(),
                database=self.database,
            ),
            **changes,
        )

    def service(self, **changes: Any) -> Service:
        return Service(self.settings(**changes))

    def crashed(self) -> House:
        """Another house in which everything stands as it stands here now: what a server would find that was killed."""
        if self.database:
            pytest.skip("copies the log as a file")
        other = self.folder.with_name(self.folder.name + "-crashed")
        other.mkdir()
        for name in ("home", "understudy"):
            shutil.copytree(self.folder / name, other / name)
        found = House(other)
        found.workspace, found.script = self.workspace, self.script
        return found


def play(*replies: object) -> str:
    """A prompt the agent plays as its script."""
    return json.dumps({"script": list(replies)})


def kinds(events: list[Event]) -> list[str]:
    return [str(event.__struct_config__.tag) for event in events]


class Watch:
    """Reads a session's log from where it stopped."""

    def __init__(self, service: Service, session_id: str, after: int = 0) -> None:
        self.service = service
        self.id = session_id
        self.after = after

    async def until(self, target: type[Any] | Callable[[Event], bool]) -> list[Event]:
        """What comes up to the first event of a type, or the first that a function is true for; all when none does."""
        is_it = (lambda event: isinstance(event, target)) if isinstance(target, type) else target
        received: list[Event] = []
        async with aclosing(self.service.events.follow(self.id, self.after)) as batches:
            async for batch in batches:
                for record in batch:
                    assert record.seq == self.after + 1
                    self.after = record.seq
                    received.append(decode(record.body))
                    if is_it(received[-1]):
                        return received
        return received

    async def rest(self) -> list[Event]:
        return await self.until(lambda event: False)

    async def notice(self, code: str) -> list[Event]:
        return await self.until(lambda event: getattr(event, "code", "") == code)

    async def question(self) -> Question:
        """The next one that is asked."""
        await self.until(lambda event: event.__struct_config__.tag == "permission_request")
        [question] = await self.service.questions.list(session_id=self.id)
        return question


async def all_of(service: Service, session_id: str) -> list[Record]:
    view = await service.sessions.get(session_id)
    return await service.events.read(session_id, limit=view.last_seq + 1)


async def start_session(service: Service, prompt: str, **target: Any) -> tuple[SessionView, Watch]:
    view = await service.sessions.create(SessionSpec(prompt=prompt, **target), who="tester")
    return view, Watch(service, view.id)


def bounded(main: Coroutine[Any, Any, None]) -> None:
    async def run() -> None:
        async with asyncio.timeout(BOUND):
            await main

    asyncio.run(run())


class Kit(msgspec.Struct, frozen=True):
    """Everything above, for test modules, which cannot import a conftest."""

    house: House
    play: Any = play
    kinds: Any = kinds
    start_session: Any = start_session
    all_of: Any = all_of
    watch: Any = Watch
    run: Any = bounded


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(House(tmp_path / "house"))


@pytest.fixture
def site(kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(workers, "RENEW_EVERY", 1.0)  # what happens, happens when a test says so
    monkeypatch.setattr(workers, "HELD", 1.0)
    monkeypatch.setattr(lost_rings, "LOOK_EVERY", float(LONG_LEASE))
    return Site(kit, tmp_path)
