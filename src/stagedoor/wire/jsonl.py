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
        self._max_line = max_line
        self._skipped = 0  # bytes of an over-long line already let go; its beginning stays in _pending

    def feed(self, chunk: bytes) -> list[bytes | UnknownMessage]:
        """Return the lines that ``chunk`` completed, without their line ends; blank lines are passed over."""
        lines = chunk.split(b"\n")
        rest = lines.pop()
        whole: list[bytes | UnknownMessage] = []
        if lines and self._pending:
            first = self._complete(bytes(self._pending) + lines.pop(0))
            self._pending.clear()
            if first is not None:
                whole.append(first)
        if b"\r" in chunk or len(chunk) > self._max_line:
            whole += [line for each in lines if (line := self._complete(each)) is not None]
        else:
            whole += [line for line in lines if line and not line.isspace()]
        if rest:
            self._hold(rest)
        return whole

    def finish(self) -> list[bytes | UnknownMessage]:
        """Return the unterminated last line, if there is one."""
        line = self._complete(bytes(self._pending))
        self._pending.clear()
        return [] if line is None else [line]

    def _hold(self, rest: bytes) -> None:
        self._pending += rest
        if len(self._pending) > self._max_line or self._skipped:
            kept = min(KEPT_OF_A_LONG_LINE, self._max_line)
            self._skipped += len(self._pending) - kept
            del self._pending[kept:]

    def _complete(self, raw: bytes) -> bytes | UnknownMessage | None:
        size, self._skipped = len(raw) + self._skipped, 0
        if size > self._max_line:
            why = f"a line of {size} bytes is larger than the limit of {self._max_line}"
            return UnknownMessage(raw[: min(KEPT_OF_A_LONG_LINE, self._max_line)], why)
        line = raw.removesuffix(b"\r")
        return line if line and not line.isspace() else None
