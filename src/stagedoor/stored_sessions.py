"""Stored sessions of all agents: listed, found by the beginning of an id, and told again in unified events."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from . import catalog
from .drivers.agent import StoredSession
from .errors import NotSupported, SessionNotFound, StagedoorError
from .register import Register
from .unified.events import Event, Init, TurnStarted, stamp

SHORTEST = 4


def stored_sessions(
    cwd: str | Path = ".", agents: Iterable[str] | None = None, env: Mapping[str, str] | None = None
) -> list[StoredSession]:
    """Newest first. An agent whose driver is missing, or whose files cannot be read, hides no other one's sessions."""
    folder = str(Path(cwd).resolve())
    sessions: list[StoredSession] = []
    for name in catalog.names() if agents is None else [catalog.canonical_name(name) for name in agents]:
        try:
            sessions += catalog.agent(name).list_stored(folder, env)
        except (ModuleNotFoundError, OSError, StagedoorError):
            if agents is not None:
                raise
    return sorted(sessions, key=lambda stored: stored.updated_ms, reverse=True)


def find(session: str, cwd: str | Path = ".") -> StoredSession:
    """The session with this id, or the only one of ``cwd`` whose id begins so; ``last`` is the newest there.

    A whole id, ours or the agent's, is found wherever the session ran.
    """
    sessions = stored_sessions(cwd)
    exact = [stored for stored in sessions if stored.session_id == session]
    near = exact or [stored for stored in sessions if session == "last" or _begins(stored.session_id, session)]
    if not near:
        near = _registered(session)
    if not near:
        raise SessionNotFound(
            f"session {session!r} not found in this directory; stagedoor sessions lists them (-C: another directory)"
        )
    if len(near) > 1 and session != "last":
        named = ", ".join(f"{stored.session_id} ({stored.agent})" for stored in near[:5])
        raise SessionNotFound(f"{session!r} matches {named}; give more of the id")
    return near[0]


def _registered(session: str) -> list[StoredSession]:
    """By either of its whole ids, wherever it ran."""
    entry = Register().find(session)
    if entry is None:
        return []
    return [stored for stored in stored_sessions(entry.cwd, [entry.agent]) if stored.session_id == entry.native_id]


def _begins(session_id: str, start: str) -> bool:
    bare = session_id.partition("-")[2] if session_id.startswith(("us-", "ses-")) else session_id
    return len(start) >= SHORTEST and (session_id.startswith(start) or bare.startswith(start))


def events_of(stored: StoredSession, env: Mapping[str, str] = os.environ) -> Iterator[Event]:
    """What happened in a stored session, from ``init`` on, as far as the agent keeps it."""
    reader = catalog.agent(stored.agent).read_stored
    if reader is None:
        raise NotSupported(f"the stored sessions of {stored.agent} cannot be shown; resume the session instead")
    turn = 0
    first = Init(model=stored.model, cwd=stored.cwd, native_session_id=stored.session_id, timestamp=stored.started_ms)
    for seq, event in enumerate([first, *reader(stored, env)], 1):
        turn += isinstance(event, TurnStarted)
        yield stamp(
            event, agent=stored.agent, session_id=stored.session_id, seq=seq, timestamp=event.timestamp, turn=turn
        )
