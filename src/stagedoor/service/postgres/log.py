"""The log in PostgreSQL: one connection writes, a few read, two of them what is slow."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, TypeVar

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
from .admission import PostgresAdmission
from .connections import QUICK, SLOW, SLOW_SECONDS, Engine, EnginePool
from .selection import text_of
from .writer import EngineWriter

if TYPE_CHECKING:
    from .connections import EngineConnection

Value = TypeVar("Value")
_HIGHEST = 2**63 - 1
_SESSION = """
SELECT views.body, heads.last, heads.at, heads.worker, heads.epoch
FROM sessions JOIN views USING(id) LEFT JOIN heads ON heads.session=sessions.id
"""
"""A view with the number and the time of its last record, and with its owner."""
FEW = 64
"""Records read first: what they weigh says how many are read next."""


class PostgresStore:
    shared = True

    @property
    def away(self) -> bool:
        return self._engine.is_away

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writer = EngineWriter(self._engine)
        self.admission: Admission = PostgresAdmission(self._writer)
        self._quick = EnginePool(self._engine, QUICK)
        self._slow = EnginePool(self._engine, SLOW, seconds=SLOW_SECONDS)

    async def open(self) -> None:
        await self._writer.start()
        self._quick.start()
        self._slow.start()

    async def close(self) -> None:
        await self._slow.stop()
        await self._quick.stop()
        await self._writer.stop()

    def write(self, *changes: Change) -> Writing:
        return self._writer.write(changes)

    async def answer(self, question: Question, *, fence: Fence | None = None) -> bool:
        body = msgspec.json.encode(question)

        async def put(db: EngineConnection) -> bool:
            if fence is not None:
                await owners.check(db, fence.session_id, fence.epoch)
            sql = "UPDATE questions SET open=$2, body=$3 WHERE id=$1 AND open RETURNING 1"
            return await db.fetchval(sql, text_of(question.id), question.open, body) is not None

        async def ask(db: EngineConnection) -> bool:
            stored = await db.fetchval("SELECT body FROM questions WHERE id=$1", text_of(question.id))
            return bool(stored == body)

        return bool(await self._writer.do(put, ask))

    async def records(self, session_id: str, after: int, limit: int, most_bytes: int = MOST_BYTES) -> list[Record]:
        sql = "SELECT seq, at, type, body FROM records WHERE session=$1 AND seq>$2 ORDER BY seq LIMIT $3"

        async def read(db: EngineConnection) -> list[Record]:
            records: list[Record] = []
            size, few = 0, FEW
            last = min(max(after, -1), _HIGHEST)
            while len(records) < limit:
                count = min(few, limit - len(records))
                rows = await db.fetch(sql, text_of(session_id), last, count)
                for row in rows:
                    records.append(Record(*row))
                    size += len(row[3])
                    if size >= most_bytes:
                        return records
                if len(rows) < count:
                    return records
                last = records[-1].seq
                few = max(1, min(8192, (most_bytes - size) * len(records) // max(size, 1) + 1))
            return records

        return await self._quick.do(read)

    async def session(self, session_id: str) -> SessionView | None:
        return _first(await self._views(f"{_SESSION} WHERE id=$1", text_of(session_id)))

    async def session_of(self, agent: str, native_id: str) -> SessionView | None:
        sql = f"{_SESSION} WHERE native=$1 AND native<>'' AND agent=$2 ORDER BY created, id LIMIT 1"
        return _first(await self._views(sql, text_of(native_id), text_of(agent)))

    async def sessions(self, query: Query) -> list[SessionView]:
        sql, values = selection.page(query)
        rows = await self._pool_for(query).do(lambda db: db.fetch(sql, *values))
        return [_current(*row) for row in rows]

    async def count(self, query: Query) -> int:
        sql, values = selection.count(query)
        return int(await self._pool_for(query).do(lambda db: db.fetchval(sql, *values)))

    async def removable(self, before: int, after: Removable | None, limit: int) -> list[Removable]:
        sql = """
            SELECT id, updated, first, last FROM views
            WHERE removable IS NOT NULL AND removable<$1 AND (removable, id)>($2, $3)
            ORDER BY removable, id LIMIT $4
        """
        place = (-1, "") if after is None else (after.updated_at, text_of(after.session_id))
        rows = await self._slow.do(lambda db: db.fetch(sql, before, *place, limit))
        return [Removable(*row) for row in rows]

    async def question(self, question_id: str) -> Question | None:
        return _first(await self._rows(Question, "SELECT body FROM questions WHERE id=$1", text_of(question_id)))

    async def questions(
        self, *, session_id: str | None = None, open_only: bool = True, offset: int = 0, limit: int | None = None
    ) -> list[Question]:
        test, values = _questions_where(session_id, open_only=open_only)
        at = len(values)
        sql = f"SELECT body FROM questions {test} ORDER BY asked, id LIMIT ${at + 1} OFFSET ${at + 2}"
        return await self._rows(Question, sql, *values, limit, min(offset, _HIGHEST))

    async def question_count(self, *, session_id: str | None = None, open_only: bool = True) -> int:
        test, values = _questions_where(session_id, open_only=open_only)
        return int(await self._quick.do(lambda db: db.fetchval(f"SELECT count(*) FROM questions {test}", *values)))

    async def messages(self, session_id: str, *, queued_only: bool = True) -> list[QueuedPrompt]:
        sql = "SELECT body FROM messages WHERE session=$1 AND (queued OR NOT $2) ORDER BY at, id"
        return await self._rows(QueuedPrompt, sql, text_of(session_id), queued_only)

    async def carried(self, session_id: str) -> Carried | None:
        sql = "SELECT turn, at, body FROM carried WHERE session=$1"
        row = await self._slow.do(lambda db: db.fetchrow(sql, text_of(session_id)))
        return None if row is None else Carried(session_id=session_id, turn=row[0], at=row[1], body=row[2])

    async def sums(
        self, by: By | None, *, since: int = 0, until: int | None = None, offset_minutes: int = 0
    ) -> list[UsageSum]:
        sql = usage.sums_question(by, since, until, offset_minutes)
        return [usage.sum_of(by, tuple(row)) for row in await self._slow.do(lambda db: db.fetch(sql))]

    async def devices(self) -> list[Device]:
        return await self._rows(Device, "SELECT body FROM devices ORDER BY id")

    async def done(self, key: str) -> IdempotentReply | None:
        return _first(await self._rows(IdempotentReply, "SELECT body FROM done WHERE key=$1", text_of(key)))

    async def setting(self, name: str) -> bytes | None:
        sql = "SELECT value FROM settings WHERE name=$1"
        value: bytes | None = await self._quick.do(lambda db: db.fetchval(sql, text_of(name)))
        return value

    async def secrets(self) -> dict[str, bytes]:
        rows = await self._quick.do(lambda db: db.fetch("SELECT name, value FROM secrets ORDER BY name"))
        return {row[0]: row[1] for row in rows}

    async def notices(self, since: int) -> list[NoticeRow]:
        return await self._quick.do(lambda db: notices.notices(db, since))

    async def claim_deliveries(
        self, holder: str, deliveries: Collection[tuple[str, str]], seconds: float
    ) -> set[tuple[str, str]]:
        claimed: set[tuple[str, str]] = await self._writer.do(
            lambda db: notices.claim(db, holder, deliveries, seconds),
            lambda db: notices.deliveries_of(db, holder, deliveries),
        )
        return claimed

    async def finish_deliveries(self, deliveries: Collection[tuple[str, str]]) -> None:
        async def finish(db: EngineConnection) -> None:
            await notices.finish(db, deliveries)

        await self._writer.do(finish, finish)

    async def config_changes(self, *, offset: int = 0, limit: int = 100) -> list[ConfigChange]:
        decode = msgspec.json.Decoder(ConfigChange).decode
        sql = "SELECT n, body FROM config_changes ORDER BY n DESC LIMIT $1 OFFSET $2"
        rows = await self._quick.do(lambda db: db.fetch(sql, limit, offset))
        return [replace(decode(body), n=n) for n, body in rows]

    async def workers(self) -> list[WorkerRow]:
        return await self._quick.do(owners.workers)

    async def put_worker(self, worker: WorkerRow) -> WorkerRow:
        row: WorkerRow = await self._writer.do(
            lambda db: owners.put_worker(db, worker), lambda db: _required(owners.worker(db, worker.id))
        )
        return row

    async def renew(self, worker_id: str, incarnation: str, until: int) -> bool:
        async def ask(db: EngineConnection) -> bool:
            stored = await owners.worker(db, worker_id)
            return stored is not None and not stored.revoked and stored.incarnation == incarnation

        return bool(await self._writer.do(lambda db: owners.renew(db, worker_id, incarnation, until), ask))

    async def mark_worker(
        self, worker_id: str, *, draining: bool | None = None, revoked: bool | None = None
    ) -> WorkerRow | None:
        row: WorkerRow | None = await self._writer.do(
            lambda db: owners.mark_worker(db, worker_id, draining=draining, revoked=revoked),
            lambda db: owners.worker(db, worker_id),
        )
        return row

    async def claim(
        self, worker_id: str, incarnation: str, *, labels: Collection[str], limit: int, now: int, session_id: str = ""
    ) -> list[SessionView]:
        claimed: list[str] = []

        async def put(db: EngineConnection) -> list[SessionView]:
            claimed[:] = await owners.claim(db, worker_id, incarnation, labels, limit, now, session_id)
            return await ask(db)

        async def ask(db: EngineConnection) -> list[SessionView]:
            rows = await db.fetch(f"{_SESSION} WHERE id=ANY($1::text[])", claimed) if claimed else []
            return sorted((_current(*row) for row in rows), key=lambda view: view.epoch)

        views: list[SessionView] = await self._writer.do(put, ask)
        return views

    async def release(self, session_id: str, epoch: int) -> bool:
        released = False

        async def put(db: EngineConnection) -> bool:
            nonlocal released
            released = await owners.release(db, session_id, epoch)
            return released

        async def ask(db: EngineConnection) -> bool:
            return released

        return bool(await self._writer.do(put, ask))

    async def put_command(self, command: Command) -> Command:
        async def ask(db: EngineConnection) -> Command | None:
            return await owners.command_by_id(db, command.id) or await owners.command_with(db, command.key)

        row: Command = await self._writer.do(lambda db: owners.put_command(db, command), lambda db: _required(ask(db)))
        return row

    async def command(self, command_id: str) -> Command | None:
        return await self._quick.do(lambda db: owners.command_by_id(db, command_id))

    async def drop_command(self, command_id: str) -> None:
        async def drop(db: EngineConnection) -> None:
            await db.execute("DELETE FROM commands WHERE id=$1 AND done", text_of(command_id))

        await self._writer.do(drop, drop)

    async def command_with(self, key: str) -> Command | None:
        return await self._quick.do(lambda db: owners.command_with(db, key))

    async def commands(self, *, worker: str = "", session_id: str = "", open_only: bool = True) -> list[Command]:
        return await self._quick.do(lambda db: owners.commands(db, worker, session_id, open_only=open_only))

    async def take(self, command_id: str, epoch: int) -> bool:
        taken = False

        async def put(db: EngineConnection) -> bool:
            nonlocal taken
            taken = await owners.take(db, command_id, epoch)
            return taken

        async def ask(db: EngineConnection) -> bool:
            return taken

        return bool(await self._writer.do(put, ask))

    def _pool_for(self, query: Query) -> EnginePool:
        """A slow question waits for other slow ones, never a quick one for them."""
        return self._slow if selection.is_slow(query) else self._quick

    async def _views(self, sql: str, *values: Any) -> list[SessionView]:
        return [_current(*row) for row in await self._quick.do(lambda db: db.fetch(sql, *values))]

    async def _rows(self, kind: type[Value], sql: str, *values: Any) -> list[Value]:
        decode = msgspec.json.Decoder(kind).decode
        return [decode(row[0]) for row in await self._quick.do(lambda db: db.fetch(sql, *values))]


_view = msgspec.json.Decoder(SessionView).decode


def _current(body: bytes, seq: int | None, at: int, worker: str | None, epoch: int | None) -> SessionView:
    view = _view(body)
    if epoch is not None and worker is not None and epoch >= 0 and (view.epoch != epoch or view.worker != worker):
        view = replace(view, worker=worker, epoch=epoch)
    if seq is None or seq <= view.last_seq:
        return view
    return replace(view, last_seq=seq, updated_at=max(view.updated_at, at))


def _questions_where(session_id: str | None, *, open_only: bool) -> tuple[str, tuple[str, ...]]:
    tests = [test for test, counts in (("open", open_only), ("session=$1", session_id is not None)) if counts]
    values = () if session_id is None else (text_of(session_id),)
    return f"WHERE {' AND '.join(tests)}" if tests else "", values


def _first(rows: list[Value]) -> Value | None:
    return rows[0] if rows else None


async def _required(row: Any) -> Any:
    found = await row
    assert found is not None
    return found
