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
from stagedoor.service.store import Append, Forget, Query
from stagedoor.service.views import Record, SessionView
from tests.service.conformance.engines import CHANGED, question, records, run, view

Value = TypeVar("Value")


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
        db.execute("INSERT INTO records(session, seq, at, type, body) VALUES('s1', 1, 1001, 'text', ?)", (b'{"a":1}',))
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


@pytest.mark.parametrize("statement", ["DELETE FROM {}", "UPDATE {} SET n=9", "UPDATE {} SET body=''"])
def test_changes_of_the_configuration_are_only_added_to(tmp_path: Path, statement: str) -> None:
    async def main(store: SqliteStore) -> None:
        await store.write(CHANGED, view(), Append("s1", records(1, 3)))
        with pytest.raises(StoreBroken, match="only added to"):
            await store._writer.do(lambda db: db.execute(statement.format("config_changes")))
        await store.write(Forget("s1"))
        assert [len(await store.config_changes()), await store.session("s1")] == [1, None]

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
