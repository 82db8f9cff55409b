"""``stagedoor log copy``: a whole log from its file into PostgreSQL and back."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from stagedoor.cli import main as stagedoor
from stagedoor.errors import StoreBroken
from stagedoor.service.postgres import log_in, schema
from stagedoor.service.postgres.address import DatabaseAddress
from stagedoor.service.postgres.connections import Engine
from stagedoor.service.postgres.copying import TABLES, copy_log
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.store import Append, Fence, Query, Remember, Secret, Store, Trim
from stagedoor.service.views import Carried, Command
from tests.service.conformance.engines import ANSWERED, CHANGED, DEVICE, question, records, run, view, worker
from tools.postgres import empty_database

LOGS = Path(__file__).parent / "logs"
Value = TypeVar("Value")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """One of an older version, with something of everything added by this one."""
    path = tmp_path / "home" / "log.db"
    path.parent.mkdir()
    db = sqlite3.connect(path)
    db.executescript((LOGS / "schema_4.sql").read_text("utf-8"))
    db.close()

    async def fill(store: Store) -> None:
        row = view("mine", title="Größe\0 %_", needs=("host:a", "agent:b"), prompt="word " * 700, group="g\0")
        await store.write(row, question(1), DEVICE, ANSWERED, CHANGED, Remember("bytes", bytes(range(256))))
        await store.write(Secret("push key", b"\0key"))
        await store.put_worker(worker("w1", until=10**15, labels=("host:a", "agent:b")))
        claimed = await store.claim("w1", "i1", labels=("host:a", "agent:b"), limit=9, now=1, session_id="mine")
        await store.write(Fence("mine", claimed[0].epoch), Append("mine", records(1, 1200)))
        await store.write(Trim("mine", 700), Append("nobody's", records(1, 3)))
        await store.put_command(Command(id="c1", kind="send", session_id="mine", key="k1", body=b"{}"))
        await store.put_command(Command(id="c2", kind="files", worker="w1"))
        await store.take("c1", claimed[0].epoch)
        await store.write(Fence("mine", claimed[0].epoch), Carried(session_id="mine", turn=3, at=5, body=b"\0work"))

    on(path, fill)
    return path


def on(place: str | Path, work: Callable[[Store], Awaitable[Value]]) -> Value:
    async def main() -> Value:
        store: Store = SqliteStore(place) if isinstance(place, Path) else log_in(place)[0]
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    return run(main())


MADE_ANEW = {"views", "words", "grams", "heads", "enrolled", "writers", "form"}
"""From what is copied, or by whoever opens the log. Not every engine has all of them."""
LEFT_BEHIND = {"codes", "notices", "deliveries"}
"""As docs/machines.md says."""


def test_every_table_is_copied_or_stays_behind_for_a_reason(log: Path) -> None:
    with contextlib.closing(sqlite3.connect(log)) as db:
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    in_file = {name for name in names if not name.startswith(("words_", "sqlite_"))}  # of what is searched in

    async def tables(url: str) -> set[str]:
        db = await Engine(DatabaseAddress(url)).connect(once=True)
        try:
            await schema.migrate(db, "the log")
            found = await db.fetch("SELECT tablename FROM pg_tables WHERE schemaname=$1", schema.NAME)
        finally:
            await db.close()
        return {name for (name,) in found}

    in_database = run(tables(empty_database()))
    assert in_database | in_file == TABLES.keys() | MADE_ANEW | LEFT_BEHIND
    for found in (in_database, in_file):
        assert found - MADE_ANEW - LEFT_BEHIND == TABLES.keys()
    assert TABLES.keys().isdisjoint(MADE_ANEW | LEFT_BEHIND)


def epochs_in(path: Path) -> set[tuple[int, int]]:
    """Of records that were not there before."""
    db = sqlite3.connect(path)
    sql = "SELECT epoch, count(*) FROM records WHERE session IN ('mine', 'nobody''s') GROUP BY epoch"
    try:
        return set(db.execute(sql).fetchall())
    finally:
        db.close()


async def everything(store: Store) -> list[Any]:
    sessions = await store.sessions(Query(limit=999))
    names = [one.id for one in sessions]
    return [
        sessions,
        {name: await store.records(name, 0, 9999) for name in (*names, "nobody's")},
        {name: await store.messages(name, queued_only=False) for name in names},
        await store.questions(open_only=False),
        [sorted(await store.sums(by), key=lambda row: row.key) for by in (None, "day", "agent", "session", "model")],
        sorted(await store.devices(), key=lambda device: device.id),
        [await store.done("k"), await store.setting("bytes"), await store.setting("theme")],
        await store.secrets(),
        await store.config_changes(),
        await store.workers(),
        await store.commands(open_only=False),
        [[one.id for one in await store.sessions(Query(search=words))] for words in ("größe", "rd wo", "%_", "x")],
        await store.removable(2**60, None, 99),
        await store.carried("mine"),
        [await store.command_with("k1"), await store.session_of("claude", "native-3")],
    ]


def test_all_of_it_arrives_and_comes_back(log: Path, tmp_path: Path) -> None:
    url = empty_database()
    before = on(log, everything)
    back = tmp_path / "back" / "log.db"

    async def copy(source: str, target: str) -> dict[str, int]:
        return dict(await copy_log(source, target, progress=lambda name, count: None))

    counts = run(copy(str(log), url))
    assert counts.keys() == TABLES.keys()
    assert min(counts.values()) > 0
    assert on(url, everything) == before
    assert run(copy(url, str(back))) == counts
    assert sorted(path.name for path in back.parent.iterdir()) == ["log.db"]
    assert on(back, everything) == before
    assert on(log, everything) == before

    async def work_goes_on(store: Store) -> None:
        """Numbers and epochs are not given twice."""
        epoch = (await store.session("mine")).epoch  # type: ignore[union-attr]
        await store.write(Fence("mine", epoch), Append("mine", records(1201, 1203)), CHANGED, view("new"))
        await store.mark_worker("w1", revoked=True)
        await store.put_worker(worker("w2", until=10**15))
        claimed = await store.claim("w2", "i1", labels=("host:a", "agent:b"), limit=99, now=1)
        assert min(one.epoch for one in claimed) > epoch
        await store.put_command(Command(id="c3", kind="x"))
        assert [one.id for one in await store.commands(open_only=False)] == ["c1", "c2", "c3"]
        assert len({change.n for change in await store.config_changes()}) == len(await store.config_changes())

    for place in (url, back):
        on(place, work_goes_on)
    written = [
        {(0, 3), (1, 504)},
        {(0, 3), (1, 501)},
    ]  # under which epoch how many records were; two do not know theirs
    assert [epochs_in(path) for path in (back, log)] == written


def test_what_is_not_empty_or_in_use_is_left_alone(log: Path, tmp_path: Path) -> None:
    url = empty_database()
    on(url, lambda store: store.write(view()))
    before = hashlib.sha256(log.read_bytes()).digest()

    def refused(source: str | Path, target: str | Path, message: str) -> None:
        with pytest.raises(StoreBroken, match=message):
            run(copy_log(str(source), str(target), progress=lambda name, count: None))

    refused(log, url, "there is a log at postgresql://.* already; name an empty database")
    refused(url, log, r"there is a log at .*log\.db already; move it away")
    refused(tmp_path / "none.db", url, "there is no log at")
    assert hashlib.sha256(log.read_bytes()).digest() == before

    async def in_use() -> None:
        store, _ = log_in(url)
        await store.open()
        with pytest.raises(StoreBroken, match=r"is in use .*stop servers and workers first"):
            await copy_log(url, str(tmp_path / "x.db"), progress=lambda name, count: None)
        await store.close()

    run(in_use())
    assert not (tmp_path / "x.db").exists()


def test_a_copy_that_is_not_the_same_is_not_kept(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stagedoor.service.postgres import copying

    for side, target in (
        (copying._PostgresSide, empty_database()),
        (copying._SqliteSide, str(tmp_path / "x" / "log.db")),
    ):
        put = side.put

        async def lossy(self: Any, name: str, rows: list[Any], put: Any = put) -> None:
            await put(self, name, rows[:-1] if name == "records" else rows)

        with monkeypatch.context() as patch:
            patch.setattr(side, "put", lossy)
            with pytest.raises(StoreBroken, match=r"of records there are .* nothing was kept there"):
                run(copy_log(str(log), target, progress=lambda name, count: None))
        if "://" in target:
            assert on(target, lambda store: store.count(Query())) == 0
        else:
            assert list(Path(target).parent.iterdir()) == []


def test_the_command(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = empty_database()
    assert stagedoor(["log", "copy", "--from", str(log.parent), "--to", url]) == 0
    out = capsys.readouterr().out
    assert "1  devices" in out
    assert out.endswith("copied, read back and found the same\n")
    assert stagedoor(["log", "copy", "--from", str(log), "--to", "postgresql://me:s3cret@localhost/x"]) == 2
    refused = capsys.readouterr().err
    assert "everybody on this machine can read a command line" in refused
    assert "s3cret" not in refused
