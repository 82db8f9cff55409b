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
        if self._kind == "text" and self._parent == parent and (not message_id or self._message_id == message_id):
            self._pieces.append(text)
            return [TextDelta(text=text, message_id=self._message_id, parent_tool_use_id=parent)]
        if not message_id:
            self._nameless += 1
            message_id = f"message-{self._nameless}"
        return [
            *self._begin("text", text, message_id, parent),
            TextDelta(text=text, message_id=message_id, parent_tool_use_id=parent),
        ]

    def thinking(self, text: str, *, parent: str | None = None) -> list[Event]:
        delta = ThinkingDelta(text=text, parent_tool_use_id=parent)
        if self._kind == "thinking" and self._parent == parent:
            self._pieces.append(text)
            return [delta]
        return [*self._begin("thinking", text, "", parent), delta]

    def whole(self) -> list[Event]:
        """What was being said is complete: something else happens now."""
        joined, kind, message_id, parent = "".join(self._pieces), self._kind, self._message_id, self._parent
        self._pieces, self._kind, self._message_id, self._parent = [], "", "", None
        if not joined:
            return []
        if kind == "text":
            return [Text(text=joined, message_id=message_id, parent_tool_use_id=parent)]
        return [Thinking(text=joined, parent_tool_use_id=parent)]

    def _begin(self, kind: str, text: str, message_id: str, parent: str | None) -> list[Event]:
        events = self.whole()
        self._kind, self._pieces, self._message_id, self._parent = kind, [text], message_id, parent
        return events
