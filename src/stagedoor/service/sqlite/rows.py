"""Changes as statements. Runs on the writing thread, inside its transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, assert_never

import msgspec
from msgspec.structs import replace

from stagedoor.errors import StoreBroken

from ..store import Append, Change, ConfigChange, Forget, Remember, Sweep, Trim
from ..views import Device, IdempotentReply, Question, QueuedPrompt, Record, SessionView, TurnUsage

TOGETHER = (64, 8, 1)
"""Rows per statement. sqlite3 gives up the interpreter for each statement it runs, and a busy loop is slow to give it
back: one statement per row would make a batch under load a hundred times slower."""
WIDTH = 5
REMEMBERED = 10_000
_INSERT = {size: f"INSERT INTO records VALUES{','.join(['(?,?,?,?,?)'] * size)}" for size in TOGETHER}
_SESSION = """
INSERT INTO sessions VALUES(?,?,?,?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET state=excluded.state,
ended=excluded.ended, archived=excluded.archived, agent=excluded.agent, project=excluded.project,
grouped=excluded.grouped, created=excluded.created, words=excluded.words, body=excluded.body
"""
_json = msgspec.json.encode
_view = msgspec.json.Decoder(SessionView).decode


class Rows:
    """Puts changes into the tables. It remembers how far each session has come, as long as all is committed.

    Records gather, those of several sessions too, until they fill a statement; ``finish`` puts those that are left.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._values: list[Any] = []

    def doubt(self) -> None:
        """What was put has been rolled back."""
        self._last.clear()
        self._values.clear()

    def finish(self, db: sqlite3.Connection) -> None:
        values, start = self._values, 0
        for size in TOGETHER:
            width = WIDTH * size
            while len(values) - start >= width:
                db.execute(_INSERT[size], values[start : start + width])
                start += width
        values.clear()

    def apply(self, db: sqlite3.Connection, changes: Iterable[Change]) -> None:
        for change in changes:
            match change:
                case Append(session_id, records):
                    self._append(db, session_id, records)
                case SessionView():
                    _put_session(db, change)
                case Question():
                    row = (change.id, change.session_id, change.open, change.asked_at, _json(change))
                    db.execute("INSERT OR REPLACE INTO questions VALUES(?,?,?,?,?)", row)
                case QueuedPrompt():
                    row = (change.id, change.session_id, change.state == "queued", change.at, _json(change))
                    db.execute("INSERT OR REPLACE INTO messages VALUES(?,?,?,?,?)", row)
                case TurnUsage():
                    spent = (change.session_id, change.turn, change.at, _json(change))
                    db.execute("INSERT OR REPLACE INTO spent VALUES(?,?,?,?)", spent)
                case Device():
                    db.execute("INSERT OR REPLACE INTO devices VALUES(?,?)", (change.id, _json(change)))
                case IdempotentReply():
                    db.execute("INSERT OR REPLACE INTO done VALUES(?,?,?)", (change.key, change.at, _json(change)))
                case ConfigChange():
                    db.execute("INSERT INTO config_changes(body) VALUES(?)", (_json(change),))
                case Remember(name, None):
                    db.execute("DELETE FROM settings WHERE name=?", (name,))
                case Remember(name, value):
                    db.execute("INSERT OR REPLACE INTO settings VALUES(?,?)", (name, value))
                case Sweep(before):
                    db.execute("DELETE FROM done WHERE at<?", (before,))
                case Trim(session_id, seq):
                    self.finish(db)
                    _trim(db, session_id, min(seq, self._last_seq(db, session_id)))
                case Forget(session_id):
                    self.finish(db)
                    self._last.pop(session_id, None)
                    for table in ("records", "questions", "messages"):
                        db.execute(f"DELETE FROM {table} WHERE session=?", (session_id,))
                    db.execute("DELETE FROM sessions WHERE id=?", (session_id,))
                case _:
                    assert_never(change)

    def _last_seq(self, db: sqlite3.Connection, session_id: str) -> int:
        known = self._last.get(session_id)
        if known is None:
            self.finish(db)  # the records of this one may be among them, and forgotten
            found = db.execute("SELECT max(seq) FROM records WHERE session=?", (session_id,)).fetchone()
            known = int(found[0] or 0)
        return known

    def _append(self, db: sqlite3.Connection, session_id: str, records: Sequence[Record]) -> None:
        seq = self._last_seq(db, session_id)
        values = self._values
        for record in records:
            seq += 1
            if record.seq != seq:
                raise StoreBroken(
                    f"record {record.seq} of session {session_id} does not follow: number {seq} is next; "
                    "nothing was stored"
                )
            values += (session_id, seq, record.at, record.type, record.body)
        if len(values) >= WIDTH * TOGETHER[0]:
            self.finish(db)
        if len(self._last) >= REMEMBERED:
            self._last.clear()
        self._last[session_id] = seq


def _put_session(db: sqlite3.Connection, view: SessionView) -> None:
    words = "\n".join((view.title, view.prompt, view.result, view.cwd, view.id)).lower()
    row = (
        view.id, view.state, view.ended, view.archived, view.agent, view.project_id, view.group, view.created_at,
        words, _json(view),
    )  # fmt: skip
    db.execute(_SESSION, row)


def _trim(db: sqlite3.Connection, session_id: str, first: int) -> None:
    db.execute("DELETE FROM records WHERE session=? AND seq<?", (session_id, first))
    row = db.execute("SELECT body FROM sessions WHERE id=?", (session_id,)).fetchone()
    if row is not None:
        view = _view(row[0])
        _put_session(db, replace(view, first_seq=max(view.first_seq, first)))
