"""Several services over one log: each session has one owner, and whoever lost it tells nobody anything more."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stagedoor.engine import milliseconds
from stagedoor.errors import Fenced, StoreBroken, TooMany
from stagedoor.service import worker as workers
from stagedoor.service.journal import Hub, LocalHub
from stagedoor.service.running import Role
from stagedoor.service.service import Service
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.store import Append, Change, Query
from stagedoor.service.views import QueuedPrompt, Record, SessionSpec, SessionView
from stagedoor.service.worker import FILE_NAME, WorkerIdentity
from stagedoor.transports.guard.processes import descendants
from stagedoor.unified.decisions import Allow
from stagedoor.unified.events import Done, Notice, TurnCompleted, TurnStarted, decode

LONG = 10**15


LONG_LEASE = 3600
"""Seconds."""


class SharedLog(SqliteStore):
    """As one that several processes use: the services of a test, which open and close it each for itself."""

    shared = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.users = 0
        self.unreachable = False

    async def open(self) -> None:
        self.users += 1
        if self.users == 1:
            await super().open()

    async def close(self) -> None:
        self.users -= 1
        if self.users == 0:
            await super().close()

    async def renew(self, worker_id: str, incarnation: str, until: int) -> bool:
        if self.unreachable:
            raise StoreBroken("the log is away; wait until it is back")
        return await super().renew(worker_id, incarnation, until)


class Site:
    """A log, and machines that use it."""

    def __init__(self, kit: Any, folder: Path) -> None:
        self.kit = kit
        self.folder = folder
        self.store = SharedLog(folder / "log.db")
        self.hub: Hub = LocalHub()

    @asynccontextmanager
    async def machine(self, name: str, role: Role = "both") -> AsyncGenerator[Service]:
        home = self.folder / name
        home.mkdir(exist_ok=True)
        (home / FILE_NAME).write_bytes(msgspec.json.encode(WorkerIdentity(id=f"id of {name}", name=name)))
        settings = replace(self.kit.house.settings(), home=str(home), lease=LONG_LEASE)
        async with Service(settings, store=self.store, hub=self.hub, role=role) as service:
            if role != "door":  # what each does itself; how requests find it is shown in tests/machines
                service.sessions, service.questions = service._own_verbs
            yield service

    async def silence(self, name: str) -> None:
        """Its lease ends; it does not know yet."""
        row = next(row for row in await self.store.workers() if row.name == name)
        assert await self.store.renew(row.id, row.incarnation, milliseconds())


@pytest.fixture
def site(kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(workers, "RENEW_EVERY", 1.0)  # what happens, happens when a test says so
    monkeypatch.setattr(workers, "HELD", 1.0)
    return Site(kit, tmp_path)


async def nothing_runs() -> bool:
    while descendants(os.getpid()):
        await asyncio.sleep(0.02)
    return True


async def let_go(service: Service, session_id: str) -> None:
    while service._running.get(session_id) is not None:
        await asyncio.sleep(0.01)


async def events(service: Service, session_id: str) -> list[Any]:
    return [decode(one.body) for one in await service._store.records(session_id, 0, 10_000)]


def owner(view: SessionView) -> tuple[str, str, tuple[str, ...]]:
    return view.worker, view.place, view.needs


def test_each_machine_keeps_its_own_and_all_hear_of_it(site: Site) -> None:
    async def main() -> None:
        async with site.machine("one") as one, site.machine("two") as two, site.machine("door", "door") as door:
            first, _ = await site.kit.start_session(one, site.kit.play([{"shell": "touch made"}], [{"say": "ok"}]))
            assert owner(first) == ("id of one", "host:one", ("host:one",))
            second, _ = await site.kit.start_session(two, site.kit.play([{"say": "ok"}]))
            assert second.epoch > first.epoch > 0
            for service in (one, two, door):
                await service._running.recover()  # nothing is free
            assert [list(service._running.runners) for service in (two, door)] in ([[second.id], []], [[], []])
            told = [asyncio.create_task(site.kit.watch(service, first.id).rest()) for service in (two, door)]
            question = await site.kit.watch(one, first.id).question()
            await one.questions.answer(question.id, Allow())
            whole = [await task for task in told]
            assert whole[0] == whole[1] == await events(one, first.id)
            assert isinstance(whole[0][-1], Done)
            assert {row.name for row in await site.store.workers()} == {"one", "two"}  # a door is none
            third, heard = await site.kit.start_session(door, site.kit.play([{"say": "elsewhere"}]))
            assert third.worker in ("id of one", "id of two")
            assert isinstance((await heard.rest())[-1], Done)
            assert len(await door.sessions.list(Query())) == 3

    site.kit.run(main())


def test_one_that_was_overtaken_ends_its_program_and_says_nothing_more(site: Site) -> None:
    async def main() -> None:
        async with site.machine("one") as one, site.machine("two") as two:
            script = site.kit.play([{"shell": "touch made"}], [{"say": "too late"}])
            taken, watch = await site.kit.start_session(one, script, keep_open=True)
            question = await watch.question()
            left, left_watch = await site.kit.start_session(one, site.kit.play([{"shell": "ls"}], [{"say": "on"}]))
            other = await left_watch.question()
            before = await events(one, taken.id)
            await site.silence("one")
            assert await two._running.worker.claim_only(taken)
            with pytest.raises(Fenced):
                await one.sessions.send(taken.id, "are you there?")
            await let_go(one, taken.id)
            assert [one._running.fault, await events(two, taken.id)] == [None, before]
            assert (await two.questions.get(question.id)).open
            now = await two.sessions.get(taken.id)
            assert (now.worker, now.epoch > taken.epoch, now.queued) == ("id of two", True, 0)

            await one.questions.answer(other.id, Allow())  # the other one does not even notice
            await left_watch.rest()
            assert (await one.sessions.get(left.id)).state == "done"
            assert await nothing_runs()
            assert not (site.kit.house.workspace / "made").exists()

    site.kit.run(main())


def test_numbers_that_do_not_follow_end_one_session_and_it_is_read_anew(site: Site) -> None:
    async def main() -> None:
        async with site.machine("one") as one:
            view, watch = await site.kit.start_session(one, site.kit.play([{"shell": "ls"}], [{"say": "ok"}]))
            question = await watch.question()
            last = (await one.sessions.get(view.id)).last_seq
            stray = Notice(level="info", code="stray", message="from nowhere", seq=last + 1)
            await site.store.write(Append(view.id, [Record.of(stray)]))
            await one.questions.answer(question.id, Allow())
            await watch.rest()
            told = await events(one, view.id)
            assert [event.seq for event in told] == list(range(1, len(told) + 1))
            assert isinstance(told[-1], Done)
            codes = [event.code for event in told if isinstance(event, Notice)]
            assert [code for code in codes if code != "mode"] == ["stray", "asleep", "woken"]  # cut off, then answered
            ended = await one.sessions.get(view.id)
            assert (ended.state, ended.epoch > view.epoch, one._running.fault) == ("done", True, None)
            again, watch = await site.kit.start_session(one, site.kit.play([{"say": "on"}]))
            await watch.rest()
            assert (await one.sessions.get(again.id)).state == "done"

    site.kit.run(main())


@pytest.mark.parametrize("keep_open", [False, True])
def test_a_machine_that_stays_away_is_spoken_for(site: Site, keep_open: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with site.machine("two") as two:
            async with site.machine("one") as one:
                script = site.kit.play([{"say": "thinking"}], [{"stall": None}])
                view, watch = await site.kit.start_session(one, script, keep_open=keep_open)
                asking, questions = await site.kit.start_session(one, site.kit.play([{"shell": "ls"}]))
                question = await questions.question()
                await watch.until(TurnStarted)
                await site.silence("one")
                await two._running.recover()
                assert (await two.sessions.get(view.id)).worker == "id of one"  # it is waited for
                monkeypatch.setattr(workers, "GRACE", -float(LONG))
                await two._running.recover()
                closed, open_question = await two.sessions.get(view.id), await two.questions.get(question.id)
                assert open_question.open
                assert (await two.sessions.get(asking.id)).activity == "asleep"
                if keep_open:
                    assert (closed.activity, closed.worker) == ("asleep", "")
                else:
                    assert (closed.state, closed.worker) == ("failed", "id of two")
                monkeypatch.setattr(workers, "GRACE", 4.0)
                await one._running.worker.register()  # it comes back, and takes what is its own
                await one._running.recover()
                assert (await one.sessions.get(asking.id)).worker == "id of one"
                assert await one.questions.answer(question.id, Allow())
                await questions.until(lambda event: getattr(event, "code", "") == "woken")
            assert await nothing_runs()

    site.kit.run(main())


def test_a_lease_that_cannot_be_renewed_ends_everything_in_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "RENEW_EVERY", 0.1 / LONG_LEASE)

    async def main() -> None:
        async with site.machine("one") as one:
            view, watch = await site.kit.start_session(one, site.kit.play([{"stall": None}]))
            await watch.until(TurnStarted)
            before = await events(one, view.id)
            site.store.unreachable = True
            one._running.worker._deadline = time.monotonic()  # as if it had tried for long enough
            assert await nothing_runs()
            assert (await events(one, view.id))[: len(before)] == before
            site.store.unreachable = False
            assert isinstance((await watch.rest())[-1], Done)  # it came back, and closed what it had let go of
            ended = await one.sessions.get(view.id)
            assert (ended.state, ended.epoch > view.epoch) == ("failed", True)
            again, watch = await site.kit.start_session(one, site.kit.play([{"say": "on"}]))
            await watch.rest()
            assert (await one.sessions.get(again.id)).state == "done"

    site.kit.run(main())


def test_one_that_is_emptied_takes_nothing_new(site: Site) -> None:
    async def main() -> None:
        async with site.machine("one") as one:
            for draining in (True, False):
                await site.store.mark_worker("id of one", draining=draining)
                if draining:
                    with pytest.raises(TooMany, match="being emptied"):
                        await one.sessions.create(SessionSpec(prompt=site.kit.play([{"say": "hi"}])))
                    assert [await one.sessions.list(Query()), await nothing_runs()] == [[], True]
                else:
                    _, watch = await site.kit.start_session(one, site.kit.play([{"say": "hi"}]))
                    assert isinstance((await watch.rest())[-1], Done)

    site.kit.run(main())


def test_a_claim_takes_no_more_than_there_are_seats_for(site: Site) -> None:
    async def main() -> None:
        async with site.machine("one") as one:
            names = [f"s{number}" for number in range(5)]
            for at, name in enumerate(names):
                view = SessionView(id=name, agent="understudy", cwd="/", created_at=at, keep_open=True)
                await site.store.write(view)
            one._running.seats._limit = 2
            await one._running.recover()
            free = await one.sessions.list(Query(limit=10))
            assert sorted(view.id for view in free if view.worker) == names[:2]

    site.kit.run(main())


class Overtaking(SharedLog):
    """The moment a prompt is about to go to its agent, ``claimant`` takes the session."""

    claimant = ""

    async def write(self, *changes: Change) -> None:
        await super().write(*changes)
        for change in changes:
            if self.claimant and isinstance(change, QueuedPrompt) and change.taken_epoch:
                claimant, self.claimant = self.claimant, ""
                await self.mark_worker("id of one", revoked=True)
                terms: dict[str, Any] = {"labels": ("host:one",), "limit": 1, "now": 1}
                assert await self.claim("id of two", claimant, **terms, session_id=change.session_id)


def test_a_prompt_on_its_way_is_never_sent_again(site: Site) -> None:
    async def main() -> None:
        store = site.store = Overtaking(site.folder / "other.db")
        async with site.machine("two") as two, site.machine("one") as one:
            first = site.kit.play([{"say": "hi"}])
            view, watch = await site.kit.start_session(one, first, keep_open=True, tier="autonomous")
            await watch.until(TurnCompleted)
            store.claimant = two._running.worker._incarnation
            await one.sessions.send(view.id, site.kit.play([{"shell": "echo x >> count"}], [{"say": "done"}]))
            await let_go(one, view.id)
            assert await nothing_runs()
            await two._running._continue_all([await two.sessions.get(view.id)])
            assert [message.state for message in await store.messages(view.id, queued_only=False)] == [
                "sent",
                "dropped",
            ]
            now = await two.sessions.get(view.id)
            assert (now.activity, now.queued, now.turn) == ("asleep", 0, 1)
            codes = [event.code for event in await events(two, view.id) if isinstance(event, Notice)]
            assert codes.count("message_cut_off") == 1
            await two.sessions.cancel(view.id)
            assert [type(event) for event in await events(two, view.id)].count(TurnStarted) == 1
            counted = site.kit.house.workspace / "count"
            assert not counted.exists() or counted.read_text() == "x\n"

    site.kit.run(main())


def test_one_of_all_does_the_upkeep_of_the_log(site: Site) -> None:
    async def main() -> None:
        async with site.machine("one") as one, site.machine("two") as two:
            turns = [await service._upkeep._is_ours() for service in (one, two) for _ in range(2)]
            rows = await site.store.commands(open_only=False)
            assert (turns.count(True), {row.kind for row in rows}) in ((0, {"upkeep"}), (1, {"upkeep"}))
            assert len(rows) in (1, 2)  # two when an hour ended meanwhile
            assert await site.store.commands() == []

    site.kit.run(main())
