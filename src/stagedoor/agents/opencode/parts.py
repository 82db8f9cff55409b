"""The parts of a message, in OpenCode's own words. Only the fields that matter; the rest stays in the raw message."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from stagedoor.wire.shapes import Shapes, Unrecognized


class Cache(msgspec.Struct, frozen=True):
    read: float = 0
    write: float = 0


class Tokens(msgspec.Struct, frozen=True):
    """``input`` excludes what was read from the cache, ``output`` excludes ``reasoning``."""

    input: float = 0
    output: float = 0
    reasoning: float = 0
    cache: Cache = Cache()
    total: float | None = None

    def plus(self, other: Tokens) -> Tokens:
        cache = Cache(self.cache.read + other.cache.read, self.cache.write + other.cache.write)
        total = None if self.total is None and other.total is None else (self.total or 0) + (other.total or 0)
        return Tokens(
            self.input + other.input, self.output + other.output, self.reasoning + other.reasoning, cache, total
        )


class Span(msgspec.Struct, frozen=True):
    """Milliseconds since the epoch. ``end`` is missing while it goes on."""

    start: float = 0
    end: float | None = None


class Failure(msgspec.Struct, frozen=True):
    """An error as OpenCode names it: ``APIError``, ``MessageAbortedError``, ``ContextOverflowError`` and so on."""

    name: str = "UnknownError"
    data: dict[str, Any] = {}

    @property
    def message(self) -> str:
        said = self.data.get("message")
        return said if isinstance(said, str) else self.name


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    id: str = ""
    session_id: str = msgspec.field(default="", name="sessionID")
    message_id: str = msgspec.field(default="", name="messageID")


class TextPart(_Part, frozen=True, kw_only=True):
    """``synthetic`` text was written by OpenCode itself. It may belong to a user message."""

    text: str = ""
    time: Span | None = None
    synthetic: bool = False
    ignored: bool = False
    metadata: dict[str, Any] | None = None


class ReasoningPart(_Part, frozen=True, kw_only=True):
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


class ToolPart(_Part, frozen=True, kw_only=True):
    tool: str = ""
    call_id: str = msgspec.field(default="", name="callID")
    state: ToolState = ToolState()
    metadata: dict[str, Any] | None = None


class StepStartPart(_Part, frozen=True, kw_only=True):
    snapshot: str | None = None


class StepFinishPart(_Part, frozen=True, kw_only=True):
    """``reason`` is ``stop``, ``tool-calls``, ``length`` or ``unknown``; ``cost`` is this step's, in US dollars."""

    reason: str = ""
    snapshot: str | None = None
    tokens: Tokens = Tokens()
    cost: float = 0


class FilePart(_Part, frozen=True, kw_only=True):
    mime: str = ""
    url: str = ""
    filename: str | None = None


class SubtaskPart(_Part, frozen=True, kw_only=True):
    prompt: str = ""
    description: str = ""
    agent: str = ""


class SnapshotPart(_Part, frozen=True, kw_only=True):
    snapshot: str = ""


class PatchPart(_Part, frozen=True, kw_only=True):
    hash: str = ""
    files: list[str] = []


class AgentPart(_Part, frozen=True, kw_only=True):
    name: str = ""


class RetryPart(_Part, frozen=True, kw_only=True):
    attempt: int = 0
    error: Failure = Failure()


class CompactionPart(_Part, frozen=True, kw_only=True):
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
Part: TypeAlias = KnownPart | Unrecognized

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
