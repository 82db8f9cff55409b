"""An answer that breaks off is asked for again, and the CLI streams the new attempt behind the old one, unmarked."""

from __future__ import annotations

SHORTEST = 8
"""Characters; a model may well say a shorter piece twice."""
MESSAGE = "the answer broke off and was asked for again; what it says a second time is left out"


class Repeats:
    """Keeps back what repeats all that was said before, begun after a pause (the CLI waits before it asks again)."""

    def __init__(self) -> None:
        self._said = ""
        self._held = ""

    def feed(self, text: str, *, paused: bool) -> tuple[str, bool]:
        """What may be told of ``text``, and whether it completed a repetition."""
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
        held, self._said, self._held = self._held, "", ""
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
