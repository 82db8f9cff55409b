"""What ``gemini --output-format stream-json`` prints, in the CLI's own words.

``SHAPES`` is the table. Besides today's six types it knows the ones older descriptions of the CLI use (``content``,
``tool_call``, ``done``, ``retry``, and an ``error`` that nests another), because they are accepted on input.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from stagedoor.transports.launch import Exited, Stalled
from stagedoor.wire.shapes import Shapes, Unrecognized

from .records import ToolDetails


class Init(msgspec.Struct, frozen=True):
    """The first event of a process. ``model`` is the one asked for (``auto``), not the one chosen in the end."""

    session_id: str
    model: str = ""
    timestamp: str = ""


class Message(msgspec.Struct, frozen=True):
    """The prompt as the CLI took it (``role`` ``user``), or a piece of the answer; a whole answer is never printed."""

    role: str
    content: str = ""
    delta: bool = False
    timestamp: str = ""


class ToolUse(msgspec.Struct, frozen=True):
    tool_name: str
    tool_id: str
    parameters: dict[str, Any] = {}
    timestamp: str = ""


class ErrorDetail(msgspec.Struct, frozen=True):
    """``type`` is the CLI's own (``policy_violation``, ``FatalTurnLimitedError``); ``unknown`` for most API errors."""

    message: str = ""
    type: str = ""
    code: str | int | None = None


class ToolResult(msgspec.Struct, frozen=True):
    """A tool is done. A shell command that failed is a ``success``: its exit code is in :class:`ToolDetails`."""

    tool_id: str
    status: str = ""
    output: str | None = None
    error: ErrorDetail | None = None
    timestamp: str = ""


class Error(msgspec.Struct, frozen=True):
    """Something went wrong and the run goes on; a ``result`` follows. ``error`` is the older, nested form."""

    severity: str = ""
    message: str = ""
    error: ErrorDetail | None = None
    status: str = ""
    timestamp: str = ""

    @property
    def text(self) -> str:
        return self.message or (self.error.message if self.error else "")


class ModelStats(msgspec.Struct, frozen=True):
    """``input`` counts what was not cached; thoughts are only in the total."""

    total_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached: int = 0
    input: int = 0


class Stats(msgspec.Struct, frozen=True):
    """The tokens of this process, that is of one turn. The last three counters are the older form's."""

    total_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached: int = 0
    input: int = 0
    duration_ms: float = 0
    tool_calls: int = 0
    models: dict[str, ModelStats] = {}
    thought_tokens: int = 0
    cache_tokens: int = 0
    tool_tokens: int = 0


class Result(msgspec.Struct, frozen=True):
    """The last event of a run that was not cut off. ``error`` may be missing from an ``error`` status."""

    status: str = ""
    stats: Stats | None = None
    error: ErrorDetail | None = None
    timestamp: str = ""


# ------------------------------------------------------------------------------------------------- the older shapes


class Content(msgspec.Struct, frozen=True):
    """Older form of a piece of the answer."""

    value: str = ""
    timestamp: str = ""


class ToolCall(msgspec.Struct, frozen=True):
    """Older form of a tool use; it has no id."""

    name: str
    args: dict[str, Any] = {}
    timestamp: str = ""


class Done(msgspec.Struct, frozen=True):
    """Older form of the last event."""

    status: str = ""
    stats: Stats | None = None
    timestamp: str = ""


class Retry(msgspec.Struct, frozen=True):
    """A failed request is tried again. Today's CLI says so on standard error only."""

    attempt: int = 0
    max_attempts: int = 0
    delay_ms: float = 0
    timestamp: str = ""


class Truncated(msgspec.Struct, frozen=True):
    """The output ended without a ``result``: a failure whatever the exit code says, which is 0 after a signal.

    ``interrupted`` when we asked for the end. ``open_tools`` are the ids of calls that never got a result.
    """

    why: str
    interrupted: bool = False
    open_tools: tuple[str, ...] = ()


class Paused(msgspec.Struct, frozen=True):
    """Over ACP: there was a pause before the next piece of the answer. Perhaps a broken answer is asked for again."""

    seconds: float


Printed: TypeAlias = Init | Message | ToolUse | ToolResult | Error | Result | Content | ToolCall | Done | Retry
Event: TypeAlias = Printed | Truncated | ToolDetails | Unrecognized | Exited | Stalled

SHAPES: Shapes[Printed] = Shapes(
    {
        "init": Init,
        "message": Message,
        "tool_use": ToolUse,
        "tool_result": ToolResult,
        "error": Error,
        "result": Result,
        "content": Content,
        "tool_call": ToolCall,
        "done": Done,
        "retry": Retry,
    }
)


class _Text(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class _Call(msgspec.Struct, frozen=True, tag_field="type", tag="tool_call"):
    id: str
    name: str
    arguments: dict[str, Any] = {}


class _Message(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    role: str
    content: list[_Text | _Call]


class _Result(msgspec.Struct, frozen=True, tag_field="type", tag="tool_result"):
    id: str
    content: Any = ""
    status: Literal["success", "error"] = "success"


class _Usage(msgspec.Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0


class _Done(msgspec.Struct, frozen=True, tag_field="type", tag="done"):
    usage: _Usage
    duration_ms: float = 0


Older: TypeAlias = Message | ToolUse | ToolResult | Done
_LINES: msgspec.json.Decoder[_Message | _Call | _Result | _Done] = msgspec.json.Decoder(
    _Message | _Call | _Result | _Done
)


def older(message: bytes) -> list[Older]:
    """What the line says; nothing when it is none of these."""
    try:
        line = _LINES.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    match line:
        case _Message():
            return [
                Message(line.role, block.text) if isinstance(block, _Text) else _use(block) for block in line.content
            ]
        case _Call():
            return [_use(line)]
        case _Result():
            text = line.content if isinstance(line.content, str) else msgspec.json.encode(line.content).decode()
            return [ToolResult(line.id, line.status, text)]
        case _Done():
            tokens = line.usage
            total = tokens.input_tokens + tokens.output_tokens
            return [Done(stats=Stats(total, tokens.input_tokens, tokens.output_tokens, duration_ms=line.duration_ms))]


def _use(call: _Call) -> ToolUse:
    return ToolUse(call.name, call.id, call.arguments)
