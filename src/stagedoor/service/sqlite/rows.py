"""Changes as statements. Runs on the writing thread, inside its transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, assert_never

import msgspec
from msgspec.structs import replace

from stagedoor.errors import Fenced, SequenceConflict

from ..store import Append, Change, CommandDone, ConfigChange, Fence, Forget, Remember, Secret, Sweep, Trim
from ..views import (
    Carried,
    Command,
    Device,
    IdempotentReply,
    NoticeRow,
    Question,
    QueuedPrompt,
    Record,
    SessionView,
    TurnUsage,
)
from .notices import add_notice, remove_notices
from .owners import add_command
from .selection import searchable
from .usage import put_turn

TOGETHER = (64, 8, 1)
"""Rows per statement. sqlite3 gives up the interpreter for each statement it runs, and a busy loop is slow to give it
back: one statement per row would make a batch under load a hundred times slower."""
WIDTH = 6
REMEMBERED = 10_000
_RECORDS = "INSERT INTO records(session, seq, at, type, body, epoch) VALUES"
_INSERT = {size: _RECORDS + ",".join(["(?,?,?,?,?,?)"] * size) for size in TOGETHER}
_SESSION = """
INSERT INTO sessions(id, state, ended, archived, agent, project, grouped, native, cwd, created, needs, worker, epoch)
VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET state=excluded.state,
ended=excluded.ended, archived=excluded.archived, agent=excluded.agent, project=excluded.project,
grouped=excluded.grouped, native=excluded.native, cwd=excluded.cwd, created=excluded.created, needs=excluded.needs
RETURNING n
"""
_VIEW = """
INSERT INTO views VALUES(?,?,?,?,?,?) ON CONFLICT(n) DO UPDATE SET ended=excluded.ended, updated=excluded.updated,
first=excluded.first, last=excluded.last, body=excluded.body
"""
_DEVICE = """
INSERT INTO devices VALUES(?,?) ON CONFLICT(id) DO UPDATE SET body=excluded.body
WHERE instr(CAST(devices.body AS TEXT), '"revokedAt":null')>0
OR instr(CAST(excluded.body AS TEXT), '"revokedAt":null')=0
"""
"""Nobody takes back that one was revoked: a door that has not heard of it may put it as it was."""
_json = msgspec.json.encode
_view = msgspec.json.Decoder(SessionView).decode


class Rows:
    """Puts changes into the tables. It remembers how far each session has come, as long as all is committed, and of
    those that run what lists and searches go by: most puts change nothing of that.

    Records gather, those of several sessions too, until they fill a statement; ``finish`` puts those that are left.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._epochs: dict[str, int] = {}
        self._put: dict[str, PutSession] = {}
        self._values: list[Any] = []

    def doubt(self) -> None:
        """What was put has been rolled back."""
        self._last.clear()
        self._epochs.clear()
        self._put.clear()
        self._values.clear()

    def change_hands(self, session_id: str, epoch: int) -> None:
        """It has this epoch from now on."""
        if len(self._epochs) >= REMEMBERED:
            self._epochs.clear()
        self._epochs[session_id] = epoch

    def check(self, db: sqlite3.Connection, session_id: str, epoch: int) -> None:
        """Raises ``Fenced`` unless the session has this epoch. No other process writes this file, so what is known
        here is so."""
        known = self._epochs.get(session_id)
        if known is None:
            found = db.execute("SELECT epoch FROM sessions WHERE id=?", (session_id,)).fetchone()
            known = -1
            if found is not None:
                known = int(found[0])
                self.change_hands(session_id, known)
        if known != epoch:
            raise Fenced(
                f"session {session_id} is at epoch {known}, not {epoch}: another worker has it, or it is gone; nothing "
                "was stored"
            )

    def finish(self, db: sqlite3.Connection) -> None:
        values, start = self._values, 0
        for size in TOGETHER:
            width = WIDTH * size
            while len(values) - start >= width:
                db.execute(_INSERT[size], values[start : start + width])
                start += width
        values.clear()

    def apply(self, db: sqlite3.Connection, changes: Iterable[Change]) -> None:
        epochs: dict[str, int] = {}
        for change in changes:
            match change:
                case Fence(session_id, epoch):
                    self.check(db, session_id, epoch)
                    epochs[session_id] = epoch
                case Append(session_id, records):
                    self._append(db, session_id, records, epochs.get(session_id, 0))
                case SessionView():
                    self._put_session(db, change)
                case Question():
                    row = (change.id, change.session_id, change.open, change.asked_at, _json(change))
                    db.execute("INSERT OR REPLACE INTO questions VALUES(?,?,?,?,?)", row)
                case QueuedPrompt():
                    row = (change.id, change.session_id, change.state == "queued", change.at, _json(change))
                    db.execute("INSERT OR REPLACE INTO messages VALUES(?,?,?,?,?)", row)
                case TurnUsage():
                    put_turn(db, change)
                case Device():
                    db.execute(_DEVICE, (change.id, _json(change)))
                case IdempotentReply():
                    db.execute("INSERT OR REPLACE INTO done VALUES(?,?,?)", (change.key, change.at, _json(change)))
                case Carried():
                    values = (change.session_id, change.turn, change.at, change.body)
                    db.execute("INSERT OR REPLACE INTO carried VALUES(?,?,?,?)", values)
                case NoticeRow():
                    add_notice(db, change)
                case Command():
                    add_command(db, change)
                case CommandDone(command_id, outcome):
                    db.execute("UPDATE commands SET done=1, outcome=? WHERE id=? AND done=0", (outcome, command_id))
                case ConfigChange():
                    db.execute("INSERT INTO config_changes(body) VALUES(?)", (_json(change),))
                case Remember(name, None):
                    db.execute("DELETE FROM settings WHERE name=?", (name,))
                case Remember(name, value):
                    db.execute("INSERT OR REPLACE INTO settings VALUES(?,?)", (name, value))
                case Secret(name, None, _, stored):
                    db.execute("DELETE FROM secrets WHERE name=? AND value=coalesce(?, value)", (name, stored))
                case Secret(name, value, first):
                    how = "IGNORE" if first else "REPLACE"
                    db.execute(f"INSERT OR {how} INTO secrets VALUES(?,?)", (name, value))
                case Sweep(before, kinds) if kinds:
                    marks = ",".join("?" * len(kinds))
                    db.execute(f"DELETE FROM commands WHERE at<? AND kind IN ({marks})", (before, *kinds))
                case Sweep(before):
                    db.execute("DELETE FROM done WHERE at<?", (before,))
                    db.execute("DELETE FROM commands WHERE done=1 AND at<?", (before,))
                    remove_notices(db, "at<?", before)
                case Trim(session_id, seq):
                    self.finish(db)
                    self._trim(db, session_id, min(seq, self._last_seq(db, session_id)))
                case Forget(session_id):
                    self.finish(db)
                    for memory in (self._last, self._epochs, self._put):
                        memory.pop(session_id, None)
                    for table in ("records", "questions", "messages", "commands", "carried"):
                        db.execute(f"DELETE FROM {table} WHERE session=?", (session_id,))
                    remove_notices(db, "session=?", session_id)
                    row = db.execute("SELECT n FROM sessions WHERE id=?", (session_id,)).fetchone()
                    if row is not None:
                        for statement in _FORGET:
                            db.execute(statement, row)
                case _:
                    assert_never(change)

    def _last_seq(self, db: sqlite3.Connection, session_id: str) -> int:
        known = self._last.get(session_id)
        if known is None:
            self.finish(db)  # the records of this one may be among them, and forgotten
            found = db.execute("SELECT max(seq) FROM records WHERE session=?", (session_id,)).fetchone()
            known = int(found[0] or 0)
        return known

    def _append(self, db: sqlite3.Connection, session_id: str, records: Sequence[Record], epoch: int) -> None:
        seq = self._last_seq(db, session_id)
        values = self._values
        for record in records:
            seq += 1
            if record.seq != seq:
                raise SequenceConflict(
                    f"record {record.seq} of session {session_id} does not follow: number {seq} is next; "
                    "nothing was stored"
                )
            values += (session_id, seq, record.at, record.type, record.body, epoch)
        if len(values) >= WIDTH * TOGETHER[0]:
            self.finish(db)
        if len(self._last) >= REMEMBERED:
            self._last.clear()
        self._last[session_id] = seq

    def _put_session(self, db: sqlite3.Connection, view: SessionView) -> None:
        columns = (
            view.state, view.ended, view.archived, view.agent, view.project_id, view.group, view.native_id, view.cwd,
            view.created_at, _json(view.needs).decode() if view.needs else "[]",
        )  # fmt: skip
        texts = (view.title, view.prompt, view.result, view.cwd)
        before = self._put.get(view.id)
        if before is not None and before.columns == columns:
            n = before.n
        else:
            n = int(db.execute(_SESSION, (view.id, *columns, view.worker, view.epoch)).fetchall()[0][0])
            if before is None and view.epoch:
                db.execute("UPDATE epochs SET last=max(last, ?)", (view.epoch,))
        db.execute(_VIEW, (n, view.ended, view.updated_at, view.first_seq, view.last_seq, _json(view)))
        if before is None or before.texts != texts:
            _put_words(db, n, searchable(view))
        if view.ended:
            self._put.pop(view.id, None)
        else:
            if len(self._put) >= REMEMBERED:
                self._put.clear()
            self._put[view.id] = PutSession(n, columns, texts)

    def _trim(self, db: sqlite3.Connection, session_id: str, first: int) -> None:
        db.execute("DELETE FROM records WHERE session=? AND seq<?", (session_id, first))
        db.execute("DELETE FROM carried WHERE session=?", (session_id,))
        row = db.execute("SELECT n, body FROM sessions JOIN views USING(n) WHERE id=?", (session_id,)).fetchone()
        if row is not None:
            view = _view(row[1])
            if first > view.first_seq:
                body = _json(replace(view, first_seq=first))
                db.execute("UPDATE views SET first=?, body=? WHERE n=?", (first, body, row[0]))


class PutSession(NamedTuple):
    n: int
    columns: tuple[object, ...]
    texts: tuple[str, ...]


_FORGET = (
    "DELETE FROM words WHERE rowid=?",
    "DELETE FROM views WHERE n=?",
    "DELETE FROM sessions WHERE n=?",
)


def _put_words(db: sqlite3.Connection, n: int, words: str) -> None:
    row = db.execute("SELECT text FROM words WHERE rowid=?", (n,)).fetchone()
    if row is None:
        db.execute("INSERT INTO words(rowid, text) VALUES(?,?)", (n, words))
    elif row[0] != words:
        db.execute("UPDATE words SET text=? WHERE rowid=?", (words, n))
