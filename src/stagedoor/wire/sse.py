"""Server-sent events, as the HTML standard frames them."""

from __future__ import annotations

import msgspec

from .jsonl import KEPT_OF_A_LONG_LINE, MAX_LINE
from .shapes import UnknownMessage


class ServerEvent(msgspec.Struct, frozen=True):
    """One dispatched event. ``id`` is the last one the stream has named, as ``Last-Event-ID`` wants it."""

    data: bytes
    event: str = "message"
    id: str = ""


class SseBuffer:
    """Cuts a byte stream, arriving in arbitrary chunks, into events. CR, LF and CRLF end a line."""

    def __init__(self, max_event: int = MAX_LINE) -> None:
        self._pending = b""
        self._after_cr = False
        self._data: list[bytes] = []
        self._size = 0
        self._event = ""
        self._max_event = max_event
        self._overlong = False
        self._started = False
        self.last_id = ""
        self.retry_ms: int | None = None

    def feed(self, chunk: bytes) -> list[ServerEvent | UnknownMessage]:
        if self._after_cr and chunk:
            # The CR that ended the last line may have been half of a CRLF cut in two.
            chunk, self._after_cr = chunk.removeprefix(b"\n"), False
        buffer = self._pending + chunk if self._pending else chunk
        self._after_cr = buffer.endswith(b"\r")
        lines = buffer.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._pending = lines.pop()
        events = [event for line in lines if (event := self._line(line)) is not None]
        if self._size + len(self._pending) > self._max_event:
            self._overlong = True
            self._size += len(self._pending)
            self._pending = self._pending[: min(KEPT_OF_A_LONG_LINE, self._max_event)]
        return events

    def finish(self) -> list[ServerEvent | UnknownMessage]:
        """The stream ended. The standard drops an event that was not dispatched; we report it instead."""
        if self._pending:
            self._line(self._pending)
            self._pending = b""
        if not self._data:
            return []
        raw, self._data = b"\n".join(self._data), []
        return [UnknownMessage(raw, "the stream ended inside this event")]

    def _line(self, line: bytes) -> ServerEvent | UnknownMessage | None:
        if not self._started:
            line, self._started = line.removeprefix(b"\xef\xbb\xbf"), True
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._size += len(value)
                if self._size > self._max_event:
                    self._overlong = True
                if not self._overlong or not self._data:
                    self._data.append(value)
            case b"event":
                self._event = value.decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                self.last_id = value.decode("utf-8", "replace")
            case b"retry" if value.isdigit():
                self.retry_ms = int(value)
            case _:
                pass
        return None

    def _dispatch(self) -> ServerEvent | UnknownMessage | None:
        data, size, overlong, event = self._data, self._size, self._overlong, self._event
        self._data, self._size, self._overlong, self._event = [], 0, False, ""
        if not data:
            return None
        whole = b"\n".join(data)
        if overlong:
            why = f"an event of {size} bytes is larger than the limit of {self._max_event}"
            return UnknownMessage(whole[:KEPT_OF_A_LONG_LINE], why)
        return ServerEvent(whole, event or "message", self.last_id)
