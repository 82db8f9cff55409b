"""Several journals over one log: whoever writes, the followers of each hear everything, once and in order."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from itertools import pairwise

import pytest

from stagedoor.errors import Fenced, SequenceConflict
from stagedoor.service.journal import SESSIONS, Journal
from stagedoor.service.store import Append, Fence, Forget
from stagedoor.service.views import Record
from tests.service.conformance.engines import Engine, records, run, view, worker


async def followed(journal: Journal, after: int = 0) -> list[Record]:
    received: list[Record] = []
    async with aclosing(journal.follow("s1", after)) as batches:
        async for batch in batches:
            received += batch
    return received


async def taken(journal: Journal, worker_id: str) -> tuple[int, int]:
    """Its epoch, and how far the session had come."""
    await journal.store.put_worker(worker(worker_id, until=10**15))
    [claimed] = await journal.claim(worker_id, "i1", labels=(), limit=1, now=1, session_id="s1")
    await journal.store.mark_worker(worker_id, revoked=True)  # the next one may take it
    return claimed.epoch, claimed.last_seq


@pytest.mark.parametrize("ahead", [False, True], ids=["rows with the records", "records alone"])
def test_both_journals_hear_everything_whoever_writes(engine: Engine, ahead: bool) -> None:
    async def main() -> None:
        chance = random.Random(20261116)
        async with engine.parties(2) as parties:
            journals = [party.journal for party in parties]
            await journals[0].write(view())
            followers = [asyncio.create_task(followed(journal)) for journal in journals for _ in range(5)]
            last = 0
            for turn in range(12):
                journal = journals[turn % 2]
                epoch, last = await taken(journal, f"w{turn}")
                for _ in range(chance.randint(1, 6)):
                    first, last = last + 1, last + chance.randint(1, 9)
                    row = [] if ahead else [view(last_seq=last, activity="working")]
                    await journal.write(Fence("s1", epoch), Append("s1", records(first, last)), *row)
                    if chance.random() < 0.3:
                        await asyncio.sleep(0)
                for other in journals:
                    found = await other.read("s1", last - 1, 10)
                    assert found in ([], records(last, last))  # a ring may be on its way, never a wrong record
                followers.append(asyncio.create_task(followed(journals[(turn + 1) % 2], last // 2)))
            epoch, last = await taken(journals[0], "last")
            ended = view(last_seq=last + 1, activity="ended", state="done")
            await journals[0].write(Fence("s1", epoch), Append("s1", records(last + 1, last + 1)), ended)
            for received in await asyncio.gather(*followers):
                assert received == records(received[0].seq, last + 1)
            assert [one[0].seq for one in [await followed(journal) for journal in journals]] == [1, 1]

    run(main())


def test_an_owner_that_was_overtaken_tells_nobody_anything(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(2) as parties:
            old, new = (party.journal for party in parties)
            await old.write(view())
            followers = [asyncio.create_task(followed(journal)) for journal in (old, new)]
            before, _ = await taken(old, "w1")
            await old.write(Fence("s1", before), Append("s1", records(1, 2)))
            after, last = await taken(new, "w2")
            assert (after > before, last) == (True, 2)
            with pytest.raises(Fenced):
                await old.write(Fence("s1", before), Append("s1", records(3, 3)), view(activity="ended", last_seq=3))
            with pytest.raises(SequenceConflict):
                await new.write(Fence("s1", after), Append("s1", records(2, 2)))
            await new.write(Fence("s1", after), Append("s1", records(3, 5)), view(activity="ended", last_seq=5))
            assert [await one for one in followers] == [records(1, 5)] * 2

    run(main())


def test_who_forgets_a_session_ends_those_who_follow_it_elsewhere(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(2) as parties:
            here, there = (party.journal for party in parties)
            await here.write(view(), Append("s1", records(1, 3)))
            reader = there.follow("s1", 0)
            assert await anext(reader) == records(1, 3)
            rest = asyncio.create_task(anext(reader, None))
            await asyncio.sleep(0)
            await here.write(Forget("s1"))
            assert await rest is None
            assert await there.read("s1", 0) == []

    run(main())


def test_a_bell_rings_for_every_party(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(2) as parties:
            for ringing, listening in ((0, 1), (1, 0), (0, 0)):
                for topic in ("s1", SESSIONS, "commands:w1"):
                    bell = parties[listening].hub.bell(topic)
                    quiet = parties[listening].hub.bell("another")
                    parties[ringing].hub.ring(topic)
                    await bell.rung()
                    waiting = [asyncio.create_task(one.rung()) for one in (bell, quiet)]
                    await asyncio.sleep(0)
                    assert not any(one.done() for one in waiting[1:])
                    parties[1 - ringing].hub.ring(topic)
                    await waiting[0]
                    waiting[1].cancel()
                    for one in (bell, quiet):
                        one.close()

    run(main())


def test_a_watcher_is_called_for_the_rings_of_others_before_anybody_wakes(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(2) as parties:
            me, order = object(), list[str]()
            parties[0].hub.watch(lambda topic: order.append(f"watched {topic}"), me)
            bell = parties[0].hub.bell("t")
            for by, party in ((me, 0), (object(), 0), (None, 1)):
                parties[party].hub.ring("t", by)
                await bell.rung()
                order.append("rung")
            rings = [(one, two) for one, two in pairwise(["", *order]) if two == "rung"]
            assert rings == [("", "rung"), ("watched t", "rung"), ("watched t", "rung")]

    run(main())
