"""The sessions Qwen Code has stored: ``projects/<folder>/chats/<id>.jsonl``, a record a line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...unified.events import Event, Text, Thinking, TurnStarted
from ...wire.fitting import whole_number
from ..acp.retries import FailedCall
from ..agent import StoredSession
from ..stored import Json, ended, lines_of, milliseconds, table, tables, text, used
from .state import user_folder
from .tools import TOOLS


def list_stored(cwd: str, env: Mapping[str, str] | None) -> Iterable[StoredSession]:
    folder = user_folder(os.environ if env is None else env) / "projects"
    for place in dict.fromkeys((cwd, str(Path(cwd).resolve()))):
        for file in sorted((folder / re.sub(r"[^A-Za-z0-9]", "-", place) / "chats").glob("*.jsonl")):
            session = _summary(file)
            if session is not None and session.cwd in ("", cwd, place):
                yield session


def records_file(session_id: str, cwd: str, env: Mapping[str, str]) -> Path | None:
    """``None``: not there yet."""
    folder = user_folder(env) / "projects"
    places = (re.sub(r"[^A-Za-z0-9]", "-", place) for place in (cwd, str(Path(cwd).resolve())))
    files = (folder / place / "chats" / f"{session_id}.jsonl" for place in places)
    return next((file for file in files if file.is_file()), None)


def failed_call(record: Json) -> FailedCall | None:
    """A call of the model that failed. It tries again by itself, for minutes, and says nothing of it."""
    event = table(table(record.get("systemPayload")).get("uiEvent"))
    if event.get("event.name") != "qwen-code.api_error":
        return None
    status: object = event.get("status_code")
    return FailedCall(text(event.get("error_message")), whole_number(status))


def _summary(file: Path) -> StoredSession | None:
    try:
        records = list(lines_of(str(file)))
        updated = int(file.stat().st_mtime * 1000)
    except OSError:
        return None
    first: dict[str, Any] = next((record for record in records if record.get("cwd")), dict[str, Any]())
    prompts = [prompt for record in records if (prompt := _prompt(record))]
    if not prompts:
        return None
    models = [model for record in records if (model := text(record.get("model")))]
    return StoredSession(
        agent="qwen",
        session_id=text(first.get("sessionId")) or file.stem,
        cwd=text(first.get("cwd")),
        title=prompts[0][:80],
        first_prompt=prompts[0],
        messages=sum(record.get("type") in ("user", "assistant") for record in records),
        model=models[-1] if models else "",
        branch=text(first.get("gitBranch")),
        started_ms=milliseconds(first.get("timestamp")),
        updated_ms=updated,
        path=str(file),
    )


def _prompt(record: Json) -> str:
    if record.get("type") != "user" or record.get("subtype"):
        return ""
    return "\n".join(_texts(record))


def _texts(record: Json) -> list[str]:
    parts = tables(table(record.get("message")).get("parts"))
    return [words for part in parts if (words := text(part.get("text"))) and not part.get("thought")]


def read_stored(stored: StoredSession, env: Mapping[str, str]) -> Iterator[Event]:
    for record in lines_of(stored.path):
        at = milliseconds(record.get("timestamp"))
        match record.get("type"):
            case "user" if prompt := _prompt(record):
                yield TurnStarted(prompt=prompt, timestamp=at)
            case "assistant":
                yield from _answer_events(record, at)
            case "tool_result":
                yield from _result_events(record, at)
            case _:
                pass


def _answer_events(record: Json, at: int) -> Iterator[Event]:
    for part in tables(table(record.get("message")).get("parts")):
        call, words = table(part.get("functionCall")), text(part.get("text"))
        if call:
            native = text(call.get("name"))
            yield used(text(call.get("id")), TOOLS.get(native, "other"), native, table(call.get("args")), at)
        elif words:
            yield Thinking(text=words, timestamp=at) if part.get("thought") else Text(text=words, timestamp=at)


def _result_events(record: Json, at: int) -> Iterator[Event]:
    result = table(record.get("toolCallResult"))
    display = table(result.get("resultDisplay"))
    code = display.get("exitCode")
    for part in tables(table(record.get("message")).get("parts")):
        response = table(part.get("functionResponse"))
        if not response:
            continue
        answer = table(response.get("response"))
        output = text(display.get("output")) or text(answer.get("output")) or text(answer.get("error"))
        failed = result.get("status") not in (None, "success") or "error" in answer
        yield ended(
            text(response.get("id")) or text(result.get("callId")),
            TOOLS.get(text(response.get("name")), "other"),
            "error" if failed else "success",
            output,
            at,
            whole_number(code),
        )
