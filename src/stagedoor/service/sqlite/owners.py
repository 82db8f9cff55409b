"""Who owns a session, and what is wanted of its owner. Runs on the writing thread, inside its transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from ..views import Command, WorkerRow

_json = msgspec.json.encode
_worker = msgspec.json.Decoder(WorkerRow).decode
_MAY_CLAIM = """
SELECT 1 FROM workers WHERE id=? AND incarnation=? AND until>? AND draining=0 AND revoked=0
"""
_FREE = """
SELECT n, id FROM sessions WHERE ended=0 {}
AND (worker='' OR (worker=:me AND incarnation<>:incarnation) OR (worker<>:me AND NOT EXISTS(
  SELECT 1 FROM workers WHERE workers.id=sessions.worker AND until>:now AND revoked=0
    AND sessions.incarnation IN ('', workers.incarnation))))
AND NOT EXISTS(SELECT 1 FROM json_each(needs) WHERE value NOT IN (SELECT value FROM json_each(:labels)))
ORDER BY created, id LIMIT :limit
"""
_COMMAND = "id, kind, session, worker, body, key, who, at, taken, done, outcome"
_OF_WORKER = "(worker=? OR EXISTS(SELECT 1 FROM sessions WHERE sessions.id=commands.session AND sessions.worker=?))"


def next_epoch(db: sqlite3.Connection) -> int:
    return int(db.execute("UPDATE epochs SET last=last+1 RETURNING last").fetchall()[0][0])


def claim(
    db: sqlite3.Connection,
    worker_id: str,
    incarnation: str,
    labels: Collection[str],
    limit: int,
    now: int,
    session_id: str,
) -> dict[str, int]:
    """The epochs of the sessions that are this worker's from now on."""
    if db.execute(_MAY_CLAIM, (worker_id, incarnation, now)).fetchone() is None:
        return {}
    values = {
        "me": worker_id, "incarnation": incarnation, "now": now, "limit": limit, "session": session_id,
        "labels": _json(sorted(labels)).decode(),
    }  # fmt: skip
    free = db.execute(_FREE.format("AND id=:session" if session_id else ""), values).fetchall()
    epochs: dict[str, int] = {}
    for n, name in free:
        epochs[name] = next_epoch(db)
        row = (worker_id, incarnation, epochs[name], n)
        db.execute("UPDATE sessions SET worker=?, incarnation=?, epoch=? WHERE n=?", row)
    return epochs


def release(db: sqlite3.Connection, session_id: str, epoch: int) -> int | None:
    """Its new epoch; ``None`` when it had another than ``epoch``."""
    row = db.execute("SELECT n FROM sessions WHERE id=? AND epoch=?", (session_id, epoch)).fetchone()
    if row is None:
        return None
    released = next_epoch(db)
    db.execute("UPDATE sessions SET worker='', incarnation='', epoch=? WHERE n=?", (released, *row))
    return released


def workers(db: sqlite3.Connection) -> list[WorkerRow]:
    return [_worker(body) for (body,) in db.execute("SELECT body FROM workers ORDER BY id")]


def worker(db: sqlite3.Connection, worker_id: str) -> WorkerRow | None:
    row = db.execute("SELECT body FROM workers WHERE id=?", (worker_id,)).fetchone()
    return None if row is None else _worker(row[0])


def put_worker(db: sqlite3.Connection, row: WorkerRow) -> WorkerRow:
    stored = worker(db, row.id)
    if stored is not None:
        if stored.revoked:
            return stored
        row = replace(row, draining=stored.draining)
    return _store_worker(db, row)


def renew(db: sqlite3.Connection, worker_id: str, incarnation: str, until: int) -> bool:
    stored = worker(db, worker_id)
    if stored is None or stored.revoked or stored.incarnation != incarnation:
        return False
    _store_worker(db, replace(stored, until=until))
    return True


def mark_worker(
    db: sqlite3.Connection, worker_id: str, *, draining: bool | None, revoked: bool | None
) -> WorkerRow | None:
    stored = worker(db, worker_id)
    if stored is None:
        return None
    draining = stored.draining if draining is None else draining
    return _store_worker(db, replace(stored, draining=draining, revoked=stored.revoked if revoked is None else revoked))


def _store_worker(db: sqlite3.Connection, row: WorkerRow) -> WorkerRow:
    columns = (row.id, row.incarnation, row.until, row.draining, row.revoked, _json(row))
    db.execute("INSERT OR REPLACE INTO workers VALUES(?,?,?,?,?,?)", columns)
    return row


def add_command(db: sqlite3.Connection, command: Command) -> None:
    """Unless one with its id, or with its key, is there."""
    columns = (
        command.id, command.kind, command.session_id, command.worker, command.body, command.key, command.who,
        command.at, command.taken_epoch, command.done, command.outcome,
    )  # fmt: skip
    db.execute(f"INSERT INTO commands({_COMMAND}) VALUES(?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING", columns)


def command(db: sqlite3.Connection, command_id: str) -> Command | None:
    return _first(db.execute(f"SELECT {_COMMAND} FROM commands WHERE id=?", (command_id,)))


def command_with(db: sqlite3.Connection, key: str) -> Command | None:
    return _first(db.execute(f"SELECT {_COMMAND} FROM commands WHERE key=? AND key<>''", (key,)))


def commands(db: sqlite3.Connection, worker_id: str, session_id: str, *, open_only: bool) -> list[Command]:
    tests: list[str] = []
    values: list[str] = []
    if open_only:
        tests.append("done=0")
    if worker_id:
        tests.append(_OF_WORKER)
        values += (worker_id, worker_id)
    if session_id:
        tests.append("session=?")
        values.append(session_id)
    where = f"WHERE {' AND '.join(tests)}" if tests else ""
    return _commands(db.execute(f"SELECT {_COMMAND} FROM commands {where} ORDER BY n", values))


def take(db: sqlite3.Connection, command_id: str, epoch: int) -> bool:
    sql = "UPDATE commands SET taken=? WHERE id=? AND taken=0 AND done=0"
    return db.execute(sql, (epoch, command_id)).rowcount == 1


def _first(rows: sqlite3.Cursor) -> Command | None:
    found = _commands(rows)
    return found[0] if found else None


def _commands(rows: sqlite3.Cursor) -> list[Command]:
    return [
        Command(
            id=name, kind=kind, session_id=session, worker=owner, body=body, key=key, who=who, at=at,
            taken_epoch=taken, done=bool(done), outcome=outcome,
        )
        for name, kind, session, owner, body, key, who, at, taken, done, outcome in rows
    ]  # fmt: skip
