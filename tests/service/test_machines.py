"""Several services over one log: each session has one owner, and whoever lost it tells nobody anything more."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from stagedoor.errors import AlreadyAnswered, BadRequest, Fenced, SessionEnded, StoreBroken, TooMany, WorkerAway
from stagedoor.service import worker as workers
from stagedoor.service.identity import first_id, ids_from
from stagedoor.service.journal import WORKERS, Journal
from stagedoor.service.machines.lost_rings import LostRings
from stagedoor.service.service import Service
from stagedoor.service.store import Append, Change, Query
from stagedoor.service.views import QueuedPrompt, Record, SessionSpec, SessionView, WorkerRow
from stagedoor.transports.guard.processes import descendants
from stagedoor.unified.decisions import Allow
from stagedoor.unified.events import Done, Notice, TurnCompleted, TurnStarted, decode
from tests.service.sites import LONG_LEASE, SharedLog, Site

LONG = 10**15


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


def test_a_session_goes_on_where_the_labels_are_that_it_was_placed_by(site: Site) -> None:
    site.kit.house.plays([{"say": "a"}], [{"say": "b"}], [{"say": "c"}])

    async def main() -> None:
        async with site.machine("door", "door"):  # the log stays open
            await placed()

    async def placed() -> None:
        async with site.machine("one", labels=("gpu", "big")) as one:
            options = {"keep_open": True, "needs": ("gpu",), "place": "host:one"}
            session, watch = await site.kit.start_session(one, "plain", **options)
            assert owner(session) == ("id of one", "host:one", ("gpu", "host:one"))
            await watch.until(TurnCompleted)
        async with site.machine("one") as one:  # without the label: it is nobody's, and nothing wrong is said of it
            found = await one.sessions.get(session.id)
            assert (found.worker, found.activity, list(one._running.runners)) == ("", "asleep", [])
            with pytest.raises(BadRequest, match="does not have the labels gpu"):
                await one.sessions.resume(session.id, "plain", fork=True)
        async with site.machine("one", labels=("gpu",)) as one:
            assert owner(await one.sessions.get(session.id)) == owner(session)
            await one.sessions.send(session.id, "plain")
            await site.kit.watch(one, session.id, watch.after).until(TurnCompleted)
            await one.sessions.cancel(session.id)
            again = await one.sessions.resume(session.id, "plain")
            assert owner(again) == owner(session)
            await one.sessions.cancel(again.id)

    site.kit.run(main())


def test_a_session_whose_machine_has_lost_a_label_can_be_ended_and_put_away_and_not_go_on(site: Site) -> None:
    lost = "needs a machine with the labels gpu, host:one, and one does not have gpu any more"

    async def main() -> None:
        async with site.machine("door", "door") as door:
            options = {"keep_open": True, "needs": ("gpu",), "place": "host:one"}
            async with site.machine("one", labels=("gpu",)) as one:
                asking = site.kit.play([{"shell": "ls"}], [{"say": "ok"}])
                first, first_watch = await site.kit.start_session(one, asking, **options)
                question = await first_watch.question()
                await one.sessions.send(first.id, "never sent")
                second, watch = await site.kit.start_session(one, site.kit.play([{"say": "a"}]), **options)
                await watch.until(TurnCompleted)
            async with site.machine("one") as one:
                await put_away(door.sessions, first.id, "cancelled")
                await put_away(one.sessions, second.id, "done")  # its only turn was over
                told = await events(one, first.id)
                assert [event.code for event in told if isinstance(event, Notice)][-1] == "messages_dropped"
                assert not (await one.questions.get(question.id)).open
                for view in (first, second):
                    await door.sessions.delete(view.id)
                    assert await door.sessions.find(view.id) is None

    async def put_away(verbs: Any, session_id: str, state: str) -> None:
        going_on: list[Callable[[], Awaitable[object]]] = [
            lambda: verbs.send(session_id, "more"),
            lambda: verbs.rewrite(session_id, "m", prompt="more"),
            lambda: verbs.change_setting(session_id, "model", "m"),
            lambda: verbs.reconfigure(session_id, model="m"),
        ]
        for verb in going_on:
            with pytest.raises(WorkerAway, match=lost):
                await verb()
        assert await verbs.settings(session_id) == ()
        await verbs.report(session_id)
        await verbs.workspaces.files(session_id)
        changed = await verbs.change(session_id, title="new", archived=True)
        assert (changed.title, changed.archived, changed.activity, changed.worker) == ("new", True, "asleep", "")
        for _ in range(2):
            ended = await verbs.cancel(session_id)
            assert (ended.state, ended.title, ended.archived, ended.queued) == (state, "new", True, 0)
        with pytest.raises(SessionEnded):
            await verbs.send(session_id, "more")

    site.kit.run(main())


def test_what_changes_hands_is_neither_called_ended_nor_answered(site: Site) -> None:
    async def main() -> None:
        async with site.machine("one") as one:
            script = site.kit.play([{"shell": "ls"}], [{"say": "ok"}])
            view, watch = await site.kit.start_session(one, script, keep_open=True)
            question = await watch.question()
            await one._running._kill_all()  # let go of, and not continued yet
            verbs: dict[str, Callable[[], Awaitable[object]]] = {
                "answer": lambda: one.questions.answer(question.id, Allow()),
                "send": lambda: one.sessions.send(view.id, "more"),
                "interrupt": lambda: one.sessions.interrupt(view.id),
                "withdraw": lambda: one.sessions.withdraw(view.id, "m"),
                "change": lambda: one.sessions.change(view.id, title="new"),
                "reconfigure": lambda: one.sessions.reconfigure(view.id, model="m"),
                "change_setting": lambda: one.sessions.change_setting(view.id, "model", "m"),
                "undo": lambda: one.sessions.undo(view.id),
                "cancel": lambda: one.sessions.cancel(view.id),
            }
            for verb in verbs.values():
                with pytest.raises(WorkerAway, match="just being continued; try again"):
                    await verb()
            await one._running.worker.register()
            await one._running.recover()
            await verbs["answer"]()
            await watch.until(lambda event: getattr(event, "code", "") == "woken")
            await verbs["cancel"]()
            with pytest.raises(SessionEnded):
                await verbs["send"]()
            with pytest.raises(AlreadyAnswered):
                await verbs["answer"]()
            assert await nothing_runs()

    site.kit.run(main())


def test_what_the_same_request_has_stored_before_is_its_answer(site: Site) -> None:
    async def main() -> None:
        async with site.machine("one") as one, site.machine("two") as two:
            script = site.kit.play([{"shell": "ls"}], [{"say": "ok"}])
            spec = SessionSpec(prompt=script, keep_open=True)
            views = []
            for service in (one, one, two):  # its word was lost, and it was sent again, to another machine too
                with ids_from("create"):
                    views.append(await service.sessions.create(spec))
            assert [(view.id, view.worker) for view in views] == [(views[0].id, "id of one")] * 3
            watch = site.kit.watch(one, views[0].id)
            question = await watch.question()
            for _ in range(2):
                with ids_from("send"):
                    await one.sessions.send(views[0].id, site.kit.play([{"say": "more"}]))
            assert len(await one.sessions.messages(views[0].id, queued_only=False)) == 2
            for _ in range(2):
                with ids_from("answer"):
                    assert (await one.questions.answer(question.id, Allow())).decision == Allow()
            with ids_from("another"), pytest.raises(AlreadyAnswered):
                await one.questions.answer(question.id, Allow())
            await watch.until(lambda event: isinstance(event, TurnCompleted) and event.turn == 2)
            await one.sessions.cancel(views[0].id)
            assert [type(event) for event in await events(one, views[0].id)].count(TurnStarted) == 2

            # One that has no owner yet is neither begun again nor taken for begun.
            with ids_from("later"):
                await site.store.write(SessionView(id=first_id(), agent="understudy", cwd="/", worker="id of one"))
                with pytest.raises(WorkerAway, match="just being started; try again"):
                    await two.sessions.create(spec)

    site.kit.run(main())


def test_a_log_that_broke_is_tried_again_though_nobody_asks_for_anything(site: Site) -> None:
    async def main() -> None:
        async with site.machine("one") as one:
            view, watch = await site.kit.start_session(one, site.kit.play([{"shell": "ls"}], [{"say": "ok"}]))
            question = await watch.question()
            one._running.broken(StoreBroken("as when PostgreSQL was away for too long"))
            assert one._running.fault is not None
            site.hub.ring(WORKERS)  # as every few seconds
            while one._running.get(view.id) is None or one._running.fault is not None:
                await asyncio.sleep(0.01)
            await one.questions.answer(question.id, Allow())
            assert isinstance((await watch.rest())[-1], Done)

    site.kit.run(main())


def test_late_news_of_an_earlier_epoch_does_not_end_a_session_that_came_back(site: Site) -> None:
    async def main() -> None:
        async with site.machine("one") as one:
            view, watch = await site.kit.start_session(one, site.kit.play([{"shell": "ls"}], [{"say": "ok"}]))
            question = await watch.question()
            one._running.broken(Fenced("late"), session_id=view.id, epoch=view.epoch - 1)
            assert not one._running._lost
            await one.questions.answer(question.id, Allow())
            assert isinstance((await watch.rest())[-1], Done)

    site.kit.run(main())


def test_one_that_was_cut_off_while_it_spoke_for_another_gives_back_what_it_had(site: Site) -> None:
    async def main() -> None:
        async with site.machine("two") as two, site.machine("one") as one:
            view, watch = await site.kit.start_session(one, site.kit.play([{"shell": "ls"}], [{"say": "ok"}]))
            question = await watch.question()
            await one._running._kill_all()
            await site.silence("one")
            assert await two._running.worker.claim_only(view)
            await two._running.worker.register()  # it was killed at this moment, and is back
            await two._running.recover()
            left = await two.sessions.get(view.id)
            assert (left.worker, left.activity) == ("", "asleep")
            await one._running.worker.register()
            await one._running.recover()
            await one.questions.answer(question.id, Allow())
            assert isinstance((await watch.rest())[-1], Done)

    site.kit.run(main())


GONE: list[tuple[str, dict[str, Any], bool]] = [
    ("it is there", {}, False),
    ("its lease is over", {"until": 1}, True),
    ("it has come again", {"incarnation": "i2"}, True),
]


@pytest.mark.parametrize(("case", "row", "rings"), GONE, ids=[row[0] for row in GONE])
def test_rings_that_were_lost_with_a_worker(site: Site, case: str, row: dict[str, Any], rings: bool) -> None:
    async def main() -> None:
        await site.store.open()
        try:
            lost = LostRings(Journal(site.store, site.hub), lambda: 500)
            bell = site.hub.bell("any")
            worker = WorkerRow(id="w1", incarnation="i1", until=1000)
            await site.store.put_worker(worker)
            await lost.look()
            await site.store.put_worker(replace(worker, **row))
            for rung in (rings, False):  # once
                await lost.look()
                assert bell.event.is_set() == rung
                bell.event.clear()
        finally:
            await site.store.close()

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
