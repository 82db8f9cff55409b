"""What OpenCode's events are made of, in its own words: the parts of a message, and what its server stores.

Only the fields that matter; the rest stays in the raw message.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from stagedoor.wire.shapes import Shapes, UnknownMessage


class Cache(msgspec.Struct, frozen=True):
    read: float = 0
    write: float = 0


class OpenCodeTokens(msgspec.Struct, frozen=True):
    """``input`` excludes what was read from the cache, ``output`` excludes ``reasoning``."""

    input: float = 0
    output: float = 0
    reasoning: float = 0
    cache: Cache = Cache()
    total: float | None = None

    def plus(self, other: OpenCodeTokens) -> OpenCodeTokens:
        cache = Cache(self.cache.read + other.cache.read, self.cache.write + other.cache.write)
        total = None if self.total is None and other.total is None else (self.total or 0) + (other.total or 0)
        return OpenCodeTokens(
            self.input + other.input, self.output + other.output, self.reasoning + other.reasoning, cache, total
        )


class Span(msgspec.Struct, frozen=True):
    """Milliseconds since the epoch. ``end`` is missing while it lasts."""

    start: float = 0
    end: float | None = None


class OpenCodeFailure(msgspec.Struct, frozen=True):
    """An error as OpenCode names it: ``APIError``, ``MessageAbortedError``, ``ContextOverflowError`` and so on."""

    name: str = "UnknownError"
    data: dict[str, Any] = {}

    @property
    def message(self) -> str:
        message = self.data.get("message")
        return message if isinstance(message, str) else self.name


class _PartOfMessage(msgspec.Struct, frozen=True, kw_only=True):
    id: str = ""
    session_id: str = msgspec.field(default="", name="sessionID")
    message_id: str = msgspec.field(default="", name="messageID")


class TextPart(_PartOfMessage, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """``synthetic`` text was written by OpenCode itself. It may belong to a user message."""

    text: str = ""
    time: Span | None = None
    synthetic: bool = False
    ignored: bool = False
    metadata: dict[str, Any] | None = None


class ReasoningPart(_PartOfMessage, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    text: str = ""
    time: Span | None = None
    metadata: dict[str, Any] | None = None


class ToolState(msgspec.Struct, frozen=True, kw_only=True):
    """``status`` is ``pending``, ``running``, ``completed`` or ``error``; a failed command is still ``completed``."""

    status: str = ""
    input: dict[str, Any] = {}
    output: str = ""
    error: str = ""
    title: str = ""
    metadata: dict[str, Any] = {}
    time: Span | None = None
    raw: str = ""
    attachments: list[msgspec.Raw] = []


class ToolPart(_PartOfMessage, frozen=True, kw_only=True, tag_field="type", tag="tool"):
    tool: str = ""
    call_id: str = msgspec.field(default="", name="callID")
    state: ToolState = ToolState()
    metadata: dict[str, Any] | None = None


class StepStartPart(_PartOfMessage, frozen=True, kw_only=True, tag_field="type", tag="step-start"):
    snapshot: str | None = None


class StepFinishPart(_PartOfMessage, frozen=True, kw_only=True, tag_field="type", tag="step-finish"):
    """``reason`` is ``stop``, ``tool-calls``, ``length`` or ``unknown``; ``cost`` is this step's, in US dollars."""

    reason: str = ""
    snapshot: str | None = None
    tokens: OpenCodeTokens = OpenCodeTokens()
    cost: float = 0


class FilePart(_PartOfMessage, frozen=True, kw_only=True, tag_field="type", tag="file"):
    mime: str = ""
    url: str = ""
    filename: str | None = None


class SubtaskPart(_PartOfMessage, frozen=True, kw_only=True, tag_field="type", tag="subtask"):
    prompt: str = ""
    description: str = ""
    agent: str = ""


class SnapshotPart(_PartOfMessage, frozen=True, kw_only=True, tag_field="type", tag="snapshot"):
    snapshot: str = ""


