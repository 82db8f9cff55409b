"""What ``codex exec --json`` prints, in its own words: events, the items they are about, token counts.

Item ids restart at ``item_0`` in every process. Output and arguments keep whatever shape the tool gave them. The
app-server's words are in ``notifications`` and ``threads``.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import msgspec

from ...transports.launch import Exited, Stalled
from ...wire.shapes import Shapes, UnknownMessage
from ...wire.stamps import Stamped


class CodexUsage(msgspec.Struct, frozen=True):
    """``input_tokens`` includes the cached ones; ``output_tokens`` includes the reasoning."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def since(self, earlier: CodexUsage) -> CodexUsage:
        """What was used after ``earlier``. Never negative: a thread that was rolled back counts from zero again."""
        return CodexUsage(
            max(0, self.input_tokens - earlier.input_tokens),
            max(0, self.cached_input_tokens - earlier.cached_input_tokens),
            max(0, self.cache_write_input_tokens - earlier.cache_write_input_tokens),
            max(0, self.output_tokens - earlier.output_tokens),
            max(0, self.reasoning_output_tokens - earlier.reasoning_output_tokens),
        )


# ---------------------------------------------------------------------------------------------------------------- items


class AgentMessageItem(msgspec.Struct, frozen=True):
    id: str = ""
    text: str = ""


class ReasoningItem(msgspec.Struct, frozen=True):
    """``reasoning`` and ``summary`` are what older versions wrote instead of ``text``."""

    id: str = ""
    text: str = ""
    reasoning: str = ""
    summary: str | None = None

    @property
    def words(self) -> str:
        return self.text or self.reasoning or self.summary or ""


class CommandExecutionItem(msgspec.Struct, frozen=True):
    """``status``: in_progress, completed, failed (exit code not 0), declined."""

    id: str = ""
    command: str = ""
    aggregated_output: str = ""
    exit_code: int | None = None
    status: str = ""


class ToolCallItem(msgspec.Struct, frozen=True):
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


class FileChangeItem(msgspec.Struct, frozen=True):
    """``path``, ``before``, ``after`` and ``diff`` are what older versions wrote instead of ``changes``."""

    id: str = ""
    changes: list[FileUpdate] = []
    status: str = ""
    path: str = ""
    before: str | None = None
    after: str | None = None
    diff: str | None = None


class McpToolCallItemError(msgspec.Struct, frozen=True):
    message: str = ""


class McpToolCallItem(msgspec.Struct, frozen=True):
    """``tool_name``, ``tool_input`` and ``tool_result`` are older spellings."""

    id: str = ""
    server: str = ""
    tool: str = ""
    arguments: Any = None
    result: Any = None
    error: McpToolCallItemError | None = None
    status: str = ""
    tool_name: str = ""
    tool_input: Any = None
    tool_result: Any = None


class WebSearchItem(msgspec.Struct, frozen=True):
    """The line has the key ``id`` twice; the last one, ``ws_…``, counts."""

    id: str = ""
    query: str = ""
    action: Any = None
    results: list[Any] = []


class CodexTodoItem(msgspec.Struct, frozen=True):
    text: str = ""
    completed: bool = False


class TodoListItem(msgspec.Struct, frozen=True):
    id: str = ""
    items: list[CodexTodoItem] = []


class AgentState(msgspec.Struct, frozen=True):
    """``status``: pending_init, running, completed, errored, shutdown, not_found."""

    status: str = ""
    message: str | None = None


class CollabToolCallItem(msgspec.Struct, frozen=True):
    """``tool``: spawn_agent, send_input, wait, close_agent. What sub-agents write themselves never appears here."""

    id: str = ""
    tool: str = ""
    sender_thread_id: str = ""
    receiver_thread_ids: list[str] = []
    prompt: str | None = None
    agents_states: dict[str, AgentState] = {}
    status: str = ""


class ErrorItem(msgspec.Struct, frozen=True):
    """A warning (unknown model, unknown config key, transport fallback). The turn continues."""

    id: str = ""
    message: str = ""


Item: TypeAlias = (
    AgentMessageItem
    | ReasoningItem
    | CommandExecutionItem
    | ToolCallItem
    | FileChangeItem
    | McpToolCallItem
    | WebSearchItem
    | TodoListItem
    | CollabToolCallItem
    | ErrorItem
)

_ITEMS: dict[str, type[Item]] = {
    "agent_message": AgentMessageItem,
    "assistant_message": AgentMessageItem,
    "reasoning": ReasoningItem,
    "command_execution": CommandExecutionItem,
    "tool_call": ToolCallItem,
    "shell": ToolCallItem,
    "file_change": FileChangeItem,
    "mcp_tool_call": McpToolCallItem,
    "web_search": WebSearchItem,
    "todo_list": TodoListItem,
    "collab_tool_call": CollabToolCallItem,
    "error": ErrorItem,
}

ITEM_SHAPES: Shapes[Item] = Shapes(_ITEMS)
OLDER_ITEM_SHAPES: Shapes[Item] = Shapes(_ITEMS, fields=("item_type",))
"""Before items were nested, their fields stood in the event itself and ``item_type`` named them."""


