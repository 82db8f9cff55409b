"""Questions are rows: answered once, by anybody, also after the server was away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stagedoor.errors import AlreadyAnswered, BadRequest, SessionNotFound
from stagedoor.permissions.audit import FILE_NAME, Verification, verify
from stagedoor.service.question_rows import answered
from stagedoor.service.service import Service
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.store import Fence
from stagedoor.service.views import Question, SessionView
from stagedoor.unified.decisions import Allow, Decision, Deny
from stagedoor.unified.events import (
    Done,
    Event,
    Notice,
    PermissionRequest,
    PermissionResolved,
    ToolResult,
    TurnCompleted,
    TurnStarted,
    decode,
)

ASKS = ([{"shell": "touch made"}], [{"say": "ok"}])


def test_the_first_answer_counts_and_the_others_hear_that_it_came(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, kit.play(*ASKS))
            question = await watch.question()
            assert question.id == question.request.request_id
            assert (await service.sessions.get(view.id)).activity == "waiting"
            decisions: list[Decision] = [Allow(), Deny("no"), Allow(), Deny("no")]
            given = await asyncio.gather(
                *(service.questions.answer(question.id, one, who=str(n)) for n, one in enumerate(decisions)),
                return_exceptions=True,
            )
            won = [one for one in given if isinstance(one, Question)]
            assert [type(one) for one in given if not isinstance(one, Question)] == [AlreadyAnswered] * 3
            events = await watch.rest()
            [resolved] = [event for event in events if isinstance(event, PermissionResolved)]
            assert (resolved.by, resolved.decision == "allow") == ("client", isinstance(won[0].decision, Allow))
            [row] = await service.questions.list(open_only=False)
            assert (row.open, row.applied, row.decision, row.who) == (False, True, won[0].decision, won[0].who)
            [audited], total = await service.audit.page()
            assert (total, audited.who, audited.entry.decision) == (1, won[0].who, resolved.decision)
            assert verify(service.home / FILE_NAME) == Verification(ok=True, entries=1)
            for question_id, fault in ((question.id, AlreadyAnswered), ("x:y", SessionNotFound)):
                with pytest.raises(fault):
                    await service.questions.answer(question_id, Allow())

    kit.run(main())


def test_an_edited_input_that_the_agent_cannot_take_uses_no_question_up(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, kit.play(*ASKS))
            question = await watch.question()
            with pytest.raises(BadRequest, match="a changed input"):
                await service.questions.answer(question.id, Allow(updated_input={"command": "true"}))
            assert await service.questions.list(session_id=view.id) == [question]
            await service.questions.answer(question.id, Deny("no"))
            await watch.rest()

    kit.run(main())


def test_always_adds_the_rule_that_was_shown(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            _, watch = await kit.start_session(service, kit.play(*ASKS))
            question = await watch.question()
            kept = await service.questions.rule_for(question.id)
            assert kept.file == str(service.home / "policy.yaml")
            assert [(rule["action"], rule["command"]) for rule in kept.rules] == [("allow", "touch made")]
            await service.questions.answer(question.id, Allow(remember="always"))
            await watch.rest()
            view, watch = await kit.start_session(service, kit.play(*ASKS))
            await watch.rest()
            [row] = await service.questions.list(session_id=view.id, open_only=False)
            assert (row.by, row.applied) == ("policy", True)

    kit.run(main())


def test_time_that_is_up_denies(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            _, watch = await kit.start_session(service, kit.play(*ASKS), permission_timeout=0.2)
            [resolved] = [event for event in await watch.rest() if isinstance(event, PermissionResolved)]
            assert (resolved.decision, resolved.by) == ("deny", "timeout")
            [row] = await service.questions.list(open_only=False)
            assert (row.open, row.by, row.applied) == (False, "timeout", True)
            with pytest.raises(AlreadyAnswered):
                await service.questions.answer(row.id, Allow())
            assert service.counters()["questions expired"] == 1

    kit.run(main())


class LateDisk(SqliteStore):
    """Keeps an answer just before (``stored_first``) or just after its question's time is up."""

    stored_first = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.report: AsyncIterator[Event]

    async def answer(self, question: Question, *, fence: Fence | None = None) -> bool:
        if self.stored_first:
            won = await super().answer(question, fence=fence)
        async for event in self.report:
            if isinstance(event, PermissionResolved):
                break
        return won if self.stored_first else await super().answer(question, fence=fence)


@pytest.mark.parametrize("stored_first", [True, False])
def test_an_answer_at_the_moment_its_time_is_up_does_not_count_at_all(
    kit: Any, tmp_path: Path, stored_first: bool
) -> None:
    async def main() -> None:
        store = LateDisk(tmp_path / "log.db")
        store.stored_first = stored_first
        async with Service(kit.house.settings(), store=store) as service:
            view, watch = await kit.start_session(service, kit.play(*ASKS), permission_timeout=0.3)
            life = service._running.runners[view.id]._life
            assert life is not None
            store.report = life.session.events
            question = await watch.question()
            with pytest.raises(AlreadyAnswered):
                await service.questions.answer(question.id, Allow(), who="me")
            [resolved] = [event for event in await watch.rest() if isinstance(event, PermissionResolved)]
            [row] = await service.questions.list(open_only=False)
            assert (resolved.decision, resolved.by) == ("deny", "timeout")
            assert (type(row.decision), row.by, row.who, row.applied) == (Deny, "timeout", "", True)

    kit.run(main())


