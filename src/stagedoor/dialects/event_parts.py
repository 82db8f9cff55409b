"""The parts of a canonical event as the dialects write them: streamed pieces, times, fields by their wire names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeAlias

from stagedoor.unified.events import Done, Event, Header, Plan, Text, Thinking, TurnCompleted

DraftKey: TypeAlias = tuple[str | None, str]
"""Who speaks (the parent tool use of a sub-agent), and in which message."""


class Drafts:
    """What was streamed in pieces and has not yet come whole.

    A canonical ``text`` repeats its ``text_delta`` events. A dialect that passes deltas on sends only the rest of the
    whole; a dialect without deltas keeps them, and sends them at the end of the turn when the whole never came.
    """

    def __init__(self) -> None:
        self._open: dict[DraftKey, list[str]] = {}

    def add(self, key: DraftKey, piece: str) -> None:
        self._open.setdefault(key, []).append(piece)

    def rest(self, key: DraftKey, whole: str) -> str:
        """What ``whole`` has beyond its pieces; they are forgotten."""
        pieces = self._open.pop(key, None) or self._open.pop((key[0], ""), None)
        if not pieces:
            return whole
        streamed = "".join(pieces)
        if whole.startswith(streamed):
            return whole[len(streamed) :]
        if streamed.startswith(whole):  # two parts of one message, streamed before the first came whole
            self._open[key] = [streamed[len(whole) :]]
            return ""
        # A retry streams the beginning twice. Any other difference is sent again in full: losing it would be worse.
        return "" if streamed.endswith(whole) else whole

    def drain(self) -> list[tuple[DraftKey, str]]:
        """The turn is over: what never came whole. Forgets it."""
        drafts, self._open = self._open, {}
        return [(key, text) for key, pieces in drafts.items() if (text := "".join(pieces))]


def unfinished_parts(event: Event, thoughts: Drafts, texts: Drafts) -> list[Thinking | Text]:
    """At the end of a turn: what was streamed and never came whole, as if it came now."""
    if not isinstance(event, TurnCompleted | Done):
        return []
    header = {name: getattr(event, name) for name in ("agent", "session_id", "seq", "timestamp", "turn")}
    thinking = [Thinking(**header, parent_tool_use_id=key[0], text=text) for key, text in thoughts.drain()]
    speech = [Text(**header, parent_tool_use_id=key[0], message_id=key[1], text=text) for key, text in texts.drain()]
    return [*thinking, *speech]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = 253_402_300_799_999  # the end of the year 9999, where ISO 8601 in four digits ends


def iso_time(milliseconds: int) -> str:
    """Milliseconds since 1970 as ``2025-12-03T10:00:01.234Z``; what no calendar holds is moved to its edge."""
    moment = _EPOCH + timedelta(milliseconds=min(max(milliseconds, 0), _LAST))
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def whole_ms(duration: float | None) -> int | None:
    """A duration for a dialect that counts in whole milliseconds."""
    return round(duration) if duration is not None and abs(duration) < _LAST else None


_HEADER = frozenset(Header.__struct_fields__)


@cache
def _names(kind: type[Event]) -> list[tuple[str, str]]:
    pairs = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return [(name, wire) for name, wire in pairs if name not in _HEADER]


_RARE = frozenset({"images", "attachments"})
"""Nearly always empty: named only where there are some."""


def own_fields(event: Event) -> dict[str, Any]:
    """The fields of the event without the header; those without a value (``None``) are left out."""
    values = ((name, wire, getattr(event, name)) for name, wire in _names(type(event)))
    return {wire: value for name, wire, value in values if value is not None and (value or name not in _RARE)}


def type_of(event: Event) -> str:
    """The canonical type as it stands on the wire."""
    return str(type(event).__struct_config__.tag)


_MARKS = {"pending": "[ ]", "in_progress": "[~]", "completed": "[x]"}


def checklist(plan: Plan) -> str:
    """A plan for dialects that have only text."""
    return "\n".join(f"{_MARKS[item.status]} {item.text}" for item in plan.items)
