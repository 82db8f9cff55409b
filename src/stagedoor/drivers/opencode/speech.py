"""Text and thinking as the server streams them: a part begins empty, grows, and is said whole at its end."""

from __future__ import annotations

import msgspec

from ...agents.opencode.parts import ReasoningPart, TextPart
from ...unified.events import Event, Text, TextDelta, Thinking, ThinkingDelta
from .calls import below


class _Part(msgspec.Struct):
    is_text: bool
    message_id: str
    parent: str | None
    pieces: list[str]


class Speech:
    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._finished: set[str] = set()

    def part(self, part: TextPart | ReasoningPart, parent: str | None) -> list[Event]:
        if part.id in self._finished:
            return []
        is_text = isinstance(part, TextPart)
        known = self._parts.setdefault(part.id, _Part(is_text, part.message_id, parent, []))
        if part.time is None or part.time.end is None:
            return []
        del self._parts[part.id]
        self._finished.add(part.id)
        joined = "".join(known.pieces)
        # It drops blanks at the end; but the whole is what was streamed.
        return _whole(known, joined if joined.rstrip() == part.text.rstrip() else part.text)

    def delta(self, part_id: str, message_id: str, delta: str, parent: str | None) -> list[Event]:
        if part_id in self._finished or not delta:
            return []
        known = self._parts.setdefault(part_id, _Part(True, message_id, parent, []))
        known.pieces.append(delta)
        if known.is_text:
            return below([TextDelta(text=delta, message_id=known.message_id)], parent)
        return below([ThinkingDelta(text=delta)], parent)

    def end(self) -> list[Event]:
        """What was being said is said no further: the turn is over, or the attempt has failed."""
        parts, self._parts = self._parts, {}
        self._finished.update(parts)
        return [event for known in parts.values() for event in _whole(known, "".join(known.pieces))]


def _whole(part: _Part, text: str) -> list[Event]:
    if not text:
        return []
    whole: Event = Text(text=text, message_id=part.message_id) if part.is_text else Thinking(text=text)
    return below([whole], part.parent)
