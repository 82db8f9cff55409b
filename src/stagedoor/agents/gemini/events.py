"""What ``gemini --output-format stream-json`` prints, in the CLI's own words.

``SHAPES`` is the table. Besides today's six types it knows the ones older descriptions of the CLI use (``content``,
``tool_call``, ``done``, ``retry``, and an ``error`` that nests another), because they are accepted on input.
"""

from __future__ import annotations

# A session that the CLI names itself takes the place of the one we know:
# pyright: reportIncompatibleMethodOverride=false
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from stagedoor.transports.launch import Exited, Stalled
from stagedoor.wire.shapes import Shapes, UnknownMessage
from stagedoor.wire.stamps import Stamped, written_at

from .records import ToolDetails


class GeminiLine(Stamped, frozen=True, kw_only=True):
    """What every line says. Never made on its own."""

    printed_at: str = msgspec.field(default="", name="timestamp")
    """As the CLI printed it."""

    @property
    def timestamp(self) -> datetime:
        return written_at(self.printed_at, self)


class GeminiInit(GeminiLine, frozen=True):
    """The first event of a process. ``model`` is the requested one (``auto``), not the one chosen in the end."""

    session_id: str
    model: str = ""


class GeminiMessage(GeminiLine, frozen=True):
    """The prompt as the CLI took it (``role`` ``user``), or a piece of the answer; a whole answer is never printed."""

    role: str
    content: str = ""
    delta: bool = False


class GeminiToolUse(GeminiLine, frozen=True):
    tool_name: str
    tool_id: str
    parameters: dict[str, Any] = {}


class ErrorDetail(msgspec.Struct, frozen=True):
    """``type`` is the CLI's own (``policy_violation``, ``FatalTurnLimitedError``); ``unknown`` for most API errors."""

    message: str = ""
    type: str = ""
    code: str | int | None = None


class GeminiToolResult(GeminiLine, frozen=True):
    """A tool is done. A shell command that failed is a ``success``: its exit code is in :class:`ToolDetails`."""

    tool_id: str
    status: str = ""
    output: str | None = None
    error: ErrorDetail | None = None


class GeminiError(GeminiLine, frozen=True):
    """Something went wrong and the run continues; a ``result`` follows. ``error`` is the older, nested form."""

    severity: str = ""
    message: str = ""
    error: ErrorDetail | None = None
    status: str = ""

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


class GeminiResult(GeminiLine, frozen=True):
    """The last event of a run that was not cut off. ``error`` may be missing from an ``error`` status."""

    status: str = ""
    stats: Stats | None = None
    error: ErrorDetail | None = None


# ------------------------------------------------------------------------------------------------- the older shapes


class GeminiContent(GeminiLine, frozen=True):
    """Older form of a piece of the answer."""

    value: str = ""


class GeminiToolCall(GeminiLine, frozen=True):
    """Older form of a tool use; it has no id."""

    name: str
    args: dict[str, Any] = {}


class GeminiDone(GeminiLine, frozen=True):
    """Older form of the last event."""

    status: str = ""
    stats: Stats | None = None


class GeminiRetry(GeminiLine, frozen=True):
    """A failed request is tried again. Today's CLI reports it on standard error only."""

    attempt: int = 0
    max_attempts: int = 0
    delay_ms: float = 0


class Truncated(Stamped, frozen=True):
    """The output ended without a ``result``: a failure whatever the exit code says, which is 0 after a signal.

    ``interrupted`` when we asked for the end. ``open_tools`` are the ids of calls that never got a result.
    """

    why: str
    interrupted: bool = False
    open_tools: tuple[str, ...] = ()


class Paused(Stamped, frozen=True):
    """Over ACP: there was a pause before the next piece of the answer. Perhaps a broken answer is asked for again."""

    seconds: float


PrintedEvent: TypeAlias = (
    GeminiInit
    | GeminiMessage
    | GeminiToolUse
    | GeminiToolResult
    | GeminiError
    | GeminiResult
    | GeminiContent
    | GeminiToolCall
    | GeminiDone
    | GeminiRetry
)
Event: TypeAlias = PrintedEvent | Truncated | ToolDetails | UnknownMessage | Exited | Stalled

SHAPES: Shapes[PrintedEvent] = Shapes(
    {
        "init": GeminiInit,
        "message": GeminiMessage,
        "tool_use": GeminiToolUse,
        "tool_result": GeminiToolResult,
        "error": GeminiError,
        "result": GeminiResult,
        "content": GeminiContent,
        "tool_call": GeminiToolCall,
        "done": GeminiDone,
        "retry": GeminiRetry,
    }
)


class _OlderText(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class _OlderCall(msgspec.Struct, frozen=True, tag_field="type", tag="tool_call"):
    id: str
    name: str
    arguments: dict[str, Any] = {}


class _OlderMessage(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    role: str
    content: list[_OlderText | _OlderCall]


class _OlderResult(msgspec.Struct, frozen=True, tag_field="type", tag="tool_result"):
    id: str
    content: Any = ""
    status: Literal["success", "error"] = "success"


class _OlderUsage(msgspec.Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0


class _OlderDone(msgspec.Struct, frozen=True, tag_field="type", tag="done"):
    usage: _OlderUsage
    duration_ms: float = 0


OlderEvent: TypeAlias = GeminiMessage | GeminiToolUse | GeminiToolResult | GeminiDone
_LINES: msgspec.json.Decoder[_OlderMessage | _OlderCall | _OlderResult | _OlderDone] = msgspec.json.Decoder(
    _OlderMessage | _OlderCall | _OlderResult | _OlderDone
)


def older_events(message: bytes) -> list[OlderEvent]:
    """The events of an older line; none when it is not one."""
    try:
        line = _LINES.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    match line:
        case _OlderMessage():
            return [
                GeminiMessage(line.role, block.text) if isinstance(block, _OlderText) else _tool_use(block)
                for block in line.content
            ]
        case _OlderCall():
            return [_tool_use(line)]
        case _OlderResult():
            text = line.content if isinstance(line.content, str) else msgspec.json.encode(line.content).decode()
            return [GeminiToolResult(line.id, line.status, text)]
        case _OlderDone():
            tokens = line.usage
            total = tokens.input_tokens + tokens.output_tokens
            return [
                GeminiDone(stats=Stats(total, tokens.input_tokens, tokens.output_tokens, duration_ms=line.duration_ms))
            ]


def _tool_use(call: _OlderCall) -> GeminiToolUse:
    return GeminiToolUse(call.name, call.id, call.arguments)
