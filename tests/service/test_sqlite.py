"""The embedded log, on a real file."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from stagedoor.errors import StoreBroken, StoreTooNew
from stagedoor.service.sqlite import SqliteStore, schema
from stagedoor.service.sqlite import threads as writer
from stagedoor.service.store import Append, Change, ConfigChange, Forget, Query, Remember, Sweep, Trim
from stagedoor.service.views import (
    Device,
    IdempotentReply,
    Question,
    QueuedPrompt,
    Record,
    SessionView,
    TurnUsage,
    UsageSum,
)
from stagedoor.unified.decisions import Allow
from stagedoor.unified.events import PermissionRequest, Usage

BOUND = 240.0
Value = TypeVar("Value")


def run(work: Awaitable[Value]) -> Value:
    async def main() -> Value:
        async with asyncio.timeout(BOUND):
            return await work

    return asyncio.run(main())


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncGenerator[SqliteStore]:
    store = SqliteStore(path, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def on(path: Path, work: Callable[[SqliteStore], Awaitable[Value]], **options: Any) -> Value:
    async def main() -> Value:
        async with opened(path, **options) as store:
            return await work(store)

    return run(main())


def records(first: int, last: int, body: bytes = b'{"a":1}') -> list[Record]:
    return [Record(seq, 1000 + seq, "text", body) for seq in range(first, last + 1)]


def view(name: str = "s1", **more: Any) -> SessionView:
    return SessionView(id=name, agent="understudy", cwd="/work", **more)


def question(number: int = 1, **more: Any) -> Question:
    request = PermissionRequest(request_id=f"r{number}", tool_name="shell", target="ls")
    return Question(
        id=f"s1:r{number}", session_id="s1", agent="understudy", request=request, asked_at=number, **more
    )  # fmt: skip


SPENT = TurnUsage(session_id="s1", turn=1, at=50, agent="understudy", project="p", usage=Usage(input_tokens=3))
MESSAGES = [QueuedPrompt(id=f"m{n}", session_id="s1", prompt="go", at=n) for n in (1, 2)]
DEVICE = Device(id="d1", name="phone", scopes=("watch",), token_hash="h", created_at=1)
ANSWERED = IdempotentReply(key="k", fingerprint="f", status=201, body=b"{}", at=5)
CHANGED = ConfigChange(at=8, who="phone", name="policy", before="a", after="b")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "home" / "log.db"

    async def write(store: SqliteStore) -> None:
        await store.write(view(), view("s2", created_at=9, title="Zwei", group="g"))
        await store.write(
            Append("s1", records(1, 200)), Append("s2", records(1, 1)), question(1), question(2, open=False)
        )
        await store.write(*MESSAGES, SPENT, DEVICE, ANSWERED, CHANGED, Remember("theme", b"dark"))
        await store.write(replace(MESSAGES[0], state="sent"), view(last_seq=200, activity="ended", state="done"))
        await store.write(Remember("gone", b"x"), Remember("gone", None))

    async def read(store: SqliteStore) -> None:
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

    async def both(store: SqliteStore) -> None:
        await write(store)
        await read(store)

    on(path, both)
    on(path, read)  # and again from the file alone


def test_nobody_else_can_read_it_and_nothing_is_left_open(tmp_path: Path) -> None:
    path = tmp_path / "home" / "log.db"

    async def modes(store: SqliteStore) -> dict[str, int]:
        await store.write(view())
        await asyncio.gather(*(store.sessions(Query()) for _ in range(20)))
        return {found.name: stat.S_IMODE(found.stat().st_mode) for found in (path.parent, *path.parent.iterdir())}

    names = ("log.db", "log.db-wal", "log.db-shm", "log.db.lock")
    assert on(path, modes) == {"home": 0o700} | dict.fromkeys(names, 0o600)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("stagedoor-log")] == []
    assert sorted(found.name for found in path.parent.iterdir()) == ["log.db", "log.db.lock"]


@pytest.mark.parametrize(("durable", "level"), [("process", 1), ("power", 2)])
def test_how_durable(tmp_path: Path, durable: str, level: int) -> None:
    async def ask(store: SqliteStore) -> int:
        return (await store._writer.do(lambda db: db.execute("PRAGMA synchronous").fetchone()))[0]  # type: ignore[no-any-return]

    assert on(tmp_path / "log.db", ask, durable=durable) == level


CHILD = """
import asyncio, sys
from pathlib import Path
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.store import Append
from stagedoor.service.views import Record, SessionView
async def main():
    store = SqliteStore(Path(sys.argv[1]))
    await store.open()
    seq = 0
    while True:
        seq += 1
        row = SessionView(id="s1", agent="a", cwd="/", last_seq=seq)
        await store.write(Append("s1", [Record(seq, 1, "text", b"{}")]), row)
        print(seq, flush=True)
