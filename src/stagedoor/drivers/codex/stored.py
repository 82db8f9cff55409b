"""Codex's rollout: what was shown (``item_completed``), and for older files and calls the raw items of the model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ...unified.events import Event, Text, Thinking, ToolName, TurnStarted
from ..agent import StoredSession
from ..stored import Json, ended, lines_of, milliseconds, table, text, text_of_blocks, used

NAMES: dict[str, ToolName] = {
    "exec_command": "shell",
    "shell": "shell",
    "shell_command": "shell",
    "local_shell_call": "shell",
    "write_stdin": "shell",
    "apply_patch": "edit_file",
    "update_plan": "plan",
    "view_image": "read_file",
    "web_search": "web_search",
    "spawn_agent": "task",
}
_EXIT = re.compile(r"(?:Process exited with code|Exit code:?) (-?\d+)")


def read_stored(stored: StoredSession, env: Mapping[str, str]) -> Iterator[Event]:
    names: dict[str, ToolName] = {}
    for line in lines_of(stored.path):
        payload, at = table(line.get("payload")), milliseconds(line.get("timestamp"))
        match line.get("type"), payload.get("type"):
            case "event_msg", "item_completed":
                yield from _shown(table(payload.get("item")), at)
            case "event_msg", "user_message":
                yield TurnStarted(prompt=text(payload.get("message")), timestamp=at)
            case "event_msg", "agent_message":
                yield Text(text=text(payload.get("message")), timestamp=at)
            case "response_item", _:
                yield from _raw(payload, at, names)
            case _:
                continue


def _shown(item: Json, at: int) -> Iterator[Event]:
    match item.get("type"):
        case "UserMessage":
            yield TurnStarted(prompt=text_of_blocks(item.get("content")), timestamp=at)
        case "AgentMessage":
            yield Text(text=text_of_blocks(item.get("content")) or text(item.get("text")), timestamp=at)
        case "Reasoning":
            said = item.get("summary_text") or item.get("summary")
            thought = "\n".join(map(str, said)) if isinstance(said, list) else text(said)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            if thought:
                yield Thinking(text=thought, timestamp=at)
        case _:
            return  # calls are told with all they were given by the raw items


def _raw(item: Json, at: int, names: dict[str, ToolName]) -> Iterator[Event]:
    call = text(item.get("call_id"))
    match item.get("type"):
        case "function_call" | "custom_tool_call" | "local_shell_call":
            native = text(item.get("name")) or text(item.get("type"))
            names[call] = NAMES.get(native, "mcp" if "__" in native else "other")
            yield used(call, names[call], native, _given(item), at)
        case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
            if call in names:
                output = item.get("output")
                said = (
                    output if isinstance(output, str) else text_of_blocks(output) or text(table(output).get("content"))
                )
                code = _EXIT.search(said)
                failed = (code is not None and code[1] != "0") or table(output).get("success") is False
                yield ended(
                    call, names[call], "error" if failed else "success", said, at, int(code[1]) if code else None
                )
        case _:
            return


def _given(item: Json) -> dict[str, Any]:
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
