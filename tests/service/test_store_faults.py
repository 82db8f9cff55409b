"""A log that cannot be written: work stops, nothing is left running, reading goes on; later it goes on."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from stagedoor.errors import StoreBroken
from stagedoor.server.status import readiness
from stagedoor.service.service import Service
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.store import Change, Query
from stagedoor.service.views import SessionSpec, SessionView
from stagedoor.transports.guard.processes import descendants
from stagedoor.unified.decisions import Allow
from stagedoor.unified.events import TurnStarted


class FullDisk(SqliteStore):
    """Writes as long as there is ``room``."""

    room = True

    async def write(self, *changes: Change) -> None:
        if not self.room:
            raise StoreBroken("the disk is full; make room")
        await super().write(*changes)


def _all_gone() -> bool:
    until = time.monotonic() + 240
    while descendants(os.getpid()) and time.monotonic() < until:
        time.sleep(0.02)
    return not descendants(os.getpid())


def test_a_full_disk_ends_what_runs_and_takes_no_work_until_there_is_room(kit: Any, tmp_path: Path) -> None:
    async def main() -> None:
        store = FullDisk(tmp_path / "log.db")
        async with Service(kit.house.settings(), store=store) as service:
            questions, watch = await kit.start_session(service, kit.play([{"shell": "touch made"}], [{"say": "ok"}]))
            question = await watch.question()
            stalled, watch = await kit.start_session(service, kit.play([{"stall": None}]))
            await watch.until(TurnStarted)
            store.room = False
            await service.questions.answer(question.id, Allow())  # stored by itself; what comes of it cannot be
            assert await asyncio.to_thread(_all_gone)
            with pytest.raises(StoreBroken, match="no new work: the disk is full"):
                await service.sessions.create(SessionSpec(prompt="hi"))
            assert str(service._running.fault) == "the disk is full; make room"
            assert (await service.sessions.get(stalled.id)).state == "running"
            assert len(await kit.all_of(service, stalled.id)) >= 2
            assert (await readiness(service, stopping=False)).log == "broken"

            store.room = True
            assert (await readiness(service, stopping=False)).status == "ready"  # whoever asks finds it mended
            view, watch = await kit.start_session(service, kit.play([{"say": "on"}]))
            await watch.rest()
            assert service._running.fault is None
            assert [(await service.sessions.get(one.id)).state for one in (view, stalled)] == ["done", "failed"]
            await kit.watch(service, questions.id).rest()  # its answer counts, and is told now
            assert (await service.sessions.get(questions.id)).state == "done"

    kit.run(main())


class Unreadable(SqliteStore):
    async def claim(self, *given: Any, **named: Any) -> list[SessionView]:
        raise StoreBroken("the disk is broken; replace it")


def test_a_start_that_fails_lets_go_of_the_log(kit: Any) -> None:
    async def main() -> None:
        settings = kit.house.settings()
        with pytest.raises(StoreBroken, match="replace it"):
            await Service(settings, store=Unreadable(Path(settings.home) / "log.db")).start()
        async with Service(settings) as service:
            assert await service.sessions.page(Query()) == ([], 0)

    kit.run(main())


def test_a_session_that_could_not_be_kept_leaves_no_worktree(kit: Any, tmp_path: Path) -> None:
    async def main() -> None:
        me = ("-c", "user.name=me", "-c", "user.email=me@example.org")
        for words in (("init", "-q"), (*me, "commit", "-q", "--allow-empty", "-m", "first")):
            git = await asyncio.create_subprocess_exec("git", *words, cwd=kit.house.workspace)
            assert await git.wait() == 0
        store = FullDisk(tmp_path / "log.db")
        async with Service(kit.house.settings(), store=store) as service:
            store.room = False
            with pytest.raises(StoreBroken):
                await service.sessions.create(SessionSpec(prompt="hi", worktree=True))
            assert list(service.home.glob("worktrees/*")) == []

    kit.run(main())
