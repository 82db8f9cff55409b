"""The sessions Gemini CLI has stored: a list of them, and one replayed by the CLI's own rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ...agents.gemini.history import list_sessions
from ...agents.gemini.records import MessageRecord, SessionFileReplay, ToolRecord, details
from ...unified.events import Event, FileChange, Text, Thinking, TurnStarted
from ..agent import StoredSession
from ..stored import ended, milliseconds, text, used
from .tools import NAMES


def list_stored(cwd: str, env: Mapping[str, str] | None) -> Iterable[StoredSession]:
    return [
        StoredSession(
            agent="gemini",
            session_id=one.session_id,
            cwd=one.cwd,
            title=one.title,
            first_prompt=one.first_prompt,
            messages=one.message_count,
            model=one.model or "",
            started_ms=one.started_ms,
            updated_ms=one.updated_ms,
            tokens=one.tokens,
            path=one.path,
        )
        for one in list_sessions(cwd, env=env).sessions
    ]


def read_stored(stored: StoredSession, env: Mapping[str, str]) -> Iterator[Event]:
    replay = SessionFileReplay()
    replay.feed(Path(stored.path).read_bytes().split(b"\n"))
    for message in replay.messages:
        if message.is_prompt:
            yield TurnStarted(prompt=message.text, timestamp=milliseconds(message.timestamp))
        elif message.type == "gemini":
            yield from _said(message)


def _said(message: MessageRecord) -> Iterator[Event]:
    at = milliseconds(message.timestamp)
    for thought in message.thoughts or ():
        told = ": ".join(part for part in (thought.subject, thought.description) if part)
        yield Thinking(text=told, timestamp=at)
    if message.text:
        yield Text(text=message.text, timestamp=at)
    for call in message.tool_calls or ():
        yield from _called(call, at)


def _called(call: ToolRecord, at: int) -> Iterator[Event]:
    name = NAMES.get(call.name, "mcp" if call.name.startswith("mcp_") else "other")
    known = details(call)
    yield used(call.id, name, call.name, call.args, at)
    if known.diff is not None:
        yield FileChange(
            path=known.diff.file_path or known.diff.file_name,
            change="created" if known.diff.is_new_file else "modified",
            diff=known.diff.file_diff,
            tool_use_id=call.id,
            timestamp=at,
        )
    failed = call.status != "success" or bool(known.exit_code)
    output = text(known.response.get("output")) or text(known.response.get("error"))
    yield ended(call.id, name, "error" if failed else "success", output, at, known.exit_code)
