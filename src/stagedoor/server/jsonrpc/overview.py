"""What a client that follows everything is told: sessions and questions that have changed, as they are now.

The doorbell says only that something has changed. What is open, and what is new, is read and compared with what this
client was told last; changes in quick succession are told as one.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

from msgspec.structs import replace

from stagedoor.service.service import Service
from stagedoor.service.store import Query
from stagedoor.service.views import Question, SessionView

from .following import Tell, notification
from .results import UnifiedSession

PAUSE = 0.1
"""Seconds between two looks."""
RECENT = 100
"""So many of the newest sessions are compared even when they have ended."""
OPEN = 10_000
_Look: TypeAlias = tuple[dict[str, SessionView], dict[str, Question]]


class Lookout:
    """Looks for all who follow everything: those who ask at the same time share one look."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Task[_Look] | None = None

    async def look(self) -> _Look:
        """How things stand, read after this was called."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._look())
        return await asyncio.shield(self._next)

    async def _look(self) -> _Look:
        async with self._one_at_a_time:
            self._next = None  # who comes from here on needs a later look
            found = [
                *(await self.service.sessions.list(Query(ended=False, limit=OPEN))),
                *(await self.service.sessions.list(Query(limit=RECENT))),
            ]
            return {view.id: view for view in found}, {one.id: one for one in await self.service.questions.list()}


async def overview(lookout: Lookout, tell: Tell, begun: asyncio.Future[None]) -> None:
    """``begun``: from here on nothing is missed."""
    service = lookout.service
    bell = service.sessions.bell()
    try:
        sessions, questions = await lookout.look()
        begun.set_result(None)
        while True:
            await bell.rung()
            now, asked = await lookout.look()
            await _tell_sessions(service, tell, sessions, now)
            await _tell_questions(service, tell, questions, asked)
            sessions, questions = now, asked
            await asyncio.sleep(PAUSE)
    finally:
        bell.close()


async def _tell_sessions(
    service: Service, tell: Tell, before: dict[str, SessionView], now: dict[str, SessionView]
) -> None:
    for session_id, view in now.items():
        known = before.get(session_id)
        if known is None or _telling(known) != _telling(view):
            await tell(_changed(view))
    for session_id, known in before.items():
        if session_id in now:
            continue
        found = await service.sessions.find(session_id)
        if found is None:
            await tell(notification("session_changed", {"session_id": session_id, "deleted": True}))
        elif _telling(known) != _telling(found):
            await tell(_changed(found))


def _changed(view: SessionView) -> bytes:
    brief = UnifiedSession.of(replace(view, spec=None))  # what was asked for does not change, and may be long
    params = {"session_id": view.id, "seq": view.last_seq, "session": brief}
    return notification("session_changed", params)


def _telling(view: SessionView) -> tuple[Any, ...]:
    """What is worth a word: not every event of a session, which its own followers hear."""
    return (
        view.state, view.activity, view.title, view.archived, view.turn, view.open_questions, view.queued, view.model,
        view.branch, view.group,
    )  # fmt: skip


async def _tell_questions(service: Service, tell: Tell, before: dict[str, Question], now: dict[str, Question]) -> None:
    changed = [question for question_id, question in now.items() if before.get(question_id) != question]
    for question_id in before.keys() - now.keys():
        closed = await service.questions.find(question_id)
        if closed is not None:
            changed.append(closed)
    for question in changed:
        params = {
            "session_id": question.session_id,
            "seq": question.request.seq,
            "open": question.open,
            "permission": question,
        }
        await tell(notification("permission_changed", params))