class PatchPart(_PartOfMessage, frozen=True, kw_only=True, tag_field="type", tag="patch"):
    hash: str = ""
    files: list[str] = []


class AgentPart(_PartOfMessage, frozen=True, kw_only=True, tag_field="type", tag="agent"):
    name: str = ""


class RetryPart(_PartOfMessage, frozen=True, kw_only=True, tag_field="type", tag="retry"):
    attempt: int = 0
    error: OpenCodeFailure = OpenCodeFailure()


class CompactionPart(_PartOfMessage, frozen=True, kw_only=True, tag_field="type", tag="compaction"):
    auto: bool = False


KnownPart: TypeAlias = (
    TextPart
    | ReasoningPart
    | ToolPart
    | StepStartPart
    | StepFinishPart
    | FilePart
    | SubtaskPart
    | SnapshotPart
    | PatchPart
    | AgentPart
    | RetryPart
    | CompactionPart
)
Part: TypeAlias = KnownPart | UnknownMessage

PARTS: Shapes[KnownPart] = Shapes(
    {
        "text": TextPart,
        "reasoning": ReasoningPart,
        "tool": ToolPart,
        "step-start": StepStartPart,
        "step-finish": StepFinishPart,
        "file": FilePart,
        "subtask": SubtaskPart,
        "snapshot": SnapshotPart,
        "patch": PatchPart,
        "agent": AgentPart,
        "retry": RetryPart,
        "compaction": CompactionPart,
    }
)
_KNOWN: msgspec.json.Decoder[KnownPart] = msgspec.json.Decoder(KnownPart)


def decode_part(raw: msgspec.Raw) -> Part:
    """In one pass, wherever its ``type`` stands. Never raises on content."""
    try:
        return _KNOWN.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return PARTS.decode(bytes(raw))  # which repairs what can be repaired


# ---------------------------------------------------------------------------------------------- what the server stores


class Times(msgspec.Struct, frozen=True):
    """Milliseconds since the epoch."""

    created: float = 0
    updated: float | None = None
    completed: float | None = None
    archived: float | None = None


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session as the server keeps it; ``parent_id`` is set for a sub-agent's."""

    id: str
    directory: str = ""
    parent_id: str | None = msgspec.field(default=None, name="parentID")
    project_id: str = msgspec.field(default="", name="projectID")
    title: str = ""
    version: str = ""
    agent: str | None = None
    model: dict[str, Any] | None = None
    cost: float = 0
    tokens: OpenCodeTokens = OpenCodeTokens()
    time: Times = Times()


class OpenCodeMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A user's or an assistant's message, without its parts. An assistant's is over when ``time.completed`` is set."""

    id: str
    role: str = ""
    session_id: str = msgspec.field(default="", name="sessionID")
    parent_id: str | None = msgspec.field(default=None, name="parentID")
    provider_id: str = msgspec.field(default="", name="providerID")
    model_id: str = msgspec.field(default="", name="modelID")
    agent: str = ""
    finish: str | None = None
    error: OpenCodeFailure | None = None
    cost: float = 0
    tokens: OpenCodeTokens = OpenCodeTokens()
    time: Times = Times()
    structured: Any = None


class OpenCodeStatus(msgspec.Struct, frozen=True):
    """``busy``, ``idle``, or ``retry`` (``next`` is when, in milliseconds since the epoch)."""

    type: str = ""
    attempt: int | None = None
    message: str | None = None
    next: float | None = None


class ToolRef(msgspec.Struct, frozen=True):
    message_id: str = msgspec.field(default="", name="messageID")
    call_id: str = msgspec.field(default="", name="callID")


class QuestionOption(msgspec.Struct, frozen=True):
    label: str = ""
    description: str = ""


class OpenCodeQuestion(msgspec.Struct, frozen=True):
    question: str = ""
    header: str = ""
    options: list[QuestionOption] = []
    multiple: bool = False
    custom: bool | None = None


class OpenCodeTodo(msgspec.Struct, frozen=True):
    content: str = ""
    status: str = ""
    priority: str = ""
