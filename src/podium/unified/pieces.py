"""Deltas on the way, the whole at the end: what agents that only stream never say themselves."""

from __future__ import annotations

from .events import Event, Text, TextDelta, Thinking, ThinkingDelta


class Pieces:
    """Collects streamed text and thinking; ``whole`` gives what has come since as one ``text`` or ``thinking``."""

    def __init__(self) -> None:
        self._kind = ""
        self._pieces: list[str] = []
        self._message_id = ""

    def text(self, text: str, message_id: str = "") -> list[Event]:
        events = self._switch("text", message_id)
        self._pieces.append(text)
        return [*events, TextDelta(text=text, message_id=message_id)]

    def thinking(self, text: str) -> list[Event]:
        events = self._switch("thinking", "")
        self._pieces.append(text)
        return [*events, ThinkingDelta(text=text)]

    def whole(self) -> list[Event]:
        """What was being said is complete: something else happens now."""
        joined, kind, message_id = "".join(self._pieces), self._kind, self._message_id
        self._pieces, self._kind, self._message_id = [], "", ""
        if not joined:
            return []
        return [Text(text=joined, message_id=message_id) if kind == "text" else Thinking(text=joined)]

    def _switch(self, kind: str, message_id: str) -> list[Event]:
        events = self.whole() if (kind, message_id) != (self._kind, self._message_id) else []
        self._kind, self._message_id = kind, message_id
        return events
