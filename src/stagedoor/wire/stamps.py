"""What every native event carries beside the CLI's own words: its session, its turn, and when it was.

Most messages of most CLIs leave out at least one of the three. They are kept in one value that the events read together
share, so that marking an event costs one assignment, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import force_setattr


class Stamp(msgspec.Struct, frozen=True, eq=False):
    """Where and when an event was read. Two events are equal when they say the same, whatever their stamps."""

    session_id: str = ""
    turn_id: int = 0
    read_at: float = 0.0
    """Seconds since 1970."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stamp)

    def __hash__(self) -> int:
        return 0


UNSTAMPED = Stamp()


class Stamped(msgspec.Struct, frozen=True, kw_only=True):
    """The three facts of every native event. Never made on its own.

    Where a CLI names the session of a message itself, that is the ``session_id`` (sub-agents have their own).
    """

    stamp: Stamp = msgspec.field(default=UNSTAMPED, name="@stamp")

    @property
    def session_id(self) -> str:
        return self.stamp.session_id

    @property
    def turn_id(self) -> int:
        """The number of the turn in this session: 1 for the first prompt, 0 for what came before it."""
        return self.stamp.turn_id

    @property
    def timestamp(self) -> datetime:
        """When the CLI wrote it, where it says so; else when it was read. Always with a time zone."""
        return datetime.fromtimestamp(self.stamp.read_at, UTC)


def mark(pairs: Iterable[tuple[bytes, Any]], stamp: Stamp) -> None:
    """Give these events, each beside its message, their stamp; those whose CLI left out the session get that too."""
    session_id = stamp.session_id
    for _, event in pairs:
        force_setattr(event, "stamp", stamp)
        if not event.session_id and session_id:
            force_setattr(event, "session_id", session_id)


def written_at(text: str | float | None, otherwise: Stamped) -> datetime:
    """A CLI's own time, in ISO 8601 or in milliseconds; without one that can be read, when the event was read."""
    try:
        if isinstance(text, str):
            written = datetime.fromisoformat(text)
            return written if written.tzinfo is not None else written.replace(tzinfo=UTC)
        if text:
            return datetime.fromtimestamp(text / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return datetime.fromtimestamp(otherwise.stamp.read_at, UTC)
