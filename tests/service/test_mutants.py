"""A Stagedoor that is wrong in one place must be found out by what many machines are checked with (``history``).

Each scenario is played twice: as we are, and with the fault. The checker knows nothing of either.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest
from msgspec.structs import replace

from stagedoor.errors import SequenceConflict, StoreError
from stagedoor.service.journal import Journal
from stagedoor.service.question_rows import answered
from stagedoor.service.service import Service
from stagedoor.service.session_log import SessionLog
from stagedoor.service.store import Append, Change, Fence
from stagedoor.service.views import Question
from stagedoor.unified.decisions import Allow, Decision, Deny
from stagedoor.unified.events import Notice, TurnCompleted
from tests.machines.history import History, Request, Row, violations
from tests.service.sites import SharedLog, Site

TOKEN = "token-1"


class Unfenced(SharedLog):
    """Whoever writes is believed, and the log gives the numbers."""

    async def write(self, *changes: Change) -> None:
        changes = tuple(change for change in changes if not isinstance(change, Fence))
        with contextlib.suppress(SequenceConflict):
            return await super().write(*changes)
        numbered: list[Change] = []
        for change in changes:
            if isinstance(change, Append):
                last = len(await self.records(change.session_id, 0, 10_000))
                rows = [replace(record, seq=last + at) for at, record in enumerate(change.records, 1)]
                change = replace(change, records=rows)
            numbered.append(change)
        return await super().write(*numbered)


class TakesEveryAnswer(SharedLog):
    async def answer(self, question: Question, *, fence: Fence | None = None) -> bool:
        await self.write(question)
        return True


async def _tells_before_it_stores(journal: Journal, *changes: Change) -> None:
    journal._tell(changes)
    await asyncio.sleep(0)
    await journal.store.write(*changes)


_mend = SessionLog.mend


async def _sends_again(log: SessionLog, *, resumable: bool) -> list[Question]:
    decided = await _mend(log, resumable=resumable)
    for message in await log._journal.store.messages(log.view.id, queued_only=False):
        again = replace(message, state="queued", taken_epoch=0)
        await log._put(replace(log.view, queued=len(log.queue) + 1), again)
        log.queue.append(again)
    return decided


def plain(body: bytes) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(body)
    return event | {"prompt": TOKEN} if TOKEN in event.get("prompt", "") else event


async def listen(service: Service, session_id: str, heard: list[dict[str, Any]]) -> None:
    async with aclosing(service.events.follow(session_id, 0)) as batches:
        async for batch in batches:
            heard += [plain(record.body) for record in batch]


async def overtaken(site: Site, history: History) -> None:
    """A machine that was frozen goes on after another has its session."""
    async with site.machine("one") as one, site.machine("two") as two:
        view, _ = await site.kit.start_session(one, site.kit.play([{"shell": f"true {TOKEN}"}], [{"say": "late"}]))
        history.requests.append(Request("create", view.id, TOKEN, 201, leaves_mark=False))
        heard: list[dict[str, Any]] = []
        history.heard.append(("follower", view.id, heard))
        while not await one.questions.list(session_id=view.id):  # as the log has it, whatever is told
            await asyncio.sleep(0.01)
        runner = one._running.get(view.id)
        assert runner is not None
        listening = asyncio.create_task(listen(one, view.id, heard))
        try:
            while len(heard) < runner.view.last_seq:
                await asyncio.sleep(0.01)
            await site.silence("one")
            owned = await two._running.worker.claim_only(view)
            assert owned is not None
            for closes in (True, False):
                with contextlib.suppress(StoreError):
                    await runner.log.say(Notice(level="info", code="late", message="I am still here"))
                if closes:
                    await two._running.open_log(owned).mend(resumable=False)
            while not listening.done():  # or it was told something that is not so, after which it may wait for ever
                stored = [plain(record.body) for record in await site.store.records(view.id, 0, 10_000)]
                if heard != stored[: len(heard)]:
                    break
                await asyncio.sleep(0.01)
        finally:
            listening.cancel()
            await asyncio.wait([listening])
        await runner.kill()


async def cut_off(site: Site, history: History) -> None:
    """A machine is killed when its agent has done what it was told, and another continues the session."""
    effects = site.kit.house.workspace / "effects"
    async with site.machine("one") as one, site.machine("two") as two:
        script = site.kit.play([{"shell": f"echo {TOKEN} >> effects"}], [{"stall": None}])
        view, _ = await site.kit.start_session(one, script, keep_open=True, tier="autonomous")
        history.requests.append(Request("create", view.id, TOKEN, 201))
        while not effects.exists() or not effects.read_text():
            await asyncio.sleep(0.01)
        await one._running._kill_all()
        await site.silence("one")
        owned = await two._running.worker.claim_only(view)
        assert owned is not None
        await two._running._continue_all([owned])
        await two.sessions.send(view.id, site.kit.play([{"say": "the next one"}]))
        watch = site.kit.watch(two, view.id, after=owned.last_seq)
        over = asyncio.create_task(watch.until(lambda one: isinstance(one, TurnCompleted) and one.status == "success"))
        while not over.done() and effects.read_text().count(TOKEN) < 2:
            await asyncio.sleep(0.01)
        over.cancel()
        await two.sessions.cancel(view.id)
    history.effects += effects.read_text().split()


async def answered_twice(site: Site, history: History) -> None:
    """Two clients answer a question that outlived its turn, at the same moment."""
    async with site.machine("one") as one:
        view, watch = await site.kit.start_session(one, site.kit.play([{"shell": f"true {TOKEN}"}], [{"say": "ok"}]))
        history.requests.append(Request("create", view.id, TOKEN, 201, leaves_mark=False))
        question = await watch.question()
        await one._running._kill_all()
        await one._running.worker.register()
        await one._running.recover()
        runner = one._running.get(view.id)
        assert runner is not None
        decisions: list[Decision] = [Allow(), Deny()]
        won = await asyncio.gather(
            *(runner.decide(answered(question, one, by="client", who="me", now=1)) for one in decisions)
        )
        for wins, name in zip(won, ("allow", "deny"), strict=True):
            request = Request("answer", view.id, question.request.request_id, 200 if wins else 409, name)
            history.requests.append(request)
        await watch.rest()


Scenario = Callable[[Site, History], Awaitable[None]]
MUTANTS: list[tuple[str, Scenario, type[SharedLog], tuple[type, str, object] | None, str]] = [
    ("no fence", overtaken, Unfenced, None, "1 ends, at"),
    ("told before it is stored", overtaken, SharedLog, (Journal, "write", _tells_before_it_stores), "not in the log"),
    ("prompts sent again", cut_off, SharedLog, (SessionLog, "mend", _sends_again), "2 times"),
    ("every answer counts", answered_twice, TakesEveryAnswer, None, "2 clients were told"),
]


def outcome(site: Site, scenario: Scenario) -> list[str]:
    history = History()
    site.kit.run(scenario(site, history))
    db = sqlite3.connect(site.folder / "log.db")
    try:
        for session, seq, epoch, body in db.execute("SELECT session, seq, epoch, body FROM records ORDER BY 1, 2"):
            history.rows.setdefault(session, []).append(Row(seq, epoch, plain(body)))
    finally:
        db.close()
    return violations(history)


@pytest.mark.parametrize(("name", "scenario", "log", "patch", "words"), MUTANTS, ids=[row[0] for row in MUTANTS])
def test_a_fault_is_found_out(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    scenario: Scenario,
    log: type[SharedLog],
    patch: tuple[type, str, object] | None,
    words: str,
) -> None:
    site.store = log(site.folder / "log.db")
    if patch is not None:
        monkeypatch.setattr(*patch)
    faults = outcome(site, scenario)
    assert any(words in fault for fault in faults), faults


@pytest.mark.parametrize("scenario", [overtaken, cut_off, answered_twice], ids=lambda one: one.__name__)
def test_as_we_are_nothing_is_found(site: Site, scenario: Scenario) -> None:
    assert outcome(site, scenario) == []
