"""What was streamed in pieces and has not yet been said whole.

A canonical ``text`` repeats its ``text_delta`` events. A dialect that passes deltas on must say only the rest of the
whole; a dialect without deltas holds them, and says them at the end of the turn when the whole never came.
"""

from __future__ import annotations

from typing import TypeAlias

from stagedoor.unified.events import Done, Event, Text, Thinking, TurnCompleted

Key: TypeAlias = tuple[str | None, str]
"""Who speaks (the parent tool use of a sub-agent), and in which message."""


class Drafts:
    def __init__(self) -> None:
        self._open: dict[Key, list[str]] = {}

    def add(self, key: Key, piece: str) -> None:
        self._open.setdefault(key, []).append(piece)

    def rest(self, key: Key, whole: str) -> str:
        """What ``whole`` says beyond its pieces; they are forgotten."""
        pieces = self._open.pop(key, None) or self._open.pop((key[0], ""), None)
        if not pieces:
            return whole
        streamed = "".join(pieces)
        if whole.startswith(streamed):
            return whole[len(streamed) :]
        if streamed.startswith(whole):  # two parts of one message, streamed before the first was said whole
            self._open[key] = [streamed[len(whole) :]]
            return ""
        # A retry streams the beginning twice. Any other difference is said again in full: losing it would be worse.
        return "" if streamed.endswith(whole) else whole

    def left(self) -> list[tuple[Key, str]]:
        """The turn is over: what was never said whole. Forgets it."""
        drafts, self._open = self._open, {}
        return [(key, text) for key, pieces in drafts.items() if (text := "".join(pieces))]


def unsaid(event: Event, thoughts: Drafts, texts: Drafts) -> list[Thinking | Text]:
    """At the end of a turn: what was streamed and never said whole, as if it were said now."""
    if not isinstance(event, TurnCompleted | Done):
        return []
    header = {name: getattr(event, name) for name in ("agent", "session_id", "seq", "timestamp", "turn")}
    thinking = [Thinking(**header, parent_tool_use_id=key[0], text=text) for key, text in thoughts.left()]
    speech = [Text(**header, parent_tool_use_id=key[0], message_id=key[1], text=text) for key, text in texts.left()]
    return [*thinking, *speech]
