"""A session's events, each once and in order, whatever happens to the connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..errors import ConnectionLost
from ..service.views import SessionView
from ..unified.events import Done, Event, Notice
from .doors import DOORS, Closed, Heard, Lost, Told
from .line import Line

BROKEN_OPENINGS = 2
"""So often a door may break while it is opened, and the server be there all the same, before the next one is tried:
some proxies refuse by hanging up, or keep what they should pass on."""


class Following:
    """``seen`` is the last ``seq`` that was told, ``known`` the last one the server has spoken of."""

    def __init__(self, line: Line, session_id: str, after: int = 0) -> None:
        self._line = line
        self._id = session_id
        self._done = False
        self._broken = 0
        self.seen = after
        self.known = after

    async def batches(self) -> AsyncGenerator[list[Event]]:
        """Until the session has ended. Raises what the server says is wrong, and ``ConnectionLost`` in the end."""
        tries = self._line.tries()
        while True:
            door = DOORS[self._line.door]
            why = "the stream ended before the session did"
            try:
                async with aclosing(door(self._line, self._id, self.seen)) as stream:
                    async for messages in stream:
                        self._broken = 0
                        events = self._next(messages)
                        if self.seen >= self.known:
                            tries.answered()
                        if events:
                            tries.progressed()
                            yield events
                if self._done or await self._is_over():
                    return
            except Closed as fault:
                self._next_door(fault)
                continue
            except Lost as fault:
                why = str(fault)
                if fault.opening:
                    await self._is_over()  # answers when the server can be reached: then it is the door
                    self._broken += 1
                if self._broken >= BROKEN_OPENINGS:
                    self._next_door(fault)
            await tries.wait(why)

    def _next(self, messages: list[Heard]) -> list[Event]:
        """What follows on what was told before; raises ``Lost`` where something is missing in between."""
        events: list[Event] = []
        for message in messages:
            if isinstance(message, Told):
                self.known = max(self.known, message.last_seq)
                events += self._gap(message)
            elif message.seq == self.seen + 1:
                self.seen = message.seq
                self._done = isinstance(message, Done)
                events.append(message)
            elif message.seq > self.seen:
                if events:
                    return events  # tell what is whole; the rest is asked for again
                raise Lost(f"event {message.seq} came where {self.seen + 1} was due")
        self.known = max(self.known, self.seen)
        return events

    def _gap(self, verdict: Told) -> list[Event]:
        first, last = verdict.missing_from, verdict.missing_to
        if verdict.verdict != "gap" or first is None or last is None or last <= self.seen:
            return []
        self.seen = last
        said = f"events {first} to {last} are no longer kept by the server"
        return [Notice(session_id=self._id, seq=last, level="warning", code="events_missing", message=said)]

    async def _is_over(self) -> bool:
        view = await self._line.get(f"/api/sessions/{self._id}", SessionView)
        return view.ended and view.last_seq <= self.seen

    def _next_door(self, fault: Exception) -> None:
        self._broken = 0
        if self._line.door + 1 == len(DOORS):
            raise ConnectionLost(f"the session cannot be followed at {self._line.address.url}: {fault}") from fault
        self._line.door += 1
