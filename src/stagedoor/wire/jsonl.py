"""Newline-delimited framing."""

from __future__ import annotations

from .shapes import UnknownMessage

MAX_LINE = 256 * 2**20
KEPT_OF_A_LONG_LINE = 64 * 2**10


class LineBuffer:
    """Cuts a byte stream, arriving in arbitrary chunks, into whole lines.

    Only ``\\n`` ends a line: U+2028 and lone ``\\r`` occur inside JSON strings. A line longer than ``max_line`` becomes
    one :class:`UnknownMessage` that keeps its beginning, and the stream goes on behind it.
    """

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._pending = bytearray()
        self._searched = 0
        self._max_line = max_line
        self._skipped = 0  # bytes of an over-long line already let go; its beginning stays in _pending

    def feed(self, chunk: bytes) -> list[bytes | UnknownMessage]:
        """Return the lines that ``chunk`` completed, without their line ends; blank lines are passed over."""
        if self._pending and not self._skipped and (end := chunk.find(b"\n")) != -1:
            # Complete the pending line, so that the rest of the chunk can be cut as a whole.
            line = self._complete(bytes(self._pending) + chunk[:end])
            self._pending.clear()
            self._searched = 0
            return [*([] if line is None else [line]), *self.feed(chunk[end + 1 :])]
        if not self._pending and not self._skipped:
            # Nothing is pending: cut the chunk itself and copy only the incomplete rest.
            end = chunk.rfind(b"\n")
            if end == -1:
                self._hold(chunk)
                return []
            rest = chunk[end + 1 :]
            if end <= self._max_line:
                if rest:
                    self._hold(rest)
                return _whole_lines(chunk[:end])
        self._pending += chunk
        lines: list[bytes | UnknownMessage] = []
        start = 0
        while (end := self._pending.find(b"\n", max(start, self._searched))) != -1:
            line = self._complete(bytes(memoryview(self._pending)[start:end]))
            if line is not None:
                lines.append(line)
            start = self._searched = end + 1
        if start:
            del self._pending[:start]
        self._searched = len(self._pending)
        self._bound()
        return lines

    def finish(self) -> list[bytes | UnknownMessage]:
        """Return the unterminated last line, if there is one."""
        line = self._complete(bytes(self._pending))
        self._pending.clear()
        self._searched = 0
        return [] if line is None else [line]

    def _hold(self, rest: bytes) -> None:
        self._pending += rest
        self._searched = len(self._pending)
        self._bound()

    def _bound(self) -> None:
        if len(self._pending) > self._max_line or self._skipped:
            kept = min(KEPT_OF_A_LONG_LINE, self._max_line)
            self._skipped += len(self._pending) - kept
            del self._pending[kept:]
            self._searched = len(self._pending)

    def _complete(self, raw: bytes) -> bytes | UnknownMessage | None:
        size, self._skipped = len(raw) + self._skipped, 0
        if size > self._max_line:
            why = f"a line of {size} bytes is larger than the limit of {self._max_line}"
            return UnknownMessage(raw[: min(KEPT_OF_A_LONG_LINE, self._max_line)], why)
        line = raw.removesuffix(b"\r")
        return line if line and not line.isspace() else None


def _whole_lines(chunk: bytes) -> list[bytes | UnknownMessage]:
    lines = chunk.split(b"\n")
    if b"\r" in chunk:
        lines = [line.removesuffix(b"\r") for line in lines]
    return [line for line in lines if line and not line.isspace()]
