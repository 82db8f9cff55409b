"""The sessions Kimi Code has stored: ``sessions/<folder>/<id>/``, with a description and the events of its agent."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from ...unified.events import Error, Event, Text, Thinking, TurnStarted
from ...unified.faults import kind_of
from ...wire.fitting import whole_number
from ..agent import StoredSession
from ..stored import Json, ended, lines_of, table, text, text_of_blocks, used
from .state import user_folder
from .tools import TOOLS


def list_stored(cwd: str, env: Mapping[str, str] | None) -> Iterable[StoredSession]:
    folder = user_folder(os.environ if env is None else env) / "sessions"
    places = {cwd, str(Path(cwd).resolve())}
    for description in sorted(folder.glob("*/*/state.json")):
        try:
            about = table(msgspec.json.decode(description.read_bytes()))
        except (OSError, msgspec.DecodeError):
            continue
        if text(about.get("cwd")) in places or text(about.get("workDir")) in places:
            yield _summary(description, about)


def _summary(description: Path, about: Json) -> StoredSession:
    file = description.parent / "agents" / "main" / "wire.jsonl"
    prompts: list[str] = []
    messages = 0
    try:
        for record in lines_of(str(file)):
            if record.get("type") == "turn.prompt":
                prompts.append(_prompt(record))
            messages += record.get("type") in ("turn.prompt", "turn.ended")
    except OSError:
        pass
    return StoredSession(
        agent="kimi",
        session_id=description.parent.name,
        cwd=text(about.get("cwd")) or text(about.get("workDir")),
        title=text(about.get("title")),
        first_prompt=prompts[0] if prompts else text(about.get("lastPrompt")),
        messages=messages,
        started_ms=_time(about.get("createdAt")),
        updated_ms=_time(about.get("updatedAt")),
        path=str(file),
    )


def _time(value: object) -> int:
    return whole_number(value) or 0


def _prompt(record: Json) -> str:
    return text_of_blocks(record.get("input") or record.get("prompt") or record.get("content")).strip()


def read_stored(stored: StoredSession, env: Mapping[str, str]) -> Iterator[Event]:
    names: dict[str, str] = {}
    for record in lines_of(stored.path):
        at = _time(record.get("time"))
        match record.get("type"):
            case "turn.prompt":
                yield TurnStarted(prompt=_prompt(record), timestamp=at)
            case "context.append_loop_event":
                yield from _loop_events(table(record.get("event")), names, at)
            case "turn.ended" if record.get("reason") == "failed":
                error = table(record.get("error"))
                message, status = text(error.get("message")), table(error.get("details")).get("statusCode")
                yield Error(kind=kind_of(message, whole_number(status)), message=message, timestamp=at)
            case _:
                pass


def _loop_events(event: Json, names: dict[str, str], at: int) -> Iterator[Event]:
    match event.get("type"):
        case "content.part":
            part = table(event.get("part"))
            if words := text(part.get("text")):
                yield Text(text=words, timestamp=at)
            elif thought := text(part.get("think")):
                yield Thinking(text=thought, timestamp=at)
        case "tool.call":
            native = names[text(event.get("toolCallId"))] = text(event.get("name"))
            yield used(text(event.get("toolCallId")), TOOLS.get(native, "other"), native, table(event.get("args")), at)
        case "tool.result":
            result = table(event.get("result"))
            output = text_of_blocks(result.get("output")) or text(event.get("output"))
            failed = bool(result.get("isError") or event.get("isError"))
            call_id = text(event.get("toolCallId"))
            name = TOOLS.get(names.get(call_id, ""), "other")
            yield ended(call_id, name, "error" if failed else "success", output, at)
        case _:
            pass
