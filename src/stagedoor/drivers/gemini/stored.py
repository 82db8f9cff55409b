"""Gemini CLI's session file, replayed by its own rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ...agents.gemini.records import Record, Replay, ToolRecord, details
from ...unified.events import Event, FileChange, Text, Thinking, TurnStarted
from ..agent import StoredSession
from ..stored import ended, milliseconds, text, used
from .tools import NAMES


def read_stored(stored: StoredSession, env: Mapping[str, str]) -> Iterator[Event]:
    replay = Replay()
    replay.feed(Path(stored.path).read_bytes().split(b"\n"))
    for message in replay.messages:
        if message.is_prompt:
            yield TurnStarted(prompt=message.text, timestamp=milliseconds(message.timestamp))
        elif message.type == "gemini":
            yield from _said(message)


def _said(message: Record) -> Iterator[Event]:
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
