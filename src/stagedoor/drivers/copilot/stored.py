"""The sessions Copilot CLI has stored: ``session-state/<id>/``, with a description and the events."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ...unified.events import Error, Event, Text, TurnStarted
from ...unified.faults import kind_of
from ...wire.fitting import whole_number
from ..agent import StoredSession
from ..stored import Json, ended, lines_of, milliseconds, table, text, used
from .state import user_folder
from .tools import EXIT_LINE, TOOLS


def list_stored(cwd: str, env: Mapping[str, str] | None) -> Iterable[StoredSession]:
    folder = user_folder(os.environ if env is None else env) / "session-state"
    places = {cwd, str(Path(cwd).resolve())}
    for description in sorted(folder.glob("*/workspace.yaml")):
        about = _members(description)
        if about.get("cwd") in places:
            yield _summary(description.with_name("events.jsonl"), about, description.parent.name)


def _members(description: Path) -> dict[str, str]:
    """The plain lines ``name: value`` of the description; whatever else there is does not matter here."""
    try:
        lines = description.read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition(": ") for line in lines if not line.startswith((" ", "-")))
    return {name: value.strip().strip("'\"") for name, mark, value in pairs if mark}


def _summary(file: Path, about: Mapping[str, str], session_id: str) -> StoredSession:
    prompts: list[str] = []
    messages, model = 0, ""
    try:
        for record in lines_of(str(file)):
            content = table(record.get("data"))
            match record.get("type"):
                case "user.message":
                    prompts.append(text(content.get("content")))
                    messages += 1
                case "assistant.message":
                    messages += 1
                case "session.model_change":
                    model = text(content.get("newModel")) or text(content.get("model")) or model
                case _:
                    pass
    except OSError:
        pass
    return StoredSession(
        agent="copilot",
        session_id=about.get("id", session_id),
        cwd=about.get("cwd", ""),
        title=about.get("name", "") or (prompts[0][:80] if prompts else ""),
        first_prompt=prompts[0] if prompts else "",
        messages=messages,
        model=model,
        branch=about.get("branch", ""),
        started_ms=milliseconds(about.get("created_at")),
        updated_ms=milliseconds(about.get("updated_at")),
        path=str(file),
    )


def read_stored(stored: StoredSession, env: Mapping[str, str]) -> Iterator[Event]:
    names: dict[str, str] = {}
    for record in lines_of(stored.path):
        content, at = table(record.get("data")), milliseconds(record.get("timestamp"))
        match record.get("type"):
            case "user.message":
                yield TurnStarted(prompt=text(content.get("content")), timestamp=at)
            case "assistant.message" if words := text(content.get("content")):
                yield Text(text=words, timestamp=at)
            case "tool.execution_start":
                call, native = text(content.get("toolCallId")), text(content.get("toolName"))
                names[call] = native
                yield used(call, TOOLS.get(native, "other"), native, table(content.get("arguments")), at)
            case "tool.execution_complete":
                yield _result(content, names.get(text(content.get("toolCallId")), ""), at)
            case "session.error":
                message = text(content.get("message"))
                status = content.get("statusCode")
                yield Error(kind=kind_of(message, whole_number(status)), message=message, timestamp=at)
            case _:
                pass


def _result(content: Json, native: str, at: int) -> Event:
    result = table(content.get("result"))
    output = text(result.get("content")) or text(table(content.get("error")).get("message"))
    exit_line = EXIT_LINE.search(output)
    code = int(exit_line[1]) if exit_line else None
    failed = content.get("success") is False or bool(code)
    return ended(
        text(content.get("toolCallId")),
        TOOLS.get(native, "other"),
        "error" if failed else "success",
        EXIT_LINE.sub("", output),
        at,
        code,
    )
