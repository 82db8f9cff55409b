"""A whole log from one engine into the other, and read back there: complete, or not at all.

Both sides are read as the same plain tables (``TABLES``), in one order; what was read on one side must have the same
number of rows and the same digest on the other before anything of it counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from stagedoor.errors import StoreBroken

from ..sqlite import SqliteStore
from ..sqlite import schema as sqlite_schema
from ..sqlite import selection as sqlite_selection
from ..views import SessionView
from . import schema
from .address import DatabaseAddress
from .connections import FAULTS, Engine, asyncpg
from .selection import grams, searchable, text_of
from .statements import NARROW, SearchedTexts

Row: TypeAlias = tuple[Any, ...]
BATCH = 500
LARGE = {"carried": 1}
"""Rows read together, of tables whose rows are large."""
_USED = "input_tokens output_tokens cached_tokens reasoning_tokens total_tokens cost_usd"


class PlainTable(NamedTuple):
    """``columns``: all of them, the key first. ``flags``: those that SQLite keeps as 0 and 1."""

    columns: tuple[str, ...]
    key: int = 1
    flags: frozenset[str] = frozenset()


def _table(columns: str, key: int = 1, flags: str = "") -> PlainTable:
    return PlainTable(tuple(columns.split()), key, frozenset(flags.split()))


TABLES: dict[str, PlainTable] = {
    "sessions": _table(
        "id state ended archived agent project grouped native cwd created needs updated first last body worker "
        "incarnation epoch",
        flags="ended archived",
    ),
    "records": _table("session seq epoch at type body", 2),
    "questions": _table("id session open asked body", flags="open"),
    "messages": _table("id session queued at body", flags="queued"),
    "turns": _table(f"session turn at prev prev_same_model agent project model {_USED}", 2),
    "used": _table(f"dim slot key prev turns {_USED}", 4),
    "devices": _table("id body"),
    "done": _table("key at body"),
    "settings": _table("name value"),
    "secrets": _table("name value"),
    "config_changes": _table("n body"),
    "workers": _table("id incarnation until draining revoked body", flags="draining revoked"),
    "commands": _table("n id kind session worker body key who at taken done outcome", flags="done"),
    "carried": _table("session turn at body"),
    "epochs": _table("last"),
}


class TableCopy(NamedTuple):
    name: str
    rows: int


class _Side(Protocol):
    title: str

    def rows(self, name: str) -> AsyncIterator[list[Row]]:
        """All of them, in the order of the key."""
        ...

    async def put(self, name: str, rows: list[Row]) -> None: ...
    async def finish(self) -> None: ...


async def copy_log(source: str, target: str, *, progress: Callable[[str, int], None]) -> list[TableCopy]:
    """``source`` and ``target``: the address of a database, or the file of a log. ``target`` must have none yet."""
    async with _reading(source) as old, _writing(target) as new:
        copied: list[TableCopy] = []
        before: dict[str, tuple[int, str]] = {}
        for name in TABLES:
            digest, count = hashlib.sha256(), 0
            async for rows in old.rows(name):
                for row in rows:
                    digest.update(msgspec.msgpack.encode(row))
                count += len(rows)
                await new.put(name, rows)
                progress(name, count)
            before[name] = (count, digest.hexdigest())
            copied.append(TableCopy(name, count))
        await new.finish()
        for name in TABLES:
            digest, count = hashlib.sha256(), 0
            async for rows in new.rows(name):
                for row in rows:
                    digest.update(msgspec.msgpack.encode(row))
                count += len(rows)
            if (count, digest.hexdigest()) != before[name]:
                raise StoreBroken(
                    f"{new.title} does not hold what {old.title} holds: of {name} there are {count} rows instead of "
                    f"{before[name][0]}, or some are different; nothing was kept there"
                )
        return copied


def _reading(place: str) -> contextlib.AbstractAsyncContextManager[_Side]:
    return _postgres(place, empty=False) if "://" in place else _sqlite_source(Path(place))


def _writing(place: str) -> contextlib.AbstractAsyncContextManager[_Side]:
    return _postgres(place, empty=True) if "://" in place else _sqlite_target(Path(place))


# -- SQLite

_SQLITE_SESSIONS = """
SELECT id, state, sessions.ended, archived, agent, project, grouped, native, cwd, created, needs, updated, first, last,
  body, worker, incarnation, epoch FROM sessions JOIN views USING(n) ORDER BY id
