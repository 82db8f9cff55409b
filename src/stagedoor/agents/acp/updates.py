"""Everything a ``session/update`` can say, with the content blocks it is made of (a prompt is made of them, too)."""

from __future__ import annotations

# A session that the CLI names itself takes the place of the one we know:
# pyright: reportIncompatibleMethodOverride=false
from typing import Any, TypeAlias

import msgspec

from stagedoor.wire.shapes import Shapes, UnknownMessage
from stagedoor.wire.stamps import Stamped

from .responses import ConfigOption


class TextContent(
    msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="text", rename="camel", omit_defaults=True
):
    text: str
    annotations: dict[str, Any] | None = None


class ImageContent(msgspec.Struct, frozen=True, tag_field="type", tag="image", rename="camel", omit_defaults=True):
    """An image as base64."""

    data: str
    mime_type: str
    uri: str | None = None
    annotations: dict[str, Any] | None = None


class AudioContent(msgspec.Struct, frozen=True, tag_field="type", tag="audio", rename="camel", omit_defaults=True):
    data: str
    mime_type: str
    annotations: dict[str, Any] | None = None


class ResourceLink(
    msgspec.Struct, frozen=True, tag_field="type", tag="resource_link", rename="camel", omit_defaults=True
):
    """A file or page the agent may open by itself."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: dict[str, Any] | None = None


class Resource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What an embedded resource holds: ``text``, or ``blob`` as base64."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class EmbeddedResource(
    msgspec.Struct, frozen=True, tag_field="type", tag="resource", rename="camel", omit_defaults=True
):
    resource: Resource
    annotations: dict[str, Any] | None = None


KnownBlock: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
ContentBlock: TypeAlias = KnownBlock | UnknownMessage

BLOCKS: Shapes[KnownBlock] = Shapes(
    {
        "text": TextContent,
        "image": ImageContent,
        "audio": AudioContent,
        "resource_link": ResourceLink,
        "resource": EmbeddedResource,
    }
)


_KNOWN: msgspec.json.Decoder[KnownBlock] = msgspec.json.Decoder(KnownBlock)


def block(raw: msgspec.Raw) -> ContentBlock:
    try:
        return _KNOWN.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return BLOCKS.decode(bytes(raw))  # which repairs what can be repaired


def text_of(raw: msgspec.Raw) -> str:
    """The text of a block; empty for a picture, a sound, or a kind of block that is new to us."""
    content = block(raw)
    return content.text if type(content) is TextContent else words_in(content)


def words_in(content: ContentBlock) -> str:
    """The same of a block that is decoded already."""
    match content:
        case TextContent(text=text):
            return text
        case EmbeddedResource(resource=Resource(text=str(text))):
            return text
        case _:
            return ""


class Content(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="content"):
    """A content block shown inside a tool call."""

    content: msgspec.Raw

    @property
    def block(self) -> ContentBlock:
        return block(self.content)

    @property
    def text(self) -> str:
        return text_of(self.content)


class DiffContent(msgspec.Struct, frozen=True, tag_field="type", tag="diff", rename="camel"):
    """A change of one file. ``old_text`` is None for a new file; some agents give the edit, not the whole file."""

    path: str
    new_text: str
    old_text: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class TerminalContent(msgspec.Struct, frozen=True, tag_field="type", tag="terminal", rename="camel"):
    """The live output of a terminal the agent asked us to run."""

    terminal_id: str


KnownToolContent: TypeAlias = Content | DiffContent | TerminalContent
ToolCallContent: TypeAlias = KnownToolContent | UnknownMessage

TOOL_CONTENT: Shapes[KnownToolContent] = Shapes({"content": Content, "diff": DiffContent, "terminal": TerminalContent})


_KNOWN_CONTENT: msgspec.json.Decoder[KnownToolContent] = msgspec.json.Decoder(KnownToolContent)


def tool_contents(raw: list[msgspec.Raw] | None) -> list[ToolCallContent]:
    return [_tool_content(content) for content in raw] if raw else []


def _tool_content(raw: msgspec.Raw) -> ToolCallContent:
    try:
        return _KNOWN_CONTENT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return TOOL_CONTENT.decode(bytes(raw))  # which repairs what can be repaired


class UserMessageChunk(
    msgspec.Struct, frozen=True, gc=False, rename="camel", tag_field="sessionUpdate", tag="user_message_chunk"
):
    """What the user wrote: replayed with a stored conversation, or echoed."""

    content: msgspec.Raw
    message_id: str | None = None

    @property
    def block(self) -> ContentBlock:
        return block(self.content)

    @property
    def text(self) -> str:
        return text_of(self.content)


class AgentMessageChunk(
    msgspec.Struct, frozen=True, gc=False, rename="camel", tag_field="sessionUpdate", tag="agent_message_chunk"
):
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


class AgentThoughtChunk(
    msgspec.Struct, frozen=True, gc=False, rename="camel", tag_field="sessionUpdate", tag="agent_thought_chunk"
):
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


class ToolCallLocation(msgspec.Struct, frozen=True, gc=False):
    path: str
    line: int | None = None


class AcpToolCall(msgspec.Struct, frozen=True, rename="camel", tag_field="sessionUpdate", tag="tool_call"):
    """A tool call begins. ``kind`` is read, edit, delete, move, search, execute, think, fetch, switch_mode or other."""

    tool_call_id: str
    title: str = ""
    kind: str | None = None
    status: str | None = None
    content: list[msgspec.Raw] | None = None
    locations: list[ToolCallLocation] | None = None
    raw_input: Any = None
    raw_output: Any = None
    name: str | None = None
    """The tool's own name; not in the schema, but sent."""
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    def contents(self) -> list[ToolCallContent]:
        return tool_contents(self.content)