def decode_item(raw: bytes) -> Item | UnknownMessage:
    item = ITEM_SHAPES.decode(raw)
    if not isinstance(item, UnknownMessage):
        return item
    older = OLDER_ITEM_SHAPES.decode(raw)
    return item if isinstance(older, UnknownMessage) else older


# --------------------------------------------------------------------------------------------------------------- events


class ThreadStarted(Stamped, frozen=True):
    """The first line of every process, also after ``resume``."""

    thread_id: str


class CodexTurnStarted(Stamped, frozen=True):
    """Once per process."""


class TurnError(msgspec.Struct, frozen=True):
    message: str = ""


class CodexTurnCompleted(Stamped, frozen=True):
    """``usage`` is what the CLI printed: the whole thread so far, earlier processes included.

    ``turn_usage`` is this turn alone, worked out by the protocol; ``None`` when the earlier total is not known.
    """

    usage: CodexUsage | None = None
    turn_usage: CodexUsage | None = None


class CodexTurnFailed(Stamped, frozen=True):
    error: TurnError = TurnError()


class ThreadError(Stamped, frozen=True):
    """The line of type ``error``. A harmless retry (``Reconnecting... 2/5``) unless ``turn.failed`` follows."""

    message: str = ""


class ItemStarted(Stamped, frozen=True):
    item: Item | UnknownMessage


class ItemUpdated(Stamped, frozen=True):
    item: Item | UnknownMessage


class ItemCompleted(Stamped, frozen=True):
    """``status`` stood on the line itself in older versions (success, failed); today the item has its own."""

    item: Item | UnknownMessage
    status: str = ""


class ItemLine(msgspec.Struct, frozen=True):
    """An item event before its item is typed. Older versions spread the item over the line itself."""

    type: str
    item: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    item_type: str | None = None
    status: str = ""


class StreamEnded(Stamped, frozen=True):
    """Ours: the output ended without ``turn.completed`` or ``turn.failed`` behind its last lines."""


ItemEvent: TypeAlias = ItemStarted | ItemUpdated | ItemCompleted
StreamEvent: TypeAlias = (
    ThreadStarted | CodexTurnStarted | CodexTurnCompleted | CodexTurnFailed | ThreadError | ItemEvent
)
ExecEvent: TypeAlias = StreamEvent | StreamEnded | UnknownMessage | Exited | Stalled

SHAPES: Shapes[ThreadStarted | CodexTurnStarted | CodexTurnCompleted | CodexTurnFailed | ThreadError | ItemLine] = (
    Shapes(
        {
            "thread.started": ThreadStarted,
            "turn.started": CodexTurnStarted,
            "turn.completed": CodexTurnCompleted,
            "turn.failed": CodexTurnFailed,
            "error": ThreadError,
            "item.started": ItemLine,
            "item.updated": ItemLine,
            "item.completed": ItemLine,
        }
    )
)

ITEM_EVENTS: dict[str, type[ItemEvent]] = {
    "item.started": ItemStarted,
    "item.updated": ItemUpdated,
    "item.completed": ItemCompleted,
}


def decode(message: bytes) -> StreamEvent | UnknownMessage:
    """One line of the stream. Never raises on content."""
    line = SHAPES.decode(message)
    if not isinstance(line, ItemLine):
        return line
    if isinstance(line.item, msgspec.UnsetType):
        if line.item_type is None:
            return UnknownMessage(message, "an item event without an item")
        item = OLDER_ITEM_SHAPES.decode(message)
    else:
        item = decode_item(bytes(line.item))
    event = ITEM_EVENTS[line.type](item)
    return ItemCompleted(item, line.status) if line.status and isinstance(event, ItemCompleted) else event


# ------------------------------------------------------------------------------------------------------- older versions


_TODAY = {"content": "text", "command_line": "command"}
_LINE = msgspec.json.Decoder(dict[str, Any])


class OlderItems:
    """Items as older versions of ``codex exec`` printed them: flat on the line, without an id, in pieces.

    Gives each of them an id, and to each line what the lines before it contain of its item.
    """

    def __init__(self) -> None:
        self._open: dict[str, dict[str, Any]] = {}
        self._count = 0

    def whole(self, message: bytes) -> bytes:
        """The line with everything printed so far about its item; every other line as it is."""
        if b'"item_type"' not in message:
            return message
        try:
            line = _LINE.decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return message
        kind, name = line.get("type"), line.get("item_type")
        if "item" in line or not isinstance(kind, str) or not isinstance(name, str) or not kind.startswith("item."):
            return message
        fields = {_TODAY.get(key, key): value for key, value in line.items() if value is not None}
        place = cast("str", fields["id"]) if isinstance(fields.get("id"), str) else f"\0{name}"
        if kind == "item.started" or place not in self._open:
            self._count += 1
            self._open[place] = {"id": f"older_{self._count}"}
        item = {**self._open[place], **fields}
        if kind == "item.completed":
            del self._open[place]
        else:
            self._open[place] = item
        return msgspec.json.encode(item)
