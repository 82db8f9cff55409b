"""Notices when OpenCode repeats a request that never comes to an end. Pure."""

from __future__ import annotations

MOST_EMPTY_STEPS = 8
"""OpenCode itself gives up after five retries where it counts them; where it does not, this does."""


class RunawayWatch:
    """Counts steps in a row that began and did not finish for a known reason."""

    def __init__(self, most: int | None = MOST_EMPTY_STEPS) -> None:
        self._most = most
        self.steps = 0
        self._reported = False

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
        self.steps, self._reported = 0, False