class ToolCallUpdate(msgspec.Struct, frozen=True, rename="camel", tag_field="sessionUpdate", tag="tool_call_update"):
    """A tool call continues or ends. What is None has not changed; a list that is given replaces the one before."""

    tool_call_id: str
    title: str | None = None
    kind: str | None = None
    status: str | None = None
    content: list[msgspec.Raw] | None = None
    locations: list[ToolCallLocation] | None = None
    raw_input: Any = None
    raw_output: Any = None
    name: str | None = None
    """The tool's own name; not in the schema, but sent."""
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    def contents(self) -> list[ToolCallContent]:
        return tool_contents(self.content)


class PlanEntry(msgspec.Struct, frozen=True):
    """``status`` is pending, in_progress or completed; ``priority`` is high, medium or low."""

    content: str
    status: str = "pending"
    priority: str = "medium"


class AcpPlan(msgspec.Struct, frozen=True):
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

    def content(self) -> PlanShape | UnknownMessage:
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


class AcpNotice(msgspec.Struct, frozen=True, rename="camel"):
    """Something that the user should know. ``severity``: info, warning, error, or another word."""

    title: str
    severity: str = ""
    description: str | None = None


class CompactionUpdate(msgspec.Struct, frozen=True, rename="camel"):
    """``status``: in_progress, completed, failed, cancelled."""

    compaction_id: str = ""
    status: str = ""
    error: str | None = None


class OtherUpdate(msgspec.Struct, frozen=True, rename="camel"):
    """What belongs to no turn of ours: the text of a summary, messages between sessions, what a sub-agent can do."""

    session_update: str = ""


KnownUpdate: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | AcpToolCall
    | ToolCallUpdate
    | AcpPlan
    | PlanUpdate
    | PlanRemoved
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
    | AcpNotice
    | CompactionUpdate
    | OtherUpdate
)

UPDATES: Shapes[KnownUpdate] = Shapes(
    {
        "user_message_chunk": UserMessageChunk,
        "agent_message_chunk": AgentMessageChunk,
        "agent_thought_chunk": AgentThoughtChunk,
        "tool_call": AcpToolCall,
        "tool_call_update": ToolCallUpdate,
        "plan": AcpPlan,
        "plan_update": PlanUpdate,
        "plan_removed": PlanRemoved,
        "available_commands_update": AvailableCommandsUpdate,
        "current_mode_update": CurrentModeUpdate,
        "config_option_update": ConfigOptionUpdate,
        "session_info_update": SessionInfoUpdate,
        "usage_update": UsageUpdate,
        "notice": AcpNotice,
        "compaction_update": CompactionUpdate,
        "compaction_summary_chunk": OtherUpdate,
        "subagent_update": OtherUpdate,
        "session_message": OtherUpdate,
        "session_message_chunk": OtherUpdate,
    },
    ("sessionUpdate",),
)


ConversationUpdate: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | AcpToolCall
    | ToolCallUpdate
    | AcpPlan
    | PlanUpdate
    | PlanRemoved
)
"""What a conversation consists of, and what is replayed of it; the other updates report the present state."""


class SessionUpdate(Stamped, frozen=True, gc=False):
    """The agent reports. ``replayed``: it is part of a stored conversation being loaded, not of a running turn.
    ``late``: the turn that it belonged to is over."""

    session_id: str
    update: KnownUpdate
    replayed: bool = False
    late: bool = False
