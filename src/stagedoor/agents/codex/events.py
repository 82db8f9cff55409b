"""What ``codex exec --json`` says, in its own words. The app-server's words are in ``notifications``."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ...transports.launch import Exited, Stalled
from ...wire.shapes import Shapes, Unrecognized
from . import items
from .items import Item
from .notifications import AppEvent
from .usage import Usage


class ThreadStarted(msgspec.Struct, frozen=True):
    """The first line of every process, also after ``resume``."""

    thread_id: str


class TurnStarted(msgspec.Struct, frozen=True):
    """Once per process."""


class TurnError(msgspec.Struct, frozen=True):
    message: str = ""


class TurnCompleted(msgspec.Struct, frozen=True):
    """``usage`` is what the CLI printed: the whole thread so far, earlier processes included.

    ``turn_usage`` is this turn alone, worked out by the protocol; ``None`` when the earlier total is not known.
    """

    usage: Usage | None = None
    turn_usage: Usage | None = None


class TurnFailed(msgspec.Struct, frozen=True):
    error: TurnError = TurnError()


class ThreadError(msgspec.Struct, frozen=True):
    """The line of type ``error``. A harmless retry (``Reconnecting... 2/5``) unless ``turn.failed`` follows."""

    message: str = ""


class ItemStarted(msgspec.Struct, frozen=True):
    item: Item | Unrecognized


class ItemUpdated(msgspec.Struct, frozen=True):
    item: Item | Unrecognized


class ItemCompleted(msgspec.Struct, frozen=True):
    """``status`` stood on the line itself in older versions (success, failed); today the item has its own."""

    item: Item | Unrecognized
    status: str = ""


class ItemLine(msgspec.Struct, frozen=True):
    """An item event before its item is typed. Older versions spread the item over the line itself."""

    type: str
    item: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    item_type: str | None = None
    status: str = ""


ItemEvent: TypeAlias = ItemStarted | ItemUpdated | ItemCompleted
Known: TypeAlias = ThreadStarted | TurnStarted | TurnCompleted | TurnFailed | ThreadError | ItemEvent
ExecEvent: TypeAlias = Known | Unrecognized | Exited | Stalled
Event: TypeAlias = ExecEvent | AppEvent
"""Everything a Codex session of either driver can yield."""

SHAPES: Shapes[ThreadStarted | TurnStarted | TurnCompleted | TurnFailed | ThreadError | ItemLine] = Shapes(
    {
        "thread.started": ThreadStarted,
        "turn.started": TurnStarted,
        "turn.completed": TurnCompleted,
        "turn.failed": TurnFailed,
        "error": ThreadError,
        "item.started": ItemLine,
        "item.updated": ItemLine,
        "item.completed": ItemLine,
    }
)

ITEM_EVENTS: dict[str, type[ItemEvent]] = {
    "item.started": ItemStarted,
    "item.updated": ItemUpdated,
    "item.completed": ItemCompleted,
}


def decode(message: bytes) -> Known | Unrecognized:
    """One line of the stream. Never raises on content."""
    line = SHAPES.decode(message)
    if not isinstance(line, ItemLine):
        return line
    if isinstance(line.item, msgspec.UnsetType):
        if line.item_type is None:
            return Unrecognized(message, "an item event without an item")
        item = items.OLDER_SHAPES.decode(message)
    else:
        item = items.decode(bytes(line.item))
    event = ITEM_EVENTS[line.type](item)
    return ItemCompleted(item, line.status) if line.status and isinstance(event, ItemCompleted) else event
