"""What ``opencode run --format json`` prints: one finished part a line, and no word about beginning or end."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from stagedoor.wire.shapes import Shapes

from .parts import Failure, ReasoningPart, StepFinishPart, StepStartPart, TextPart, ToolPart


class _RunEvent(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str = msgspec.field(default="", name="sessionID")
    timestamp: float = 0


class StepStart(_RunEvent, frozen=True, kw_only=True):
    part: StepStartPart


class Text(_RunEvent, frozen=True, kw_only=True):
    part: TextPart


class Reasoning(_RunEvent, frozen=True, kw_only=True):
    part: ReasoningPart


class ToolUse(_RunEvent, frozen=True, kw_only=True):
    """A finished call: its state is ``completed`` or ``error``."""

    part: ToolPart


class StepFinish(_RunEvent, frozen=True, kw_only=True):
    part: StepFinishPart


class Error(_RunEvent, frozen=True, kw_only=True):
    error: Failure


KnownRunEvent: TypeAlias = StepStart | Text | Reasoning | ToolUse | StepFinish | Error

RUN_EVENTS: Shapes[KnownRunEvent] = Shapes(
    {
        "step_start": StepStart,
        "text": Text,
        "reasoning": Reasoning,
        "tool_use": ToolUse,
        "step_finish": StepFinish,
        "error": Error,
    }
)
