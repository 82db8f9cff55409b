"""``session/*``, ``permission/*``, ``file/*``: sessions, their questions, and their workspaces.

A workspace is by default that of the session this client ran last.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict, replace

from stagedoor import catalog
from stagedoor.errors import BadRequest
from stagedoor.service.store import Query, next_cursor
from stagedoor.service.stored import LAST, PastSession
from stagedoor.service.workspaces.files import FileText, Listing
from stagedoor.service.workspaces.undoing import CheckpointList
from stagedoor.shadow_git.checkpoints import UndoResult
from stagedoor.unified.decisions import Allow, Decision, Deny

from ..problems import InvalidField
from ..streams.following import start_at
from .client import RpcCall
from .params import (
    EventsParams,
    FileListParams,
    FileReadParams,
    GitStatusParams,
    ListenParams,
    PermissionAnswerParams,
    PermissionListParams,
    ResumeParams,
    SendParams,
    SessionGetParams,
    SessionListParams,
    SetParams,
    SettingsParams,
    SubscribeParams,
    UndoParams,
    UnsubscribeParams,
)
from .results import (
    EventsResult,
    ListenResult,
    PermissionAnswerResult,
    PermissionListResult,
    RunResult,
    SendResult,
    SessionListResult,
    SettingsResult,
    SubscribeResult,
    UnifiedSession,
    UnsubscribeResult,
)


async def list_sessions(call: RpcCall, params: SessionListParams) -> SessionListResult:
    agent = catalog.canonical_name(params.agent) if params.agent else ""
    fields = asdict(replace(params, agent=agent))
    with_stored: bool = fields.pop("stored")
    query = Query(**fields)
    views, total = await call.service.sessions.page(query)
    sessions = [UnifiedSession.of(view) for view in views]
    if with_stored and _may_be_stored(query):
        stored = [past for past in await call.service.stored.only_on_disk(agent) if _mentions(past, query.search)]
        if not query.cursor:  # those that only the programs keep come after the log's own
            first = max(query.offset - total, 0)
            sessions += [UnifiedSession.of_program(past) for past in stored[first : first + query.limit - len(views)]]
        total += len(stored)
    return SessionListResult(
        sessions=sessions,
        total=total,
        offset=query.offset,
        limit=query.limit,
        next_cursor=next_cursor(views, query),
    )


async def settings(call: RpcCall, params: SettingsParams) -> SettingsResult:
    return SettingsResult(settings=await call.service.sessions.settings(call.session(params.session_id)))


async def change_setting(call: RpcCall, params: SetParams) -> SettingsResult:
    session_id = call.session(params.session_id)
    changed = await call.service.sessions.change_setting(session_id, params.id, params.value)
    return SettingsResult(settings=changed)


def _may_be_stored(query: Query) -> bool:
    """Whether what an agent's program keeps can be among what is looked for: ended, and in nobody's group."""
    plain = not query.group and not query.project_id and not query.archived
    return plain and query.state in (None, "done") and query.ended is not False


def _mentions(past: PastSession, words: str) -> bool:
    text = f"{past.title}\n{past.first_prompt}\n{past.cwd}\n{past.native_id}".casefold()
    return not words or words.casefold() in text


async def get(call: RpcCall, params: SessionGetParams) -> UnifiedSession:
    return UnifiedSession.of(await call.service.sessions.get(params.session_id))


async def events(call: RpcCall, params: EventsParams) -> EventsResult:
    view = await call.service.sessions.get(params.session_id)
    after = params.after if params.offset is None else params.offset
    page = await call.client.readers.cursors.page(params.session_id, params.dialect, after, params.limit)
    return EventsResult(
        events=[msgspec.Raw(message) for message in page.messages],
        session_id=view.id,
        after=after,
        next_after=page.last,
        first_seq=view.first_seq,
        last_seq=view.last_seq,
        state=view.state,
    )


async def send(call: RpcCall, params: SendParams) -> SendResult:
    message = await call.service.sessions.send(
        params.session_id, params.prompt, steer=params.steer, who=call.caller.name
    )
    return SendResult(message_id=message.id, session_id=params.session_id)


async def subscribe(call: RpcCall, params: SubscribeParams) -> SubscribeResult:
    if not params.session_id:
        if params.watch:
            raise InvalidField("watch is for the workspace of one session: send the sessionId too", field="$.watch")
        await call.subscribe_to_everything()
        return SubscribeResult(session_id="")
    start = await start_at(call.service, params.session_id, params.after, caller=call.caller)
    session_id, verdict = start.view.id, start.verdict
    if params.watch:
        await call.subscribe_and_watch(session_id, start.after, params.dialect, params.watch)
    else:
        call.subscribe(session_id, start.after, params.dialect)
    return SubscribeResult(
        session_id=session_id,
        verdict=verdict.verdict,
        after=verdict.after,
        last_seq=verdict.last_seq,
        missing_from=verdict.missing_from,
        missing_to=verdict.missing_to,
    )


async def unsubscribe(call: RpcCall, params: UnsubscribeParams) -> UnsubscribeResult:
    ended = call.client.end(params.session_id)
    if params.session_id:
        call.client.broadcast.leave_out(params.session_id)
    return UnsubscribeResult(status="unsubscribed" if ended else "notSubscribed", session_id=params.session_id)


async def listen(call: RpcCall, params: ListenParams) -> ListenResult:
    if not call.client.listens:
        raise BadRequest("notifications need an open connection: connect to WebSocket /ws, or use stagedoor rpc")
    if params.to == "all":
        call.client.broadcast.start()
    else:
        call.client.broadcast.stop()
    return ListenResult(to=params.to)


async def resume(call: RpcCall, params: ResumeParams) -> RunResult:
    with call.client.broadcast.pause():
        agent = await call.active(params.type) if params.session_id == LAST else params.type
        old = await call.service.stored.to_continue(
            params.session_id, agent=agent, cwd=params.cwd, project_id=params.project_id
        )
        view = await call.service.sessions.resume(old.id, params.prompt, fork=params.fork, who=call.caller.name)
        await call.defaults.ran(view.id)
        if not params.subscribe:
            call.client.broadcast.leave_out(view.id)
        elif call.client.listens:
            call.subscribe(view.id, 0, params.dialect)
    return RunResult(status="resumed", type=view.agent, session_id=view.id, last_seq=view.last_seq)


async def list_permissions(call: RpcCall, params: PermissionListParams) -> PermissionListResult:
    if params.session_id:
        await call.service.sessions.get(params.session_id)
    questions, session_id = call.service.questions, params.session_id or None
    return PermissionListResult(
        permissions=await questions.list(
            session_id=session_id, open_only=params.open, offset=params.offset, limit=params.limit
        ),
        total=await questions.count(session_id=session_id, open_only=params.open),
        offset=params.offset,
        limit=params.limit,
    )


async def answer_permission(call: RpcCall, params: PermissionAnswerParams) -> PermissionAnswerResult:
    if bool(params.id) == bool(params.session_id and params.request_id):
        raise InvalidField("send the id of the question, or its sessionId and requestId", field="$.id")
    decision, questions = _decision(params), call.service.questions
    within, who = params.session_id or None, call.caller.name
    if params.answer is None:
        question = await questions.answer(params.id or params.request_id, decision, session_id=within, who=who)
    else:
        question = await questions.respond(
            params.id or params.request_id, params.answer, session_id=within, who=who, remember=params.remember
        )
    return PermissionAnswerResult(permission=question)


def _decision(params: PermissionAnswerParams) -> Decision:
    if params.decision == "allow":
        for name, value in (("message", params.message), ("interrupt", params.interrupt)):
            if value:
                raise InvalidField(f"{name} works only with deny; leave it out", field=f"$.{name}")
        if params.answer is not None and params.updated_input is not None:
            raise InvalidField("send the answer or the updatedInput, not both", field="$.answer")
        return Allow(updated_input=params.updated_input, remember=params.remember)
    for name, value in (
        ("updatedInput", params.updated_input is not None),
        ("answer", params.answer is not None),
        ("remember", params.remember != "once"),
    ):
        if value:
            raise InvalidField(f"{name} works only with allow; leave it out", field=f"$.{name}")
    return Deny(params.message, params.interrupt)


async def checkpoints(call: RpcCall, params: GitStatusParams) -> CheckpointList:
    return await call.service.sessions.undoing.list(call.session(params.session_id))


async def undo(call: RpcCall, params: UndoParams) -> UndoResult:
    return await call.service.sessions.undo(
        call.session(params.session_id),
        turn=params.turn,
        checkpoint=params.checkpoint,
        paths=params.paths,
        who=call.caller.name,
    )


async def file_list(call: RpcCall, params: FileListParams) -> Listing:
    return await call.service.workspaces.files(call.session(params.session_id), params.path)


async def file_read(call: RpcCall, params: FileReadParams) -> FileText:
    return await call.service.workspaces.read(
        call.session(params.session_id), params.path, first_line=params.first_line, last_line=params.last_line
    )
