"""The normalized tools: what each does to the world, and to what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from .events import Operation, ToolName

OPERATIONS: dict[ToolName, Operation] = {
    "shell": "execute", "read_file": "read", "write_file": "write", "edit_file": "write", "search_content": "read",
    "find_files": "read", "web_fetch": "network", "web_search": "network", "task": "other", "plan": "other",
    "mcp": "other", "question": "other", "other": "other",
}  # fmt: skip

# The words the agents use for what a tool acts on, the telling ones first.
_TARGETS: dict[Operation, tuple[str, ...]] = {
    "execute": ("command", "cmd", "script", "input"),
    "read": ("file_path", "filePath", "absolute_path", "path", "dir_path", "pattern", "query"),
    "write": ("file_path", "filePath", "absolute_path", "path", "notebook_path"),
    "network": ("url", "query", "prompt"),
    "other": ("subject", "description", "prompt", "name", "title"),
}


def operation_of(name: ToolName) -> Operation:
    return OPERATIONS[name]


def described(arguments: Mapping[str, Any]) -> str:
    """What the model itself says a call is for, where its tool asks for that."""
    description: object = arguments.get("description")
    return description if isinstance(description, str) else ""


def target_of(name: ToolName, arguments: Mapping[str, Any]) -> str:
    """The path, command, URL, pattern or question a call is about; empty when its input does not say."""
    if name == "question" and (words := _question_text(arguments.get("questions"))):
        return words
    operation = OPERATIONS[name]
    for key in _TARGETS[operation]:
        value = arguments.get(key)
        if isinstance(value, list):
            value = " ".join(str(word) for word in cast("list[object]", value))
        if isinstance(value, str) and value:
            # The words of a command may be kept apart from its program.
            more = arguments.get("args") if operation == "execute" else None
            return " ".join([value, *map(str, cast("list[object]", more))]) if isinstance(more, list) else value
    return ""


def _question_text(questions: object) -> str:
    """The questions themselves, in the shape the agents share."""
    if not isinstance(questions, list):
        return ""
    texts = [
        cast("dict[str, Any]", one).get("question") for one in cast("list[object]", questions) if isinstance(one, dict)
    ]
    return "\n".join(text for text in texts if isinstance(text, str) and text)
