"""OpenCode's stored sessions, read from its database without touching it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ...agents.opencode.history import database, list_sessions
from ...unified.events import Event, Text, Thinking, TurnStarted
from ...wire.fitting import whole_number
from ..agent import StoredSession
from ..stored import Json, ended, table, text, used
from .tools import name_of

_PARTS = """
    select m.data, p.data, p.time_created from part p join message m on m.id = p.message_id
    where p.session_id = ? order by m.time_created, m.id, p.id
"""


def list_stored(cwd: str, env: Mapping[str, str] | None) -> Iterable[StoredSession]:
    return [
        StoredSession(
            agent="opencode",
            session_id=session.session_id,
            cwd=session.cwd,
            title=session.title,
            first_prompt=session.first_prompt,
            messages=session.message_count,
            model=session.model or "",
            started_ms=session.started_ms,
            updated_ms=session.updated_ms,
            tokens=session.tokens,
            cost_usd=session.cost_usd,
            path=session.path,
        )
        for session in list_sessions(cwd, env=env).sessions
    ]


def read_stored(stored: StoredSession, env: Mapping[str, str]) -> Iterator[Event]:
    path = stored.path if stored.path.endswith(".db") else str(database(env))
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        rows = connection.execute(_PARTS, (stored.session_id,)).fetchall()
    for message, part, at in rows:
        yield from _events_of(_object(message), _object(part), int(at or 0))


def _events_of(message: Json, part: Json, at: int) -> Iterator[Event]:
    content = text(part.get("text"))
    match message.get("role"), part.get("type"):
        case "user", "text" if content and part.get("synthetic") is not True:
            yield TurnStarted(prompt=content, timestamp=at)
        case "assistant", "text" if content:
            yield Text(text=content, timestamp=at)
        case "assistant", "reasoning" if content:
            yield Thinking(text=content, timestamp=at)
        case "assistant", "tool":
            native, call, state = text(part.get("tool")), text(part.get("callID")), table(part.get("state"))
            name = name_of(native)
            yield used(call, name, native, table(state.get("input")), at)
            code = table(state.get("metadata")).get("exit")
            failed = state.get("status") != "completed" or bool(code)
            output = text(state.get("output")) or text(state.get("error"))
            yield ended(call, name, "error" if failed else "success", output, at, whole_number(code))
        case _:
            return


def _object(data: object) -> Json:
    try:
        return table(msgspec.json.decode(data if isinstance(data, bytes) else str(data)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
