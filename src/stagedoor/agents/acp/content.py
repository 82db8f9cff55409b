"""Content blocks of the Agent Client Protocol, in both directions, and what a tool call shows."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from stagedoor.wire.shapes import Shapes, Unrecognized


class TextContent(msgspec.Struct, frozen=True, tag_field="type", tag="text", rename="camel", omit_defaults=True):
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
ContentBlock: TypeAlias = KnownBlock | Unrecognized

BLOCKS: Shapes[KnownBlock] = Shapes(
    {
        "text": TextContent,
        "image": ImageContent,
        "audio": AudioContent,
        "resource_link": ResourceLink,
        "resource": EmbeddedResource,
    }
)


def block(raw: msgspec.Raw) -> ContentBlock:
    return BLOCKS.decode(bytes(raw))


def text_of(raw: msgspec.Raw) -> str:
    """The text of a block; empty for a picture, a sound, or a kind of block that is new to us."""
    match block(raw):
        case TextContent(text=text):
            return text
        case EmbeddedResource(resource=Resource(text=str(text))):
            return text
        case _:
            return ""


class Content(msgspec.Struct, frozen=True, tag_field="type", tag="content"):
    """A content block shown inside a tool call."""

    content: msgspec.Raw

    @property
    def block(self) -> ContentBlock:
        return block(self.content)

    @property
    def text(self) -> str:
        return text_of(self.content)


class Diff(msgspec.Struct, frozen=True, tag_field="type", tag="diff", rename="camel"):
    """A change of one file. ``old_text`` is None for a new file; some agents give the edit, not the whole file."""

    path: str
    new_text: str
    old_text: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class TerminalContent(msgspec.Struct, frozen=True, tag_field="type", tag="terminal", rename="camel"):
    """The live output of a terminal the agent asked us to run."""

    terminal_id: str


KnownToolContent: TypeAlias = Content | Diff | TerminalContent
ToolCallContent: TypeAlias = KnownToolContent | Unrecognized

TOOL_CONTENT: Shapes[KnownToolContent] = Shapes({"content": Content, "diff": Diff, "terminal": TerminalContent})


def tool_contents(raw: list[msgspec.Raw] | None) -> list[ToolCallContent]:
    return [TOOL_CONTENT.decode(bytes(one)) for one in raw or ()]
