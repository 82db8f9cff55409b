"""Pieces of text are handed over while those before them are committed: in order, bounded, and never told early."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stagedoor.errors import StoreBroken, StoreError
from stagedoor.permissions.audit import AuditLog
from stagedoor.service.journal import Journal, LocalHub
from stagedoor.service.session_log import MOST_UNDER_WAY, SessionLog
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.store import Change
from stagedoor.service.views import QueuedPrompt, SessionView
from stagedoor.unified.events import Done, Event, Text, TextDelta, TurnStarted, decode, stamp


class Disk(SqliteStore):
    """Takes nothing while ``ready`` is clear; refuses the write numbered ``full_at``, and takes those after it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.ready = asyncio.Event()
        self.ready.set()
        self.request = 0
        self.full_at = 0

    async def write(self, *changes: Change) -> None:
        self.request += 1
        number = self.request
        await self.ready.wait()
        if number == self.full_at:
            raise StoreBroken("the disk is full; make room")
        await super().write(*changes)


class Recorder:
    """A session in the log, and what a follower heard of it."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self.disk = disk
        self.journal = Journal(disk, LocalHub())
        self.faults: list[StoreError] = []
        self.counts: Counter[str] = Counter()
        self.received: list[str] = []
        view = SessionView(id="s1", agent="understudy", cwd="/", activity="working", created_at=1)
        self.session_log = SessionLog(
            view,
            self.journal,
            now=lambda: 5,
            new_id=lambda: "m",
            broken=self.faults.append,
            counts=self.counts,
            audit=AuditLog(folder / "audit.jsonl"),
        )

    async def follow(self) -> None:
        async for batch in self.journal.follow("s1", 0):
            self.received += [reply(decode(record.body)) for record in batch]

    async def row(self) -> SessionView:
        found = await self.disk.session("s1")
        assert found is not None
        return found

    async def stored(self) -> list[str]:
        return [reply(decode(record.body)) for record in await self.disk.records("s1", 0, 999)]


def reply(event: Event) -> str:
    return f"{event.seq} {getattr(event, 'text', event.__struct_config__.tag)}"


def stamped(event: Event, at: int = 7) -> Event:
    return stamp(event, "understudy", "s1", 0, at, 1)


def pieces(*words: str) -> list[Event]:
    return [stamped(TextDelta(text=word)) for word in words]


def on(folder: Path, work: Callable[[Recorder], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        disk = Disk(folder / "log.db")
        await disk.open()
        report = Recorder(disk, folder)
        await SqliteStore.write(disk, report.session_log.view)
        await report.session_log.store([stamped(TurnStarted(turn=1, prompt="go"))])
        following = asyncio.create_task(report.follow())
        try:
            async with asyncio.timeout(240):
                while report.received != ["1 turn_started"]:
                    await asyncio.sleep(0)
                await work(report)
        finally:
            following.cancel()
            await asyncio.wait([following])
            await disk.close()

    asyncio.run(main())


async def many_turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_the_next_pieces_are_handed_over_while_the_last_are_on_their_way(tmp_path: Path) -> None:
    async def main(report: Recorder) -> None:
        report.disk.ready.clear()
        for number in range(MOST_UNDER_WAY - 1):
            await report.session_log.store(pieces(f"a{number}", f"b{number}"))
        last = asyncio.create_task(report.session_log.store(pieces("c")))
        behind = asyncio.create_task(report.session_log.store(pieces("d")))
        ending = asyncio.create_task(
            report.session_log.store([stamped(Text(text="all")), stamped(Done(status="success"), 9)])
        )
        await many_turns()
        assert (report.disk.request, report.received) == (1 + MOST_UNDER_WAY, ["1 turn_started"])
        assert [last.done(), behind.done(), ending.done()] == [False] * 3
        assert (await report.row()).last_seq == 1

        report.disk.ready.set()
        await asyncio.gather(last, behind, ending)
        row = await report.row()
        assert (row.last_seq, row.updated_at, row.state) == (6 + 2 * (MOST_UNDER_WAY - 1) - 1, 9, "done")
        words = [
            "turn_started",
            *(f"{one}{n}" for n in range(MOST_UNDER_WAY - 1) for one in "ab"),
            "c",
            "d",
            "all",
            "done",
        ]
        expected = [f"{seq} {word}" for seq, word in enumerate(words, 1)]
        assert await report.stored() == expected
        while report.received != expected:
            await asyncio.sleep(0)
        assert (report.counts["events"], report.faults) == (len(expected), [])

    on(tmp_path, main)


@pytest.mark.parametrize("full_at", [2, 3, 4])
def test_what_fails_takes_along_what_was_handed_over_behind_it(tmp_path: Path, full_at: int) -> None:
    async def main(report: Recorder) -> None:
        report.disk.full_at = full_at
        report.disk.ready.clear()
        for word in "abc":
            await report.session_log.store(pieces(word))
        message = QueuedPrompt(id="m1", session_id="s1", prompt="more", at=1)
        refused = [
            asyncio.create_task(report.session_log.enqueue(message)),
            asyncio.create_task(report.session_log.store([stamped(Text(text="abc"))])),
            asyncio.create_task(report.session_log.store(pieces("d"))),
        ]
        await many_turns()
        report.disk.ready.set()
        assert [str(one) for one in await asyncio.gather(*refused, return_exceptions=True)] == [
            "the disk is full; make room"
        ] * 3
        await report.session_log.quiet()
        expected = ["1 turn_started", "2 a", "3 b", "4 c"][: full_at - 1]
        assert await report.stored() == report.received == expected
        assert (await report.row()).last_seq == len(expected)
        assert [str(fault) for fault in report.faults] == ["the disk is full; make room"]
        assert await report.disk.messages("s1") == []

    on(tmp_path, main)


def test_what_was_handed_over_is_kept_though_whoever_did_it_has_gone(tmp_path: Path) -> None:
    async def main(report: Recorder) -> None:
        report.disk.ready.clear()
        for number in range(MOST_UNDER_WAY - 1):
            await report.session_log.store(pieces(f"{number}"))
        gone = asyncio.create_task(report.session_log.store(pieces("last")))
        await many_turns()
        gone.cancel()
        await asyncio.wait([gone])
        report.disk.ready.set()
        await report.session_log.store(pieces("on"))
        await report.session_log.quiet()
        words = ["turn_started", *map(str, range(MOST_UNDER_WAY - 1)), "last", "on"]
        assert await report.stored() == [f"{seq} {word}" for seq, word in enumerate(words, 1)]
        assert report.faults == []

    on(tmp_path, main)


def test_pieces_alone_move_the_row_on_and_leave_the_rest_of_it(tmp_path: Path) -> None:
    async def main(report: Recorder) -> None:
        before = await report.row()
        await report.session_log.store(pieces("a", "b"))
        await report.session_log.quiet()
        assert await report.row() == report.session_log.view
        assert (before.last_seq, (await report.row()).last_seq) == (1, 3)
        renamed = await report.session_log.change(title="a name")
        await report.session_log.store(pieces("c"))
        await report.session_log.quiet()
        assert (await report.row()).title == renamed.title == "a name"
        assert (await report.row()).last_seq == 4

    on(tmp_path, main)
