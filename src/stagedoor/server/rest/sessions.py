"""REST: sessions, their messages and their events."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict, replace

from stagedoor.dialects.session_request import SessionRequest
from stagedoor.service.identity import first_id
from stagedoor.service.store import Query
from stagedoor.service.views import QueuedPrompt, SessionSpec, SessionView, State

from ..problems import InvalidField
from ..streams.dialect_cursor import CANONICAL, known_dialect
from .create_bodies import BoardWish, Wish, carry_out, wish_of
from .event_pages import EventPage
from .operations import Call, Count, DialectName, Operation, Words

_TAG = "sessions"
_HIDDEN = "…"


class SessionsQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    state: State | None = None
    agent: Words = ""
    project_id: Words = ""
    group: Words = ""
    search: Words = ""
    archived: bool | None = None
    ended: bool | None = None
    offset: Count = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 50


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    sessions: list[SessionView]
    total: int
    offset: int
    limit: int


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """``after`` is a ``seq``; ``offset`` counts events of the dialect. Give one of them, or none for the start."""

    offset: Count | None = None
    after: Count | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 500
    dialect: DialectName = CANONICAL


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
    archived: bool | None = None


class FollowUp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``steer``: said into the running turn where the agent can take it there; else it waits for its turn."""

    prompt: Annotated[str, msgspec.Meta(min_length=1)]
    steer: bool = False


class NextPrompt(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """``keepOpen`` left out: as the session that is gone on with."""

    prompt: Annotated[str, msgspec.Meta(min_length=1)]
    keep_open: bool | None = None


def shown(view: SessionView) -> SessionView:
    """A session as a client may see it: what tool servers were given to sign in with stays here."""
    if view.spec is None or not view.spec.mcp_servers:
        return view
    servers = {
        name: replace(server, env=dict.fromkeys(server.env, _HIDDEN), headers=dict.fromkeys(server.headers, _HIDDEN))
        for name, server in view.spec.mcp_servers.items()
    }
    return replace(view, spec=replace(view.spec, mcp_servers=servers))


async def create(call: Call[None, Wish]) -> SessionView:
    return shown(await carry_out(call.service, call.body, who=call.who))


async def find_made(call: Call[Any, Any]) -> SessionView | None:
    made = await call.service.sessions.find(first_id())
    return None if made is None else shown(made)


async def list_sessions(call: Call[SessionsQuery, None]) -> SessionPage:
    query = call.query
    found, total = await call.service.sessions.page(Query(**asdict(query)))
    return SessionPage(sessions=[shown(one) for one in found], total=total, offset=query.offset, limit=query.limit)


async def get(call: Call[None, None]) -> SessionView:
    return shown(await call.service.sessions.get(call.session_id))


async def change(call: Call[None, Change]) -> SessionView:
    return shown(
        await call.service.sessions.change(call.session_id, title=call.body.title, archived=call.body.archived)
    )


async def delete(call: Call[None, None]) -> None:
    await call.service.sessions.delete(call.session_id)


async def events(call: Call[EventsQuery, None]) -> EventPage:
    query = call.query
    known_dialect(query.dialect)
    if query.after is not None and query.offset is not None:
        raise InvalidField("give after or offset, not both", field="offset")
    view = await call.service.sessions.get(call.session_id)
    if query.after is not None:
        return await call.pages.after(view, query.dialect, query.after, query.limit)
    return await call.pages.offset(view, query.dialect, query.offset or 0, query.limit)


async def send(call: Call[None, FollowUp]) -> QueuedPrompt:
    return await call.service.sessions.send(call.session_id, call.body.prompt, steer=call.body.steer, who=call.who)


async def find_sent(call: Call[Any, Any]) -> QueuedPrompt | None:
    wanted = first_id()
    sent = await call.service.sessions.messages(call.session_id, queued_only=False)
    return next((one for one in sent if one.id == wanted), None)


async def interrupt(call: Call[None, None]) -> SessionView:
    return shown(await call.service.sessions.interrupt(call.session_id))


async def cancel(call: Call[None, None]) -> SessionView:
    return shown(await call.service.sessions.cancel(call.session_id))


async def resume(call: Call[None, NextPrompt]) -> SessionView:
    return await _go_on(call, fork=False)


async def fork(call: Call[None, NextPrompt]) -> SessionView:
    return await _go_on(call, fork=True)


async def _go_on(call: Call[None, NextPrompt], *, fork: bool) -> SessionView:
    wish = call.body
    begun = await call.service.sessions.resume(
        call.session_id, wish.prompt, fork=fork, keep_open=wish.keep_open, who=call.who
    )
    return shown(begun)


_ONE = "/api/sessions/{sessionId}"
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="createSession", method="POST", path="/api/sessions", tag=_TAG, scope="run", verb=create, status=201,
        summary="Begin a session", bodies=(SessionSpec, BoardWish, SessionRequest), read=wish_of, answer=SessionView,
        faults=(404, 409), recall=find_made,
    ),
    Operation(
        name="listSessions", method="GET", path="/api/sessions", tag=_TAG, scope="watch", verb=list_sessions,
        summary="The sessions, newest first", query=SessionsQuery, answer=SessionPage,
    ),
    Operation(
        name="getSession", method="GET", path=_ONE, tag=_TAG, scope="watch", verb=get,
        summary="One session", answer=SessionView, faults=(404,),
    ),
    Operation(
        name="changeSession", method="PATCH", path=_ONE, tag=_TAG, scope="run", verb=change,
        summary="Rename or archive a session", bodies=(Change,), answer=SessionView, faults=(404,),
    ),
    Operation(
        name="deleteSession", method="DELETE", path=_ONE, tag=_TAG, scope="run", verb=delete, status=204,
        summary="Remove an ended session and its events", faults=(404, 409),
    ),
    Operation(
        name="listEvents", method="GET", path=_ONE + "/events", tag=_TAG, scope="watch", verb=events,
        summary="A page of a session's events, in any dialect", query=EventsQuery, answer=EventPage, faults=(404,),
    ),
    Operation(
        name="sendMessage", method="POST", path=_ONE + "/messages", tag=_TAG, scope="run", verb=send, status=202,
        summary="Send a follow-up; it waits until the turns before it are over, or steers the running one",
        bodies=(FollowUp,), answer=QueuedPrompt, faults=(404, 409), recall=find_sent,
    ),
    Operation(
        name="interruptSession", method="POST", path=_ONE + "/interrupt", tag=_TAG, scope="run", verb=interrupt,
        summary="End the running turn", answer=SessionView, faults=(404,), recall=interrupt,
    ),
    Operation(
        name="cancelSession", method="POST", path=_ONE + "/cancel", tag=_TAG, scope="run", verb=cancel,
        summary="End the session now", answer=SessionView, faults=(404,), recall=cancel,
    ),
    Operation(
        name="resumeSession", method="POST", path=_ONE + "/resume", tag=_TAG, scope="run", verb=resume, status=201,
        summary="Go on with an ended session in a new one", bodies=(NextPrompt,), answer=SessionView, faults=(404, 409),
        recall=find_made,
    ),
    Operation(
        name="forkSession", method="POST", path=_ONE + "/fork", tag=_TAG, scope="run", verb=fork, status=201,
        summary="Begin a new session that knows what this one knows", bodies=(NextPrompt,), answer=SessionView,
        faults=(404, 409), recall=find_made,
    ),
)  # fmt: skip
