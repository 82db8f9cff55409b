"""What is written is read: the rows and records of any log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from msgspec.structs import replace

from stagedoor.errors import SequenceConflict
from stagedoor.service.store import Append, Change, Forget, Query, Remember, Store, Sweep, Trim
from stagedoor.service.views import Record, UsageSum
from stagedoor.unified.decisions import Allow
from stagedoor.unified.events import Usage
from tests.service.conformance.engines import (
    ANSWERED,
    CHANGED,
    DEVICE,
    MESSAGES,
    SPENT,
    Engine,
    question,
    records,
    run,
    view,
)

Value = TypeVar("Value")


def on(engine: Engine, work: Callable[[Store], Awaitable[Value]]) -> Value:
    async def main() -> Value:
        async with engine.parties(1) as [party]:
            return await work(party.store)

    return run(main())


def test_what_is_written_is_read(engine: Engine) -> None:
    async def write(store: Store) -> None:
        await store.write(view(), view("s2", created_at=9, title="Zwei", group="g"))
        await store.write(
            Append("s1", records(1, 200)), Append("s2", records(1, 1)), question(1), question(2, open=False)
        )
        await store.write(*MESSAGES, SPENT, DEVICE, ANSWERED, CHANGED, Remember("theme", b"dark"))
        await store.write(replace(MESSAGES[0], state="sent"), view(last_seq=200, activity="ended", state="done"))
        await store.write(Remember("gone", b"x"), Remember("gone", None))

    async def read(store: Store) -> None:
        first, second = (
            view(last_seq=200, activity="ended", state="done"),
            view(
                "s2", created_at=9, title="Zwei", group="g", last_seq=1, updated_at=1001
            ),  # it follows its last record
        )
        table: list[tuple[Awaitable[object], object]] = [
            (store.records("s1", 0, 1000), records(1, 200)),
            (store.records("s1", 150, 10), records(151, 160)),
            (store.records("s1", 200, 10), []),
            (store.records("s1", 0, 1000, most_bytes=20), records(1, 3)),
            (store.records("s1", 0, 1000, most_bytes=1), records(1, 1)),
            (store.records("no", 0, 10), []),
            (store.session("s1"), first),
            (store.session("no"), None),
            (store.sessions(Query()), [second, first]),
            (store.sessions(Query(offset=1, limit=1)), [first]),
            (store.sessions(Query(ended=True)), [first]),
            (store.sessions(Query(state="running")), [second]),
            (store.sessions(Query(search="ZWEI", group="g", archived=False)), [second]),
            (store.sessions(Query(agent="other")), []),
            (store.count(Query(ended=False)), 1),
            (store.question("s1:r1"), question(1)),
            (store.questions(), [question(1)]),
            (store.questions(session_id="s2"), []),
            (store.questions(session_id="s1", open_only=False), [question(1), question(2, open=False)]),
            (store.questions(open_only=False), [question(1), question(2, open=False)]),
            (store.messages("s1"), MESSAGES[1:]),
            (store.messages("s1", queued_only=False), [replace(MESSAGES[0], state="sent"), MESSAGES[1]]),
            (store.questions(open_only=False, offset=1, limit=5), [question(2, open=False)]),
            (store.questions(open_only=False, limit=1), [question(1)]),
            (store.question_count(), 1),
            (store.question_count(session_id="s1", open_only=False), 2),
            (store.sums(None), [UsageSum(sessions=1, turns=1, usage=Usage(input_tokens=3))]),
            (store.sums("agent", since=51), []),
            (store.sums("agent", until=50), []),
            (store.devices(), [DEVICE]),
            (store.done("k"), ANSWERED),
            (store.done("no"), None),
            (store.setting("theme"), b"dark"),
            (store.setting("gone"), None),
            (store.config_changes(), [replace(CHANGED, n=1)]),
        ]  # fmt: skip
        for found, expected in table:
            assert await found == expected

    async def both(store: Store) -> None:
        await write(store)
        await read(store)

    on(engine, both)
    on(engine, read)  # and again from the file alone


@pytest.mark.parametrize(
    ("numbers", "expected"), [([4], 3), ([2], 3), ([1], 3), ([3, 5], 4), ([3, 3], 4), ([4, 3], 3), ([0], 3)]
)
def test_a_number_that_does_not_follow_is_refused_with_all_that_came_with_it(
    engine: Engine, numbers: list[int], expected: int
) -> None:
    wrong = [Record(number, 1, "text", b"{}") for number in numbers]

    async def main(store: Store) -> None:
        await store.write(view(), view("s2"), view("s3"), Append("s1", records(1, 2)))
        outcomes = await asyncio.gather(
            store.write(Append("s2", records(1, 5))),
            store.write(question(1), Append("s1", wrong), view(title="new")),
            store.write(Append("s3", records(1, 5))),
            return_exceptions=True,
        )
        assert [str(outcome) for outcome in outcomes if outcome] == [
            f"record {numbers[0] if numbers[0] != 3 else numbers[1]} of session s1 does not follow: "
            f"number {expected} is next; nothing was stored"
        ]
        assert isinstance(outcomes[1], SequenceConflict)
        kept = [await store.records(name, 0, 10) for name in ("s1", "s2", "s3")]
        assert kept == [records(1, 2), records(1, 5), records(1, 5)]
        assert [await store.questions(), await store.session("s1")] == [[], view(last_seq=2, updated_at=1002)]
        await store.write(Append("s1", records(3, 4)), Append("s1", records(5, 6)))
        assert await store.records("s1", 0, 10) == records(1, 6)

    on(engine, main)


def test_records_that_gather_in_one_transaction_find_their_place(engine: Engine) -> None:
    async def main(store: Store) -> None:
        names = [f"s{number}" for number in range(10)]
        await store.write(*map(view, names))
        for first, last in ((1, 3), (4, 15)):
            singly = [store.write(Append(name, records(seq, seq))) for seq in range(first, last) for name in names]
            rest = [Append(name, records(last, last)) for name in names]
            outcomes = await asyncio.gather(
                *singly,
                store.write(*rest, Forget("s1"), view("s1"), Append("s1", records(1, last))),
                store.write(Append("s2", records(last + 1, last + 3)), Trim("s2", last + 3)),
                store.write(Append("s0", records(99, 99))),
                return_exceptions=True,
            )
            assert [str(one) for one in outcomes if one is not None] == [
                f"record 99 of session s0 does not follow: number {last + 1} is next; nothing was stored"
            ]
            expected = {name: records(1, last) for name in names} | {"s2": records(last + 3, last + 3)}
            assert {name: await store.records(name, 0, 99) for name in names} == expected
            await store.write(Forget("s2"), view("s2"), Append("s2", records(1, last)))

    on(engine, main)


def test_a_question_is_answered_once(engine: Engine) -> None:
    async def main(store: Store) -> None:
        await store.write(view(), question(1))
        answers = [question(1, open=False, decision=Allow(), by="client", who=f"w{n}") for n in range(20)]
        won = await asyncio.gather(*(store.answer(answer) for answer in answers))
        assert won.count(True) == 1
        assert await store.question("s1:r1") == answers[won.index(True)]
        assert not await store.answer(question(2, open=False))

    on(engine, main)


def test_old_keys_of_idempotency_are_swept_away(engine: Engine) -> None:
    async def work(store: Store) -> None:
        await store.write(ANSWERED)
        for before, left in ((ANSWERED.at, ANSWERED), (ANSWERED.at + 1, None)):
            await store.write(Sweep(before))
            assert await store.done("k") == left

    on(engine, work)


@pytest.mark.parametrize(("seq", "first"), [(0, 1), (1, 1), (4, 4), (9, 9), (10, 10), (500, 10)])
def test_trimming_leaves_the_last_record_and_says_where_it_begins(engine: Engine, seq: int, first: int) -> None:
    changes: list[Change] = [view(last_seq=10), view("s2"), Append("s1", records(1, 10)), Append("s2", records(1, 10))]

    async def main(store: Store) -> None:
        await store.write(*changes)
        await store.write(Trim("s1", seq), Trim("s2", 1), Trim("s3", 7))
        assert await store.records("s1", 0, 100) == records(first, 10)
        assert await store.session("s1") == view(last_seq=10, first_seq=first)
        await store.write(Append("s1", records(11, 12)), Trim("s1", 3))
        assert await store.records("s1", 0, 100) == records(max(first, 3), 12)

    on(engine, main)


def test_what_is_trimmed_together_keeps_its_place_among_the_rest(engine: Engine) -> None:
    async def main(store: Store) -> None:
        names = ("s1", "s2", "s3")
        await store.write(
            *(view(name, last_seq=10) for name in names), *(Append(name, records(1, 10)) for name in names)
        )
        await store.write(
            Trim("s3", 2), Trim("s1", 4), Trim("s2", 6), Trim("s1", 3), Append("s1", records(11, 12)),
            Trim("s1", 12), Forget("s2"), Trim("s3", 5), Trim("s2", 1),
        )  # fmt: skip
        stored = {name: await store.records(name, 0, 100) for name in names}
        assert stored == {"s1": records(12, 12), "s2": [], "s3": records(5, 10)}
        assert await store.session("s3") == view("s3", last_seq=10, first_seq=5)

    on(engine, main)


def test_nobody_takes_back_that_a_device_was_revoked(engine: Engine) -> None:
    """A door that has not heard of it puts the device as it knows it."""

    async def work(store: Store) -> None:
        await store.write(DEVICE)
        await store.write(replace(DEVICE, revoked_at=99))
        await store.write(replace(DEVICE, seen_at=100))
        assert await store.devices() == [replace(DEVICE, revoked_at=99)]
        await store.write(replace(DEVICE, revoked_at=99, name='"revokedAt":null'))
        await store.write(DEVICE)
        assert [device.revoked_at for device in await store.devices()] == [99]

    on(engine, work)
