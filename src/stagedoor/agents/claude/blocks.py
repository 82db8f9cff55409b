"""What a message is made of, and the pieces in which the model streams it. Claude Code's own words."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ...wire.shapes import Shapes, Unrecognized

NOTHING = msgspec.Raw(b"null")


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one API call, or of one turn when it stands in a ``result``."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


# --------------------------------------------------------------------------------------------------- content blocks


class Text(msgspec.Struct, frozen=True):
    text: str


class Thinking(msgspec.Struct, frozen=True):
    thinking: str
    signature: str | None = None


class RedactedThinking(msgspec.Struct, frozen=True):
    data: str = ""


class ToolUse(msgspec.Struct, frozen=True):
    id: str
    name: str
    input: dict[str, Any] = {}


class ServerToolUse(msgspec.Struct, frozen=True):
    """A call that the API itself carries out, such as its web search."""

    id: str
    name: str
    input: dict[str, Any] = {}


class ToolResult(msgspec.Struct, frozen=True):
    tool_use_id: str
    content: str | list[msgspec.Raw] | None = None
    is_error: bool | None = None

    def blocks(self) -> list[Block]:
        return decode_blocks(self.content)

    @property
    def text(self) -> str:
        """The textual part of the result."""
        return "\n".join(block.text for block in self.blocks() if isinstance(block, Text))


class ServerToolResult(msgspec.Struct, frozen=True):
    """What such a call gave. ``content`` differs from tool to tool."""

    tool_use_id: str
    content: msgspec.Raw = NOTHING


class Image(msgspec.Struct, frozen=True):
    source: dict[str, Any]


class Document(msgspec.Struct, frozen=True):
    source: dict[str, Any]
    title: str | None = None


class ToolReference(msgspec.Struct, frozen=True):
    tool_name: str = ""


KnownBlock: TypeAlias = (
    Text
    | Thinking
    | RedactedThinking
    | ToolUse
    | ServerToolUse
    | ToolResult
    | ServerToolResult
    | Image
    | Document
    | ToolReference
)
Block: TypeAlias = KnownBlock | Unrecognized

BLOCKS: Shapes[KnownBlock] = Shapes(
    {
        "text": Text,
        "thinking": Thinking,
        "redacted_thinking": RedactedThinking,
        "tool_use": ToolUse,
        "server_tool_use": ServerToolUse,
        "mcp_tool_use": ServerToolUse,
        "tool_result": ToolResult,
        "mcp_tool_result": ServerToolResult,
        "web_search_tool_result": ServerToolResult,
        "web_fetch_tool_result": ServerToolResult,
        "code_execution_tool_result": ServerToolResult,
        "bash_code_execution_tool_result": ServerToolResult,
        "text_editor_code_execution_tool_result": ServerToolResult,
        "image": Image,
        "document": Document,
        "tool_reference": ToolReference,
    }
)


def decode_blocks(content: str | list[msgspec.Raw] | None) -> list[Block]:
    """The content, typed. A block of a new kind does not hide its neighbours."""
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(content)]
    return [BLOCKS.decode(bytes(raw)) for raw in content]


class Message(msgspec.Struct, frozen=True, gc=False):
    """An API message. One ``assistant`` event carries one block; blocks of one message share its ``id``."""

    content: str | list[msgspec.Raw] | None = None
    id: str = ""
    role: str = ""
    model: str = ""
    stop_reason: str | None = None
    usage: Usage | None = None

    def blocks(self) -> list[Block]:
        return decode_blocks(self.content)


# ------------------------------------------------------------------------------------------- pieces of a message


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    thinking: str


class SignatureDelta(msgspec.Struct, frozen=True):
    signature: str


class InputJsonDelta(msgspec.Struct, frozen=True):
    partial_json: str


class CitationsDelta(msgspec.Struct, frozen=True):
    citation: dict[str, Any]


KnownDelta: TypeAlias = TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta | CitationsDelta

DELTAS: Shapes[KnownDelta] = Shapes(
    {
        "text_delta": TextDelta,
        "thinking_delta": ThinkingDelta,
        "signature_delta": SignatureDelta,
        "input_json_delta": InputJsonDelta,
        "citations_delta": CitationsDelta,
    }
)


class MessageStart(msgspec.Struct, frozen=True):
    message: Message


class ContentBlockStart(msgspec.Struct, frozen=True):
    index: int
    content_block: msgspec.Raw = NOTHING

    def block(self) -> Block:
        return BLOCKS.decode(bytes(self.content_block))


class ContentBlockDelta(msgspec.Struct, frozen=True):
    index: int
    delta: msgspec.Raw = NOTHING

    def piece(self) -> KnownDelta | Unrecognized:
        return DELTAS.decode(bytes(self.delta))


class ContentBlockStop(msgspec.Struct, frozen=True):
    index: int


class StopDelta(msgspec.Struct, frozen=True):
    stop_reason: str | None = None
    stop_sequence: str | None = None


class MessageDelta(msgspec.Struct, frozen=True):
    delta: StopDelta = StopDelta()
    usage: Usage | None = None


class MessageStop(msgspec.Struct, frozen=True):
    pass


class Ping(msgspec.Struct, frozen=True):
    pass


KnownStep: TypeAlias = (
    MessageStart | ContentBlockStart | ContentBlockDelta | ContentBlockStop | MessageDelta | MessageStop | Ping
)

STEPS: Shapes[KnownStep] = Shapes(
    {
        "message_start": MessageStart,
        "content_block_start": ContentBlockStart,
        "content_block_delta": ContentBlockDelta,
        "content_block_stop": ContentBlockStop,
        "message_delta": MessageDelta,
        "message_stop": MessageStop,
        "ping": Ping,
    }
)
