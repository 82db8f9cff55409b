"""What a client is sent by itself: the events of a session it follows, what changes in its workspace, and the changes
of all sessions and questions.

For the last, the doorbell rings only that something has changed. What is open, and what is new, is read and compared
with what this client was sent last; changes in quick succession are sent as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from stagedoor.errors import SessionNotFound
from stagedoor.service.service import Service
from stagedoor.service.store import Query
from stagedoor.service.views import Question, SessionView
from stagedoor.service.workspaces.git import GitStatus
from stagedoor.transports.tasks import TaskOwner

from ..streams.dialect_cursor import DialectCursors
from .params import Dialect, Watched
from .results import UnifiedSession

PAUSE = 0.1
"""Seconds between two snapshots."""
RECENT = 100
"""So many of the newest sessions are compared even when they have ended."""
OPEN = 10_000
Send: TypeAlias = Callable[[bytes], Awaitable[None]]
Snapshot: TypeAlias = tuple[dict[str, SessionView], dict[str, Question]]


def notification(method: str, params: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})


async def follow(
    service: Service,
    cursors: DialectCursors,
    send: Send,
    session_id: str,
    after: int,
    dialect: Dialect,
    *,
    end: bool = True,
) -> None:
    """Until the session has ended and all of it was sent; then ``subscription_ended`` if ``end``."""
    cursor = await cursors.at(session_id, dialect, after)
    async with aclosing(service.events.follow(session_id, after)) as batches:
        async for records in batches:
            for record in records:
                messages = cursor.project(record)
                for remaining, message in zip(range(len(messages) - 1, -1, -1), messages, strict=True):
                    whole = message if dialect == "notify" else _wrapped(session_id, record.seq, dialect, message)
                    await send(_with_more(whole) if remaining else whole)
    if not end:
        return
    params: dict[str, Any] = {"session_id": session_id, "seq": cursor.after}
    try:
        view = await service.sessions.get(session_id)
        params |= {"reason": "ended", "state": view.state}
    except SessionNotFound:
        params |= {"reason": "deleted"}
    await send(notification("subscription_ended", params))


def _wrapped(session_id: str, seq: int, dialect: str, message: bytes) -> bytes:
    event = msgspec.Raw(message)
    return notification("session_event", {"session_id": session_id, "seq": seq, "dialect": dialect, "event": event})


def _with_more(message: bytes) -> bytes:
    """Others of the same event follow: a client that loses its connection here continues after ``seq - 1``."""
    return message.removesuffix(b"}}") + b',"more":true}}'


async def watch(
    service: Service, send: Send, session_id: str, watched: tuple[Watched, ...], started: asyncio.Future[None]
) -> None:
    """What changes on disk in the session's workspace, and its git status then. ``started``: nothing is missed."""
    before: GitStatus | None = None
    async with aclosing(service.workspaces.watch(session_id)) as touches:
        async for touched in touches:
            if not started.done():
                before = await service.workspaces.git_status(session_id) if "git" in watched else None
                started.set_result(None)
                continue
            if "files" in watched and (touched.files or touched.cut):
                params = {"session_id": session_id, "files": touched.files, "cut": touched.cut}
                await send(notification("file_changed", params))
            if before is not None:
                status = await service.workspaces.git_status(session_id)
                if touched.git or status != before:
                    await send(notification("git_changed", {"session_id": session_id, "status": status}))
                before = status


class Overview:
    """All open and recent sessions and the open questions, for clients that follow everything; those that read at the
    same time share one snapshot."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._lock = asyncio.Lock()
        self._tasks = TaskOwner()
        self._next: asyncio.Task[Snapshot] | None = None

    async def snapshot(self) -> Snapshot:
        """The current state, read after this was called."""
        if self._next is None:
            self._next = self._tasks.start(self._read())
        return await asyncio.shield(self._next)

    async def _read(self) -> Snapshot:
        async with self._lock:
            self._next = None  # who comes from here on needs a later snapshot
            views = [
                *(await self.service.sessions.list(Query(ended=False, limit=OPEN))),
                *(await self.service.sessions.list(Query(limit=RECENT))),
            ]
            questions = await self.service.questions.list()
            return {view.id: view for view in views}, {question.id: question for question in questions}


async def send_changes(overview: Overview, send: Send, started: asyncio.Future[None]) -> None:
    """``started``: from here on nothing is missed."""
    service = overview.service
    bell = service.sessions.bell()
    try:
        sessions, questions = await overview.snapshot()
        started.set_result(None)
        while True:
            await bell.rung()
            now, open_questions = await overview.snapshot()
            await _send_sessions(service, send, sessions, now)
            await _send_questions(service, send, questions, open_questions)
            sessions, questions = now, open_questions
            await asyncio.sleep(PAUSE)
    finally:
        bell.close()


async def _send_sessions(
    service: Service, send: Send, before: dict[str, SessionView], now: dict[str, SessionView]
) -> None:
    for session_id, view in now.items():
        previous = before.get(session_id)
        if previous is None or _compared(previous) != _compared(view):
            await send(_session_changed(view))
    for session_id, previous in before.items():
        if session_id in now:
            continue
        current = await service.sessions.find(session_id)
        if current is None:
            await send(notification("session_changed", {"session_id": session_id, "deleted": True}))
        elif _compared(previous) != _compared(current):
            await send(_session_changed(current))


def _session_changed(view: SessionView) -> bytes:
    brief = UnifiedSession.of(replace(view, spec=None))  # the request does not change, and may be long
    params = {"session_id": view.id, "seq": view.last_seq, "session": brief}
    return notification("session_changed", params)


def _compared(view: SessionView) -> tuple[Any, ...]:
    """The fields whose change is sent: not every event of a session, which its own followers get."""
    return (
        view.state, view.activity, view.title, view.archived, view.turn, view.open_questions, view.queued, view.model,
        view.branch, view.group,
    )  # fmt: skip


async def _send_questions(service: Service, send: Send, before: dict[str, Question], now: dict[str, Question]) -> None:
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
        await send(notification("permission_changed", params))
