"""Lines that only older descriptions of the CLI have, in today's words. Pure.

There, a message is a list of blocks which may hold calls, a call and its result have an ``id``, and the last event
carries its ``usage``.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from .events import Done, Message, Stats, ToolResult, ToolUse


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
