"""REST: sessions, their messages and events; and the sessions that the agents store themselves."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec.structs import asdict, replace

from stagedoor.dialects.session_request import SessionRequest
from stagedoor.service.identity import first_id
from stagedoor.service.store import Query, next_cursor
from stagedoor.service.stored import LAST, PastSession
from stagedoor.service.views import AttachedFile, QueuedPrompt, SessionSpec, SessionView, State
from stagedoor.service.workspaces.attachments import AttachedPicture
from stagedoor.unified.options import Approval, Tier
from stagedoor.unified.settings import AgentReport

from ..problems import InvalidField
from ..streams.following import spoken_by
from .create_bodies import BoardBody, CreateBody, carry_out, read_create_body
from .event_pages import EventPage
from .operations import AgentName, Count, DialectName, Operation, PathText, RestCall, Words
from .server import SettingList

_TAG = "sessions"
_HIDDEN = "…"


Place: TypeAlias = Annotated[str, msgspec.Meta(max_length=1000, pattern=r"^$|^[0-9]{1,18}\..+$")]
"""The ``nextCursor`` of a page."""


class SessionsQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    state: State | None = None
    agent: Words = ""
    project_id: Words = ""
    group: Words = ""
    search: Words = ""
    archived: bool | None = None
    ended: bool | None = None
    cursor: Place = ""
    offset: Count = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 50


class SessionPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``nextCursor``: send it as ``cursor`` to read on, which misses nothing though new ones come; empty at the end."""

    sessions: list[SessionView]
    total: int
    offset: int
    limit: int
    next_cursor: str = ""


class AttachmentQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``name``: as ``attachments`` of the notice ``attached`` has it."""

    name: PathText = ""


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """``after`` is a ``seq``; ``offset`` counts events of the dialect. Send one of them, or none for the start."""

    offset: Count | None = None
    after: Count | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 500
    dialect: DialectName | None = None


class ChangeBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """``model``, ``tier`` (with its ``approval``) hold from the next message on; the agent must be able to resume.
    ``queuePaused: false`` lets the messages go on that wait since somebody stopped the turn."""

    title: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
    archived: bool | None = None
    queue_paused: bool | None = None
    model: Words | None = None
    tier: Tier | None = None
    approval: Approval | None = None


class SettingBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``id``: of a setting, or ``mode``, ``model``, ``effort``."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    value: Annotated[str, msgspec.Meta(max_length=1000)]


class MessageBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``steer``: added to the running turn where the agent supports that; else it waits for its own turn."""

    prompt: Annotated[str, msgspec.Meta(min_length=1)]
    steer: bool = False
    attachments: tuple[AttachedFile, ...] = ()


class RewriteBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``place``: among the messages that wait, counted from 0, which comes next."""

    prompt: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    place: Count | None = None


class InterruptBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``pause``: the messages that wait for their turn go on waiting, until one is sent or the queue is resumed."""

    pause: bool = False


class ResumeBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """``keepOpen`` left out: as in the session that is continued. The session ``last`` is the newest one of ``agent``
    (else the server's default) in a folder, whoever ran it there."""

    prompt: Annotated[str, msgspec.Meta(min_length=1)]
    keep_open: bool | None = None
    agent: AgentName = ""
    cwd: PathText = ""
    project_id: Words = ""


class QueuedMessages(msgspec.Struct, frozen=True):
    """Follow-ups that wait for their turn, oldest first."""

    messages: list[QueuedPrompt]


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cwd: PathText = ""
    agent: AgentName = ""


class HistoryList(msgspec.Struct, frozen=True):
    sessions: list[PastSession]


class ImportBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The fields as ``GET /api/history`` returns them."""

    agent: AgentName
    native_id: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    cwd: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    place: Words = ""


def public_view(view: SessionView) -> SessionView:
    """The session without the secrets that its tool servers sign in with: no client sees them."""
    if view.spec is None or not view.spec.mcp_servers:
        return view
    servers = {
        name: replace(server, env=dict.fromkeys(server.env, _HIDDEN), headers=dict.fromkeys(server.headers, _HIDDEN))
        for name, server in view.spec.mcp_servers.items()
    }
    return replace(view, spec=replace(view.spec, mcp_servers=servers))


async def create(call: RestCall[None, CreateBody]) -> SessionView:
    return public_view(await carry_out(call.service, call.body, who=call.who))


async def find_created(call: RestCall[Any, Any]) -> SessionView | None:
    created = await call.service.sessions.find(first_id())
    if created is None or not created.epoch:  # it has no owner yet, and may never have one
        return None
    return public_view(created)


async def list_sessions(call: RestCall[SessionsQuery, None]) -> SessionPage:
    query = Query(**asdict(call.query))
    views, total = await call.service.sessions.page(query)
    return SessionPage(
        sessions=[public_view(view) for view in views],
        total=total,
        offset=query.offset,
        limit=query.limit,
        next_cursor=next_cursor(views, query),
    )


async def get(call: RestCall[None, None]) -> SessionView:
    return public_view(await call.service.sessions.get(call.session_id))


async def change(call: RestCall[None, ChangeBody]) -> SessionView:
    body, sessions = call.body, call.service.sessions
    if (body.model, body.tier, body.approval) != (None, None, None):
        await sessions.reconfigure(
            call.session_id, model=body.model, tier=body.tier, approval=body.approval, who=call.who
        )
    view = await sessions.change(
        call.session_id, title=body.title, archived=body.archived, queue_paused=body.queue_paused
    )
    return public_view(view)


async def delete(call: RestCall[None, None]) -> None:
    await call.service.sessions.delete(call.session_id)


async def events(call: RestCall[EventsQuery, None]) -> EventPage:
    query = call.query
    dialect = spoken_by(query.dialect, call.caller, call.service)
    if query.after is not None and query.offset is not None:
        raise InvalidField("send after or offset, not both", field="offset")
    view = await call.service.sessions.get(call.session_id)
    if query.after is not None:
        return await call.pages.after(view, dialect, query.after, query.limit)
    return await call.pages.offset(view, dialect, query.offset or 0, query.limit)


async def send(call: RestCall[None, MessageBody]) -> QueuedPrompt:
    body = call.body
    return await call.service.sessions.send(
        call.session_id, body.prompt, steer=body.steer, attachments=body.attachments, who=call.who
    )


async def find_message(call: RestCall[Any, Any]) -> QueuedPrompt | None:
    message_id = first_id()
    messages = await call.service.sessions.messages(call.session_id, queued_only=False)
    return next((message for message in messages if message.id == message_id), None)


async def queued_messages(call: RestCall[None, None]) -> QueuedMessages:
    await call.service.sessions.get(call.session_id)
    return QueuedMessages(await call.service.sessions.messages(call.session_id, queued_only=True))


async def agent_report(call: RestCall[None, None]) -> AgentReport:
    return await call.service.sessions.report(call.session_id)


async def attachment(call: RestCall[AttachmentQuery, None]) -> AttachedPicture:
    return await call.service.sessions.attachment(call.session_id, call.query.name)


async def settings(call: RestCall[None, None]) -> SettingList:
    return SettingList(await call.service.sessions.settings(call.session_id))


async def change_setting(call: RestCall[None, SettingBody]) -> SettingList:
    body = call.body
    return SettingList(await call.service.sessions.change_setting(call.session_id, body.id, body.value))


async def rewrite_message(call: RestCall[None, RewriteBody]) -> QueuedPrompt:
    body = call.body
    return await call.service.sessions.rewrite(
        call.session_id, call.path["messageId"], prompt=body.prompt, place=body.place
    )


async def withdraw_message(call: RestCall[None, None]) -> None:
    await call.service.sessions.withdraw(call.session_id, call.path["messageId"])


async def interrupt(call: RestCall[None, InterruptBody]) -> SessionView:
    return public_view(await call.service.sessions.interrupt(call.session_id, pause=call.body.pause))


async def cancel(call: RestCall[None, None]) -> SessionView:
    return public_view(await call.service.sessions.cancel(call.session_id))


async def resume(call: RestCall[None, ResumeBody]) -> SessionView:
    return await _resume(call, fork=False)


async def fork(call: RestCall[None, ResumeBody]) -> SessionView:
    return await _resume(call, fork=True)


async def _resume(call: RestCall[None, ResumeBody], *, fork: bool) -> SessionView:
    body = call.body
    agent = body.agent or (await call.service.agents.default() if call.session_id == LAST else "")
    old = await call.service.stored.to_continue(call.session_id, agent=agent, cwd=body.cwd, project_id=body.project_id)
    view = await call.service.sessions.resume(old.id, body.prompt, fork=fork, keep_open=body.keep_open, who=call.who)
    return public_view(view)


async def history(call: RestCall[HistoryQuery, None]) -> HistoryList:
    return HistoryList(await call.service.stored.sessions(cwd=call.query.cwd, agent=call.query.agent))


async def import_session(call: RestCall[None, ImportBody]) -> SessionView:
    body = call.body
    return public_view(await call.service.stored.import_session(body.agent, body.native_id, body.cwd, place=body.place))


_SESSION = "/api/sessions/{sessionId}"
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="createSession", method="POST", path="/api/sessions", tag=_TAG, scope="run", verb=create, status=201,
        summary="Start a session", bodies=(SessionSpec, BoardBody, SessionRequest), read=read_create_body,
        answer=SessionView, faults=(404, 409), recall=find_created,
    ),
    Operation(
        name="listSessions", method="GET", path="/api/sessions", tag=_TAG, scope="watch", verb=list_sessions,
        summary="The sessions, newest first", query=SessionsQuery, answer=SessionPage,
    ),
    Operation(
        name="getSession", method="GET", path=_SESSION, tag=_TAG, scope="watch", verb=get,
        summary="One session", answer=SessionView, faults=(404,),
    ),
    Operation(
        name="changeSession", method="PATCH", path=_SESSION, tag=_TAG, scope="run", verb=change,
        summary="Rename or archive a session, change its model or permissions, resume its queue",
        bodies=(ChangeBody,), answer=SessionView, faults=(404, 409),
    ),
    Operation(
        name="deleteSession", method="DELETE", path=_SESSION, tag=_TAG, scope="run", verb=delete, status=204,
        summary="Delete an ended session and its events", faults=(404, 409),
    ),
    Operation(
        name="listEvents", method="GET", path=_SESSION + "/events", tag=_TAG, scope="watch", verb=events,
        summary="A page of a session's events, in any dialect", query=EventsQuery, answer=EventPage, faults=(404,),
    ),
    Operation(
        name="sendMessage", method="POST", path=_SESSION + "/messages", tag=_TAG, scope="run", verb=send, status=202,
        summary="Send a follow-up; it waits until the turns before it are over, or steers the running one",
        bodies=(MessageBody,), answer=QueuedPrompt, faults=(404, 409), recall=find_message,
    ),
    Operation(
        name="readAttachment", method="GET", path=_SESSION + "/attachment", tag=_TAG, scope="watch", verb=attachment,
        summary="A picture that was sent with a message, by the name in its notice", query=AttachmentQuery,
        answer=AttachedPicture, faults=(404,),
    ),
    Operation(
        name="agentReport", method="GET", path=_SESSION + "/agent", tag=_TAG, scope="watch", verb=agent_report,
        summary="What the agent says of itself: its commands, how full its context is, its quota",
        answer=AgentReport, faults=(404,),
    ),
    Operation(
        name="listSettings", method="GET", path=_SESSION + "/settings", tag=_TAG, scope="watch", verb=settings,
        summary="What can be chosen in a session, by the agent's own names: mode, model, effort and more",
        answer=SettingList, faults=(404,),
    ),
    Operation(
        name="changeSetting", method="PATCH", path=_SESSION + "/settings", tag=_TAG, scope="run", verb=change_setting,
        summary="Choose a mode, a model, an effort or another setting; it holds from the agent's next step on",
        bodies=(SettingBody,), answer=SettingList, faults=(404, 409),
    ),
    Operation(
        name="interruptSession", method="POST", path=_SESSION + "/interrupt", tag=_TAG, scope="run", verb=interrupt,
        summary="End the running turn", bodies=(InterruptBody,), body_optional=True, answer=SessionView, faults=(404,),
        recall=interrupt,
    ),
    Operation(
        name="cancelSession", method="POST", path=_SESSION + "/cancel", tag=_TAG, scope="run", verb=cancel,
        summary="End the session now", answer=SessionView, faults=(404,), recall=cancel,
    ),
    Operation(
        name="resumeSession", method="POST", path=_SESSION + "/resume", tag=_TAG, scope="run", verb=resume, status=201,
        summary="Continue an ended session in a new one", bodies=(ResumeBody,), answer=SessionView, faults=(404, 409),
        recall=find_created,
    ),
    Operation(
        name="forkSession", method="POST", path=_SESSION + "/fork", tag=_TAG, scope="run", verb=fork, status=201,
        summary="Start a new session with the context of this one", bodies=(ResumeBody,), answer=SessionView,
        faults=(404, 409), recall=find_created,
    ),
    Operation(
        name="listQueued", method="GET", path="/api/sessions/{sessionId}/messages", tag="sessions", scope="watch",
        verb=queued_messages, summary="The follow-ups that wait for their turn", answer=QueuedMessages, faults=(404,),
    ),
    Operation(
        name="changeQueued", method="PATCH", path=_SESSION + "/messages/{messageId}", tag=_TAG, scope="run",
        verb=rewrite_message, summary="Change a follow-up that waits for its turn, or its place", bodies=(RewriteBody,),
        answer=QueuedPrompt, faults=(404, 409),
    ),
    Operation(
        name="removeQueued", method="DELETE", path=_SESSION + "/messages/{messageId}", tag=_TAG, scope="run",
        verb=withdraw_message, summary="Remove a follow-up that waits for its turn", status=204, faults=(404, 409),
    ),
    Operation(
        name="listHistory", method="GET", path="/api/history", tag="history", scope="watch", verb=history,
        summary="All sessions, also those that the agents store on disk", query=HistoryQuery, answer=HistoryList,
    ),
    Operation(
        name="importSession", method="POST", path="/api/history/import", tag="history", scope="run",
        verb=import_session, summary="Import a session that an agent stores on disk", bodies=(ImportBody,),
        answer=SessionView, status=201, faults=(404,), recall=import_session,
    ),
)  # fmt: skip
