"""What a client is told of a session it follows: every record from the log, in its dialect, then what comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import msgspec

from stagedoor.errors import SessionNotFound
from stagedoor.service.service import Service
from stagedoor.service.workspaces.git import GitStatus

from ..streams.dialect_cursor import Tellings
from .params import Dialect, Watched

Tell: TypeAlias = Callable[[bytes], Awaitable[None]]


def notification(method: str, params: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})


async def follow(
    service: Service, tellings: Tellings, tell: Tell, session_id: str, after: int, dialect: Dialect
) -> None:
    """Until the session has ended and all of it was told; then ``subscription_ended``."""
    telling = await tellings.at(session_id, dialect, after)
    async with aclosing(service.events.follow(session_id, after)) as batches:
        async for records in batches:
            for record in records:
                messages = telling.tell(record)
                for left, said in zip(range(len(messages) - 1, -1, -1), messages, strict=True):
                    whole = said if dialect == "notify" else _wrapped(session_id, record.seq, dialect, said)
                    await tell(_with_more(whole) if left else whole)
    params: dict[str, Any] = {"session_id": session_id, "seq": telling.after}
    try:
        view = await service.sessions.get(session_id)
        params |= {"reason": "ended", "state": view.state}
    except SessionNotFound:
        params |= {"reason": "deleted"}
    await tell(notification("subscription_ended", params))


def _wrapped(session_id: str, seq: int, dialect: str, said: bytes) -> bytes:
    event = msgspec.Raw(said)
    return notification("session_event", {"session_id": session_id, "seq": seq, "dialect": dialect, "event": event})


def _with_more(said: bytes) -> bytes:
    """Others of the same event follow: a client that loses its connection here goes on after ``seq - 1``."""
    return said.removesuffix(b"}}") + b',"more":true}}'


async def watch(
    service: Service, tell: Tell, session_id: str, watched: tuple[Watched, ...], begun: asyncio.Future[None]
) -> None:
    """What changes on disk in the session's workspace, and what git says of it then. ``begun``: nothing is missed."""
    known: GitStatus | None = None
    async with aclosing(service.workspaces.watch(session_id)) as touches:
        async for touched in touches:
            if not begun.done():
                known = await service.workspaces.git_status(session_id) if "git" in watched else None
                begun.set_result(None)
                continue
            if "files" in watched and touched.files:
                params = {"session_id": session_id, "files": touched.files, "cut": touched.cut}
                await tell(notification("file_changed", params))
            if known is not None:
                status = await service.workspaces.git_status(session_id)
                if touched.git or status != known:
                    await tell(notification("git_changed", {"session_id": session_id, "status": status}))
                known = status
