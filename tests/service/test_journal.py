"""Followers: everything, once, in order, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stagedoor.errors import EventsRemoved, SequenceConflict
from stagedoor.service import journal as journals
from stagedoor.service.journal import DAY, SESSIONS, Journal, LocalHub, RecentRecords
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.store import Append, Forget, Query, Trim
from stagedoor.service.views import FollowVerdict, Question, Record, SessionView
from stagedoor.unified.decisions import Allow
from stagedoor.unified.events import PermissionRequest

BOUND = 240.0
Value = TypeVar("Value")


class CountingStore(SqliteStore):
    """The real one; it counts what is asked of the disk."""

    reads = 0

    async def records(self, *given: Any, **named: Any) -> list[Record]:
        self.reads += 1
        return await super().records(*given, **named)

    async def session(self, session_id: str) -> SessionView | None:
        self.reads += 1
        return await super().session(session_id)


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[tuple[Journal, CountingStore]]:
    store = CountingStore(folder / "log.db")
    await store.open()
    try:
        async with asyncio.timeout(BOUND):
            yield Journal(store, LocalHub()), store
    finally:
        await store.close()


def view(name: str = "s1", last: int = 0, *, ended: bool = False, **more: Any) -> SessionView:
    return SessionView(
        id=name, agent="understudy", cwd="/", last_seq=last, activity="ended" if ended else "working", **more
    )  # fmt: skip


def records(first: int, last: int, body: bytes = b"{}") -> list[Record]:
    return [Record(seq, seq, "text", body) for seq in range(first, last + 1)]


class Writing:
    """One session as the service writes it: the records and the row together."""

    def __init__(self, journal: Journal, name: str = "s1") -> None:
        self.journal, self.name, self.last = journal, name, 0

    async def begin(self) -> None:
        await self.journal.write(view(self.name))

    async def append(self, count: int, *, body: bytes = b"{}", ended: bool = False) -> None:
        first, self.last = self.last + 1, self.last + count
        row = view(self.name, self.last, ended=ended)
        await self.journal.write(Append(self.name, records(first, self.last, body)), row)


async def report(journal: Journal, name: str = "s1", after: int = 0, *, pause: int = 0) -> list[Record]:
    received: list[Record] = []
    async for batch in journal.follow(name, after):
        received += batch
        for _ in range(pause):
            await asyncio.sleep(0)
    return received


async def until_followed(journal: Journal, count: int) -> None:
    while journal.followers != count:
        await asyncio.sleep(0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 30)),
        st.tuples(st.just("cut short"), st.integers(0, 2), st.integers(1, 5)),
        st.tuples(st.just("follow"), st.integers(0, 2), st.integers(0, 60)),
        st.tuples(st.just("slow"), st.integers(0, 2), st.integers(0, 20)),
        st.tuples(st.just("leave"), st.integers(0, 9), st.integers(0, 9)),
        st.tuples(st.just("yield"), st.integers(1, 9), st.integers(0, 0)),
        st.tuples(st.just("read"), st.integers(0, 2), st.integers(0, 60)),
    ),
    max_size=40,
)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, together=st.booleans(), most=st.sampled_from([1, 4, 1024]), budget=st.sampled_from([0, 50, 10**6]))
def test_followers_hear_everything_once_and_in_order(
    steps: list[tuple[str, int, int]], together: bool, most: int, budget: int
) -> None:
    async def play(journal: Journal) -> None:
        sessions = [Writing(journal, f"s{number}") for number in range(3)]
        for session in sessions:
            await session.begin()
        followers: list[tuple[Writing, int, asyncio.Task[list[Record]]]] = []
        writes: list[asyncio.Task[None]] = []
        for kind, which, count in steps:
            match kind:
                case "append":
                    writes.append(asyncio.create_task(sessions[which].append(count)))
                    if not together:
                        await writes[-1]
                    else:
                        await asyncio.sleep(0)  # it takes its numbers
                case "cut short":
                    cut = asyncio.create_task(sessions[which].append(count))
                    await asyncio.sleep(0)
                    cut.cancel()
                case "follow" | "slow":
                    pause = 5 if kind == "slow" else 0
                    task = asyncio.create_task(report(journal, sessions[which].name, count, pause=pause))
                    followers.append((sessions[which], count, task))
                case "leave" if which < len(followers):
                    followers.pop(which)[2].cancel()
                case "read":
                    found = await journal.read(sessions[which].name, count, 7)
                    assert found == records(count + 1, count + 7)[: len(found)]
                case _:
                    for _ in range(which):
                        await asyncio.sleep(0)
        await asyncio.gather(*writes)
        for session in sessions:
            await session.append(1, ended=True)
        for session, after, task in followers:
            assert await task == records(after + 1, session.last)
        assert journal.followers == 0
        assert journal._bytes == sum(line._bytes for line in journal._recent.values())
        for session in sessions:
            assert await report(journal, session.name) == records(1, session.last)

    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with opened(Path(folder)) as (journal, _):
                await play(journal)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journals, "MOST_RECORDS", most)
        patch.setattr(journals, "REMEMBERED_BYTES", budget)
        patch.setattr(journals, "CHUNK", 7)
        asyncio.run(main())


def test_two_hundred_followers_do_not_each_read_the_disk(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (journal, store):
            session = Writing(journal)
            await session.begin()
            followers = [asyncio.create_task(report(journal)) for _ in range(200)]
            await until_followed(journal, 200)
            before = store.reads
            for number in range(100):
                await session.append(1 + number % 5, ended=number == 99)
            received = await asyncio.gather(*followers)
            assert received == [records(1, session.last)] * 200
            assert store.reads == before == 0

    asyncio.run(main())


def test_followers_elsewhere_ask_the_log_once_for_all(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (journal, store):
            other = Journal(store, journal.hub)
            session = Writing(journal)
            await session.begin()
            followers = [asyncio.create_task(report(other)) for _ in range(100)]
            await until_followed(other, 100)
            for number in range(50):
                await session.append(1 + number % 5, ended=number == 49)
            received = await asyncio.gather(*followers)
            assert received == [records(1, session.last)] * 100
            assert store.reads <= 3 * 52  # the row, the records, and once more when it was rung meanwhile

    asyncio.run(main())


def test_who_is_far_behind_reads_from_disk_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "MOST_RECORD_BYTES", 10_000)

    async def main() -> None:
        async with opened(tmp_path) as (journal, store):
            session = Writing(journal)
            await session.begin()
            for _ in range(20):
                await session.append(100, body=b"x" * 100)
            await session.append(1, body=b"y" * 20_000, ended=True)  # larger than all that is kept in memory
            expected = records(1, 2000, b"x" * 100) + records(2001, 2001, b"y" * 20_000)
            assert await report(journal) == expected
            assert store.reads == 4
            assert await report(journal, after=2000) == expected[-1:]
            assert await report(journal, after=2001) == await report(journal, after=9999) == []
            assert store.reads == 4

    asyncio.run(main())


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("by_pieces", [False, True])
def test_forgetting_a_session_ends_those_who_follow_it(tmp_path: Path, ended: bool, by_pieces: bool) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (journal, _):
            session = Writing(journal)
            await session.begin()
            await session.append(3, ended=ended)
            behind, there = journal.follow("s1", 0), asyncio.create_task(report(journal, after=3))
            assert await anext(behind) == records(1, 3)
            await (journal.forget("s1") if by_pieces else journal.write(Forget("s1")))
            assert [batch async for batch in behind] == []
            assert await there == await report(journal) == await report(journal, "never") == []

    asyncio.run(main())


def test_a_write_whose_asker_has_gone_is_told_all_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (journal, _):
            session = Writing(journal)
            await session.begin()
            follower = asyncio.create_task(report(journal))
            await until_followed(journal, 1)
            gone = asyncio.create_task(session.append(4, ended=True))
            await asyncio.sleep(0)
            gone.cancel()
            assert await follower == records(1, 4)
            assert gone.cancelled()

    asyncio.run(main())


def test_nobody_hears_of_what_was_not_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (journal, _):
            session = Writing(journal)
            await session.begin()
            follower = asyncio.create_task(report(journal))
            await session.append(2)
            with pytest.raises(SequenceConflict, match="does not follow"):
                await journal.write(Append("s1", records(9, 9)), view(last=9, ended=True))
            await session.append(1, ended=True)
            assert await follower == records(1, 3)

    asyncio.run(main())


def test_the_sessions_topic_rings_for_answers_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (journal, _):
            request = PermissionRequest(request_id="r", tool_name="shell")
            query = Question(id="s1:r", session_id="s1", agent="understudy", request=request, asked_at=1)
            await journal.write(query)
            bell = journal.hub.bell(SESSIONS)
            answered = replace(query, open=False, decision=Allow())
            assert await journal.answer(answered)
            await bell.rung()
            assert not await journal.answer(answered)
            bell.close()

    asyncio.run(main())


def test_retention_trims_what_ended_long_ago_and_nobody_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "SLICE", 7)
    now = 10 * DAY
    old, fresh = now - 3 * DAY, now - DAY
    rows = {
        "old": view("old", 30, ended=True, updated_at=old),
        "open": view("open", 30, updated_at=old),
        "fresh": view("fresh", 30, ended=True, updated_at=fresh),
        "followed": view("followed", 30, ended=True, updated_at=old),
        "short": view("short", 1, ended=True, updated_at=old),
    }

    async def main() -> None:
        async with opened(tmp_path) as (journal, store):
            for name, row in rows.items():
                await journal.write(Append(name, records(1, row.last_seq)), row)
            following = journal.follow("followed", 10)
            assert await anext(following) == records(11, 30)
            assert await journal.retain(2, now) == 1
            assert [batch async for batch in following] == []
            kept = {row.id: row.first_seq for row in await store.sessions(Query())}
            assert kept == {"old": 30, "open": 1, "fresh": 1, "followed": 1, "short": 1}
            assert await report(journal, "old", 29) == records(30, 30)
            assert await journal.retain(2, now) == 1
            assert await report(journal, "followed", 29) == records(30, 30)
            assert await journal.retain(2, now) == 0

    asyncio.run(main())


def test_a_long_session_is_forgotten_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "SLICE", 7)

    async def main() -> None:
        async with opened(tmp_path) as (journal, store):
            await journal.write(Append("s1", records(1, 30)), view(last=30, ended=True))
            await journal.forget("s1")
            await journal.forget("never")
            assert [await store.records("s1", 0, 99), await store.session("s1"), await report(journal)] == [
                [],
                None,
                [],
            ]
            await journal.write(Append("s1", records(1, 2)), view(last=2, ended=True))
            assert await report(journal) == records(1, 2)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (0, FollowVerdict(verdict="gap", session_id="s1", after=0, last_seq=9, missing_from=1, missing_to=4)),
        (3, FollowVerdict(verdict="gap", session_id="s1", after=3, last_seq=9, missing_from=4, missing_to=4)),
        (4, FollowVerdict(session_id="s1", after=4, last_seq=9)),
        (9, FollowVerdict(session_id="s1", after=9, last_seq=9)),
    ],
)
def test_the_verdict_tells_what_was_removed(tmp_path: Path, after: int, expected: FollowVerdict) -> None:
    async def main() -> None:
        async with opened(tmp_path) as (journal, store):
            await journal.write(Append("s1", records(1, 9)), view(last=9, ended=True))
            await journal.write(Trim("s1", 5))
            row = await store.session("s1")
            assert row is not None
            assert FollowVerdict.of(row, after) == expected
            assert await report(journal, after=max(after, row.first_seq - 1)) == records(max(after + 1, 5), 9)
            if expected.verdict == "gap":
                with pytest.raises(EventsRemoved, match=f"events {after + 1} to 4 of session s1 are no longer stored"):
                    await report(journal, after=after)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("added", "after", "limit", "expected"),
    [
        ([], 0, 9, None),
        ([(3, 9)], 1, 9, None),
        ([(3, 9)], 2, 4, records(3, 6)),
        ([(3, 9)], 7, 1, records(8, 8)),
        ([(3, 30)], 9, 5, records(10, 14)),
        ([(3, 9)], 9, 5, None),  # others may have written more
        ([(3, 9)], 50, 5, None),
        ([(1, 4), (5, 6)], 0, 9, records(1, 6)),
        ([(1, 4), (6, 7)], 3, 9, None),  # what has a hole is not told
        ([(1, 4), (6, 7)], 5, 9, records(6, 7)),
    ],
)
def test_what_memory_can_tell(
    added: list[tuple[int, int]], after: int, limit: int, expected: list[Record] | None
) -> None:
    line = RecentRecords()
    for first, last in added:
        line.add(records(first, last))
    assert line.after(after, limit) == expected
    assert line.after(after, limit) == expected


def test_what_is_kept_in_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "REMEMBERED", 10)
    monkeypatch.setattr(journals, "REMEMBERED_BYTES", 5_000)

    async def main() -> None:
        async with opened(tmp_path) as (journal, _):
            first = Writing(journal, "first")
            await first.begin()
            follower = asyncio.create_task(report(journal, "first"))
            await until_followed(journal, 1)
            for number in range(30):
                session = Writing(journal, f"s{number}")
                await session.begin()
                await session.append(10, body=b"x" * 100)
                assert journal._bytes <= 5_000
                assert len(journal._recent) <= 10
            await first.append(2, ended=True)
            assert await follower == records(1, 2)

    asyncio.run(main())
