"""The sessions the understudy has stored. Its files hold the updates of its protocol, as they were sent."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

from ...understudy.store import UnderstudyStore, default_home
from ...unified.events import Event, Text, Thinking, ToolName, TurnStarted
from ...wire.fitting import whole_number
from ..agent import StoredSession
from ..stored import Json, ended, table, tables, text, used

NAME = "understudy"
NAMES: dict[str, ToolName] = {name: name for name in get_args(ToolName)}


def list_stored(cwd: str, env: Mapping[str, str] | None) -> Iterable[StoredSession]:
    listed = UnderstudyStore(default_home(os.environ if env is None else env)).list()
    return [
        StoredSession(
            agent=NAME,
            session_id=session.header.session_id,
            cwd=session.header.cwd,
            title=session.title,
            started_ms=session.header.created_ms,
            updated_ms=int(session.updated.timestamp() * 1000),
        )
        for session in listed
        if session.header.cwd == cwd
    ]


def read_stored(stored: StoredSession, env: Mapping[str, str]) -> Iterator[Event]:
    session = UnderstudyStore(default_home(env)).load(stored.session_id)
    if session is None:
        raise FileNotFoundError(f"session {stored.session_id!r} not found")
    for update in session.updates:
        yield from _events(update, session.header.created_ms)


def _events(update: Json, at: int) -> Iterator[Event]:
    content = text(table(update.get("content")).get("text"))
    match update.get("sessionUpdate"):
        case "user_message_chunk":
            yield TurnStarted(prompt=content, timestamp=at)
        case "agent_message_chunk":
            yield Text(text=content, timestamp=at)
        case "agent_thought_chunk":
            yield Thinking(text=content, timestamp=at)
        case "tool_call":
            call, native = text(update.get("toolCallId")), text(table(update.get("_meta")).get("toolName"))
            name = NAMES.get(native, "other")
            yield used(call, name, native, table(update.get("rawInput")), at)
            code = table(update.get("rawOutput")).get("exitCode")
            output = "".join(text(table(block.get("content")).get("text")) for block in tables(update.get("content")))
            failed = update.get("status") != "completed" or bool(code)
            yield ended(call, name, "error" if failed else "success", output, at, whole_number(code))
        case _:
            return
