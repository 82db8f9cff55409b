"""Everything a ``session/update`` can say."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from stagedoor.wire.shapes import Shapes, Unrecognized

from .content import ContentBlock, ToolCallContent, block, text_of, tool_contents
from .settings import ConfigOption


class UserMessageChunk(msgspec.Struct, frozen=True, rename="camel"):
    """What the user said: replayed with a stored conversation, or echoed."""

    content: msgspec.Raw
    message_id: str | None = None

    @property
    def block(self) -> ContentBlock:
        return block(self.content)

    @property
    def text(self) -> str:
        return text_of(self.content)


class AgentMessageChunk(msgspec.Struct, frozen=True, rename="camel"):
    """A piece of the answer."""

    content: msgspec.Raw
    message_id: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @property
    def block(self) -> ContentBlock:
        return block(self.content)

    @property
    def text(self) -> str:
        return text_of(self.content)


class AgentThoughtChunk(msgspec.Struct, frozen=True, rename="camel"):
    """A piece of reasoning."""

    content: msgspec.Raw
    message_id: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @property
    def block(self) -> ContentBlock:
        return block(self.content)

    @property
    def text(self) -> str:
        return text_of(self.content)


class ToolCallLocation(msgspec.Struct, frozen=True):
    path: str
    line: int | None = None


class ToolCall(msgspec.Struct, frozen=True, rename="camel"):
    """A tool call begins. ``kind`` is read, edit, delete, move, search, execute, think, fetch, switch_mode or other."""

    tool_call_id: str
    title: str = ""
    kind: str | None = None
    status: str | None = None
    content: list[msgspec.Raw] | None = None
    locations: list[ToolCallLocation] | None = None
    raw_input: Any = None
    raw_output: Any = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    def contents(self) -> list[ToolCallContent]:
        return tool_contents(self.content)


class ToolCallUpdate(msgspec.Struct, frozen=True, rename="camel"):
    """A tool call goes on or ends. What is None has not changed; a list that is given replaces the one before."""

    tool_call_id: str
    title: str | None = None
    kind: str | None = None
    status: str | None = None
    content: list[msgspec.Raw] | None = None
    locations: list[ToolCallLocation] | None = None
    raw_input: Any = None
    raw_output: Any = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    def contents(self) -> list[ToolCallContent]:
        return tool_contents(self.content)


class PlanEntry(msgspec.Struct, frozen=True):
    """``status`` is pending, in_progress or completed; ``priority`` is high, medium or low."""

    content: str
    status: str = "pending"
    priority: str = "medium"


class Plan(msgspec.Struct, frozen=True):
    """The whole plan as it now stands."""

    entries: list[PlanEntry] = []


class PlanItems(msgspec.Struct, frozen=True, rename="camel"):
    plan_id: str
    entries: list[PlanEntry] = []


class PlanFile(msgspec.Struct, frozen=True, rename="camel"):
    """A plan kept in a file."""

    plan_id: str
    uri: str


class PlanMarkdown(msgspec.Struct, frozen=True, rename="camel"):
    plan_id: str
    content: str


PlanShape: TypeAlias = PlanItems | PlanFile | PlanMarkdown
PLANS: Shapes[PlanShape] = Shapes({"items": PlanItems, "file": PlanFile, "markdown": PlanMarkdown})


class PlanUpdate(msgspec.Struct, frozen=True):
    """One of several plans as it now stands."""

    plan: msgspec.Raw

    def content(self) -> PlanShape | Unrecognized:
        return PLANS.decode(bytes(self.plan))


class PlanRemoved(msgspec.Struct, frozen=True, rename="camel"):
    plan_id: str


class AvailableCommand(msgspec.Struct, frozen=True):
    """A slash command of the agent."""

    name: str
    description: str = ""
    input: dict[str, Any] | None = None


class AvailableCommandsUpdate(msgspec.Struct, frozen=True, rename="camel"):
    available_commands: list[AvailableCommand] = []


class CurrentModeUpdate(msgspec.Struct, frozen=True, rename="camel"):
    current_mode_id: str


class ConfigOptionUpdate(msgspec.Struct, frozen=True, rename="camel"):
    """All settings of the session as they now stand."""

    config_options: list[ConfigOption] = []


class SessionInfoUpdate(msgspec.Struct, frozen=True, rename="camel"):
    title: str | None = None
    updated_at: str | None = None


class Cost(msgspec.Struct, frozen=True):
    amount: float = 0.0
    currency: str = "USD"


class UsageUpdate(msgspec.Struct, frozen=True):
    """``used`` of ``size`` tokens of context are filled. ``cost`` is that of the whole session."""

    used: int = 0
    size: int = 0
    cost: Cost | None = None


KnownUpdate: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCall
    | ToolCallUpdate
    | Plan
    | PlanUpdate
    | PlanRemoved
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
)

UPDATES: Shapes[KnownUpdate] = Shapes(
    {
        "user_message_chunk": UserMessageChunk,
        "agent_message_chunk": AgentMessageChunk,
        "agent_thought_chunk": AgentThoughtChunk,
        "tool_call": ToolCall,
        "tool_call_update": ToolCallUpdate,
        "plan": Plan,
        "plan_update": PlanUpdate,
        "plan_removed": PlanRemoved,
        "available_commands_update": AvailableCommandsUpdate,
        "current_mode_update": CurrentModeUpdate,
        "config_option_update": ConfigOptionUpdate,
        "session_info_update": SessionInfoUpdate,
        "usage_update": UsageUpdate,
    },
    ("sessionUpdate",),
)


Said: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCall
    | ToolCallUpdate
    | Plan
    | PlanUpdate
    | PlanRemoved
)
"""What a conversation consists of, and what is replayed of it; the other updates tell how things stand now."""


class SessionUpdate(msgspec.Struct, frozen=True):
    """The agent reports. ``replayed``: it is part of a stored conversation being loaded, not of a running turn."""

    session_id: str
    update: KnownUpdate
    replayed: bool = False
