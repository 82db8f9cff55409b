"""A client of document 001, written from that document alone: one native client per CLI, its sessions and events.

The document is Dart. In Python ``createSession(prompt, config)`` is ``await client.create_session(prompt, config)``,
``Stream<Event> get events`` is an async iterator, and names are in snake case. Nothing is normalized: which event ends
a turn is the CLI's own affair, so whoever runs the client names it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from stagedoor.errors import ProcessExited

Ends = Callable[[Any], bool]


def check_stored(stored: Any, **facts: Any) -> None:
    """``SessionInfo``: who, where, since when; ``git_branch`` where there is one. Times are milliseconds here."""
    assert {name: getattr(stored, name) for name in facts} == facts, stored
    assert 1_600_000_000_000 < stored.started_ms <= stored.updated_ms


def read_fields(event: Any, *names: str) -> tuple[Any, ...]:
    """Fields by their dotted names, as the document's classes nest them."""
    values: list[Any] = []
    for name in names:
        value = event
        for part in name.split("."):
            value = getattr(value, part)
        values.append(value)
    return tuple(values)


def check_event(event: Any, session_id: str, turn_id: int) -> None:
    """The base class of every event: ``sessionId``, ``turnId`` (0 before the first prompt), ``timestamp``."""
    assert event.session_id == session_id, event
    assert event.turn_id in ((0, 1) if turn_id == 1 else (turn_id,)), event
    assert isinstance(event.timestamp, datetime), event
    assert event.timestamp.tzinfo is not None
    assert event.timestamp.year > 2020, event


class NativeClient:
    """``Client (per CWD)``, whichever it is, and what the document lets one do with it."""

    def __init__(self, client: Any, ends: Ends) -> None:
        self._client = client
        self._ends = ends

    async def converse(self, prompts: list[str], config: Any) -> tuple[str, list[list[Any]]]:
        """``createSession`` with the first prompt, ``send`` with the others; the events of each turn."""
        session = await self._client.create_session(prompts[0], config)
        turns = []
        async with session:
            events = session.events
            turns.append(await self._turn(events))
            for prompt in prompts[1:]:
                await session.wait()
                await session.send(prompt)
                turns.append(await self._turn(events))
            session_id = session.session_id
            await session.cancel()
        for number, turn in enumerate(turns, 1):
            for event in turn:
                check_event(event, session_id, number)
        return session_id, turns

    async def resume(self, session_id: str, prompt: str, config: Any) -> list[Any]:
        """``resumeSession``: the same id, and turns are counted from one again."""
        async with await self._client.resume_session(session_id, prompt, config) as session:
            assert session.session_id == session_id
            events = await self._turn(session.events)
        for event in events:
            check_event(event, session_id, 1)
        return events

    async def list_sessions(self) -> list[Any]:
        """``Future<List<SessionInfo>> listSessions()``."""
        listing = self._client.list_sessions()
        assert inspect.isawaitable(listing)
        sessions = await listing
        assert type(sessions) is list
        return sessions

    async def die(self, prompt: str, config: Any, kill: Callable[[int], Awaitable[None]]) -> tuple[Any, ProcessExited]:
        """The process dies in mid-turn: the stream ends with its last event, and ``wait`` raises."""
        async with await self._client.create_session(prompt, config) as session:
            last = None
            events = session.events
            async for event in events:
                last = event
                break
            await kill(session.pid)
            async for event in events:
                last = event
                if type(event).__name__ == "Exited":
                    break
            try:
                await session.wait()
            except ProcessExited as error:
                return last, error
        raise AssertionError("the process died and wait() said nothing")

    async def _turn(self, events: Any) -> list[Any]:
        turn: list[Any] = []
        async for event in events:
            turn.append(event)
            if self._ends(event):
                break
        return turn
