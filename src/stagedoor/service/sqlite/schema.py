"""The file: its tables, how it is opened, and how an older one becomes a newer one."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import time
from pathlib import Path
from typing import Literal, TypeAlias

from stagedoor.errors import StoreBroken, StoreTooNew

_log = logging.getLogger("stagedoor.service")
Durable: TypeAlias = Literal["process", "power"]
"""What an acknowledged write survives: the death of this process, or that of the machine."""

APPLICATION = 0x53746764
"""Marks the file as ours, for ``file`` and other tools. Never changes: it is in every log that exists."""
OLDEST_SQLITE = (3, 35, 0)
"""The first with all that is used: search by three letters (FTS5 ``trigram``) and ``RETURNING``."""
REPORT_EVERY = 5.0
"""Seconds between two words about a migration that takes long."""
PATIENCE = 30.0
"""Seconds to wait for somebody who locks the file from outside, with the ``sqlite3`` shell for example."""

_FIRST = """
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
_AUDIT = """
CREATE TABLE audit(n INTEGER PRIMARY KEY, session TEXT NOT NULL, body BLOB NOT NULL);
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
CREATE TRIGGER audit_is_not_cut BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
CREATE TABLE config_changes(n INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TRIGGER config_changes_are_not_changed BEFORE UPDATE ON config_changes
  BEGIN SELECT RAISE(ABORT, 'configuration changes are only added to'); END;
CREATE TRIGGER config_changes_are_not_cut BEFORE DELETE ON config_changes
  BEGIN SELECT RAISE(ABORT, 'configuration changes are only added to'); END;
CREATE INDEX questions_by_session ON questions(session);
"""
_PAGES = "CREATE INDEX questions_by_time ON questions(asked, id);"
_ONE_AUDIT = "DROP TABLE audit;"  # the file audit.jsonl has the same decisions, in a chain of hashes
_ANY_SIZE = """
ALTER TABLE sessions RENAME TO sessions_before;
DROP INDEX sessions_by_age;
CREATE TABLE sessions(
  n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, ended INTEGER NOT NULL,
  archived INTEGER NOT NULL, agent TEXT NOT NULL, project TEXT NOT NULL, grouped TEXT NOT NULL, native TEXT NOT NULL,
  cwd TEXT NOT NULL,
  created INTEGER NOT NULL
);
CREATE TABLE views(
  n INTEGER PRIMARY KEY, ended INTEGER NOT NULL, updated INTEGER NOT NULL, first INTEGER NOT NULL,
  last INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE VIRTUAL TABLE words USING fts5(text, tokenize='trigram case_sensitive 1', columnsize=0);
CREATE VIRTUAL TABLE grams USING fts5vocab('words', 'row');
INSERT INTO sessions(id, state, ended, archived, agent, project, grouped, native, cwd, created)
  SELECT id, state, ended, archived, agent, project, grouped,
    coalesce(json_extract(CAST(body AS TEXT), '$.nativeId'), ''),
    coalesce(json_extract(CAST(body AS TEXT), '$.cwd'), ''), created
  FROM sessions_before ORDER BY created, id;
INSERT INTO views
  SELECT n, old.ended, coalesce(json_extract(CAST(body AS TEXT), '$.updatedAt'), 0),
    coalesce(json_extract(CAST(body AS TEXT), '$.firstSeq'), 1),
    coalesce(json_extract(CAST(body AS TEXT), '$.lastSeq'), 0), body
  FROM sessions JOIN sessions_before AS old USING(id) ORDER BY n;
INSERT INTO words(rowid, text) SELECT n, replace(words, char(0), ' ') || char(10, 10)
  FROM sessions JOIN sessions_before USING(id) ORDER BY n;
DROP TABLE sessions_before;
CREATE INDEX sessions_by_age ON sessions(created, id);
CREATE INDEX sessions_by_state ON sessions(state, created, id);
CREATE INDEX sessions_by_agent ON sessions(agent, created, id);
CREATE INDEX sessions_by_project ON sessions(project, created, id);
CREATE INDEX sessions_by_folder ON sessions(cwd, created, id);
CREATE INDEX sessions_by_group ON sessions(grouped, created, id) WHERE grouped<>'';
CREATE INDEX sessions_by_native ON sessions(native, agent) WHERE native<>'';
CREATE INDEX sessions_open ON sessions(created, id) WHERE ended=0;
CREATE INDEX sessions_archived ON sessions(created, id) WHERE archived=1;
CREATE INDEX views_removable ON views(updated, n) WHERE ended=1 AND first<last;
DROP INDEX questions_open;
CREATE INDEX questions_open ON questions(asked, id) WHERE open=1;
CREATE INDEX done_by_time ON done(at);
CREATE TABLE turns(
  session TEXT NOT NULL, turn INTEGER NOT NULL, at INTEGER NOT NULL, prev INTEGER NOT NULL,
  prev_same_model INTEGER NOT NULL, agent TEXT NOT NULL, project TEXT NOT NULL, model TEXT NOT NULL,
  input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
  reasoning_tokens INTEGER NOT NULL, total_tokens INTEGER NOT NULL, cost_usd REAL,
  PRIMARY KEY(session, turn)
) WITHOUT ROWID;
CREATE TABLE used(
  dim TEXT NOT NULL, slot INTEGER NOT NULL, key TEXT NOT NULL, prev INTEGER NOT NULL, turns INTEGER NOT NULL,
  input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
  reasoning_tokens INTEGER NOT NULL, total_tokens INTEGER NOT NULL, cost_usd REAL,
  PRIMARY KEY(dim, slot, key, prev)
) WITHOUT ROWID;
INSERT INTO turns
  SELECT session, turn, at, coalesce(lag(at) OVER (PARTITION BY session ORDER BY at, turn), -1),
    coalesce(lag(at) OVER (PARTITION BY session, model ORDER BY at, turn), -1), agent, project, model,
    coalesce(json_extract(used, '$.inputTokens'), 0), coalesce(json_extract(used, '$.outputTokens'), 0),
    coalesce(json_extract(used, '$.cachedTokens'), 0), coalesce(json_extract(used, '$.reasoningTokens'), 0),
    coalesce(json_extract(used, '$.totalTokens'), 0), json_extract(used, '$.costUsd')
  FROM (
    SELECT session, turn, at, json_extract(CAST(body AS TEXT), '$.usage') AS used,
      coalesce(json_extract(CAST(body AS TEXT), '$.agent'), '') AS agent,
      coalesce(json_extract(CAST(body AS TEXT), '$.project'), '') AS project,
      coalesce(json_extract(CAST(body AS TEXT), '$.model'), '') AS model FROM spent
  );
DROP TABLE spent;
CREATE INDEX turns_by_time ON turns(at);
CREATE INDEX turns_by_session ON turns(session, at);
CREATE INDEX turns_by_prev ON turns(prev);
CREATE INDEX turns_by_prev_same_model ON turns(prev_same_model);
INSERT INTO used
  SELECT dim, at / 900000, key, CASE WHEN prev < 0 THEN -1 ELSE prev / 900000 END, count(*), sum(input_tokens),
    sum(output_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(total_tokens), sum(cost_usd)
  FROM (
    SELECT 'all' AS dim, '' AS key, prev, turns.* FROM turns
    UNION ALL SELECT 'agent', agent, prev, turns.* FROM turns
    UNION ALL SELECT 'project', project, prev, turns.* FROM turns
    UNION ALL SELECT 'model', model, prev_same_model, turns.* FROM turns
  ) GROUP BY 1, 2, 3, 4;
"""
"""Sessions in a narrow table that every list and search goes through, with what they look like (``views``) and what is
searched in (``words``, by three letters at a time) beside it; turns as columns, and their sums as rows (``usage.py``).
"""
_OWNERS = """
ALTER TABLE sessions ADD COLUMN worker TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN incarnation TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN needs TEXT NOT NULL DEFAULT '[]';
CREATE TABLE epochs(last INTEGER NOT NULL);
INSERT INTO epochs VALUES(0);
CREATE TABLE workers(
  id TEXT PRIMARY KEY, incarnation TEXT NOT NULL, until INTEGER NOT NULL, draining INTEGER NOT NULL,
  revoked INTEGER NOT NULL, body BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE commands(
  n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, session TEXT NOT NULL, worker TEXT NOT NULL,
  body BLOB NOT NULL, key TEXT NOT NULL, who TEXT NOT NULL, at INTEGER NOT NULL, taken INTEGER NOT NULL,
  done INTEGER NOT NULL, outcome BLOB NOT NULL
);
CREATE UNIQUE INDEX commands_by_key ON commands(key) WHERE key<>'';
CREATE INDEX commands_open ON commands(n) WHERE done=0;
CREATE INDEX commands_by_session ON commands(session, n);
CREATE INDEX commands_done ON commands(at) WHERE done=1;
"""
"""Who owns a session, and what is wanted of its owner (``owners.py``)."""
_EPOCHS = "ALTER TABLE records ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;"
"""Under which epoch each record was written; those from before, and those that no owner wrote, have none."""
_CARRIED = """
CREATE TABLE carried(session TEXT PRIMARY KEY, turn INTEGER NOT NULL, at INTEGER NOT NULL, body BLOB NOT NULL);
"""
"""How the files and the transcript of a session that may go on elsewhere stood after its last turn."""
_NOTICES = """
CREATE TABLE secrets(name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO secrets SELECT name, value FROM settings WHERE substr(name, 1, 8)='push to ';
INSERT INTO secrets SELECT 'receiver ' || json_extract(one.value, '$.id'), CAST(one.value AS BLOB)
  FROM settings, json_each(CAST(settings.value AS TEXT)) AS one WHERE name='receivers of notifications';
DELETE FROM settings WHERE substr(name, 1, 8)='push to ' OR name='receivers of notifications';
CREATE TABLE notices(id TEXT PRIMARY KEY, session TEXT NOT NULL, at INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX notices_by_time ON notices(at);
CREATE TABLE deliveries(
  notice TEXT NOT NULL, receiver TEXT NOT NULL, holder TEXT NOT NULL, until INTEGER NOT NULL, done INTEGER NOT NULL,
  PRIMARY KEY(notice, receiver)
) WITHOUT ROWID;
"""
"""What is to be told to receivers, who tells it to which of them until when (``notices.py``), and what only those may
read who may let others in."""
MIGRATIONS = (_FIRST, _AUDIT, _PAGES, _ONE_AUDIT, _ANY_SIZE, _OWNERS, _EPOCHS, _CARRIED, _NOTICES)
"""The one at ``n`` takes a file of version ``n`` to ``n + 1``. What was released is never edited, only followed."""
SCHEMA = len(MIGRATIONS)


