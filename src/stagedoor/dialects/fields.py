"""A canonical event taken apart: its own fields without the header, by their wire names."""

from __future__ import annotations

from functools import cache
from typing import Any

from stagedoor.unified.events import Event, Header, Plan

_HEADER = frozenset(Header.__struct_fields__)


@cache
def _names(kind: type[Event]) -> list[tuple[str, str]]:
    pairs = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return [(name, wire) for name, wire in pairs if name not in _HEADER]


def own_fields(event: Event) -> dict[str, Any]:
    """Everything the event says itself; fields it leaves open (``None``) are left out."""
    return {wire: value for name, wire in _names(type(event)) if (value := getattr(event, name)) is not None}


def type_of(event: Event) -> str:
    """The canonical type as it stands on the wire."""
    return str(type(event).__struct_config__.tag)


_MARKS = {"pending": "[ ]", "in_progress": "[~]", "completed": "[x]"}


def checklist(plan: Plan) -> str:
    """A plan for dialects that know only text."""
    return "\n".join(f"{_MARKS[item.status]} {item.text}" for item in plan.items)