async def _waiting(kit: Any, service: Service, **target: Any) -> tuple[SessionView, Question]:
    view, watch = await kit.start_session(service, "please", **target)
    return view, await watch.question()


async def _ends(kit: Any, service: Service, session_id: str) -> list[Any]:
    """The whole story; every question in it is closed once, and nothing comes after ``done``."""
    events = await kit.watch(service, session_id).rest()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    request = [event.request_id for event in events if isinstance(event, PermissionRequest)]
    closed = [event.request_id for event in events if isinstance(event, PermissionResolved)]
    assert sorted(request) == sorted(closed)
    assert [type(event) for event in events].count(Done) == 1
    return list(events)


OUTLIVED: list[tuple[str, Decision, bool, str, list[str]]] = [
    ("allowed", Allow(), True, "done", ["allow", "allow"]),
    ("denied", Deny("not that"), False, "done", ["deny", "deny"]),
    ("denied, and the turn is to end", Deny("stop", interrupt=True), False, "cancelled", ["deny"]),
]


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "crashed"])
@pytest.mark.parametrize(("decision", "create", "state", "resolved"), [row[1:] for row in OUTLIVED], ids=[
    row[0] for row in OUTLIVED
])  # fmt: skip
def test_a_question_outlives_the_server(
    kit: Any, crash: bool, decision: Decision, create: bool, state: str, resolved: list[str]
) -> None:
    async def main() -> None:
        house = kit.house
        # The agent asks the same again when it is told: a program that was stopped in order is one reply further on.
        house.plays(*ASKS) if crash else house.plays([{"shell": "touch made"}], *ASKS)
        async with house.service() as service:
            view, question = await _waiting(kit, service)
            house = house.crashed() if crash else house
        async with house.service() as service:
            found = await service.sessions.get(view.id)
            assert (found.state, found.activity, found.open_questions) == ("running", "asleep", 1)
            [rearmed] = await service.questions.list()
            assert (rearmed.id, rearmed.rearmed, rearmed.open) == (question.id, True, True)
            answers = await asyncio.gather(
                *(service.questions.answer(question.id, decision, who="later") for _ in range(2)),
                return_exceptions=True,
            )
            assert [type(one) for one in answers] in ([Question, AlreadyAnswered], [AlreadyAnswered, Question])
            events = await _ends(kit, service, view.id)
            assert [one.decision for one in events if isinstance(one, PermissionResolved)] == resolved
            ended = await service.sessions.get(view.id)
            assert (ended.state, ended.open_questions) == (state, 0)
            assert (house.workspace / "made").exists() == create
            rows = await service.questions.list(open_only=False)
            assert {(row.open, row.applied, row.who) for row in rows} == {(False, True, "later")}
            turns = [event.turn for event in events if isinstance(event, TurnStarted)]
            assert turns == ([1] if state == "cancelled" else [1, 2])

    kit.run(main())


def test_an_answer_that_was_stored_and_not_told_is_told_after_a_crash(kit: Any) -> None:
    async def main() -> None:
        kit.house.plays(*ASKS)
        async with kit.house.service() as service:
            view, question = await _waiting(kit, service)
            assert await service._journal.answer(answered(question, Allow(), by="client", who="me", now=1))
            house = kit.house.crashed()
        for _ in range(2):  # a second start finds nothing more to tell
            async with house.service() as service:
                events = await _ends(kit, service, view.id)
                assert (house.workspace / "made").exists()
                report = [(one.decision, one.by) for one in events if isinstance(one, PermissionResolved)]
                assert report == [("allow", "client")] * 2
                assert (await service.sessions.get(view.id)).state == "done"

    kit.run(main())


@pytest.mark.parametrize(("keep_open", "state", "activity"), [(False, "failed", "ended"), (True, "running", "asleep")])
def test_nobody_answers_in_time_while_the_agent_is_away(kit: Any, keep_open: bool, state: str, activity: str) -> None:
    async def main() -> None:
        kit.house.plays(*ASKS)
        async with kit.house.service() as service:
            view, _ = await _waiting(kit, service, permission_timeout=8.0, keep_open=keep_open)
        async with kit.house.service() as service:
            watch = kit.watch(service, view.id)
            await watch.until(PermissionResolved)
            if not keep_open:
                await watch.rest()
            found = await service.sessions.get(view.id)
            assert (found.state, found.activity, found.open_questions) == (state, activity, 0)
            [row] = await service.questions.list(open_only=False)
            assert (row.open, row.by, row.applied) == (False, "timeout", True)
            assert not (kit.house.workspace / "made").exists()

    kit.run(main())