def prepare(path: Path) -> None:
    """The folder and an empty file, for nobody else to read."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True, mode=0o700)
        path.parent.chmod(0o700)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)


def open_for_writing(path: Path, durable: Durable) -> sqlite3.Connection:
    """The one connection that writes, with the file as this version wants it."""
    db = _connected(path)
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA:
            raise StoreTooNew(
                f"the log {path} was written by a newer Stagedoor (schema {version}; this version supports {SCHEMA}); "
                "install that version again, or set STAGEDOOR_HOME to another folder"
            )
        if db.execute("PRAGMA journal_mode=WAL").fetchone()[0] != "wal":
            raise StoreBroken(
                f"the log {path} cannot be used: its file system does not support shared memory; "
                "set STAGEDOOR_HOME to a local folder"
            )
        db.execute(f"PRAGMA synchronous={'FULL' if durable == 'power' else 'NORMAL'}")
        db.execute("PRAGMA wal_autocheckpoint=0")  # the checkpointing thread does it
        db.execute("PRAGMA journal_size_limit=0")  # so that the size of the WAL says how much is in it
        _migrate(db, path, version)
    except sqlite3.Error as fault:
        db.close()
        raise unusable(path, "opened", fault) from fault
    except BaseException:
        db.close()
        raise
    return db


def open_for_reading(path: Path) -> sqlite3.Connection:
    db = _connected(path)
    db.execute("PRAGMA query_only=ON")
    return db


def open_for_checkpoints(path: Path) -> sqlite3.Connection:
    return _connected(path)


def unusable(path: Path, verb: str, fault: Exception) -> StoreBroken:
    """What went wrong, and what to do about it."""
    return StoreBroken(f"the log {path} cannot be {verb}: {fault}; {_advice(path, fault)}")


def _connected(path: Path) -> sqlite3.Connection:
    # mode=rw: a log that was taken away is never silently started anew.
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=PATIENCE, check_same_thread=False, isolation_level=None)


def _migrate(db: sqlite3.Connection, path: Path, version: int) -> None:
    """Step by step, each whole or not at all: one that is cut off is done again at the next start."""
    if version == 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise StoreBroken(f"{path} is a database of another program; move it away, or choose another STAGEDOOR_HOME")
    if version < SCHEMA and sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreBroken(
            f"the log {path} needs SQLite {'.'.join(map(str, OLDEST_SQLITE))} or newer, and this Python has "
            f"{sqlite3.sqlite_version}; use a newer Python"
        )
    started = time.monotonic()
    reported = started

    def report() -> int:
        nonlocal reported
        if time.monotonic() - reported >= REPORT_EVERY:
            reported = time.monotonic()
            _log.warning("the log is being brought to its new form: %.0f s so far", reported - started)
        return 0

    if version and version < SCHEMA:
        size = path.stat().st_size / 1e6
        _log.warning("the log %s (%.0f MB, schema %d) is brought to schema %d; wait", path, size, version, SCHEMA)
        db.set_progress_handler(report, 1_000_000)
    try:
        _step_by_step(db, version)
    finally:
        db.set_progress_handler(None, 0)
    if version and version < SCHEMA:
        _log.warning("the log has its new form, after %.1f s", time.monotonic() - started)


def _step_by_step(db: sqlite3.Connection, version: int) -> None:
    for number in range(version, SCHEMA):
        try:
            db.executescript(
                f"BEGIN IMMEDIATE;{MIGRATIONS[number]}"
                f"PRAGMA application_id={APPLICATION};PRAGMA user_version={number + 1};COMMIT;"
            )
        except sqlite3.Error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


def _advice(path: Path, fault: Exception) -> str:
    message = str(fault)
    if "full" in message or "disk I/O" in message:
        return "free some space on that disk; the server continues by itself once it can write (or restart it)"
    if "malformed" in message or "not a database" in message:
        files = f"{path.name}, {path.name}-wal and {path.name}-shm"
        return f"it is damaged: restore a copy, or move {files} away to start with an empty log"
    if "locked" in message:
        return "another program has locked it; close that program"
    return "check that its folder exists and that this user may write to it"


class Claim:
    """Taken at once or not at all. The lock goes with the process, however it ends; the file stays and is reused."""

    def __init__(self, log: Path) -> None:
        path = log.with_name(log.name + ".lock")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise StoreBroken(
                f"the log {log} is in use by another Stagedoor (process {holder}); stagedoor acp, mcp and rpc work "
                "through a running stagedoor serve by themselves, unless --local is given; else stop the other one "
                "(one that editors share stops when the last is closed), or set STAGEDOOR_HOME to another folder"
            ) from fault
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1
