"""The embedded log: one SQLite file in WAL mode, one writing thread that commits whatever has gathered at once."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from podium.errors import StoreBroken, StoreTooNew

from .store import Append, Change, Forget, Query, Remember, Trim
from .views import Device, Done, Message, Question, Record, SessionView, Spent

Value = TypeVar("Value")

MOST_BYTES = 4 * 1024 * 1024
SCHEMA = 1
_TABLES = """
CREATE TABLE sessions(
  id TEXT PRIMARY KEY, state TEXT NOT NULL, ended INTEGER NOT NULL, archived INTEGER NOT NULL, agent TEXT NOT NULL,
  project TEXT NOT NULL, grouped TEXT NOT NULL, created INTEGER NOT NULL, words TEXT NOT NULL, body BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_by_age ON sessions(created DESC);
CREATE TABLE records(
  session TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, type TEXT NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY(session, seq)
) WITHOUT ROWID;
CREATE TABLE questions(
  id TEXT PRIMARY KEY, session TEXT NOT NULL, open INTEGER NOT NULL, asked INTEGER NOT NULL, body BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX questions_open ON questions(open, session);
CREATE TABLE messages(
  id TEXT PRIMARY KEY, session TEXT NOT NULL, queued INTEGER NOT NULL, at INTEGER NOT NULL, body BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX messages_by_session ON messages(session, at);
CREATE TABLE spent(session TEXT NOT NULL, turn INTEGER NOT NULL, at INTEGER NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY(session, turn)) WITHOUT ROWID;
CREATE INDEX spent_by_time ON spent(at);
CREATE TABLE devices(id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE done(key TEXT PRIMARY KEY, at INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE settings(name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""
_json = msgspec.json.encode


class SqliteStore:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: queue.SimpleQueue[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]] | None]
        self._queue = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._local = threading.local()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        self._thread = threading.Thread(target=self._work, args=(loop, ready), name="podium-log", daemon=True)
        self._thread.start()
        await ready

    async def close(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    async def write(self, *changes: Change) -> None:
        await self._submit(lambda db: _apply(db, changes))

    async def answer(self, question: Question) -> bool:
        def put(db: sqlite3.Connection) -> bool:
            found = db.execute("SELECT open FROM questions WHERE id=?", (question.id,)).fetchone()
            if found is None or not found[0]:
                return False
            _apply(db, (question,))
            return True

        return bool(await self._submit(put))

    async def records(self, session_id: str, after: int, limit: int, most_bytes: int = MOST_BYTES) -> list[Record]:
        def read(db: sqlite3.Connection) -> list[Record]:
            found: list[Record] = []
            size = 0
            sql = "SELECT seq, at, type, body FROM records WHERE session=? AND seq>? ORDER BY seq LIMIT ?"
            for row in db.execute(sql, (session_id, after, limit)):
                found.append(Record(*row))
                size += len(row[3])
                if size >= most_bytes:
                    break
            return found

        return await self._read(read)

    async def session(self, session_id: str) -> SessionView | None:
        return _first(await self._rows("SELECT body FROM sessions WHERE id=?", (session_id,), SessionView))

    async def sessions(self, query: Query) -> list[SessionView]:
        where, values = _where(query)
        sql = f"SELECT body FROM sessions {where} ORDER BY created DESC, id LIMIT ? OFFSET ?"
        return await self._rows(sql, (*values, query.limit, query.offset), SessionView)

    async def count(self, query: Query) -> int:
        where, values = _where(query)
        found = await self._read(lambda db: db.execute(f"SELECT count(*) FROM sessions {where}", values).fetchone())
        return int(found[0])

    async def question(self, question_id: str) -> Question | None:
        return _first(await self._rows("SELECT body FROM questions WHERE id=?", (question_id,), Question))

    async def questions(self, *, session_id: str | None = None, open_only: bool = True) -> list[Question]:
        sql = "SELECT body FROM questions WHERE (? IS NULL OR session=?) AND open>=? ORDER BY asked, id"
        return await self._rows(sql, (session_id, session_id, int(open_only)), Question)

    async def messages(self, session_id: str, *, queued_only: bool = True) -> list[Message]:
        sql = "SELECT body FROM messages WHERE session=? AND queued>=? ORDER BY at, id"
        return await self._rows(sql, (session_id, int(queued_only)), Message)

    async def spent(self, *, since: int = 0, until: int | None = None) -> list[Spent]:
        sql = "SELECT body FROM spent WHERE at>=? AND (? IS NULL OR at<?) ORDER BY at"
        return await self._rows(sql, (since, until, until), Spent)

    async def devices(self) -> list[Device]:
        return await self._rows("SELECT body FROM devices", (), Device)

    async def done(self, key: str) -> Done | None:
        return _first(await self._rows("SELECT body FROM done WHERE key=?", (key,), Done))

    async def setting(self, name: str) -> bytes | None:
        sql = "SELECT value FROM settings WHERE name=?"
        found = await self._read(lambda db: db.execute(sql, (name,)).fetchone())
        return None if found is None else found[0]

    async def _rows(self, sql: str, values: tuple[Any, ...], kind: type[Value]) -> list[Value]:
        decode = msgspec.json.Decoder(kind).decode
        return await self._read(lambda db: [decode(row[0]) for row in db.execute(sql, values)])

    async def _read(self, work: Callable[[sqlite3.Connection], Value]) -> Value:
        def run() -> Value:
            db = getattr(self._local, "db", None)
            if db is None:
                db = self._local.db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
                db.execute("PRAGMA query_only=ON")
            try:
                return work(db)
            except sqlite3.Error as fault:
                raise StoreBroken(f"the log {self._path} cannot be read: {fault}") from fault

        return await asyncio.to_thread(run)

    async def _submit(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        if self._thread is None:
            raise StoreBroken("the log is closed")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.put((work, future))
        return await future

    def _work(self, loop: asyncio.AbstractEventLoop, ready: asyncio.Future[None]) -> None:
        try:
            db = _connect(self._path)
        except BaseException as fault:
            loop.call_soon_threadsafe(ready.set_exception, fault)
            return
        loop.call_soon_threadsafe(ready.set_result, None)
        while (job := self._queue.get()) is not None:
            jobs = [job]
            ended = False
            while not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    ended = True
                    break
                jobs.append(more)
            loop.call_soon_threadsafe(_settle, self._commit(db, jobs))
            if ended:
                break
        db.close()

    def _commit(
        self, db: sqlite3.Connection, jobs: list[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]]
    ) -> list[tuple[asyncio.Future[Any], Any, BaseException | None]]:
        outcomes: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        try:
            db.execute("BEGIN IMMEDIATE")
            for work, future in jobs:
                db.execute("SAVEPOINT one")
                try:
                    outcomes.append((future, work(db), None))
                except sqlite3.Error:
                    raise
                except BaseException as fault:
                    db.execute("ROLLBACK TO one")
                    outcomes.append((future, None, fault))
                db.execute("RELEASE one")
            db.execute("COMMIT")
        except sqlite3.Error as fault:
            if db.in_transaction:
                db.execute("ROLLBACK")
            broken = StoreBroken(f"the log {self._path} cannot be written: {fault}; nothing of this was kept")
            return [(future, None, broken) for _, future in jobs]
        return outcomes


def _settle(outcomes: list[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
    for future, value, fault in outcomes:
        if future.done():
            continue
        if fault is None:
            future.set_result(value)
        else:
            future.set_exception(fault)


def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA:
            raise StoreTooNew(f"{path} was written by a newer Podium (schema {version}); this one knows {SCHEMA}")
        if version == 0:
            db.executescript(f"BEGIN;{_TABLES}PRAGMA user_version={SCHEMA};COMMIT;")
    except sqlite3.Error as fault:
        db.close()
        raise StoreBroken(f"the log {path} cannot be opened: {fault}") from fault
    return db


def _apply(db: sqlite3.Connection, changes: tuple[Change, ...]) -> None:
    for change in changes:
        match change:
            case Append(session_id, records):
                db.executemany(
                    "INSERT INTO records VALUES(?,?,?,?,?)",
                    [(session_id, one.seq, one.at, one.type, one.body) for one in records],
                )
            case SessionView():
                words = "\n".join((change.title, change.prompt, change.result, change.cwd, change.id)).lower()
                db.execute(
                    "INSERT OR REPLACE INTO sessions VALUES(?,?,?,?,?,?,?,?,?,?)",
                    (
                        change.id, change.state, change.ended, change.archived, change.agent, change.project_id,
                        change.group, change.created_at, words, _json(change),
                    ),
                )  # fmt: skip
            case Question():
                row = (change.id, change.session_id, change.open, change.asked_at, _json(change))
                db.execute("INSERT OR REPLACE INTO questions VALUES(?,?,?,?,?)", row)
            case Message():
                row = (change.id, change.session_id, change.state == "queued", change.at, _json(change))
                db.execute("INSERT OR REPLACE INTO messages VALUES(?,?,?,?,?)", row)
            case Spent():
                values = (change.session_id, change.turn, change.at, _json(change))
                db.execute("INSERT OR REPLACE INTO spent VALUES(?,?,?,?)", values)
            case Device():
                db.execute("INSERT OR REPLACE INTO devices VALUES(?,?)", (change.id, _json(change)))
            case Done():
                db.execute("INSERT OR REPLACE INTO done VALUES(?,?,?)", (change.key, change.at, _json(change)))
            case Remember(name, None):
                db.execute("DELETE FROM settings WHERE name=?", (name,))
            case Remember(name, value):
                db.execute("INSERT OR REPLACE INTO settings VALUES(?,?)", (name, value))
            case Trim(session_id, seq):
                db.execute("DELETE FROM records WHERE session=? AND seq<?", (session_id, seq))
            case Forget(session_id):
                for table in ("records", "questions", "messages", "spent"):
                    db.execute(f"DELETE FROM {table} WHERE session=?", (session_id,))
                db.execute("DELETE FROM sessions WHERE id=?", (session_id,))


def _where(query: Query) -> tuple[str, tuple[Any, ...]]:
    tests: list[str] = []
    values: list[Any] = []
    for column, value in (
        ("state", query.state), ("agent", query.agent), ("project", query.project_id), ("grouped", query.group),
    ):  # fmt: skip
        if value:
            tests.append(f"{column}=?")
            values.append(value)
    for column, flag in (("archived", query.archived), ("ended", query.ended)):
        if flag is not None:
            tests.append(f"{column}=?")
            values.append(int(flag))
    if query.search:
        tests.append("instr(words, ?) > 0")
        values.append(query.search.lower())
    return ("WHERE " + " AND ".join(tests) if tests else ""), tuple(values)


def _first(rows: list[Value]) -> Value | None:
    return rows[0] if rows else None
