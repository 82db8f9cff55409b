"""The log in PostgreSQL against bare COPY in the same server, the cost of the bell, how soon another door hears, how
soon another worker takes over, and many sessions over several workers.

python -m bench.postgres [--records 16000] [--runs 3]

Bare is one connection per session that copies records that lie ready, each batch its own transaction. Ours is the
store: every write is fenced by the epoch of its session, is refused unless its numbers follow, and is one of many that
one connection carries out together. Both have ``synchronous_commit=on``.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path
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


async def _put_sessions(journal: Any, sessions: int) -> None:
    """These and no others, of nobody."""
    from stagedoor.service.store import Forget, Query
    from stagedoor.service.views import SessionView

    while found := await journal.store.sessions(Query(limit=500)):
        await journal.store.write(*(Forget(view.id) for view in found))
    names = [f"session {number}" for number in range(sessions)]
    await journal.store.write(*(SessionView(id=name, agent="understudy", cwd="/") for name in names))


async def _begin(journal: Any, sessions: int) -> dict[str, int]:
    """Sessions of this worker's own, with their epochs."""
    from stagedoor.service.views import WorkerRow

    await _put_sessions(journal, sessions)
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


LEASE = 2.0
TAKEN_WITHIN = 2.0
"""Leases after which somebody else must have what a worker that was killed had."""


async def take_over(url: str, times: int) -> list[float]:
    """Seconds from the death of a worker to the claim of another."""
    from stagedoor.engine import milliseconds
    from stagedoor.service.journal import Journal
    from stagedoor.service.postgres import log_in
    from stagedoor.service.worker import Worker

    parties = [log_in(url) for _ in range(2)]
    for store, hub in parties:
        await store.open()
        await hub.open()
    taken = asyncio.Event()
    workers: list[Worker] = []

    async def nothing() -> None:
        pass

    async def take() -> None:
        if await workers[1].claim(None):
            taken.set()

    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (store, hub) in enumerate(parties):
            home = Path(folder) / str(number)
            home.mkdir()
            looks = take if number else nothing
            workers.append(Worker(Journal(store, hub), home, now=milliseconds, let_go=nothing, take=looks, lease=LEASE))
        for _ in range(times):
            await workers[0].register()
            await _put_sessions(Journal(*parties[0]), 1)
            assert await workers[0].claim(None)
            workers[0].start()
            await workers[1].register()
            workers[1].start()
            await asyncio.sleep(LEASE * random.random())
            await workers[0]._tasks.close()  # as if it had been killed: it says nothing to anybody
            died = time.perf_counter()
            await taken.wait()
            seconds.append(time.perf_counter() - died)
            taken.clear()
            await workers[1]._tasks.close()
        for worker in workers:
            worker._unlock_home()
    for store, hub in parties:
        await hub.close()
        await store.close()
    return sorted(seconds)


WORKERS, SESSIONS, PER_WRITE, WRITES = 4, 1000, 16, 10


async def write_as_worker(url: str, number: int) -> None:
    """One of several processes: claim a share of the sessions, wait for the word, and write to all at once."""
    from stagedoor.service.journal import Journal
    from stagedoor.service.postgres import log_in
    from stagedoor.service.store import Append, Fence
    from stagedoor.service.views import Record, WorkerRow

    store, hub = log_in(url)
    await store.open()
    await hub.open()
    journal = Journal(store, hub)
    await store.put_worker(WorkerRow(id=f"w{number}", incarnation="i", until=2**50))
    claimed = await journal.claim(f"w{number}", "i", labels=(), limit=SESSIONS // WORKERS, now=1)
    assert len(claimed) == SESSIONS // WORKERS
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    waits: list[float] = []

    async def session(name: str, epoch: int) -> None:
        for first in range(1, WRITES * PER_WRITE, PER_WRITE):
            records = [Record(seq, 1, "text_delta", BODY) for seq in range(first, first + PER_WRITE)]
            began = time.perf_counter()
            await journal.write(Fence(name, epoch), Append(name, records))
            waits.append((time.perf_counter() - began) * 1e3)

    await asyncio.gather(*(session(view.id, view.epoch) for view in claimed))
    print(" ".join(f"{one:.1f}" for one in waits), flush=True)
    await hub.close()
    await store.close()


async def many_sessions(url: str) -> tuple[float, list[float]]:
    """Records per second of all workers together, and the milliseconds that each write took."""
    from stagedoor.service.journal import Journal
    from stagedoor.service.postgres import log_in

    store, hub = log_in(url)
    await store.open()
    await _put_sessions(Journal(store, hub), SESSIONS)
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.postgres", "--as-worker", str(number), "--url", url,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**24,
        )
        for number in range(WORKERS)
    ]  # fmt: skip
    waits: list[float] = []
    try:
        for child in children:
            assert child.stdout is not None
            assert await child.stdout.readline() == b"ready\n"
        began = time.perf_counter()
        for child in children:
            assert child.stdin is not None
            child.stdin.write(b"go\n")
        for child in children:
            assert child.stdout is not None
            waits += map(float, (await child.stdout.readline()).split())
        seconds = time.perf_counter() - began
    finally:
        for child in children:
            if child.returncode is None:
                await asyncio.wait([asyncio.create_task(child.wait())], timeout=30)
    await store.close()
    return SESSIONS * PER_WRITE * WRITES / seconds, sorted(waits)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=16_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--as-worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_worker is not None:
        asyncio.run(write_as_worker(arguments.url, arguments.as_worker))
        return 0
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
            taken = asyncio.run(take_over(url, 5))
            print(
                f"with a lease of {LEASE:g} s another worker has a session {statistics.median(taken):.1f} s after its "
                f"own died ({statistics.median(taken) / LEASE:.2f} leases), {taken[-1]:.1f} s at most"
            )
            if taken[-1] > TAKEN_WITHIN * LEASE:
                worst.append(f"a take-over took {taken[-1]:.1f} s; at most {TAKEN_WITHIN:g} leases are wanted")
            rate, waits = asyncio.run(many_sessions(url))
            print(
                f"{SESSIONS} sessions over {WORKERS} workers, {PER_WRITE} records per write: {rate:,.0f} records/s, a "
                f"write takes p50 {waits[len(waits) // 2]:.0f} ms, p99 {waits[len(waits) * 99 // 100]:.0f} ms"
            )
    except NoPostgres as fault:
        print(f"no PostgreSQL to measure: {fault}")
    for line in worst:
        print(line, file=sys.stderr)
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
