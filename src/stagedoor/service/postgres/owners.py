"""Who owns a session, and what is wanted of its owner; what changes anything runs in a transaction of the writer's."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from stagedoor.errors import Fenced

from ..views import Command, WorkerRow
from .selection import text_of
from .statements import ADD_COMMAND, command_values

if TYPE_CHECKING:
    from .connections import EngineConnection

_json = msgspec.json.encode
_worker = msgspec.json.Decoder(WorkerRow).decode
_CLAIM = """
WITH me AS (
  SELECT FROM workers WHERE id=$1 AND incarnation=$2 AND until>$4 AND NOT draining AND NOT revoked
    AND EXISTS(SELECT FROM enrolled WHERE worker=$1 AND NOT enrolled.revoked) FOR SHARE OF workers
),
free AS MATERIALIZED (
  SELECT heads.session, sessions.created FROM sessions JOIN heads ON heads.session=sessions.id
  WHERE EXISTS(SELECT FROM me) AND NOT sessions.ended AND sessions.needs <@ $3::text[] {}
    AND (heads.worker='' OR (heads.worker=$1 AND heads.incarnation<>$2) OR (heads.worker<>$1 AND NOT EXISTS(
      SELECT FROM workers WHERE workers.id=heads.worker AND workers.until>$4 AND NOT workers.revoked
        AND heads.incarnation IN ('', workers.incarnation))))
  ORDER BY sessions.created, sessions.id LIMIT $5 FOR UPDATE OF heads SKIP LOCKED
),
counted AS (
  UPDATE epochs SET last=last+(SELECT count(*) FROM free) WHERE EXISTS(SELECT FROM free) RETURNING last
),
numbered AS (
  SELECT session, (SELECT last FROM counted)-(SELECT count(*) FROM free)
    +row_number() OVER (ORDER BY created, session) AS epoch FROM free
)
UPDATE heads SET worker=$1, incarnation=$2, epoch=numbered.epoch FROM numbered WHERE heads.session=numbered.session
RETURNING heads.session, heads.epoch
"""
_COMMAND = "id, kind, session, worker, body, key, who, at, taken, done, outcome"


_WORKER = (
    "SELECT workers.id, workers.body, enrolled.revoked FROM workers LEFT JOIN enrolled ON enrolled.worker=workers.id"
)


async def claim(
    db: EngineConnection,
    worker_id: str,
    incarnation: str,
    labels: Collection[str],
    limit: int,
    now: int,
    session_id: str,
) -> list[str]:
    """The sessions that are this worker's from now on, the oldest first."""
    values: list[Any] = [text_of(worker_id), text_of(incarnation), sorted(map(text_of, labels)), now, limit]
    test = ""
    if session_id:
        test = "AND sessions.id=$6"
        values.append(text_of(session_id))
    rows = await db.fetch(_CLAIM.format(test), *values)
    return [row["session"] for row in sorted(rows, key=lambda row: int(row["epoch"]))]


async def release(db: EngineConnection, session_id: str, epoch: int) -> bool:
    sql = "SELECT FROM heads WHERE session=$1 AND epoch=$2 AND epoch>=0 FOR UPDATE"
    if not await db.fetch(sql, text_of(session_id), epoch):
        return False
    new = await db.fetchval("UPDATE epochs SET last=last+1 RETURNING last")
    await db.execute("UPDATE heads SET worker='', incarnation='', epoch=$2 WHERE session=$1", text_of(session_id), new)
    return True


async def workers(db: EngineConnection) -> list[WorkerRow]:
    return [_admitted(row) for row in await db.fetch(f"{_WORKER} ORDER BY workers.id")]


async def worker(db: EngineConnection, worker_id: str, lock: str = "") -> WorkerRow | None:
    rows = await db.fetch(f"{_WORKER} WHERE workers.id=$1 {lock}", text_of(worker_id))
    return _admitted(rows[0]) if rows else None


def _admitted(stored: Any) -> WorkerRow:
    """As those who may let workers in have it: what the row says itself, its worker has written."""
    name, body, barred = stored  # None: nobody has let it in
    row = _worker(body)
    return replace(row, id=name, revoked=row.revoked or barred is not False, enrolled=barred is not None)


async def put_worker(db: EngineConnection, row: WorkerRow) -> WorkerRow:
    await db.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"stagedoor worker {text_of(row.id)}")
    if await db.fetchval("SELECT has_table_privilege('enrolled', 'INSERT')"):
        await db.execute("INSERT INTO enrolled(worker) VALUES($1) ON CONFLICT DO NOTHING", text_of(row.id))
    barred = await db.fetchval("SELECT revoked FROM enrolled WHERE worker=$1", text_of(row.id))
    stored = None if barred is None else await worker(db, row.id, "FOR UPDATE OF workers")
    if stored is None and barred is not False:
        return replace(row, revoked=True, enrolled=barred is not None)
    if stored is not None:
        if stored.revoked:
            return stored
        row = replace(row, draining=stored.draining)
    return await _store_worker(db, row)


