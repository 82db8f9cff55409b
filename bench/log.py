"""The durable log against bare SQLite: appending, as a session of the service does it, and replaying.

python -m bench.log [--records 40000] [--replay 1000000] [--runs 5]

Both sides keep the same records in the same table with the same pragmas. Bare is one thread that inserts bytes that lie
ready, as many per transaction as are ready at once. Ours is what happens to the pieces of text an agent says: they are
numbered and encoded, cross to the writing thread, have their numbers checked, and the followers are notified when they
are stored. The next may be handed over while the last are being committed, a few at most (``service/session_log.py``).

A batch of one is no batch: what one session loses there is the way to the other thread and back, and it is shown, but
does not count. ``a flood`` is one session whose agent speaks without a pause, through the same pump as in the service,
which takes whatever came meanwhile; bare then writes as many at once as ours came to.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.memory import resident

if TYPE_CHECKING:
    from stagedoor.service.journal import Journal
    from stagedoor.service.session_log import SessionLog
    from stagedoor.unified.events import Event

BODY = b'{"type":"text_delta","agent":"understudy","sessionId":"0f8b8c1e-5a3e-4c0b-9a57-6f1b2d3c4e5f","seq":1,' + (
    b'"timestamp":1794739860546,"turn":1,"messageId":"m1","text":"some words of an answer, as they come "}'
)
CASES = ((1, 1), (1, 16), (1, 128), (50, 1), (50, 16), (50, 128))
"""Sessions at once × records per write."""
FLOOD_BATCH = 16
"""What the agent that floods says between two looks at the rest of the world."""
TABLE = """CREATE TABLE records(session TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, type TEXT NOT NULL,
body BLOB NOT NULL, PRIMARY KEY(session, seq)) WITHOUT ROWID"""
INSERT = "INSERT INTO records VALUES(?,?,?,?,?)"
SELECT = "SELECT seq, at, type, body FROM records WHERE session=? AND seq>? ORDER BY seq LIMIT ?"
CHUNK = 512


def bare_append(path: Path, sessions: int, batch: int, count: int) -> float:
    """One thread, nothing around it; what all sessions have ready is one transaction."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute(TABLE)
    start = time.perf_counter()
    for first in range(1, count // sessions + 1, batch):
        db.execute("BEGIN IMMEDIATE")
        for number in range(sessions):
            rows = [(f"session {number}", seq, 1, "text_delta", BODY) for seq in range(first, first + batch)]
            db.executemany(INSERT, rows)
        db.execute("COMMIT")
    seconds = time.perf_counter() - start
    db.close()
    return seconds


def our_append(path: Path, sessions: int, batch: int, count: int) -> float:
    async def append_all(session_log: SessionLog, batches: list[list[Event]]) -> None:
        for pieces in batches:
            await session_log.store(pieces)
        await session_log.quiet()

    async def append_sessions(journal: Journal) -> float:
        sources = [
            (await open_log(journal, f"session {n}"), text_batches(count // sessions, batch)) for n in range(sessions)
        ]
        start = time.perf_counter()
        await asyncio.gather(*(append_all(*each) for each in sources))
        return time.perf_counter() - start

    return on_a_log(path, append_sessions)


def flood(path: Path, count: int) -> tuple[float, int]:
    """Also says how many records came to one write."""
    from stagedoor.service.runner import Life
    from stagedoor.transports.relay import Reader, Relay

    class Speaking:
        def __init__(self, events: Reader[Event]) -> None:
            self.events = events

    writes = 0

    async def flooded(journal: Journal) -> float:
        nonlocal writes
        session_log = await open_log(journal, "session 0")

        async def store(events: list[Event]) -> None:
            nonlocal writes
            writes += 1
            await session_log.store(events)

        batches = text_batches(count, FLOOD_BATCH)
        relay: Relay[Event] = Relay()
        speaking: Any = Speaking(relay.reader())
        start = time.perf_counter()
        life = Life(speaking, session_log.view, store=store, counts=lambda _: True, on_end=lambda: None)
        for pieces in batches:
            await relay.publish(pieces)
            await asyncio.sleep(0)
        relay.close()
        await life.pump
        await session_log.quiet()
        return time.perf_counter() - start

    return on_a_log(path, flooded), count // writes


def on_a_log(path: Path, work: Callable[[Journal], Any]) -> float:
    from stagedoor.service.journal import Journal, LocalHub
    from stagedoor.service.sqlite import SqliteStore

    async def main() -> float:
        store = SqliteStore(path)
        await store.open()
        seconds = await work(Journal(store, LocalHub()))
        await store.close()
        return float(seconds)

    return asyncio.run(main())


async def open_log(journal: Journal, name: str) -> SessionLog:
    from stagedoor.service.session_log import SessionLog
    from stagedoor.service.views import SessionView

    view = SessionView(id=name, agent="understudy", cwd="/work", prompt="Go on.", activity="working")
    await journal.write(view)

    def broken(fault: Exception) -> None:
        raise fault

    audit: Any = None  # nothing is decided here
    return SessionLog(view, journal, now=lambda: 1, new_id=lambda: "m", broken=broken, counts=Counter(), audit=audit)


def text_batches(count: int, batch: int) -> list[list[Event]]:
    from stagedoor.unified.events import decode

    return [[decode(BODY) for _ in range(batch)] for _ in range(count // batch)]


def timed(measure: Callable[..., Any], *sizes: int) -> Any:
    gc.collect()
    with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder:
        return measure(Path(folder) / "log.db", *sizes)


def append(count: int, runs: int) -> float:
    print(f"append {count} records of {len(BODY)} bytes (best of {runs})")
    worst = 9.9
    for sessions, batch in CASES:
        whole = max(count // (sessions * batch), 1) * sessions * batch
        if sessions * batch == 1:
            whole = count // 4
        bare, ours = [], []
        for _ in range(runs):
            bare.append(timed(bare_append, sessions, batch, whole))
            ours.append(timed(our_append, sessions, batch, whole))
        ratio = report(f"{sessions:3} sessions × {batch:3} per write", whole, min(ours), min(bare))
        if sessions * batch > 1:
            worst = min(worst, ratio)
    whole = count // FLOOD_BATCH * FLOOD_BATCH
    bare, ours, sizes = [], [], []
    for _ in range(runs):
        seconds, size = timed(flood, whole)
        ours.append(seconds)
        sizes.append(size)
        bare.append(timed(bare_append, 1, size, whole // size * size) * whole / (whole // size * size))
    came_to = sorted(sizes)[len(sizes) // 2]
    return min(worst, report(f"a flood, {came_to:4} per write    ", whole, min(ours), min(bare)))


def report(case: str, count: int, ours: float, bare: float) -> float:
    print(f"  {case}   ours {count / ours:>9,.0f}/s   bare {count / bare:>9,.0f}/s   {bare / ours:.2f} × bare")
    return bare / ours


def megabytes() -> float:
    return resident() / 2**20


def replay(count: int) -> bool:
    """From the first record to the last, through ``follow``; a bare SELECT takes the same pieces."""
    from stagedoor.service.journal import Journal, LocalHub
    from stagedoor.service.sqlite import SqliteStore
    from stagedoor.service.store import Append
    from stagedoor.service.views import Record, SessionView

    async def main(path: Path) -> bool:
        store = SqliteStore(path)
        await store.open()
        view = SessionView(id="long", agent="understudy", cwd="/", last_seq=count, activity="ended")
        for first in range(1, count + 1, 5000):
            last = min(first + 5000, count + 1)
            await store.write(Append("long", [Record(seq, 1, "text_delta", BODY) for seq in range(first, last)]))
        await store.write(view)

        before = megabytes()
        start = time.perf_counter()
        expected, exact, slowest, turned = 1, True, 0.0, start
        async for batch in Journal(store, LocalHub()).follow("long", 0):
            exact = exact and batch[0].seq == expected and batch[-1].seq == expected + len(batch) - 1
            expected += len(batch)
            now = time.perf_counter()
            slowest, turned = max(slowest, now - turned), now
        ours = time.perf_counter() - start
        grown = megabytes() - before
        await store.close()

        db = sqlite3.connect(path)
        start = time.perf_counter()
        after = 0
        while rows := db.execute(SELECT, ("long", after, CHUNK)).fetchall():
            after = rows[-1][0]
        bare = time.perf_counter() - start
        db.close()
        print(
            f"replay of {count} records: ours {count / ours:,.0f}/s, bare SELECT {count / bare:,.0f}/s, "
            f"{bare / ours:.2f} × bare, {'all exact' if exact and expected == count + 1 else 'NOT EXACT'}; "
            f"{grown:.0f} MB more memory; the longest piece took {slowest * 1000:.0f} ms"
        )
        return exact and expected == count + 1

    with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder:
        return asyncio.run(main(Path(folder) / "log.db"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=40_000)
    parser.add_argument("--replay", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    worst = append(options.records, options.runs)
    print(f"  the worst of what is a batch: {worst:.2f} × bare (the target is at least 0.5)")
    return 0 if replay(options.replay) else 1


if __name__ == "__main__":
    sys.exit(main())
