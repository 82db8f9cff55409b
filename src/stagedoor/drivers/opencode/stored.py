"""OpenCode's database, read without touching it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping

import msgspec

from ...agents.opencode.history import database
from ...unified.events import Event, Text, Thinking, ToolName, TurnStarted
from ..agent import StoredSession
from ..stored import Json, ended, table, text, used

NAMES: dict[str, ToolName] = {
    "bash": "shell",
    "read": "read_file",
    "write": "write_file",
    "edit": "edit_file",
    "multiedit": "edit_file",
    "patch": "edit_file",
    "apply_patch": "edit_file",
    "grep": "search_content",
    "glob": "find_files",
    "list": "find_files",
    "webfetch": "web_fetch",
    "websearch": "web_search",
    "task": "task",
    "todowrite": "plan",
    "todoread": "plan",
    "question": "question",
}
_PARTS = """
    select m.data, p.data, p.time_created from part p join message m on m.id = p.message_id
    where p.session_id = ? order by m.time_created, m.id, p.id
"""


def read_stored(stored: StoredSession, env: Mapping[str, str]) -> Iterator[Event]:
    path = stored.path if stored.path.endswith(".db") else str(database(env))
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as opened:
        rows = opened.execute(_PARTS, (stored.session_id,)).fetchall()
    for message, part, at in rows:
        yield from _told(_object(message), _object(part), int(at or 0))


def _told(message: Json, part: Json, at: int) -> Iterator[Event]:
    said = text(part.get("text"))
    match message.get("role"), part.get("type"):
        case "user", "text" if said and part.get("synthetic") is not True:
            yield TurnStarted(prompt=said, timestamp=at)
        case "assistant", "text" if said:
            yield Text(text=said, timestamp=at)
        case "assistant", "reasoning" if said:
            yield Thinking(text=said, timestamp=at)
        case "assistant", "tool":
            native, call, state = text(part.get("tool")), text(part.get("callID")), table(part.get("state"))
            name = NAMES.get(native, "mcp" if "_" in native else "other")
            yield used(call, name, native, table(state.get("input")), at)
            code = table(state.get("metadata")).get("exit")
            failed = state.get("status") != "completed" or bool(code)
            output = text(state.get("output")) or text(state.get("error"))
            yield ended(
                call, name, "error" if failed else "success", output, at, code if isinstance(code, int) else None
            )
        case _:
            return


def _object(data: object) -> Json:
    try:
        return table(msgspec.json.decode(data if isinstance(data, bytes) else str(data)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