"""


class _SqliteSide:
    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self.title = str(path)
        self._db = db

    async def rows(self, name: str) -> AsyncIterator[list[Row]]:
        table = TABLES[name]
        order = ", ".join(table.columns[: table.key])
        sql = f"SELECT {', '.join(table.columns)} FROM {name} ORDER BY {order}"
        cursor = await asyncio.to_thread(self._db.execute, _SQLITE_SESSIONS if name == "sessions" else sql)
        flags = [at for at, column in enumerate(table.columns) if column in table.flags]
        while rows := await asyncio.to_thread(cursor.fetchmany, LARGE.get(name, BATCH)):
            yield [_plain(row, flags) for row in rows]

    async def put(self, name: str, rows: list[Row]) -> None:
        await asyncio.to_thread(self._put, name, rows)

    def _put(self, name: str, rows: list[Row]) -> None:
        if name == "sessions":
            for row in rows:
                self._put_session(dict(zip(TABLES[name].columns, row, strict=True)))
        elif name == "epochs":
            self._db.execute("UPDATE epochs SET last=?", rows[0])
        else:
            columns = TABLES[name].columns
            places = ",".join("?" * len(columns))
            self._db.executemany(f"INSERT INTO {name}({','.join(columns)}) VALUES({places})", rows)

    def _put_session(self, row: dict[str, Any]) -> None:
        names = ("id", *NARROW, "needs", "worker", "incarnation", "epoch")
        values = [row[name] for name in names]
        sql = f"INSERT INTO sessions({','.join(names)}) VALUES({','.join('?' * len(names))}) RETURNING n"
        n = self._db.execute(sql, values).fetchall()[0][0]
        view = (n, row["ended"], row["updated"], row["first"], row["last"], row["body"])
        self._db.execute("INSERT INTO views(n, ended, updated, first, last, body) VALUES(?,?,?,?,?,?)", view)
        words = sqlite_selection.searchable(msgspec.json.decode(row["body"], type=SessionView))
        self._db.execute("INSERT INTO words(rowid, text) VALUES(?,?)", (n, words))

    async def finish(self) -> None:
        await asyncio.to_thread(self._db.execute, "COMMIT")


def _plain(row: Sequence[Any], flags: list[int]) -> Row:
    values = [text_of(value) if isinstance(value, str) else value for value in row]
    for at in flags:
        values[at] = bool(values[at])
    return tuple(values)


@asynccontextmanager
async def _sqlite_source(path: Path) -> AsyncGenerator[_Side]:
    if not await asyncio.to_thread(path.is_file):
        raise StoreBroken(f"there is no log at {path}; name a file called log.db, or an address postgresql://…")
    store = SqliteStore(path)
    await store.open()  # nobody else may use it meanwhile, and it has the form of this version
    try:
        with contextlib.closing(sqlite_schema.open_for_reading(path)) as db:
            yield _SqliteSide(path, db)
    finally:
        await store.close()


@asynccontextmanager
async def _sqlite_target(path: Path) -> AsyncGenerator[_Side]:
    """Under another name until all of it is there."""
    if await asyncio.to_thread(path.exists):
        raise StoreBroken(f"there is a log at {path} already; move it away, or name another file")
    unfinished = path.with_name(path.name + ".copying")
    unfinished.unlink(missing_ok=True)
    store = SqliteStore(unfinished, durable="power")
    try:
        await store.open()
        await store.close()
        with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None, check_same_thread=False)) as db:
            db.execute("BEGIN")
            yield _SqliteSide(path, db)
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        unfinished.replace(path)
    except (sqlite3.Error, OSError) as fault:
        raise sqlite_schema.unusable(path, "written", fault) from fault
    finally:
        for rest in ("", "-wal", "-shm", ".lock"):
            unfinished.with_name(unfinished.name + rest).unlink(missing_ok=True)


# -- PostgreSQL

_POSTGRES_SESSIONS = """
SELECT sessions.id, state, ended, archived, agent, project, grouped, native, cwd, created, needs, updated, first,
  views.last, views.body, worker, incarnation, epoch