asyncio.run(main())
"""


def test_one_server_per_log_and_what_was_acknowledged_survives_its_death(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        received = [int(child.stdout.readline()) for _ in range(50)]
        with pytest.raises(StoreBroken, match=f"in use by another Stagedoor .process {child.pid}.*STAGEDOOR_HOME"):
            on(path, lambda store: store.count(Query()))
    finally:
        child.send_signal(signal.SIGKILL)
        received += [int(line) for line in child.stdout.read().splitlines()]
        child.wait()
        child.stdout.close()

    async def read(store: SqliteStore) -> tuple[list[Record], SessionView | None]:
        return await store.records("s1", 0, 1_000_000), await store.session("s1")

    found, row = on(path, read)
    assert [record.seq for record in found] == list(range(1, len(found) + 1))
    assert len(found) - received[-1] in (0, 1)  # the one it was about to tell of
    assert row == SessionView(id="s1", agent="a", cwd="/", last_seq=len(found))


@pytest.mark.parametrize("version", range(schema.SCHEMA + 1))
def test_an_older_file_becomes_a_new_one(tmp_path: Path, version: int) -> None:
    path = tmp_path / "log.db"
    db = sqlite3.connect(path, isolation_level=None)
    for number in range(version):
        db.executescript(schema.MIGRATIONS[number] + f"PRAGMA user_version={number + 1};")
    if version:
        db.execute("INSERT INTO records VALUES('s1', 1, 1001, 'text', ?)", (b'{"a":1}',))
    db.close()

    async def use(store: SqliteStore) -> list[object]:
        await store.write(CHANGED, Append("s1", records(1 + bool(version), 2)))
        return [await store.records("s1", 0, 10), await store.config_changes()]

    assert on(path, use) == [records(1, 2), [replace(CHANGED, n=1)]]
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (schema.SCHEMA,)
    db.close()


def test_a_newer_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    on(path, lambda store: store.write(view()))
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA user_version={schema.SCHEMA + 1}")
    db.execute("PRAGMA journal_mode=DELETE")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match=f"newer Stagedoor .schema {schema.SCHEMA + 1}; .*install that version"):
        on(path, lambda store: store.count(Query()))
    assert path.read_bytes() == before


def a_text(path: Path) -> None:
    path.write_bytes(b"this is no database, and long enough to be seen as none" * 40)


def a_foreign_database(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs(a)")
    db.close()


def a_folder(path: Path) -> None:
    path.mkdir()


def a_file_for_a_folder(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("")


def a_folder_that_may_not_be_written(path: Path) -> None:
    path.parent.chmod(0o500)


def a_half_migrated_file(path: Path) -> None:
    db = sqlite3.connect(path)
    db.executescript("CREATE TABLE audit(n); PRAGMA user_version=1;")
    db.close()


UNUSABLE = [
    (a_text, "file is not a database; it is damaged: restore a copy, or move log.db, log.db-wal"),
    (a_foreign_database, "is a database of another program; move it away"),
    (a_folder, "cannot be opened.*check that its folder exists"),
    (a_file_for_a_folder, "cannot be opened.*check that its folder exists"),
    (a_half_migrated_file, "cannot be opened: table audit already exists"),
    *([(a_folder_that_may_not_be_written, "cannot be opened.*may write there")] if os.geteuid() else []),
]


@pytest.mark.parametrize(("make", "message"), UNUSABLE, ids=lambda value: getattr(value, "__name__", ""))
def test_what_cannot_be_used_says_what_to_do(tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    path = tmp_path / "home" / "log.db"
    path.parent.mkdir()
    make(path)
    try:
        with pytest.raises(StoreBroken, match=message):
            on(path, lambda store: store.count(Query()))
    finally:
        path.parent.chmod(0o700)


def test_damage_inside_is_found_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    on(path, lambda store: store.write(Append("s1", records(1, 2000, b"x" * 400))))
    with path.open("r+b") as file:
        file.seek(40 * 4096)
        file.write(os.urandom(60 * 4096))
    with pytest.raises(StoreBroken, match=r"cannot be read: .*malformed; it is damaged: restore a copy"):
        on(path, lambda store: store.records("s1", 0, 10_000))


async def full_by_pages(store: SqliteStore, path: Path) -> Callable[[], Awaitable[object]]:
    pages = await store._writer.do(lambda db: db.execute("PRAGMA page_count").fetchone())
    await store._writer.do(lambda db: db.execute(f"PRAGMA max_page_count={pages[0] + 20}"))
    return lambda: store._writer.do(lambda db: db.execute("PRAGMA max_page_count=1000000"))


async def full_by_the_system(store: SqliteStore, path: Path) -> Callable[[], Awaitable[object]]:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name("log.db-wal").stat().st_size + 100_000, hard))

    async def undo() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    return undo


@pytest.mark.parametrize("fill", [full_by_pages, full_by_the_system])
def test_a_full_disk_refuses_the_whole_write_and_harms_nothing(tmp_path: Path, fill: Callable[..., Any]) -> None:
    path = tmp_path / "log.db"
    large = records(2, 300, b"x" * 4000)

    async def main(store: SqliteStore) -> None:
        await store.write(view(last_seq=1), Append("s1", records(1, 1)))
        undo = await fill(store, path)
        try:
            with pytest.raises(StoreBroken, match=r"cannot be written: .*; free some space on that disk"):
                await store.write(question(1), Append("s1", large), view(last_seq=300))
            kept = [await store.records("s1", 0, 1000), await store.session("s1"), await store.questions()]
            assert kept == [records(1, 1), view(last_seq=1), []]
        finally:
            await undo()
        await store.write(Append("s1", large), view(last_seq=300))
        assert await store.records("s1", 0, 1000) == records(1, 1) + large

    on(path, main)
    assert on(path, lambda store: store.records("s1", 0, 1000)) == records(1, 1) + large


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)


@pytest.mark.parametrize("take", [removed, replaced])
def test_a_log_that_was_taken_away_takes_nothing_more(tmp_path: Path, take: Callable[[Path], None]) -> None:
    path = tmp_path / "log.db"

    async def main(store: SqliteStore) -> None:
        await store.write(Append("s1", records(1, 1)))
        take(path)
        for _ in range(2):
            with pytest.raises(StoreBroken, match=r"removed or replaced while the server ran.*restore it"):
                await store.write(Append("s1", records(2, 2)))

    on(path, main)


@pytest.mark.parametrize(
    ("numbers", "expected"), [([4], 3), ([2], 3), ([1], 3), ([3, 5], 4), ([3, 3], 4), ([4, 3], 3), ([0], 3)]
)
def test_a_number_that_does_not_follow_is_refused_with_all_that_came_with_it(
    tmp_path: Path, numbers: list[int], expected: int
) -> None:
    wrong = [Record(number, 1, "text", b"{}") for number in numbers]

    async def main(store: SqliteStore) -> None:
        await store.write(Append("s1", records(1, 2)))
        outcomes = await asyncio.gather(
            store.write(Append("s2", records(1, 5))),
            store.write(question(1), Append("s1", wrong), view()),
            store.write(Append("s3", records(1, 5))),
            return_exceptions=True,
        )
        assert [str(outcome) for outcome in outcomes if outcome] == [
            f"record {numbers[0] if numbers[0] != 3 else numbers[1]} of session s1 does not follow: "
            f"number {expected} is next; nothing was stored"
        ]
        assert isinstance(outcomes[1], StoreBroken)
        kept = [await store.records(name, 0, 10) for name in ("s1", "s2", "s3")]
        assert kept == [records(1, 2), records(1, 5), records(1, 5)]
        assert [await store.questions(), await store.session("s1")] == [[], None]
        await store.write(Append("s1", records(3, 4)), Append("s1", records(5, 6)))
        assert await store.records("s1", 0, 10) == records(1, 6)

    on(tmp_path / "log.db", main)


def test_records_that_gather_in_one_transaction_find_their_place(tmp_path: Path) -> None:
    async def main(store: SqliteStore) -> None:
        names = [f"s{number}" for number in range(10)]
        await store.write(*map(view, names))
        for first, last in ((1, 3), (4, 15)):
            singly = [store.write(Append(name, records(seq, seq))) for seq in range(first, last) for name in names]
            rest = [Append(name, records(last, last)) for name in names]
            outcomes = await asyncio.gather(
                *singly,
                store.write(*rest, Forget("s1"), Append("s1", records(1, last))),
                store.write(Append("s2", records(last + 1, last + 3)), Trim("s2", last + 3)),
                store.write(Append("s0", records(99, 99))),
                return_exceptions=True,
            )
            assert [str(one) for one in outcomes if one is not None] == [
                f"record 99 of session s0 does not follow: number {last + 1} is next; nothing was stored"
            ]
            expected = {name: records(1, last) for name in names} | {"s2": records(last + 3, last + 3)}
            assert {name: await store.records(name, 0, 99) for name in names} == expected
            await store.write(Forget("s2"), Append("s2", records(1, last)))

    on(tmp_path / "log.db", main)


def test_a_question_is_answered_once(tmp_path: Path) -> None:
    async def main(store: SqliteStore) -> None:
        await store.write(question(1))
        answers = [question(1, open=False, decision=Allow(), by="client", who=f"w{n}") for n in range(20)]
        won = await asyncio.gather(*(store.answer(answer) for answer in answers))
        assert won.count(True) == 1
        assert await store.question("s1:r1") == answers[won.index(True)]
        assert not await store.answer(question(2, open=False))

    on(tmp_path / "log.db", main)


def test_old_keys_of_idempotency_are_swept_away(tmp_path: Path) -> None:
    async def work(store: SqliteStore) -> None:
        await store.write(ANSWERED)
        for before, left in ((ANSWERED.at, ANSWERED), (ANSWERED.at + 1, None)):
            await store.write(Sweep(before))
            assert await store.done("k") == left

    on(tmp_path / "log.db", work)


@pytest.mark.parametrize("statement", ["DELETE FROM {}", "UPDATE {} SET n=9", "UPDATE {} SET body=''"])
def test_changes_of_the_configuration_are_only_added_to(tmp_path: Path, statement: str) -> None:
    async def main(store: SqliteStore) -> None:
        await store.write(CHANGED, view(), Append("s1", records(1, 3)))
        with pytest.raises(StoreBroken, match="only added to"):
            await store._writer.do(lambda db: db.execute(statement.format("config_changes")))
        await store.write(Forget("s1"))
        assert [len(await store.config_changes()), await store.session("s1")] == [1, None]

    on(tmp_path / "log.db", main)


@pytest.mark.parametrize(("seq", "first"), [(0, 1), (1, 1), (4, 4), (9, 9), (10, 10), (500, 10)])
def test_trimming_leaves_the_last_record_and_says_where_it_begins(tmp_path: Path, seq: int, first: int) -> None:
    changes: list[Change] = [view(last_seq=10), Append("s1", records(1, 10)), Append("s2", records(1, 10))]

    async def main(store: SqliteStore) -> None:
        await store.write(*changes)
        await store.write(Trim("s1", seq), Trim("s2", 1), Trim("s3", 7))
        assert await store.records("s1", 0, 100) == records(first, 10)
        assert await store.session("s1") == view(last_seq=10, first_seq=first)
        await store.write(Append("s1", records(11, 12)), Trim("s1", 3))
        assert await store.records("s1", 0, 100) == records(max(first, 3), 12)

    on(tmp_path / "log.db", main)


def test_reads_do_not_wait_for_writes_and_writes_wait_for_an_outsider(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    async def main(store: SqliteStore) -> None:
        await store.write(Append("s1", records(1, 1)))
        outsider = sqlite3.connect(path, isolation_level=None)
        outsider.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(store.write(Append("s1", records(2, 2))))
        for _ in range(20):
            assert await store.records("s1", 0, 10) == records(1, 1)
        assert not waiting.done()
        outsider.execute("COMMIT")
        outsider.close()
        await waiting
        assert await store.records("s1", 0, 10) == records(1, 2)

    on(path, main)


def test_the_wal_stays_small_while_somebody_writes_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_AT", 100_000)
    monkeypatch.setattr(writer, "CHECKPOINT_NOW", 400_000)
    path = tmp_path / "log.db"
    sizes: list[int] = []

    async def main(store: SqliteStore) -> None:
        for first in range(1, 2001, 20):
            await store.write(Append("s1", records(first, first + 19, b"x" * 2000)))
            sizes.append(path.with_name("log.db-wal").stat().st_size)

    on(path, main)
    assert max(sizes) < 600_000
    assert path.stat().st_size > 4_000_000


def test_what_was_asked_before_closing_is_done_and_what_comes_after_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    async def main() -> None:
        store = SqliteStore(path)
        with pytest.raises(StoreBroken, match="is closed"):
            await store.write(view())
        await store.open()
        writes = [asyncio.ensure_future(store.write(Append("s1", records(n, n)))) for n in range(1, 600)]
        gone = asyncio.ensure_future(store.write(Append("s1", records(600, 600))))
        await asyncio.sleep(0)
        gone.cancel()
        await store.close()
        await asyncio.gather(*writes)
        for refused in (store.write(view()), store.count(Query())):
            with pytest.raises(StoreBroken, match=r"is closed; start the server"):
                await refused
        await store.close()

    run(main())
    assert on(path, lambda store: store.records("s1", 0, 1000)) == records(1, 600)
