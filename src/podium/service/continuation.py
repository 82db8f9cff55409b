"""The lives of one session as one stream.

A session's CLI may be put to sleep and woken by resume: each time a new conversation begins at 1, with its own ``init``
and its own ``done``. Here they become one: numbers and turns go on, sums add up, ``init`` and ``done`` are said once.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import force_setattr, replace

from podium.unified.events import (
    Done,
    Event,
    Init,
    Notice,
    PermissionRequest,
    PermissionResolved,
    TextDelta,
    ThinkingDelta,
    UsageReport,
)

from .views import SessionView


class Continuation:
    """One life. ``view`` is how the session stood when it began."""

    def __init__(self, view: SessionView) -> None:
        self._view = view
        self._first = view.last_seq == 0
        self._seq = view.last_seq
        self._ids: dict[str, str] = {}
        self.own_ids: dict[str, str] = {}
        """The request ids as the session tells them → as this life knows them."""

    def join(self, events: Iterable[Event], *, last: bool = True) -> list[Event]:
        """``events`` of this life as the session's; its ``done`` is the session's too when it is the ``last``."""
        out: list[Event] = []
        seq, turns, later = self._seq, self._view.turn, not self._first
        for event in events:
            kind = type(event)
            if later and kind is not TextDelta and kind is not ThinkingDelta:
                event = self._later(event)
            if kind is Done and not last:
                continue
            seq += 1
            force_setattr(event, "session_id", self._view.id)
            force_setattr(event, "seq", seq)
            if turns:
                force_setattr(event, "turn", event.turn + turns)
            out.append(event)
        self._seq = seq
        return out

    def _later(self, event: Event) -> Event:
        before = self._view
        match event:
            case Init():
                said = f"woken: {event.native_session_id or before.native_id}"
                return _headed(Notice(level="info", code="woken", message=said), event)
            case UsageReport():
                return replace(event, session=before.usage + event.session)
            case Done():
                usage = before.usage + event.usage
                return replace(
                    event,
                    usage=usage,
                    cost_usd=usage.cost_usd,
                    tool_uses=before.tool_uses + event.tool_uses,
                    duration_ms=float(event.timestamp - before.created_at),
                )
            case PermissionRequest():
                told = f"{event.request_id}~{before.turn}"
                self._ids[event.request_id] = told
                self.own_ids[told] = event.request_id
                return replace(event, request_id=told)
            case PermissionResolved():
                return replace(event, request_id=self._ids.get(event.request_id, event.request_id))
            case _:
                return event


def _headed(event: Event, like: Event) -> Event:
    for name in ("agent", "session_id", "seq", "timestamp", "turn"):
        force_setattr(event, name, getattr(like, name))
    return event