def test_what_is_sent_meanwhile_waits_behind_the_question(kit: Any) -> None:
    async def main() -> None:
        kit.house.plays(*ASKS)
        async with kit.house.service() as service:
            view, question = await _waiting(kit, service)
            house = kit.house.crashed()
        async with house.service() as service:
            await service.sessions.send(view.id, kit.play([{"say": "and then"}]))
        async with house.service() as service:
            assert (await service.sessions.get(view.id)).queued == 1
            await service.questions.answer(question.id, Allow())
            events = await _ends(kit, service, view.id)
            assert [event.turn for event in events if isinstance(event, TurnStarted)] == [1, 2, 3]
            assert (await service.sessions.get(view.id)).result == "and then"

    kit.run(main())


def test_cancelling_closes_a_question_that_waits(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            kit.house.plays(*ASKS)
            view, _ = await _waiting(kit, service)
        async with kit.house.service() as service:
            ended = await service.sessions.cancel(view.id)
            assert (ended.state, ended.open_questions) == ("cancelled", 0)
            await _ends(kit, service, view.id)
            assert await service.questions.list() == []

    kit.run(main())


CRASHES: list[tuple[str, dict[str, Any], bool, tuple[str, str, str]]] = [
    ("in a turn", {"prompt": [{"stall": None}]}, False, ("failed", "ended", "the server stopped")),
    ("between turns", {"prompt": [{"say": "x"}], "keep_open": True}, True, ("running", "asleep", "")),
]  # fmt: skip


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "crashed"])
@pytest.mark.parametrize(("target", "rests", "expected"), [row[1:] for row in CRASHES], ids=[row[0] for row in CRASHES])
def test_what_a_server_finds_that_was_away(
    kit: Any, crash: bool, target: dict[str, Any], rests: bool, expected: tuple[str, str, str]
) -> None:
    async def main() -> None:
        house = kit.house
        async with house.service() as service:
            view, watch = await kit.start_session(
                service, kit.play(target["prompt"]), keep_open=target.get("keep_open", False)
            )
            await watch.until(TurnCompleted if rests else TurnStarted)
            if not rests:
                await service.sessions.send(view.id, "never sent")
            house = house.crashed() if crash else house
        async with house.service() as service:
            found = await service.sessions.get(view.id)
            assert (found.state, found.activity, found.error) == expected
            if rests:
                watch = kit.watch(service, view.id, found.last_seq)
                await service.sessions.send(view.id, kit.play([{"say": "again"}]))
                await watch.until(TurnCompleted)
                assert (await service.sessions.get(view.id)).result == "again"
                return
            events = await _ends(kit, service, view.id)
            assert [event.code for event in events if isinstance(event, Notice)][-1] == "messages_dropped"
            states = [one.state for one in await service._store.messages(view.id, queued_only=False)]
            assert states == ["sent", "dropped"]
            assert not [event for event in events if isinstance(event, ToolResult) and event.status == "success"]
            resumed = await service.sessions.resume(view.id, kit.play([{"say": "resumed"}]))
            await kit.watch(service, resumed.id).until(TurnCompleted)
            assert (await service.sessions.get(resumed.id)).result == "resumed"

    kit.run(main())


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "crashed"])
def test_an_open_session_cut_off_in_a_turn_goes_on_with_what_waited(kit: Any, crash: bool) -> None:
    async def main() -> None:
        house = kit.house
        async with house.service() as service:
            view, watch = await kit.start_session(service, kit.play([{"stall": None}]), keep_open=True)
            await watch.until(TurnStarted)
            await service.sessions.send(view.id, kit.play([{"say": "sent later"}]))
            house = house.crashed() if crash else house
        async with house.service() as service:
            watch = kit.watch(service, view.id)
            *_, cut = await watch.until(TurnCompleted)
            assert (cut.turn, cut.status) == (1, "interrupted")
            await watch.notice("asleep")
            *_, completed = await watch.until(TurnCompleted)
            assert (completed.turn, completed.status) == (2, "success")
            found = await service.sessions.get(view.id)
            assert (found.state, found.error, found.queued, found.result) == ("running", "", 0, "sent later")
            assert [one.state for one in await service._store.messages(view.id, queued_only=False)] == ["sent"] * 2

    kit.run(main())


def test_what_was_decided_stays_decided_when_the_session_ends_before_its_agent_is_told(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, kit.play(*ASKS))
            question = await watch.question()
            house = kit.house.crashed()
        service = house.service()
        await service._store.open()
        row = answered(question, Allow(), by="client", who="tester", now=1)
        assert await service._store.answer(row)
        found = await service._store.session(view.id)
        assert found is not None
        session_log = service._running.open_log(found)
        await session_log.mend(resumable=False)
        events = [decode(record.body) for record in await service.events.read(view.id)]
        [resolved] = [event for event in events if isinstance(event, PermissionResolved)]
        assert (resolved.decision, resolved.by) == ("allow", "client")
        assert isinstance(events[-1], Done)
        [kept] = await service.questions.list(open_only=False)
        assert (kept.decision, kept.by, kept.who) == (Allow(), "client", "tester")
        await service._store.close()

    kit.run(main())
