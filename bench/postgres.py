"""The log in PostgreSQL against bare COPY in the same server, the cost of the bell, and how soon another door hears.

python -m bench.postgres [--records 40000] [--runs 3]

Bare is one connection per session that copies records that lie ready, each batch its own transaction. Ours is the
store: every write is fenced by the epoch of its session, is refused unless its numbers follow, and is one of many that
one connection carries out together. Both have ``synchronous_commit=on``.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from contextlib import aclosing
from typing import Any

CASES = ((1, 1), (1, 16), (1, 128), (8, 1), (8, 16), (8, 128), (64, 16))
"""Sessions at once × records per write."""
COUNTED = 16
"""From so many per write on the ratio counts."""
FLOOR, CEILING = 0.5, 1.15
BODY = b'{"type":"text_delta","agent":"understudy","sessionId":"0f8b8c1e-5a3e-4c0b-9a57-6f1b2d3c4e5f","seq":1,' + (
    b'"timestamp":1794739860546,"turn":1,"messageId":"m1","text":"some words of an answer, as they come "}'
)
TABLE = """CREATE TABLE bare(session text COLLATE "C" NOT NULL, seq bigint NOT NULL, at bigint NOT NULL,
epoch bigint NOT NULL, type text COLLATE "C" NOT NULL, body bytea NOT NULL, PRIMARY KEY(session, seq))"""


async def bare_copy(url: str, sessions: int, batch: int, count: int) -> float:
    import asyncpg

    connections = [await asyncpg.connect(url) for _ in range(sessions)]
    await connections[0].execute("DROP TABLE IF EXISTS bare")
    await connections[0].execute(TABLE)

    async def session(number: int) -> None:
        db = connections[number]
        for first in range(1, count // sessions + 1, batch):
            rows = [(f"session {number}", seq, 1, 1, "text_delta", BODY) for seq in range(first, first + batch)]
            await db.copy_records_to_table("bare", records=rows)

    start = time.perf_counter()
    await asyncio.gather(*map(session, range(sessions)))
    seconds = time.perf_counter() - start
    for db in connections:
        await db.close()
    return count / seconds


async def _begin(journal: Any, sessions: int) -> dict[str, int]:
    """Sessions of this worker's own, with their epochs."""
    from stagedoor.service.store import Forget
    from stagedoor.service.views import SessionView, WorkerRow

    names = [f"session {number}" for number in range(sessions)]
    await journal.store.write(*map(Forget, names))
    await journal.store.write(*(SessionView(id=name, agent="understudy", cwd="/") for name in names))
    await journal.store.put_worker(WorkerRow(id="w", incarnation="i", until=2**50))
    claimed = await journal.store.claim("w", "i", labels=(), limit=sessions, now=1)
    return {view.id: view.epoch for view in claimed}


async def fenced_append(url: str, sessions: int, batch: int, count: int, *, bell: bool) -> float:
    from stagedoor.service.journal import Journal, LocalHub
    from stagedoor.service.postgres import log_in
    from stagedoor.service.store import Append, Fence
    from stagedoor.service.views import Record

    store, hub = log_in(url)
    await store.open()
    if bell:
        await hub.open()
    journal = Journal(store, hub if bell else LocalHub())
    epochs = await _begin(journal, sessions)

    async def session(name: str, epoch: int) -> None:
        for first in range(1, count // sessions + 1, batch):
            records = [Record(seq, 1, "text_delta", BODY) for seq in range(first, first + batch)]
            await journal.write(Fence(name, epoch), Append(name, records))

    start = time.perf_counter()
    await asyncio.gather(*(session(*one) for one in epochs.items()))
    seconds = time.perf_counter() - start
    if bell:
        await hub.close()
    await store.close()
    return count / seconds


async def far_follower(url: str, count: int) -> list[float]:
    """Milliseconds from the write of an event to its arrival at a follower of another process's journal."""
    from stagedoor.service.journal import Journal
    from stagedoor.service.postgres import log_in
    from stagedoor.service.store import Append, Fence
    from stagedoor.service.views import Record

    parties = [log_in(url) for _ in range(2)]
    for store, hub in parties:
        await store.open()
        await hub.open()
    near, far = (Journal(*party) for party in parties)
    [(name, epoch)] = (await _begin(near, 1)).items()
    times: list[float] = []
    async with aclosing(far.follow(name, 0)) as batches:
        for seq in range(1, count + 1):
            start = time.perf_counter()
            await near.write(Fence(name, epoch), Append(name, [Record(seq, 1, "text_delta", BODY)]))
            await anext(batches)
            times.append((time.perf_counter() - start) * 1e3)
    for store, hub in parties:
        await hub.close()
        await store.close()
    return sorted(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=40_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    from tools.postgres import NoPostgres, cluster

    worst: list[str] = []
    try:
        with cluster({"fsync": "on", "full_page_writes": "on", "shared_buffers": "128MB"}) as own:
            url = own.url()
            print("sessions × records per write   bare COPY /s   ours, fenced /s   ratio   cost of the bell")
            for sessions, batch in CASES:
                count = max(sessions * batch, min(arguments.records, 500 * sessions * batch))
                count -= count % (sessions * batch)
                bare: list[float] = []
                ours: list[float] = []
                rung: list[float] = []
                for _ in range(arguments.runs):
                    bare.append(asyncio.run(bare_copy(url, sessions, batch, count)))
                    ours.append(asyncio.run(fenced_append(url, sessions, batch, count, bell=False)))
                    rung.append(asyncio.run(fenced_append(url, sessions, batch, count, bell=True)))
                ratio = statistics.median(ours) / statistics.median(bare)
                cost = statistics.median(ours) / statistics.median(rung)
                print(
                    f"{sessions:>8} × {batch:<20} {statistics.median(bare):>12,.0f} {statistics.median(ours):>17,.0f}"
                    f" {ratio:>7.2f} {cost - 1:>17.0%}",
                    flush=True,
                )
                if batch >= COUNTED and ratio < FLOOR:
                    worst.append(f"{sessions} × {batch}: {ratio:.2f} of bare COPY; at least {FLOOR} is wanted")
                if batch >= COUNTED and cost > CEILING:
                    worst.append(f"{sessions} × {batch}: the bell costs {cost - 1:.0%}; at most 15 % is wanted")
            times = asyncio.run(far_follower(url, 500))
            print(f"a follower at another door hears it after p50 {times[250]:.1f} ms, p99 {times[494]:.1f} ms")
    except NoPostgres as fault:
        print(f"no PostgreSQL to measure: {fault}")
    for line in worst:
        print(line, file=sys.stderr)
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
