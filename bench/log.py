"""The durable log against bare SQLite: appending, as the service does it, and replaying.

python -m bench.log [--records 40000] [--replay 1000000] [--runs 5]

Both sides keep the same records in the same table with the same pragmas and as many records per transaction; ours also
crosses to the writing thread and back, checks the numbers, and tells the followers.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

BODY = b'{"type":"text_delta","agent":"understudy","sessionId":"0f8b8c1e-5a3e-4c0b-9a57-6f1b2d3c4e5f","seq":1,' + (
    b'"timestamp":1794739860546,"turn":1,"messageId":"m1","text":"some words of an answer, as they come "}'
)
CASES = ((1, 1), (1, 16), (1, 128), (50, 1), (50, 16), (50, 128))
"""Sessions at once × records per write."""
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
    from podium.service.hub import LocalHub
    from podium.service.journal import Journal
    from podium.service.sqlite import SqliteStore
    from podium.service.store import Append
    from podium.service.views import Record

    async def main() -> float:
        store = SqliteStore(path)
        await store.open()
        journal = Journal(store, LocalHub())

        async def one(name: str) -> None:
            for first in range(1, count // sessions + 1, batch):
                records = [Record(seq, 1, "text_delta", BODY) for seq in range(first, first + batch)]
                await journal.write(Append(name, records))

        start = time.perf_counter()
        await asyncio.gather(*(one(f"session {number}") for number in range(sessions)))
        seconds = time.perf_counter() - start
        await store.close()
        return seconds

    return asyncio.run(main())


def timed(measure: Callable[[Path, int, int, int], float], sessions: int, batch: int, count: int) -> float:
    gc.collect()
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as folder:
        return measure(Path(folder) / "log.db", sessions, batch, count)


def append(count: int, runs: int) -> float:
    print(f"append {count} records of {len(BODY)} bytes (best of {runs})")
    worst = 9.9
    for sessions, batch in CASES:
        whole = max(count // (sessions * batch), 1) * sessions * batch
        if sessions * batch == 1:
            whole = count // 4
        taken: dict[str, list[float]] = {"bare": [], "ours": []}
        for _ in range(runs):
            taken["bare"].append(timed(bare_append, sessions, batch, whole))
            taken["ours"].append(timed(our_append, sessions, batch, whole))
        bare, ours = (whole / min(taken[way]) for way in ("bare", "ours"))
        if sessions * batch > 1:
            worst = min(worst, ours / bare)
        print(
            f"  {sessions:3} sessions × {batch:3} per write   ours {ours:>9,.0f}/s   bare {bare:>9,.0f}/s"
            f"   {ours / bare:.2f} × bare"
        )
    return worst


def resident() -> float:
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1024


def replay(count: int) -> bool:
    """From the first record to the last, through ``follow``; a bare SELECT takes the same pieces."""
    from podium.service.hub import LocalHub
    from podium.service.journal import Journal
    from podium.service.sqlite import SqliteStore
    from podium.service.store import Append
    from podium.service.views import Record, SessionView

    async def main(path: Path) -> bool:
        store = SqliteStore(path)
        await store.open()
        view = SessionView(id="long", agent="understudy", cwd="/", last_seq=count, activity="ended")
        for first in range(1, count + 1, 5000):
            last = min(first + 5000, count + 1)
            await store.write(Append("long", [Record(seq, 1, "text_delta", BODY) for seq in range(first, last)]))
        await store.write(view)

        before = resident()
        start = time.perf_counter()
        expected, exact, slowest, turned = 1, True, 0.0, start
        async for batch in Journal(store, LocalHub()).follow("long", 0):
            exact = exact and batch[0].seq == expected and batch[-1].seq == expected + len(batch) - 1
            expected += len(batch)
            now = time.perf_counter()
            slowest, turned = max(slowest, now - turned), now
        ours = time.perf_counter() - start
        grown = resident() - before
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

    with tempfile.TemporaryDirectory(prefix="podium-bench-") as folder:
        return asyncio.run(main(Path(folder) / "log.db"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=40_000)
    parser.add_argument("--replay", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    worst = append(options.records, options.runs)
    print(f"  the worst with more than one record at once: {worst:.2f} × bare (at least 0.5 is asked for)")
    return 0 if replay(options.replay) else 1


if __name__ == "__main__":
    sys.exit(main())
