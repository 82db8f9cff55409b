"""The sessions OpenCode has stored, read from its database without touching it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Generator, Mapping
from pathlib import Path

import msgspec

LONGEST_PROMPT = 2000


class OpenCodeStoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """``tokens`` is everything the session used, cache included. OpenCode stores no branch."""

    session_id: str
    cwd: str
    title: str = ""
    first_prompt: str = ""
    message_count: int = 0
    model: str | None = None
    git_branch: str | None = None
    started_ms: int = 0
    updated_ms: int = 0
    tokens: int = 0
    cost_usd: float | None = None
    path: str = ""
    agent: str | None = None
    archived: bool = False


class OpenCodeHistory(msgspec.Struct, frozen=True):
    """Newest first. ``skipped`` are databases and sessions that could not be read, with the reason."""

    sessions: list[OpenCodeStoredSession] = []
    skipped: list[tuple[str, str]] = []


def database(env: Mapping[str, str] | None = None) -> Path:
    """Where OpenCode keeps everything."""
    environ = os.environ if env is None else env
    home = Path(environ.get("HOME") or Path.home())
    share = Path(environ["XDG_DATA_HOME"]) if environ.get("XDG_DATA_HOME") else home / ".local" / "share"
    named = environ.get("OPENCODE_DB")
    return share / "opencode" / (named or "opencode.db")  # an absolute name takes the place of the folder


def list_sessions(cwd: str | Path, *, env: Mapping[str, str] | None = None) -> OpenCodeHistory:
    """The sessions of ``cwd``, without those of sub-agents.

    OpenCode itself lists by project: clones of a repository share one, and so do all folders outside of any.
    """
    place = str(Path(cwd).absolute())
    return _read(database(env), "s.directory = ? and s.parent_id is null", (place,))


def find_session(session_id: str, *, env: Mapping[str, str] | None = None) -> OpenCodeStoredSession | None:
    """One session, wherever it belongs."""
    return next(iter(_read(database(env), "s.id = ?", (session_id,)).sessions), None)


_QUERY = """
    select s.id, s.directory, s.title, s.agent, s.model, s.time_created, s.time_updated, s.time_archived, s.cost,
           s.tokens_input + s.tokens_output + s.tokens_reasoning + s.tokens_cache_read + s.tokens_cache_write,
           (select count(*) from message m where m.session_id = s.id),
           (select m.id from message m where m.session_id = s.id order by m.time_created, m.id limit 1)
    from session s where {which} order by s.time_updated desc, s.id desc
"""
_FIRST_PARTS = "select substr(data, 1, 100000) from part where message_id = ? order by id limit 8"


class _StoredModel(msgspec.Struct, frozen=True):
    id: str = ""
    provider: str = msgspec.field(default="", name="providerID")


class _StoredText(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    synthetic: bool = False


def _read(path: Path, which: str, values: tuple[str, ...]) -> OpenCodeHistory:
    if not path.exists():
        return OpenCodeHistory()
    sessions: list[OpenCodeStoredSession] = []
    skipped: list[tuple[str, str]] = []
    try:
        with _opened(path) as connection:
            for row in connection.execute(_QUERY.format(which=which), values).fetchall():
                try:
                    sessions.append(_session(connection, row, path))
                except (sqlite3.Error, TypeError, ValueError) as error:
                    skipped.append((f"{path}#{row[0]}", str(error) or type(error).__name__))
    except sqlite3.Error as error:
        skipped.append((str(path), str(error) or type(error).__name__))
    return OpenCodeHistory(sessions, skipped)


@contextlib.contextmanager
def _opened(path: Path) -> Generator[sqlite3.Connection]:
    """Read-only. A database nobody has open and whose folder we may not write can only be read as immutable."""
    uri = path.absolute().as_uri()
    connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=5.0)
    try:
        try:
            connection.execute("select 1 from session limit 1")
        except sqlite3.OperationalError:
            if path.with_name(path.name + "-wal").exists():
                raise
            connection.close()
            connection = sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True)
        connection.text_factory = _text
        yield connection
    finally:
        connection.close()


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _session(connection: sqlite3.Connection, row: tuple[object, ...], path: Path) -> OpenCodeStoredSession:
    session_id, directory, title, agent, model, created, updated, archived, cost, tokens, messages, first = row
    return OpenCodeStoredSession(
        session_id=str(session_id),
        cwd=str(directory),
        title=str(title or ""),
        first_prompt=_first_prompt(connection, first),
        message_count=_number(messages),
        model=_model(model),
        started_ms=_number(created),
        updated_ms=_number(updated),
        tokens=_number(tokens),
        cost_usd=float(cost) if isinstance(cost, (int, float)) else None,
        path=str(path),
        agent=str(agent) if agent else None,
        archived=archived is not None,
    )


def _number(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) else 0


def _model(stored: object) -> str | None:
    if not isinstance(stored, str):
        return None
    try:
        model = msgspec.json.decode(stored, type=_StoredModel)
    except msgspec.DecodeError:
        return None
    return f"{model.provider}/{model.id}" if model.id else None


def _first_prompt(connection: sqlite3.Connection, message_id: object) -> str:
    if message_id is None:
        return ""
    for (content,) in connection.execute(_FIRST_PARTS, (message_id,)):
        try:
            part = msgspec.json.decode(content, type=_StoredText)
        except (msgspec.DecodeError, TypeError):
            continue
        if part.type == "text" and not part.synthetic:
            return part.text[:LONGEST_PROMPT]
    return ""
