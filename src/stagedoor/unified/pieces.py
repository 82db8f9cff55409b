"""Deltas on the way, the whole at the end: what agents that only stream never say themselves."""

from __future__ import annotations

from .events import Event, Text, TextDelta, Thinking, ThinkingDelta


class Pieces:
    """Collects streamed text and thinking; ``whole`` gives what has come since as one ``text`` or ``thinking``.

    A message that the agent gives no id is counted: ``message-1``, ``message-2``, …
    """

    def __init__(self) -> None:
        self._kind = ""
        self._pieces: list[str] = []
        self._message_id = ""
        self._parent: str | None = None
        self._nameless = 0

    def text(self, text: str, message_id: str = "", *, parent: str | None = None) -> list[Event]:
        message_id = message_id or self._same_or_next(parent)
        events = self._switch("text", message_id, parent)
        self._pieces.append(text)
        return [*events, TextDelta(text=text, message_id=message_id, parent_tool_use_id=parent)]

    def thinking(self, text: str, *, parent: str | None = None) -> list[Event]:
        events = self._switch("thinking", "", parent)
        self._pieces.append(text)
        return [*events, ThinkingDelta(text=text, parent_tool_use_id=parent)]

    def whole(self) -> list[Event]:
        """What was being said is complete: something else happens now."""
        joined, kind, message_id, parent = "".join(self._pieces), self._kind, self._message_id, self._parent
        self._pieces, self._kind, self._message_id, self._parent = [], "", "", None
        if not joined:
            return []
        if kind == "text":
            return [Text(text=joined, message_id=message_id, parent_tool_use_id=parent)]
        return [Thinking(text=joined, parent_tool_use_id=parent)]

    def _same_or_next(self, parent: str | None) -> str:
        if (self._kind, self._parent) == ("text", parent):
            return self._message_id
        self._nameless += 1
        return f"message-{self._nameless}"

    def _switch(self, kind: str, message_id: str, parent: str | None) -> list[Event]:
        before = (self._kind, self._message_id, self._parent)
        events = self.whole() if before != (kind, message_id, parent) else []
        self._kind, self._message_id, self._parent = kind, message_id, parent
        return events
