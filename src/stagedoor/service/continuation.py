"""The lives of one session as one stream.

A session's CLI may be put to sleep and woken by resume: each time a new conversation begins at 1, with its own ``init``
and its own ``done``. Here they become one: turns go on, sums add up, ``init`` and ``done`` are said once. (The numbers
are given when the events are stored.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import force_setattr, replace

from stagedoor.unified.events import (
    Done,
    Event,
    Init,
    PermissionRequest,
    PermissionResolved,
    Status,
    TextDelta,
    ThinkingDelta,
    TurnCompleted,
    UsageReport,
    stamp,
)

from .projection import woken
from .views import SessionView

Counts = Callable[[Status | None], bool]
"""Whether this life's ``done`` is the session's. It is told how the turn went that it cut off, if it did."""


class Continuation:
    """One life. ``view`` is how the session stood when it began."""

    def __init__(self, view: SessionView) -> None:
        self._view = view
        self._first = view.last_seq == 0
        self._ids: dict[str, str] = {}
        self.own_ids: dict[str, str] = {}
        """The request ids as the session tells them → as this life knows them."""
        self.over = False
        """This life has said its ``done``."""

    def join(self, events: Iterable[Event], counts: Counts) -> list[Event]:
        """``events`` of this life as the session's."""
        out: list[Event] = []
        session_id, turns, later = self._view.id, self._view.turn, not self._first
        cut: Status | None = None
        for event in events:
            kind = type(event)
            if kind is Done:
                self.over = True
                if not counts(cut):
                    continue
            if later and kind is not TextDelta and kind is not ThinkingDelta:
                event = self._later(event)
            force_setattr(event, "session_id", session_id)
            if turns:
                force_setattr(event, "turn", event.turn + turns)
            out.append(event)
            cut = event.status if isinstance(event, TurnCompleted) else None
        return out

    def _later(self, event: Event) -> Event:
        before = self._view
        match event:
            case Init():
                notice = woken(event.native_session_id or before.native_id)
                return stamp(notice, event.agent, event.session_id, event.seq, event.timestamp, event.turn)
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