async def renew(db: EngineConnection, worker_id: str, incarnation: str, until: int) -> bool:
    stored = await worker(db, worker_id, "FOR UPDATE OF workers")
    if stored is None or stored.revoked or stored.incarnation != incarnation:
        return False
    await _store_worker(db, replace(stored, until=until))
    return True


async def mark_worker(
    db: EngineConnection, worker_id: str, *, draining: bool | None, revoked: bool | None
) -> WorkerRow | None:
    barred = False
    if revoked:  # whatever its own row says, and also if it has none: it may be let in and never have come
        sql = "UPDATE enrolled SET revoked=true WHERE worker=$1 RETURNING 1"
        barred = await db.fetchval(sql, text_of(worker_id)) is not None
    stored = await worker(db, worker_id, "FOR UPDATE OF workers")
    if stored is None:
        return WorkerRow(id=worker_id, incarnation="", until=0, revoked=True) if barred else None
    draining = stored.draining if draining is None else draining
    revoked = stored.revoked if revoked is None else revoked
    return await _store_worker(db, replace(stored, draining=draining, revoked=revoked))


async def _store_worker(db: EngineConnection, row: WorkerRow) -> WorkerRow:
    await db.execute(
        "INSERT INTO workers VALUES($1,$2,$3,$4,$5,$6) ON CONFLICT(id) DO UPDATE SET incarnation=excluded.incarnation,"
        " until=excluded.until, draining=excluded.draining, revoked=excluded.revoked, body=excluded.body",
        text_of(row.id), text_of(row.incarnation), row.until, row.draining, row.revoked, _json(row),
    )  # fmt: skip
    return row


async def put_command(db: EngineConnection, command: Command) -> Command:
    await db.execute(ADD_COMMAND, *command_values(command))
    stored = await command_by_id(db, command.id) or await command_with(db, command.key)
    assert stored is not None
    return stored


async def command_by_id(db: EngineConnection, command_id: str) -> Command | None:
    return _first(await db.fetch(f"SELECT {_COMMAND} FROM commands WHERE id=$1", text_of(command_id)))


async def command_with(db: EngineConnection, key: str) -> Command | None:
    return _first(await db.fetch(f"SELECT {_COMMAND} FROM commands WHERE key=$1 AND key<>''", text_of(key)))


async def commands(db: EngineConnection, worker_id: str, session_id: str, *, open_only: bool) -> list[Command]:
    tests: list[str] = []
    values: list[str] = []
    if open_only:
        tests.append("NOT done")
    if worker_id:
        values.append(text_of(worker_id))
        tests.append(
            "(worker=$1 OR EXISTS(SELECT FROM heads WHERE heads.session=commands.session AND heads.worker=$1))"
        )
    if session_id:
        values.append(text_of(session_id))
        tests.append(f"session=${len(values)}")
    where = f"WHERE {' AND '.join(tests)}" if tests else ""
    return _commands(await db.fetch(f"SELECT {_COMMAND} FROM commands {where} ORDER BY n", *values))


async def check(db: EngineConnection, session_id: str, epoch: int) -> None:
    """Raises ``Fenced`` unless the session has this epoch, and keeps it so until the transaction ends."""
    stored = await db.fetchval("SELECT epoch FROM heads WHERE session=$1 FOR SHARE", text_of(session_id))
    if stored is None or stored != epoch:
        stored = -1 if stored is None else stored
        raise Fenced(
            f"session {session_id} is at epoch {stored}, not {epoch}: another worker has it, or it is gone; nothing "
            "was stored"
        )


async def take(db: EngineConnection, command_id: str, epoch: int) -> bool:
    session = await db.fetchval("SELECT session FROM commands WHERE id=$1", text_of(command_id))
    if session is None:
        return False
    if session:
        await check(db, session, epoch)
    sql = "UPDATE commands SET taken=$2 WHERE id=$1 AND taken=0 AND NOT done RETURNING 1"
    return await db.fetchval(sql, text_of(command_id), epoch) is not None


def _first(rows: list[Any]) -> Command | None:
    found = _commands(rows)
    return found[0] if found else None


def _commands(rows: list[Any]) -> list[Command]:
    return [
        Command(
            id=name, kind=kind, session_id=session, worker=owner, body=body, key=key, who=who, at=at,
            taken_epoch=taken, done=done, outcome=outcome,
        )
        for name, kind, session, owner, body, key, who, at, taken, done, outcome in rows
    ]  # fmt: skip
