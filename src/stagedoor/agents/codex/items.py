"""The items of ``codex exec --json``, in its own words.

Item ids restart at ``item_0`` in every process. Output and arguments keep whatever shape the tool gave them.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ...wire.shapes import Shapes, Unrecognized


class AgentMessage(msgspec.Struct, frozen=True):
    id: str = ""
    text: str = ""


class Reasoning(msgspec.Struct, frozen=True):
    """``reasoning`` and ``summary`` are what older versions wrote instead of ``text``."""

    id: str = ""
    text: str = ""
    reasoning: str = ""
    summary: str | None = None

    @property
    def words(self) -> str:
        return self.text or self.reasoning or self.summary or ""


class CommandExecution(msgspec.Struct, frozen=True):
    """``status``: in_progress, completed, failed (exit code not 0), declined."""

    id: str = ""
    command: str = ""
    aggregated_output: str = ""
    exit_code: int | None = None
    status: str = ""


class ToolCall(msgspec.Struct, frozen=True):
    """An older version's ``tool_call`` or ``shell``."""

    id: str = ""
    name: str = ""
    arguments: Any = None
    output: str | None = None
    exit_code: int | None = None
    status: str = ""


class FileUpdate(msgspec.Struct, frozen=True):
    """``kind``: add, delete, update. There is no diff and no target of a move. ``before`` and ``after`` are older."""

    path: str = ""
    kind: str = ""
    before: str | None = None
    after: str | None = None


class FileChange(msgspec.Struct, frozen=True):
    """``path``, ``before``, ``after`` and ``diff`` are what older versions wrote instead of ``changes``."""

    id: str = ""
    changes: list[FileUpdate] = []
    status: str = ""
    path: str = ""
    before: str | None = None
    after: str | None = None
    diff: str | None = None


class Failure(msgspec.Struct, frozen=True):
    message: str = ""


class McpToolCall(msgspec.Struct, frozen=True):
    """``tool_name``, ``tool_input`` and ``tool_result`` are older spellings."""

    id: str = ""
    server: str = ""
    tool: str = ""
    arguments: Any = None
    result: Any = None
    error: Failure | None = None
    status: str = ""
    tool_name: str = ""
    tool_input: Any = None
    tool_result: Any = None


class WebSearch(msgspec.Struct, frozen=True):
    """The line has the key ``id`` twice; the last one, ``ws_…``, counts."""

    id: str = ""
    query: str = ""
    action: Any = None
    results: list[Any] = []


class Todo(msgspec.Struct, frozen=True):
    text: str = ""
    completed: bool = False


class TodoList(msgspec.Struct, frozen=True):
    id: str = ""
    items: list[Todo] = []


class AgentState(msgspec.Struct, frozen=True):
    """``status``: pending_init, running, completed, errored, shutdown, not_found."""

    status: str = ""
    message: str | None = None


class CollabToolCall(msgspec.Struct, frozen=True):
    """``tool``: spawn_agent, send_input, wait, close_agent. What sub-agents say themselves never shows here."""

    id: str = ""
    tool: str = ""
    sender_thread_id: str = ""
    receiver_thread_ids: list[str] = []
    prompt: str | None = None
    agents_states: dict[str, AgentState] = {}
    status: str = ""


class ErrorItem(msgspec.Struct, frozen=True):
    """A warning (unknown model, unknown config key, transport fallback). The turn goes on."""

    id: str = ""
    message: str = ""


Item: TypeAlias = (
    AgentMessage
    | Reasoning
    | CommandExecution
    | ToolCall
    | FileChange
    | McpToolCall
    | WebSearch
    | TodoList
    | CollabToolCall
    | ErrorItem
)

_TABLE: dict[str, type[Item]] = {
    "agent_message": AgentMessage,
    "assistant_message": AgentMessage,
    "reasoning": Reasoning,
    "command_execution": CommandExecution,
    "tool_call": ToolCall,
    "shell": ToolCall,
    "file_change": FileChange,
    "mcp_tool_call": McpToolCall,
    "web_search": WebSearch,
    "todo_list": TodoList,
    "collab_tool_call": CollabToolCall,
    "error": ErrorItem,
}

SHAPES: Shapes[Item] = Shapes(_TABLE)
OLDER_SHAPES: Shapes[Item] = Shapes(_TABLE, fields=("item_type",))
"""Before items were nested, their fields stood in the event itself and ``item_type`` named them."""


def decode(raw: bytes) -> Item | Unrecognized:
    item = SHAPES.decode(raw)
    if not isinstance(item, Unrecognized):
        return item
    older = OLDER_SHAPES.decode(raw)
    return item if isinstance(older, Unrecognized) else older
