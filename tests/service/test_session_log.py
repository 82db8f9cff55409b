"""Pieces of text are handed over while those before them are committed: in order, bounded, and never told early."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stagedoor.errors import StoreBroken, StoreError
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
        self.asked = 0
        self.full_at = 0

    async def write(self, *changes: Change) -> None:
        self.asked += 1
        number = self.asked
        await self.ready.wait()
        if number == self.full_at:
            raise StoreBroken("the disk is full; make room")
        await super().write(*changes)


class Told:
    """A session in the log, and what a follower heard of it."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.journal = Journal(disk, LocalHub())
        self.faults: list[StoreError] = []
        self.counts: Counter[str] = Counter()
        self.heard: list[str] = []
        view = SessionView(id="s1", agent="understudy", cwd="/", activity="working", created_at=1)
        self.session_log = SessionLog(
            view, self.journal, now=lambda: 5, new_id=lambda: "m", broken=self.faults.append, counts=self.counts
        )

    async def follow(self) -> None:
        async for batch in self.journal.follow("s1", 0):
            self.heard += [said(decode(record.body)) for record in batch]

    async def row(self) -> SessionView:
        found = await self.disk.session("s1")
        assert found is not None
        return found

    async def stored(self) -> list[str]:
        return [said(decode(record.body)) for record in await self.disk.records("s1", 0, 999)]


def said(event: Event) -> str:
    return f"{event.seq} {getattr(event, 'text', event.__struct_config__.tag)}"


def stamped(event: Event, at: int = 7) -> Event:
    return stamp(event, "understudy", "s1", 0, at, 1)


def pieces(*words: str) -> list[Event]:
    return [stamped(TextDelta(text=word)) for word in words]


def on(folder: Path, work: Callable[[Told], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        disk = Disk(folder / "log.db")
        await disk.open()
        told = Told(disk)
        await told.session_log.store([stamped(TurnStarted(turn=1, prompt="go"))])
        following = asyncio.create_task(told.follow())
        try:
            async with asyncio.timeout(60):
                while told.heard != ["1 turn_started"]:
                    await asyncio.sleep(0)
                await work(told)
        finally:
            following.cancel()
            await asyncio.wait([following])
            await disk.close()

    asyncio.run(main())


async def many_turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_the_next_pieces_are_handed_over_while_the_last_are_on_their_way(tmp_path: Path) -> None:
    async def main(told: Told) -> None:
        told.disk.ready.clear()
        for number in range(MOST_UNDER_WAY - 1):
            await told.session_log.store(pieces(f"a{number}", f"b{number}"))
        last = asyncio.create_task(told.session_log.store(pieces("c")))
        behind = asyncio.create_task(told.session_log.store(pieces("d")))
        ending = asyncio.create_task(
            told.session_log.store([stamped(Text(text="all")), stamped(Done(status="success"), 9)])
        )
        await many_turns()
        assert (told.disk.asked, told.heard) == (1 + MOST_UNDER_WAY, ["1 turn_started"])
        assert [last.done(), behind.done(), ending.done()] == [False] * 3
        assert (await told.row()).last_seq == 1

        told.disk.ready.set()
        await asyncio.gather(last, behind, ending)
        row = await told.row()
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
        assert await told.stored() == expected
        while told.heard != expected:
            await asyncio.sleep(0)
        assert (told.counts["events"], told.faults) == (len(expected), [])

    on(tmp_path, main)


@pytest.mark.parametrize("full_at", [2, 3, 4])
def test_what_fails_takes_along_what_was_handed_over_behind_it(tmp_path: Path, full_at: int) -> None:
    async def main(told: Told) -> None:
        told.disk.full_at = full_at
        told.disk.ready.clear()
        for word in "abc":
            await told.session_log.store(pieces(word))
        message = QueuedPrompt(id="m1", session_id="s1", prompt="more", at=1)
        refused = [
            asyncio.create_task(told.session_log.enqueue(message)),
            asyncio.create_task(told.session_log.store([stamped(Text(text="abc"))])),
            asyncio.create_task(told.session_log.store(pieces("d"))),
        ]
        await many_turns()
        told.disk.ready.set()
        assert [str(one) for one in await asyncio.gather(*refused, return_exceptions=True)] == [
            "the disk is full; make room"
        ] * 3
        await told.session_log.quiet()
        expected = ["1 turn_started", "2 a", "3 b", "4 c"][: full_at - 1]
        assert await told.stored() == told.heard == expected
        assert (await told.row()).last_seq == len(expected)
        assert [str(fault) for fault in told.faults] == ["the disk is full; make room"]
        assert await told.disk.messages("s1") == []

    on(tmp_path, main)


def test_what_was_handed_over_is_kept_though_whoever_did_it_has_gone(tmp_path: Path) -> None:
    async def main(told: Told) -> None:
        told.disk.ready.clear()
        for number in range(MOST_UNDER_WAY - 1):
            await told.session_log.store(pieces(f"{number}"))
        gone = asyncio.create_task(told.session_log.store(pieces("last")))
        await many_turns()
        gone.cancel()
        await asyncio.wait([gone])
        told.disk.ready.set()
        await told.session_log.store(pieces("on"))
        await told.session_log.quiet()
        words = ["turn_started", *map(str, range(MOST_UNDER_WAY - 1)), "last", "on"]
        assert await told.stored() == [f"{seq} {word}" for seq, word in enumerate(words, 1)]
        assert told.faults == []

    on(tmp_path, main)


def test_pieces_alone_move_the_row_on_and_leave_the_rest_of_it(tmp_path: Path) -> None:
    async def main(told: Told) -> None:
        before = await told.row()
        await told.session_log.store(pieces("a", "b"))
        await told.session_log.quiet()
        assert await told.row() == told.session_log.view
        assert (before.last_seq, (await told.row()).last_seq) == (1, 3)
        renamed = await told.session_log.change(title="a name")
        await told.session_log.store(pieces("c"))
        await told.session_log.quiet()
        assert (await told.row()).title == renamed.title == "a name"
        assert (await told.row()).last_seq == 4

    on(tmp_path, main)
