"""The embedded log: one SQLite file in WAL mode, one thread writes, a few read, two of them what is slow."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ..store import MOST_BYTES, Admission, Change, ConfigChange, Fence, Query, Removable, Writing
from ..views import (
    By,
    Carried,
    Command,
    Device,
    IdempotentReply,
    NoticeRow,
    Question,
    QueuedPrompt,
    Record,
    SessionView,
    UsageSum,
    WorkerRow,
)
from . import notices, owners, selection, usage
from .rows import Rows
from .schema import Claim, Durable, prepare, unusable
from .threads import Readers, Writer

Value = TypeVar("Value")
_SESSION = """
SELECT views.body, seq, at, worker, sessions.epoch FROM sessions JOIN views USING(n)
LEFT JOIN records ON session=id AND seq=(SELECT max(seq) FROM records WHERE session=id)
"""
"""A view with the number and the time of its last record, and with its owner."""
SLOW_READERS = 2
MOST_SECONDS = 10.0
"""After which a question that looks at many rows is given up."""


class SqliteStore:
    """``durable="power"`` syncs each commit: what is acknowledged survives the machine's death too."""

    away = False
    shared = False

    def __init__(self, path: Path, *, durable: Durable = "process") -> None:
        path = path.absolute()
        self._path = path
        self._claim: Claim | None = None
        self._put = Rows()
        self._writer = Writer(path, durable, finish=self._put.finish, rolled_back=self._put.doubt)
        self._readers = Readers(path)
        self._slow_readers = Readers(path, SLOW_READERS, most_seconds=MOST_SECONDS)

    @property
    def admission(self) -> Admission | None:
        return None  # one process has this log

    async def open(self) -> None:
        try:
            self._claim = await asyncio.to_thread(self._take)
        except OSError as fault:
            raise unusable(self._path, "opened", fault) from fault
        try:
            await self._writer.start()
        except BaseException:
            self._claim.release()
            raise
        self._readers.start()
        self._slow_readers.start()

    async def close(self) -> None:
        await self._slow_readers.stop()
        await self._readers.stop()
        await self._writer.stop()
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def write(self, *changes: Change) -> Writing:
        return self._writer.do(lambda db: self._put.apply(db, changes))

    async def answer(self, question: Question, *, fence: Fence | None = None) -> bool:
        def put(db: sqlite3.Connection) -> bool:
            if fence is not None:
                self._put.check(db, fence.session_id, fence.epoch)
            records = db.execute("SELECT open FROM questions WHERE id=?", (question.id,)).fetchone()
            if records is None or not records[0]:
                return False
            self._put.apply(db, (question,))
            return True

        return bool(await self._writer.do(put))

    async def records(self, session_id: str, after: int, limit: int, most_bytes: int = MOST_BYTES) -> list[Record]:
        def read(db: sqlite3.Connection) -> list[Record]:
            records: list[Record] = []
            size = 0
            sql = "SELECT seq, at, type, body FROM records WHERE session=? AND seq>? ORDER BY seq LIMIT ?"
            rows = db.execute(sql, (session_id, after, limit))
            for row in rows:
                records.append(Record(*row))
                size += len(row[3])
                if size >= most_bytes:
                    rows.close()  # an open one would keep the WAL from beginning anew
                    break
            return records

        return await self._readers.do(read)

    async def session(self, session_id: str) -> SessionView | None:
        sql = f"{_SESSION} WHERE id=?"
        return await self._readers.do(lambda db: _first(_views(db.execute(sql, (session_id,)))))

    async def session_of(self, agent: str, native_id: str) -> SessionView | None:
        sql = f"{_SESSION} WHERE native=? AND native<>'' AND agent=? ORDER BY created, id LIMIT 1"
        return await self._readers.do(lambda db: _first(_views(db.execute(sql, (native_id, agent)))))

    async def sessions(self, query: Query) -> list[SessionView]:
        return await self._readers_for(query).do(lambda db: _views(selection.page(db, query)))

    async def count(self, query: Query) -> int:
        return await self._readers_for(query).do(lambda db: selection.count(db, query))

    async def removable(self, before: int, after: Removable | None, limit: int) -> list[Removable]:
        sql = """
            SELECT id, updated, first, last FROM views JOIN sessions USING(n)
            WHERE views.ended=1 AND first<last AND updated<? AND (updated, views.n)>(?, ?)
            ORDER BY updated, views.n LIMIT ?
        """

        def read(db: sqlite3.Connection) -> list[Removable]:
            place = (-1, 0)
            if after is not None:
                row = db.execute("SELECT n FROM sessions WHERE id=?", (after.session_id,)).fetchone()
                place = (after.updated_at, 0 if row is None else row[0])
            return [Removable(*row) for row in db.execute(sql, (before, *place, limit))]

        return await self._slow_readers.do(read)

    async def question(self, question_id: str) -> Question | None:
        return _first(await self._rows("SELECT body FROM questions WHERE id=?", (question_id,), Question))

    async def questions(
        self, *, session_id: str | None = None, open_only: bool = True, offset: int = 0, limit: int | None = None
    ) -> list[Question]:
        test, values = _questions_where(session_id, open_only=open_only)
        page = f"SELECT id FROM questions {test} ORDER BY asked, id LIMIT ? OFFSET ?"
        sql = f"SELECT body FROM questions WHERE id IN ({page}) ORDER BY asked, id"
        return await self._rows(sql, (*values, -1 if limit is None else limit, offset), Question)

    async def question_count(self, *, session_id: str | None = None, open_only: bool = True) -> int:
        test, values = _questions_where(session_id, open_only=open_only)
        return await self._number(f"SELECT count(*) FROM questions {test}", values)

    async def messages(self, session_id: str, *, queued_only: bool = True) -> list[QueuedPrompt]:
        sql = "SELECT body FROM messages WHERE session=? AND queued>=? ORDER BY at, id"
        return await self._rows(sql, (session_id, int(queued_only)), QueuedPrompt)

    async def carried(self, session_id: str) -> Carried | None:
        sql = "SELECT turn, at, body FROM carried WHERE session=?"
        row = await self._slow_readers.do(lambda db: db.execute(sql, (session_id,)).fetchone())
        return None if row is None else Carried(session_id=session_id, turn=row[0], at=row[1], body=row[2])

    async def sums(
        self, by: By | None, *, since: int = 0, until: int | None = None, offset_minutes: int = 0
    ) -> list[UsageSum]:
        return await self._slow_readers.do(lambda db: usage.sums(db, by, since, until, offset_minutes))

    async def devices(self) -> list[Device]:
        return await self._rows("SELECT body FROM devices", (), Device)

    async def done(self, key: str) -> IdempotentReply | None:
        return _first(await self._rows("SELECT body FROM done WHERE key=?", (key,), IdempotentReply))

    async def setting(self, name: str) -> bytes | None:
        sql = "SELECT value FROM settings WHERE name=?"
        records = await self._readers.do(lambda db: db.execute(sql, (name,)).fetchone())
        return None if records is None else records[0]

    async def secrets(self) -> dict[str, bytes]:
        return await self._readers.do(lambda db: dict(db.execute("SELECT name, value FROM secrets ORDER BY name")))

    async def notices(self, since: int) -> list[NoticeRow]:
        return await self._readers.do(lambda db: notices.notices(db, since))

    async def claim_deliveries(
        self, holder: str, deliveries: Collection[tuple[str, str]], seconds: float
    ) -> set[tuple[str, str]]:
        claimed: set[tuple[str, str]] = await self._writer.do(lambda db: notices.claim(db, holder, deliveries, seconds))
        return claimed

    async def finish_deliveries(self, deliveries: Collection[tuple[str, str]]) -> None:
        await self._writer.do(lambda db: notices.finish(db, deliveries))

    async def config_changes(self, *, offset: int = 0, limit: int = 100) -> list[ConfigChange]:
        sql = "SELECT n, body FROM config_changes ORDER BY n DESC LIMIT ? OFFSET ?"
        return await self._numbered(sql, (limit, offset), ConfigChange)

    async def workers(self) -> list[WorkerRow]:
        return await self._readers.do(owners.workers)

    async def put_worker(self, worker: WorkerRow) -> WorkerRow:
        row: WorkerRow = await self._writer.do(lambda db: owners.put_worker(db, worker))
        return row

    async def renew(self, worker_id: str, incarnation: str, until: int) -> bool:
        return bool(await self._writer.do(lambda db: owners.renew(db, worker_id, incarnation, until)))

    async def mark_worker(
        self, worker_id: str, *, draining: bool | None = None, revoked: bool | None = None
    ) -> WorkerRow | None:
        row: WorkerRow | None = await self._writer.do(
            lambda db: owners.mark_worker(db, worker_id, draining=draining, revoked=revoked)
        )
        return row

    async def claim(
        self, worker_id: str, incarnation: str, *, labels: Collection[str], limit: int, now: int, session_id: str = ""
    ) -> list[SessionView]:
        def put(db: sqlite3.Connection) -> list[SessionView]:
            self._put.finish(db)  # what is claimed is at least as far as its last record
            epochs = owners.claim(db, worker_id, incarnation, labels, limit, now, session_id)
            for name, epoch in epochs.items():
                self._put.change_hands(name, epoch)
            return [view for name in epochs for view in _views(db.execute(f"{_SESSION} WHERE id=?", (name,)))]

        views: list[SessionView] = await self._writer.do(put)
        return views

    async def release(self, session_id: str, epoch: int) -> bool:
        def put(db: sqlite3.Connection) -> bool:
            released = owners.release(db, session_id, epoch)
            if released is not None:
                self._put.change_hands(session_id, released)
            return released is not None

        return bool(await self._writer.do(put))

    async def put_command(self, command: Command) -> Command:
        def put(db: sqlite3.Connection) -> Command:
            owners.add_command(db, command)
            stored = owners.command(db, command.id) or owners.command_with(db, command.key)
            assert stored is not None
            return stored

        row: Command = await self._writer.do(put)
        return row

    async def command(self, command_id: str) -> Command | None:
        return await self._readers.do(lambda db: owners.command(db, command_id))

    async def drop_command(self, command_id: str) -> None:
        await self._writer.do(lambda db: db.execute("DELETE FROM commands WHERE id=? AND done=1", (command_id,)))

    async def command_with(self, key: str) -> Command | None:
        return await self._readers.do(lambda db: owners.command_with(db, key))

    async def commands(self, *, worker: str = "", session_id: str = "", open_only: bool = True) -> list[Command]:
        return await self._readers.do(lambda db: owners.commands(db, worker, session_id, open_only=open_only))

    async def take(self, command_id: str, epoch: int) -> bool:
        def put(db: sqlite3.Connection) -> bool:
            stored = owners.command(db, command_id)
            if stored is not None and stored.session_id:
                self._put.check(db, stored.session_id, epoch)
            return stored is not None and owners.take(db, command_id, epoch)

        return bool(await self._writer.do(put))

    def _readers_for(self, query: Query) -> Readers:
        """A slow question waits for other slow ones, never a quick one for them."""
        return self._slow_readers if selection.is_slow(query) else self._readers

    async def _rows(self, sql: str, values: tuple[Any, ...], kind: type[Value]) -> list[Value]:
        decode = msgspec.json.Decoder(kind).decode
        return await self._readers.do(lambda db: [decode(row[0]) for row in db.execute(sql, values)])

    async def _numbered(self, sql: str, values: tuple[Any, ...], kind: type[Value]) -> list[Value]:
        decode = msgspec.json.Decoder(kind).decode
        return await self._readers.do(lambda db: [replace(decode(body), n=n) for n, body in db.execute(sql, values)])  # type: ignore[type-var]

    async def _number(self, sql: str, values: tuple[Any, ...]) -> int:
        return await self._readers.do(lambda db: int(db.execute(sql, values).fetchone()[0]))

    def _take(self) -> Claim:
        prepare(self._path)
        return Claim(self._path)


_view = msgspec.json.Decoder(SessionView).decode


def _views(rows: sqlite3.Cursor) -> list[SessionView]:
    return [_current(_view(body), *more) for body, *more in rows]


def _current(view: SessionView, seq: int | None, at: int, worker: str, epoch: int) -> SessionView:
    if view.epoch != epoch or view.worker != worker:
        view = replace(view, worker=worker, epoch=epoch)
    if seq is None or seq <= view.last_seq:
        return view
    return replace(view, last_seq=seq, updated_at=max(view.updated_at, at))


def _questions_where(session_id: str | None, *, open_only: bool) -> tuple[str, tuple[str, ...]]:
    tests = [test for test, counts in (("open=1", open_only), ("session=?", session_id is not None)) if counts]
    return f"WHERE {' AND '.join(tests)}" if tests else "", () if session_id is None else (session_id,)


def _first(rows: list[Value]) -> Value | None:
    return rows[0] if rows else None
