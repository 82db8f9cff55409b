"""What a message is made of, and the pieces in which the model streams it, in the words of the API."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ...wire.shapes import Shapes, UnknownMessage, repaired

NOTHING = msgspec.Raw(b"null")


class ClaudeUsage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one API call, or of one turn when it stands in a ``result``."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


# --------------------------------------------------------------------------------------------------- content blocks


class TextBlock(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="text"):
    text: str


class ThinkingBlock(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="thinking"):
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(msgspec.Struct, frozen=True):
    data: str = ""


class ToolUseBlock(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any] = {}


class ServerToolUseBlock(msgspec.Struct, frozen=True):
    """A call that the API itself carries out, such as its web search."""

    id: str
    name: str
    input: dict[str, Any] = {}


class ToolResultBlock(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: str | list[msgspec.Raw] | None = None
    is_error: bool | None = None

    def blocks(self) -> list[Block]:
        return decode_blocks(self.content)

    @property
    def text(self) -> str:
        """The textual part of the result."""
        return "\n".join(block.text for block in self.blocks() if isinstance(block, TextBlock))


class ServerToolResultBlock(msgspec.Struct, frozen=True):
    """What such a call gave. ``content`` differs from tool to tool."""

    tool_use_id: str
    content: msgspec.Raw = NOTHING


class ImageBlock(msgspec.Struct, frozen=True):
    source: dict[str, Any]


class DocumentBlock(msgspec.Struct, frozen=True):
    source: dict[str, Any]
    title: str | None = None


class ToolReferenceBlock(msgspec.Struct, frozen=True):
    tool_name: str = ""


ContentBlock: TypeAlias = (
    TextBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ServerToolUseBlock
    | ToolResultBlock
    | ServerToolResultBlock
    | ImageBlock
    | DocumentBlock
    | ToolReferenceBlock
)
Block: TypeAlias = ContentBlock | UnknownMessage

BLOCKS: Shapes[ContentBlock] = Shapes(
    {
        "text": TextBlock,
        "thinking": ThinkingBlock,
        "redacted_thinking": RedactedThinkingBlock,
        "tool_use": ToolUseBlock,
        "server_tool_use": ServerToolUseBlock,
        "mcp_tool_use": ServerToolUseBlock,
        "tool_result": ToolResultBlock,
        "mcp_tool_result": ServerToolResultBlock,
        "web_search_tool_result": ServerToolResultBlock,
        "web_fetch_tool_result": ServerToolResultBlock,
        "advisor_tool_result": ServerToolResultBlock,
        "tool_search_tool_result": ServerToolResultBlock,
        "code_execution_tool_result": ServerToolResultBlock,
        "bash_code_execution_tool_result": ServerToolResultBlock,
        "text_editor_code_execution_tool_result": ServerToolResultBlock,
        "image": ImageBlock,
        "document": DocumentBlock,
        "tool_reference": ToolReferenceBlock,
    }
)


# Nearly every message is made of these: they are decoded in one pass, wherever their ``type`` stands.
_FREQUENT: msgspec.json.Decoder[str | list[Block] | None] = msgspec.json.Decoder(
    str | list[TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock] | None
)
_BLOCK_BY_BLOCK = msgspec.json.Decoder(str | list[msgspec.Raw] | None)


def decode_blocks(content: str | list[msgspec.Raw] | None) -> list[Block]:
    """The content, typed. A block of a new kind does not hide its neighbours."""
    if content is None:
        return []
    if isinstance(content, str):
        return [TextBlock(content)]
    return [BLOCKS.decode(bytes(raw)) for raw in content]


def decode_content(content: msgspec.Raw) -> str | list[Block]:
    """The same in one pass where it can be. Never raises on content."""
    try:
        return _FREQUENT.decode(content) or []
    except msgspec.ValidationError:
        whole = bytes(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        whole = bytes(content)
        try:
            whole = repaired(whole)
        except (ValueError, RecursionError) as error:
            return [UnknownMessage(whole, str(error) or type(error).__name__)]
    try:
        rest = _BLOCK_BY_BLOCK.decode(whole)
    except (msgspec.DecodeError, RecursionError) as error:
        return [UnknownMessage(whole, str(error) or type(error).__name__)]
    return rest if isinstance(rest, str) else decode_blocks(rest)


class ApiMessage(msgspec.Struct, frozen=True, gc=False):
    """An API message. One ``assistant`` event carries one block; blocks of one message share its ``id``."""

    content: msgspec.Raw = NOTHING
    id: str = ""
    role: str = ""
    model: str = ""
    stop_reason: str | None = None
    usage: ClaudeUsage | None = None

    def text_or_blocks(self) -> str | list[Block]:
        """Plain text is not what the model said: Claude Code puts it in by itself."""
        return decode_content(self.content)

    def blocks(self) -> list[Block]:
        content = decode_content(self.content)
        return [TextBlock(content)] if isinstance(content, str) else content


# ------------------------------------------------------------------------------------------- pieces of a message


class TextBlockDelta(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="text_delta"):
    text: str


class ThinkingBlockDelta(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="thinking_delta"):
    thinking: str


class SignatureDelta(msgspec.Struct, frozen=True, tag_field="type", tag="signature_delta"):
    signature: str


class InputJsonDelta(msgspec.Struct, frozen=True, tag_field="type", tag="input_json_delta"):
    partial_json: str


class CitationsDelta(msgspec.Struct, frozen=True, tag_field="type", tag="citations_delta"):
    citation: dict[str, Any]


BlockDelta: TypeAlias = TextBlockDelta | ThinkingBlockDelta | SignatureDelta | InputJsonDelta | CitationsDelta


class MessageStart(msgspec.Struct, frozen=True, tag_field="type", tag="message_start"):
    message: ApiMessage


class ContentBlockStart(msgspec.Struct, frozen=True, tag_field="type", tag="content_block_start"):
    index: int = 0
    content_block: msgspec.Raw = NOTHING

    def block(self) -> Block:
        return BLOCKS.decode(bytes(self.content_block))


class ContentBlockDelta(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="content_block_delta"):
    delta: BlockDelta
    index: int = 0


class ContentBlockStop(msgspec.Struct, frozen=True, tag_field="type", tag="content_block_stop"):
    index: int = 0


class StopDelta(msgspec.Struct, frozen=True):
    stop_reason: str | None = None
    stop_sequence: str | None = None


class MessageDelta(msgspec.Struct, frozen=True, tag_field="type", tag="message_delta"):
    delta: StopDelta = StopDelta()
    usage: ClaudeUsage | None = None


class MessageStop(msgspec.Struct, frozen=True, tag_field="type", tag="message_stop"):
    pass


class Ping(msgspec.Struct, frozen=True, tag_field="type", tag="ping"):
    pass


StreamStep: TypeAlias = (
    MessageStart | ContentBlockStart | ContentBlockDelta | ContentBlockStop | MessageDelta | MessageStop | Ping
)
