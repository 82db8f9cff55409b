"""The model's stream as Claude Code passes it on: text piece by piece, and how much each call to the model used."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...agents.claude import blocks
from ...agents.claude.events import StreamEvent
from ...unified.events import Event, Notice, Text, TextDelta, Thinking, ThinkingDelta, Unrecognized
from ...wire import shapes


class _Piece(msgspec.Struct, gc=False):
    type: str = ""
    text: str = ""
    thinking: str = ""


class _Step(msgspec.Struct, gc=False):
    type: str = ""
    delta: _Piece | None = None


# Nearly every line of a stream is a piece of text: it is decoded once, without the detour over the tables.
_QUICK: Callable[[msgspec.Raw], _Step] = msgspec.json.Decoder(_Step).decode
_WITHOUT_MEANING = frozenset({"input_json_delta", "signature_delta", "citations_delta"})


class Deltas:
    """What one thread of the conversation (the main one, or a sub-agent's) is just saying."""

    def __init__(self, parent: str | None = None) -> None:
        self._parent = parent
        self._message_id = ""
        self._kind = ""
        self._pieces: list[str] = []
        self._broken_off = 0
        self.call = blocks.Usage()

    def piece(self, native: StreamEvent) -> list[Event] | None:
        """The quick way; ``None`` for all that is not a piece of a block."""
        try:
            step = _QUICK(native.event)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        delta = step.delta
        if delta is None or step.type != "content_block_delta":
            return None
        kind = delta.type
        if kind == "text_delta":
            if self._kind != "text":
                return self._begin("text", delta.text)
            self._pieces.append(delta.text)
            return [TextDelta(text=delta.text, message_id=self._message_id, parent_tool_use_id=self._parent)]
        if kind == "thinking_delta":
            if self._kind != "thinking":
                return self._begin("thinking", delta.thinking)
            self._pieces.append(delta.thinking)
            return [ThinkingDelta(text=delta.thinking, parent_tool_use_id=self._parent)]
        if kind in _WITHOUT_MEANING:
            return []
        return [Unrecognized(raw=bytes(native.event).decode("utf-8", "replace"), why=f"unknown delta {kind!r}")]

    def step(self, step: blocks.KnownStep | shapes.Unrecognized) -> list[Event]:
        match step:
            case shapes.Unrecognized():
                return [Unrecognized(raw=step.raw.decode("utf-8", "replace"), why=step.why)]
            case blocks.MessageStart():
                out = self.broken_off()
                self._message_id = step.message.id
                self.call = step.message.usage or blocks.Usage()
                return out
            case blocks.ContentBlockStart():
                return self.rest()
            case _:
                return []

    def whole(self) -> None:
        """Claude Code has said the block as a whole itself."""
        self._kind = ""
        self._pieces = []

    def rest(self) -> list[Event]:
        """The turn is over: what was said of an unfinished block, as a whole."""
        joined, kind = "".join(self._pieces), self._kind
        self.whole()
        if not joined:
            return []
        if kind == "text":
            return [Text(text=joined, message_id=self._message_id, parent_tool_use_id=self._parent)]
        return [Thinking(text=joined, parent_tool_use_id=self._parent)]

    def broken_off(self) -> list[Event]:
        """The answer ends in the middle, and will be given anew: by a retry, or by another model."""
        size = sum(map(len, self._pieces))
        if size:
            self._broken_off = size
        return self.rest()

    def said_again(self, size: int) -> None:
        """What was said last, ``size`` characters as a whole, belongs to an answer that will be given anew."""
        self._broken_off = max(self._broken_off, size)

    def repetition(self) -> list[Event]:
        """Said once, before the answer that may repeat what was heard already."""
        size, self._broken_off = self._broken_off, 0
        if not size:
            return []
        message = f"the answer broke off after {size} characters and is given anew: what follows may repeat them"
        return [Notice(level="warning", code="text_repeated", message=message, parent_tool_use_id=self._parent)]

    def _begin(self, kind: str, text: str) -> list[Event]:
        out = [*self.rest(), *self.repetition()]
        self._kind, self._pieces = kind, [text]
        if kind == "text":
            return [*out, TextDelta(text=text, message_id=self._message_id, parent_tool_use_id=self._parent)]
        return [*out, ThinkingDelta(text=text, parent_tool_use_id=self._parent)]
