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
            session_id=session.session_id,
            cwd=session.cwd,
            title=session.title,
            first_prompt=session.first_prompt,
            messages=session.message_count,
            model=session.model or "",
            started_ms=session.started_ms,
            updated_ms=session.updated_ms,
            tokens=session.tokens,
            path=session.path,
        )
        for session in list_sessions(cwd, env=env).sessions
    ]


def read_stored(stored: StoredSession, env: Mapping[str, str]) -> Iterator[Event]:
    replay = SessionFileReplay()
    replay.feed(Path(stored.path).read_bytes().split(b"\n"))
    for message in replay.messages:
        if message.is_prompt:
            yield TurnStarted(prompt=message.text, timestamp=milliseconds(message.timestamp))
        elif message.type == "gemini":
            yield from _answer_events(message)


def _answer_events(message: MessageRecord) -> Iterator[Event]:
    at = milliseconds(message.timestamp)
    for thought in message.thoughts or ():
        content = ": ".join(part for part in (thought.subject, thought.description) if part)
        yield Thinking(text=content, timestamp=at)
    if message.text:
        yield Text(text=message.text, timestamp=at)
    for call in message.tool_calls or ():
        yield from _call_events(call, at)


def _call_events(call: ToolRecord, at: int) -> Iterator[Event]:
    name = NAMES.get(call.name, "mcp" if call.name.startswith("mcp_") else "other")
    result = details(call)
    yield used(call.id, name, call.name, call.args, at)
    if result.diff is not None:
        yield FileChange(
            path=result.diff.file_path or result.diff.file_name,
            change="created" if result.diff.is_new_file else "modified",
            diff=result.diff.file_diff,
            tool_use_id=call.id,
            timestamp=at,
        )
    failed = call.status != "success" or bool(result.exit_code)
    output = text(result.response.get("output")) or text(result.response.get("error"))
    yield ended(call.id, name, "error" if failed else "success", output, at, result.exit_code)
