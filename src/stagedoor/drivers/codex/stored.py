"""Codex's stored sessions: listed, and read from their rollout files.

A rollout holds what was displayed (``item_completed``), and for older files and calls the raw items of the model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ...agents.codex.history import list_sessions
from ...unified.events import Event, Text, Thinking, ToolName, TurnStarted
from ..agent import StoredSession
from ..stored import Json, ended, lines_of, milliseconds, table, text, text_of_blocks, used
from .tools import NAMES

_CONTEXT = re.compile(r"\s*(?:<[a-z_]+>|# AGENTS\.md)")
"""What Codex itself puts before the first prompt."""
_EXIT = re.compile(r"(?:Process exited with code|Exit code:?) (-?\d+)")


def list_stored(cwd: str, env: Mapping[str, str] | None) -> Iterable[StoredSession]:
    return [
        StoredSession(
            agent="codex",
            session_id=session.session_id,
            cwd=session.cwd,
            title=session.title,
            first_prompt=session.first_prompt,
            messages=session.message_count,
            model=session.model or "",
            branch=session.git_branch or "",
            started_ms=session.started_ms,
            updated_ms=session.updated_ms,
            tokens=None if session.tokens is None else session.tokens.total_tokens,
            path=session.path,
        )
        for session in list_sessions(cwd, env=env).sessions
    ]


def read_stored(stored: StoredSession, env: Mapping[str, str]) -> Iterator[Event]:
    names: dict[str, ToolName] = {}
    repeated = _displayed_texts(stored.path)
    for line in lines_of(stored.path):
        payload, at = table(line.get("payload")), milliseconds(line.get("timestamp"))
        match line.get("type"), payload.get("type"):
            case "event_msg", "item_completed":
                yield from _displayed(table(payload.get("item")), at)
            case "event_msg", "user_message":
                yield TurnStarted(prompt=text(payload.get("message")), timestamp=at)
            case "event_msg", "agent_message":
                yield Text(text=text(payload.get("message")), timestamp=at)
            case "response_item", "message":
                yield from _model_message(payload, at, repeated)
            case "response_item", _:
                yield from _model_item(payload, at, names)
            case _:
                continue


def _displayed_texts(path: str) -> dict[type[Event], Counter[str]]:
    """The prompts and answers that were displayed: the raw items of the model repeat them, where they were."""
    repeated: dict[type[Event], Counter[str]] = {TurnStarted: Counter(), Text: Counter()}
    for line in lines_of(path):
        payload = table(line.get("payload"))
        match line.get("type"), payload.get("type"):
            case "event_msg", "item_completed":
                for event in _displayed(table(payload.get("item")), 0):
                    if isinstance(event, TurnStarted | Text):
                        repeated[type(event)][event.prompt if isinstance(event, TurnStarted) else event.text] += 1
            case "event_msg", "user_message":
                repeated[TurnStarted][text(payload.get("message"))] += 1
            case "event_msg", "agent_message":
                repeated[Text][text(payload.get("message"))] += 1
            case _:
                continue
    return repeated


def _model_message(item: Json, at: int, repeated: dict[type[Event], Counter[str]]) -> Iterator[Event]:
    """A prompt or an answer that is stored for the model only."""
    words = text_of_blocks(item.get("content"))
    match item.get("role"):
        case "assistant" if words:
            if repeated[Text][words] > 0:
                repeated[Text][words] -= 1
            else:
                yield Text(text=words, timestamp=at)
        case "user" if words and not repeated[TurnStarted] and not _CONTEXT.match(words):
            yield TurnStarted(prompt=words, timestamp=at)
        case _:
            return


def _displayed(item: Json, at: int) -> Iterator[Event]:
    match item.get("type"):
        case "UserMessage":
            yield TurnStarted(prompt=text_of_blocks(item.get("content")), timestamp=at)
        case "AgentMessage":
            yield Text(text=text_of_blocks(item.get("content")) or text(item.get("text")), timestamp=at)
        case "Reasoning":
            summary = item.get("summary_text") or item.get("summary")
            thought = "\n".join(map(str, summary)) if isinstance(summary, list) else text(summary)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            if thought:
                yield Thinking(text=thought, timestamp=at)
        case _:
            return  # calls come from the raw items, with all their arguments


def _model_item(item: Json, at: int, names: dict[str, ToolName]) -> Iterator[Event]:
    call = text(item.get("call_id"))
    match item.get("type"):
        case "function_call" | "custom_tool_call" | "local_shell_call":
            native = text(item.get("name")) or text(item.get("type"))
            names[call] = NAMES.get(native) or ("mcp" if "__" in native else "other")
            yield used(call, names[call], native, _arguments(item), at)
        case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
            if call in names:
                output = item.get("output")
                words = (
                    output if isinstance(output, str) else text_of_blocks(output) or text(table(output).get("content"))
                )
                code = _EXIT.search(words)
                failed = (code is not None and code[1] != "0") or table(output).get("success") is False
                yield ended(
                    call, names[call], "error" if failed else "success", words, at, int(code[1]) if code else None
                )
        case _:
            return


def _arguments(item: Json) -> dict[str, Any]:
    for key in ("arguments", "input", "action"):
        value = item.get(key)
        if isinstance(value, dict):
            return table(value)  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(value, str):
            try:
                return table(msgspec.json.decode(value)) or {"input": value}
            except (msgspec.DecodeError, RecursionError):
                return {"input": value}
    return {}
