"""Notices when a turn goes on too long: a request repeated without end, or more steps than were allowed. Pure."""

from __future__ import annotations

MOST_EMPTY_STEPS = 8
"""OpenCode itself gives up after five retries where it counts them; where it does not, this does."""


MOST_OVERFLOWS = 3
"""A conversation that is too long is summarized and tried again; where that does not help, OpenCode never stops."""

STAYS_TOO_LONG = "the context overflows however often OpenCode summarizes the conversation"


class RunawayWatch:
    """Counts steps in a row that began and did not finish for a known reason, and overflows of one turn."""

    def __init__(self, most: int | None = MOST_EMPTY_STEPS) -> None:
        self._most = most
        self.steps = 0
        self.overflows = 0
        self._reported = False

    def overflowed(self) -> bool:
        """True, once, when summarizing has not helped."""
        self.overflows += 1
        if self._most is None or self.overflows < MOST_OVERFLOWS or self._reported:
            return False
        self._reported = True
        return True

    def step_began(self) -> bool:
        """True, once, when there were too many."""
        self.steps += 1
        if self._most is None or self.steps <= self._most or self._reported:
            return False
        self._reported = True
        return True

    def step_finished(self, reason: str) -> None:
        if reason != "unknown":
            self.steps = 0

    def turn_began(self) -> None:
        self.steps, self.overflows, self._reported = 0, 0, False


class StepLimit:
    """Counts the steps of a turn after which the model wants to go on."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self.steps = 0

    def step_finished(self, reason: str) -> bool:
        """True, once, when the last step that was allowed is not the end."""
        self.steps += 1
        return reason == "tool-calls" and self.steps == self._most

    def turn_began(self) -> None:
        self.steps = 0