FROM sessions JOIN views USING(id) JOIN heads ON heads.session=sessions.id ORDER BY sessions.id
"""
_LAST = """
INSERT INTO heads(session, epoch, worker, last, at)
SELECT DISTINCT ON (session) session, -1, '', seq, at FROM records ORDER BY session, seq DESC
ON CONFLICT(session) DO UPDATE SET last=excluded.last, at=excluded.at
"""


class _PostgresSide:
    def __init__(self, title: str, db: Any) -> None:
        self.title = title
        self._db = db

    async def rows(self, name: str) -> AsyncIterator[list[Row]]:
        table = TABLES[name]
        order = ", ".join(table.columns[: table.key])
        sql = f"SELECT {', '.join(table.columns)} FROM {name} ORDER BY {order}"
        cursor = await self._db.cursor(_POSTGRES_SESSIONS if name == "sessions" else sql)
        needs = table.columns.index("needs") if name == "sessions" else -1
        while rows := await cursor.fetch(LARGE.get(name, BATCH)):
            plain = [list(row) for row in rows]
            for row in plain if needs >= 0 else ():
                row[needs] = msgspec.json.encode(row[needs]).decode()
            yield [tuple(row) for row in plain]

    async def put(self, name: str, rows: list[Row]) -> None:
        if name == "sessions":
            await self._put_sessions(rows)
        elif name == "epochs":
            await self._db.execute("UPDATE epochs SET last=$1", rows[0][0])
        else:
            await self._copy(name, TABLES[name].columns, rows)

    async def _put_sessions(self, rows: list[Row]) -> None:
        texts = SearchedTexts()
        narrow: list[Row] = []
        wide: list[Row] = []
        words: list[Row] = []
        heads: list[Row] = []
        for values in rows:
            row = dict(zip(TABLES["sessions"].columns, values, strict=True))
            view = msgspec.json.decode(row["body"], type=SessionView)
            needs = [text_of(need) for need in msgspec.json.decode(row["needs"], type=list[str])]
            narrow.append((row["id"], *(row[name] for name in NARROW), needs))
            removable = row["updated"] if row["ended"] and row["first"] < row["last"] else None
            digest = texts.digest(view)[0]
            wide.append((row["id"], row["updated"], row["first"], row["last"], removable, digest, row["body"]))
            text = searchable(view)
            words.append((row["id"], text, grams(text)))
            heads.append((row["id"], row["epoch"], row["worker"], row["incarnation"], 0, 0))
        await self._copy("sessions", ("id", *NARROW, "needs"), narrow)
        await self._copy("views", ("id", "updated", "first", "last", "removable", "words", "body"), wide)
        await self._copy("words", ("id", "text", "grams"), words)
        await self._copy("heads", ("session", "epoch", "worker", "incarnation", "last", "at"), heads)

    async def _copy(self, name: str, columns: Sequence[str], rows: list[Row]) -> None:
        await self._db.copy_records_to_table(name, schema_name=schema.NAME, records=rows, columns=columns)

    async def finish(self) -> None:
        await self._db.execute(_LAST)
        # Those that were there are known here.
        await self._db.execute(
            "INSERT INTO enrolled(worker, revoked) SELECT id, revoked FROM workers ON CONFLICT DO NOTHING"
        )
        for name in ("config_changes", "commands"):
            sequence = f"pg_get_serial_sequence('{schema.NAME}.{name}', 'n')"
            await self._db.execute(f"SELECT setval({sequence}, max(n)) FROM {name} HAVING max(n) IS NOT NULL")


@asynccontextmanager
async def _postgres(url: str, *, empty: bool) -> AsyncGenerator[_Side]:
    engine = Engine(DatabaseAddress(url))
    db: Any = await engine.connect(once=True)
    try:
        await schema.migrate(db, engine.title)
        async with db.transaction(isolation="repeatable_read"):
            await _check(db, engine.title, empty=empty)
            yield _PostgresSide(engine.title, db)
    except FAULTS as fault:
        if isinstance(fault, OSError) and not isinstance(fault, ConnectionError):
            raise
        raise engine.unusable("written" if empty else "read", fault) from fault
    else:
        if empty:
            with contextlib.suppress(asyncpg.PostgresError):
                await db.execute("ANALYZE")
    finally:
        await db.close()


async def _check(db: Any, title: str, *, empty: bool) -> None:
    users = "SELECT count(*) FROM pg_stat_activity WHERE datname=current_database() AND application_name='stagedoor'"
    if count := await db.fetchval(f"{users} AND pid<>pg_backend_pid()"):
        raise StoreBroken(
            f"the log {title} is in use ({count} connections of Stagedoor); stop servers and workers first"
        )
    if empty:
        for name in TABLES:
            if name != "epochs" and await db.fetchval(f"SELECT EXISTS(SELECT FROM {name})"):
                raise StoreBroken(f"there is a log at {title} already; name an empty database")
