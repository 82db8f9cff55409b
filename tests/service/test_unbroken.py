"""Whoever asks may leave in the middle: what was begun is carried out to its end, and nothing is half done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from stagedoor.engine import milliseconds
from stagedoor.errors import TooMany
from stagedoor.service.config.settings import Limits
from stagedoor.service.journal import DAY, Upkeep
from stagedoor.service.service import Service
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.store import Change, Fence, Query
from stagedoor.service.views import IdempotentReply, Question, QueuedPrompt, SessionSpec
from stagedoor.unified.decisions import Allow, Deny
from stagedoor.unified.events import Done, PermissionResolved, TurnCompleted, TurnStarted

ASKS = ([{"shell": "touch made"}], [{"say": "ok"}])


class SlowDisk(SqliteStore):
    """Prompts and answers are kept, but while ``fast`` is clear nobody hears that they are."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.fast = asyncio.Event()
        self.fast.set()
        self.stored = asyncio.Event()

    async def write(self, *changes: Change) -> None:
        await super().write(*changes)
        if any(isinstance(change, QueuedPrompt) and change.state == "queued" for change in changes):
            await self._tell()

    async def answer(self, question: Question, *, fence: Fence | None = None) -> bool:
        won = await super().answer(question, fence=fence)
        await self._tell()
        return won

    async def _tell(self) -> None:
        if not self.fast.is_set():
            self.stored.set()
            await self.fast.wait()

    async def left_alone(self, questions: Coroutine[Any, Any, Any]) -> None:
        """Ask for something, and leave when it is kept but not yet told."""
        self.stored.clear()
        self.fast.clear()
        task = asyncio.ensure_future(questions)
        await self.stored.wait()
        task.cancel()
        await asyncio.wait([task])
        self.fast.set()


def test_whoever_leaves_in_the_middle_leaves_nothing_half_done(kit: Any, tmp_path: Path) -> None:
    async def main() -> None:
        store = SlowDisk(tmp_path / "log.db")
        async with Service(kit.house.settings(), store=store) as service:
            await store.left_alone(service.sessions.create(SessionSpec(prompt=kit.play(*ASKS))))
            [view] = await store.sessions(Query())
            watch = kit.watch(service, view.id)
            question = await watch.question()
            await store.left_alone(service.sessions.send(view.id, kit.play([{"say": "more"}])))
            await store.left_alone(service.questions.answer(question.id, Allow(), who="me"))
            events = await watch.rest()
            assert [(one.decision, one.by) for one in events if isinstance(one, PermissionResolved)] == [
                ("allow", "client")
            ]
            assert [one.result for one in events if isinstance(one, TurnCompleted)] == ["ok", "more"]
            assert isinstance(events[-1], Done)
            [row] = await service.questions.list(open_only=False)
            assert (row.applied, row.who) == (True, "me")

    kit.run(main())


def test_what_is_refused_leaves_nothing_behind(kit: Any) -> None:
    async def main() -> None:
        me = ("-c", "user.name=me", "-c", "user.email=me@example.org")
        for words in (("init", "-q"), (*me, "commit", "-q", "--allow-empty", "-m", "first")):
            git = await asyncio.create_subprocess_exec("git", *words, cwd=kit.house.workspace)
            assert await git.wait() == 0
        (kit.house.workspace / "new").write_text("not committed")
        async with kit.house.service(limits=Limits(awake=1)) as service:
            view, watch = await kit.start_session(service, kit.play([{"stall": None}]))
            await watch.until(TurnStarted)
            for _ in range(2):
                try:
                    await service.sessions.create(SessionSpec(prompt="no room"))
                except TooMany:
                    continue
                raise AssertionError("it was taken")
            assert [one.name for one in (service.home / "snapshots").iterdir()] == [view.id]

    kit.run(main())


def test_who_changes_a_row_and_who_removes_records_do_not_undo_each_other(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, kit.play([{"say": "x"}]))
            await watch.rest()
            await service.sessions.cancel(view.id)
            await asyncio.gather(
                service.sessions.change(view.id, title="new"),
                service._journal.retain(0, milliseconds() + 10_000),
                service.sessions.change(view.id, archived=True),
            )
            found = await service.sessions.get(view.id)
            assert (found.title, found.archived, found.first_seq) == ("new", True, found.last_seq)
            assert (await service.events.verdict(view.id, 0)).verdict == "gap"
            await asyncio.gather(
                service.sessions.delete(view.id), service.sessions.change(view.id, title="late"), return_exceptions=True
            )
            assert await service.sessions.page(Query()) == ([], 0)

    kit.run(main())


def test_what_waits_is_sent_in_its_order_after_a_crash(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, kit.play(*ASKS))
            await watch.question()
            await service.stop()
        settings = kit.house.settings()
        names = [str(number) for number in range(9)]
        async with Service(settings, now=lambda: view.created_at - 1) as service:
            for name in names:  # all in one millisecond
                await service.sessions.send(view.id, kit.play([{"say": name}]))
        async with Service(settings) as service:
            [question] = await service.questions.list()
            await service.questions.answer(question.id, Deny("no"))
            events = await kit.watch(service, view.id).rest()
            results = [one.result for one in events if isinstance(one, TurnCompleted)]
            assert results[-9:] == names
            assert len(results) == 11

    kit.run(main())


def test_a_session_is_resumed_when_its_program_has_gone(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, kit.play([{"say": "x"}]))
            await watch.until(Done)  # its last word is told before its program is put away
            served = service._running.get(view.id)
            resumed = await service.sessions.resume(view.id, kit.play([{"say": "y"}]))
            assert served is None or not served.awake
            await kit.watch(service, resumed.id).rest()

    kit.run(main())


def test_the_hourly_work_removes_what_is_old(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service(keep_days=1.0) as service:
            view, watch = await kit.start_session(service, kit.play([{"say": "x"}]))
            await watch.rest()
            old, new = (IdempotentReply(key=key, fingerprint="", status=200, body=b"", at=at) for key, at in (
                ("old", view.created_at), ("new", view.created_at + 2 * DAY),
            ))  # fmt: skip
            await service._store.write(old, new)
            await Upkeep(service._journal, 1.0, lambda: view.created_at + 2 * DAY).once()
            assert [await service._store.done(key) for key in ("old", "new")] == [None, new]
            assert len(await kit.all_of(service, view.id)) == 1

    kit.run(main())
