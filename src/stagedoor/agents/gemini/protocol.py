"""One ``gemini --output-format stream-json`` process: one turn. The prompt went in with the launch."""

from __future__ import annotations

from stagedoor.wire.shapes import UnknownMessage

from .commands import Command
from .events import (
    SHAPES,
    Event,
    GeminiDone,
    GeminiMessage,
    GeminiResult,
    GeminiToolCall,
    GeminiToolResult,
    GeminiToolUse,
    Truncated,
    older_events,
)

_OLDER = (UnknownMessage, GeminiToolCall, GeminiDone)


class StreamProtocol:
    """Types every line, and knows whether the run came to its end."""

    def __init__(self) -> None:
        self._open: dict[str, None] = {}  # calls without a result, in the order they came
        self._finished = False
        self._interrupted = False

    @property
    def finished(self) -> bool:
        """The run has sent its last event; the process is about to exit."""
        return self._finished

    def receive(self, message: bytes) -> list[Event]:
        event = SHAPES.decode(message)
        # A message without a text may have had blocks, as the older ones have.
        may_be_older = not event.content if isinstance(event, GeminiMessage) else isinstance(event, _OLDER)
        if may_be_older and (events := older_events(message)):
            for older in events:
                self._track(older)
            return [*events]
        self._track(event)
        return [event]

    def _track(self, event: Event) -> None:
        match event:
            case GeminiToolUse(tool_id=tool_id):
                self._open[tool_id] = None
            case GeminiToolResult(tool_id=tool_id):
                self._open.pop(tool_id, None)
            case GeminiResult() | GeminiDone():
                self._finished = True
            case _:
                pass

    def receive_eof(self) -> list[Event]:
        """The CLI exits with 0 after a signal, a cut-off pipe and a hook that asks: only ``result`` means the end."""
        if self._finished:
            return []
        why = "the turn was interrupted" if self._interrupted else "the output ended without a result event"
        return [Truncated(why, self._interrupted, tuple(self._open))]

    def send(self, command: Command) -> None:
        """Remember the interrupt: the process itself is stopped by a signal, it reads nothing any more."""
        self._interrupted = True

    def outgoing(self) -> list[bytes]:
        return []
