"""The log at any size: what the server asks of it, with 10³ … 10⁵ sessions in it.

    python -m bench.big_log [--sessions 1000 10000 100000] [--retain 100000] [--postgres]

Times are processor time of all threads, the best of three, so that a busy machine changes little; ``beside four
searches`` is the median time on the clock, for it is about waiting. A sign ``<`` marks what falls short of its bound at
the largest size. The log is made through the store itself, so that whatever fills the seam can be measured.

PostgreSQL works in processes of its own: there it is the time on the clock, the best of thirty, which holds both sides
and the way between them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from stagedoor.service.config.settings import Settings
from stagedoor.service.journal import Journal, LocalHub
from stagedoor.service.ledger import UsageLedger
from stagedoor.service.postgres import log_in
from stagedoor.service.service import Service
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.store import Append, Change, Query, Store
from stagedoor.service.views import Question, QueuedPrompt, Record, SessionView, TurnUsage
from stagedoor.transports.tasks import TaskOwner
from stagedoor.unified.events import PermissionRequest, Usage
from tools.postgres import cluster

SIZES = (1_000, 10_000, 100_000)
OPEN = 10
"""Sessions that are not over, at any size: what a start has to look at."""
RECORDS = 6
AT_ONCE = 200
"""Sessions per write while the log is made."""
NOW = 1_794_739_860_000
YEAR = 365 * 86_400_000
WORDS = (
    "fix the",
    "login",
    "page please",
    "write more",
    "tests",
    "server",
    "refactor",
    "docs",
    "alpha",
    "beta",
    "gamma",
)
BODY = b'{"type":"text_delta","agent":"understudy","sessionId":"0f8b8c1e-5a3e-4c0b-9a57-6f1b2d3c4e5f","seq":1,' + (
    b'"timestamp":1794739860546,"turn":1,"messageId":"m1","text":"some words of an answer, as they come "}'
)
AGENTS = ("claude", "codex", "gemini", "opencode")


def session_changes(number: int, of: int, chance: random.Random) -> list[Change]:
    """One session as it stands in the log when it has ended; the last ones are still open."""
    created = NOW - YEAR + number * (YEAR // of)
    name = f"{chance.getrandbits(64):016x}-{number}"
    is_open = number >= of - OPEN
    prompt, result = (" ".join(chance.choices(WORDS, k=size)) for size in (20, 40))
    agent, project = AGENTS[number % 4], f"project{number % 30}"
    view = SessionView(
        id=name,
        agent=agent,
        cwd=f"/home/somebody/work/{project}",
        state="running" if is_open else "done",
        activity="asleep" if is_open else "ended",
        keep_open=is_open,
        native_id=f"native-{name}",
        title=prompt[:80],
        prompt=prompt,
        result=result,
        project_id=project,
        created_at=created,
        updated_at=created + RECORDS,
        last_seq=RECORDS,
        turn=1,
    )
    request = PermissionRequest(request_id=f"r{number}", tool_name="shell", target="make test")
    records = [Record(seq, created + seq, "text_delta", BODY) for seq in range(1, RECORDS + 1)]
    usage = Usage(input_tokens=1000, output_tokens=200, total_tokens=1200, cost_usd=0.01)
    return [
        Append(name, records),
        view,
        QueuedPrompt(id=f"m{number}", session_id=name, prompt=prompt, at=created, state="sent"),
        Question(
            id=f"{name}:r{number}", session_id=name, agent=agent, request=request, asked_at=created, open=False,
            applied=True,
        ),
        TurnUsage(session_id=name, turn=1, at=created + RECORDS, agent=agent, project=project, model="m", usage=usage),
    ]  # fmt: skip


async def fill(store: Store, count: int) -> str:
    """``count`` sessions, and the id of one in the middle."""
    chance = random.Random(count)
    middle = ""
    for first in range(0, count, AT_ONCE):
        changes: list[Change] = []
        for number in range(first, min(first + AT_ONCE, count)):
            changes += session_changes(number, count, chance)
            if number == count // 2:
                middle = next(one.id for one in changes[-5:] if isinstance(one, SessionView))
        await store.write(*changes)
    return middle


async def processor_ms(work: Callable[[], Awaitable[Any]], runs: int = 3) -> float:
    best = float("inf")
    for _ in range(runs):
        start = time.process_time()
        await work()
        best = min(best, time.process_time() - start)
    return best * 1000


async def shortest_ms(work: Callable[[], Awaitable[Any]], runs: int = 30) -> float:
    """By the clock, the best of them."""
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        await work()
        best = min(best, time.perf_counter() - start)
    return best * 1000


async def clock_ms(work: Callable[[], Awaitable[Any]], runs: int = 200) -> float:
    took: list[float] = []
    for _ in range(runs):
        start = time.perf_counter()
        await work()
        took.append(time.perf_counter() - start)
        if sum(took) > 20:
            break
    return statistics.median(took) * 1000


async def beside_searches(store: Store, work: Callable[[], Awaitable[Any]]) -> float:
    async def search() -> None:
        while True:
            with contextlib.suppress(Exception):  # one that takes too long is ended; that is no matter here
                await store.count(Query(search="e"))  # of one letter: it looks at every session

    searches = TaskOwner()
    for _ in range(4):
        searches.start(search())
    await asyncio.sleep(0.05)
    try:
        return await clock_ms(work)
    finally:
        await searches.close()


async def measure(home: Path, count: int, *, retain: bool, address: str = "") -> dict[str, float]:
    """``address``: of a PostgreSQL; without one, a file in ``home``."""
    cost = shortest_ms if address else processor_ms

    def log() -> Store:
        return log_in(address)[0] if address else SqliteStore(home / "log.db")

    store = log()
    await store.open()
    started = time.process_time()
    middle = await fill(store, count)
    print(f"  a log of {count} sessions made in {time.process_time() - started:.1f} s", file=sys.stderr)
    usage = UsageLedger(store)
    alone = await clock_ms(lambda: store.session(middle))

    async def page(query: Query) -> None:
        await store.sessions(query)
        await store.count(query)

    found = {
        "state=running, page and total": await cost(lambda: page(Query(state="running"))),
        "first page and total": await cost(lambda: page(Query())),
        "last page and total": await cost(lambda: page(Query(offset=count - 50))),
        "search without a hit": await cost(lambda: page(Query(search="zzyzx road"))),
        "search with few hits": await cost(lambda: page(Query(search=f"-{count // 2}"))),
        "search with a hit in half": await cost(lambda: page(Query(search="refactor docs"))),
        "search for two letters, no hit": await cost(lambda: page(Query(search="zq"))),
        "usage by day": await cost(lambda: usage.sums(by="day", since=NOW - YEAR, offset_minutes=120)),
        "usage by project, a month": await cost(lambda: usage.sums(by="project", since=NOW - YEAR // 12)),
        "one session": await cost(lambda: store.session(middle)),
        "one session beside four searches, ×": (await beside_searches(store, lambda: store.session(middle))) / alone,
    }
    await store.close()
    service = Service(Settings(home=str(home), **({"database": address} if address else {})))
    found["start"] = await cost(service.start, 1)
    await service.stop()
    if retain:
        store = log()
        await store.open()
        journal = Journal(store, LocalHub())
        found["retention of all"] = await cost(lambda: journal.retain(1, NOW + YEAR), 1)
        await store.close()
    return found


BOUNDS = {
    "state=running, page and total": 5,
    "first page and total": 50,
    "last page and total": 50,
    "search without a hit": 50,
    "usage by day": 50,
    "usage by project, a month": 50,
    "one session beside four searches, ×": 20,
    "start": 1000,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, nargs="+", default=SIZES)
    parser.add_argument("--retain", type=int, default=SIZES[-1], help="the largest log that retention is tried on")
    parser.add_argument("--postgres", action="store_true", help="the log in PostgreSQL")
    options = parser.parse_args()
    columns: list[dict[str, float]] = []
    for count in options.sessions:
        with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder, contextlib.ExitStack() as stack:
            address = (
                stack.enter_context(cluster({"shared_buffers": "256MB", "autovacuum": "on"})).url()
                if options.postgres
                else ""
            )
            home = Path(folder) / "home"
            columns.append(asyncio.run(measure(home, count, retain=count <= options.retain, address=address)))
    what = (
        "ms by the clock, PostgreSQL, sessions in it:" if options.postgres else "ms of processor time, sessions in it:"
    )
    print(f"{what:42}" + "".join(f"{count:>12,}" for count in options.sessions))
    short = 0
    for name in columns[0]:
        values = [column.get(name) for column in columns]
        bound = BOUNDS.get(name)
        last = values[-1]
        falls_short = bound is not None and last is not None and last > bound
        short += falls_short
        shown = "".join(f"{'—' if value is None else f'{value:,.1f}':>12}" for value in values)
        print(f"  {name:40}{shown}{'' if bound is None else f'   bound {bound}'}{' <' if falls_short else ''}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
