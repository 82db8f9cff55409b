"""An answer that breaks off is asked for again, and the CLI streams the new attempt behind the old one, unmarked."""

from __future__ import annotations

PAUSE = 900.0
"""Milliseconds; the CLI waits at least a second before it asks again."""
SHORTEST = 8
"""Characters; a model may well say a shorter piece twice."""


class Repeats:
    """Keeps back what is a repetition of all that was said before, begun after a pause."""

    def __init__(self) -> None:
        self._said = ""
        self._held = ""
        self._at: float | None = None

    def feed(self, text: str, at: float | None) -> tuple[str, bool]:
        """What may be told of ``text``, which came ``at`` milliseconds; and whether it completed a repetition."""
        paused = at is not None and self._at is not None and at - self._at >= PAUSE
        self._at = at
        again = self._held + text
        if not self._held and not (paused and len(self._said) >= SHORTEST):
            return self._tell(text), False
        if again.startswith(self._said):
            return self._tell(again.removeprefix(self._said)), True
        if self._said.startswith(again):
            self._held = again
            return "", False
        return self._tell(again), False

    def finish(self) -> str:
        """Something else happens now: what was kept back was no repetition."""
        held, self._said, self._held, self._at = self._held, "", "", None
        return held

    def _tell(self, text: str) -> str:
        self._said += text
        self._held = ""
        return text


def once(pieces: list[str]) -> str | None:
    """The text that ``pieces`` say several times over, one attempt after the other; ``None`` when they do not."""
    for length in range(1, len(pieces) // 2 + 1):
        attempt = pieces[:length]
        if len(pieces) % length == 0 and attempt * (len(pieces) // length) == pieces:
            text = "".join(attempt)
            return text if len(text) >= SHORTEST else None
    return None
