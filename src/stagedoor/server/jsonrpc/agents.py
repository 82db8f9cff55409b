"""``agent/*``: the seed's methods. One agent is this client's default; many sessions of many agents run at once."""

from __future__ import annotations

from typing import Any, get_args

from msgspec import UNSET
from msgspec.structs import replace

from stagedoor import catalog
from stagedoor.errors import AlreadyAnswered, BadRequest, SessionEnded, SessionNotFound
from stagedoor.service.agents import AgentView
from stagedoor.service.store import Query
from stagedoor.service.stored import LAST
from stagedoor.service.views import Question, SessionSpec, SessionView
from stagedoor.unified.decisions import Deny
from stagedoor.unified.options import Options, Sandbox

from ..problems import InvalidField
from .client import RpcCall
from .params import (
    ConfigureParams,
    NoParams,
    RespondParams,
    RpcRunOptions,
    RunParams,
    SelectParams,
    StatusParams,
    StopParams,
)
from .results import (
    AgentConfiguration,
    AgentState,
    AgentStatusResult,
    AvailableAgent,
    CapabilitySummary,
    DiscoverResult,
    MissingAgent,
    RespondResult,
    RunResult,
    SelectResult,
    SettingsResult,
    StopResult,
    UnifiedSession,
)

_NO = frozenset({"no", "n", "deny", "denied", "reject", "rejected", "refuse", "refused", "cancel", "false"})
_WORKING = ("starting", "working")


async def discover(call: RpcCall, params: NoParams) -> DiscoverResult:
    agents = await call.service.agents.list()
    now = await status(call, StatusParams())
    return DiscoverResult(
        available=[_available(view) for view in agents if view.enabled and view.installed],
        active=now.type,
        status=now.status,
        unavailable=[
            MissingAgent(type=view.agent, name=catalog.agent(view.agent).title, problem=view.problem, fix=view.fix)
            for view in agents
            if not (view.enabled and view.installed)
        ],
    )


def _available(view: AgentView) -> AvailableAgent:
    agent = catalog.agent(view.agent)
    can = agent.drivers[agent.choose_driver(Options())].capabilities
    modes = [*(mode for mode in can.sandbox if mode != "none"), *agent.own_sandboxes]
    return AvailableAgent(
        type=agent.name,
        name=agent.title,
        version=view.version,
        capabilities=CapabilitySummary(
            streaming=can.text_deltas,
            session_resume=can.resume,
            thinking=can.thinking,
            mcp=can.mcp_servers,
            sandbox=bool(modes),
        ),
        tools=[tool.name for tool in agent.tools if tool.control != "plumbing"],
        drivers=list(agent.drivers),
        sandbox_modes=modes,
        signed_in=view.signed_in,
    )


async def select(call: RpcCall, params: SelectParams) -> SelectResult:
    agent = catalog.agent(params.type)
    if not call.service.agents.enabled(agent.name):
        raise BadRequest(f"{agent.name} is disabled in this server's configuration")
    await call.defaults.select(agent.name)
    return SelectResult(type=agent.name, name=agent.title)


async def settings(call: RpcCall, params: SelectParams) -> SettingsResult:
    return SettingsResult(settings=await call.service.ground.agent_settings(params.type))


async def configure(call: RpcCall, params: ConfigureParams) -> AgentConfiguration:
    agent = await call.active()
    if isinstance(params.sandbox, str):
        _sandbox(agent, params.sandbox)
    changes: dict[str, Any] = {
        name: value for name in params.__struct_fields__ if (value := getattr(params, name)) is not UNSET
    }
    if changes.get("auto_approve", ()) is None:
        changes["auto_approve"] = ()
    configured = replace(call.defaults.configured.get(agent, AgentConfiguration(type=agent)), **changes)
    await call.defaults.configure(configured)
    return configured


async def run(call: RpcCall, params: RunParams) -> RunResult:
    with call.client.broadcast.pause():
        return await _run(call, params)


async def _run(call: RpcCall, params: RunParams) -> RunResult:
    if params.mode == "continue":
        return await _continue(call, params)
    if params.session_id:
        raise InvalidField(
            "sessionId works only with mode continue; leave it out for a new session", field="$.sessionId"
        )
    view = await call.service.sessions.create(
        _create_body(await call.active(params.type), call, params), who=call.caller.name
    )
    await call.defaults.ran(view.id)
    _follow(call, params, view)
    return RunResult(status="started", type=view.agent, session_id=view.id, last_seq=view.last_seq)


async def _continue(call: RpcCall, params: RunParams) -> RunResult:
    session_id = call.session(params.session_id)
    if params.options != RpcRunOptions():
        raise InvalidField("options work only for a new session; leave them out to continue one", field="$.options")
    agent = await call.active(params.type) if session_id == LAST else params.type
    view = await call.service.stored.to_continue(session_id, agent=agent, cwd=params.cwd, project_id=params.project_id)
    session_id = view.id
    try:
        message = await call.service.sessions.send(session_id, params.prompt, who=call.caller.name)
    except SessionEnded:
        view = await call.service.sessions.resume(session_id, params.prompt, who=call.caller.name)
        await call.defaults.ran(view.id)
        _follow(call, params, view)
        return RunResult(status="resumed", type=view.agent, session_id=view.id, last_seq=view.last_seq)
    await call.defaults.ran(session_id)
    _follow(call, params, view)
    return RunResult(
        status="queued", type=view.agent, session_id=session_id, last_seq=view.last_seq, message_id=message.id
    )


def _follow(call: RpcCall, params: RunParams, view: SessionView) -> None:
    """Send the events from now on, unless this client follows the session already."""
    if not params.subscribe:
        call.client.broadcast.leave_out(view.id)
    elif call.client.listens and not call.client.follows(view.id):
        call.subscribe(view.id, view.last_seq, params.dialect)


def _create_body(agent: str, call: RpcCall, params: RunParams) -> SessionSpec:
    options = params.options
    configured = call.defaults.configured.get(agent, AgentConfiguration(type=agent))
    approve = configured.auto_approve if options.auto_approve is None else options.auto_approve
    sandbox, container = _sandbox(agent, options.sandbox or configured.sandbox)
    return SessionSpec(
        prompt=params.prompt,
        agent=agent,
        cwd=params.cwd,
        project_id=params.project_id,
        title=params.title,
        group=params.group,
        keep_open=params.keep_open,
        needs=params.needs,
        place=params.place,
        sandbox=sandbox,
        confine=options.confine,
        container=container,
        model=options.model or configured.model,
        effort=options.effort,
        mode=options.mode,
        tier=options.tier or configured.tier,
        approval=options.approval or configured.approval,
        auto_approve=approve,
        allowed_tools=options.allowed_tools,
        disallowed_tools=options.disallowed_tools,
        protected=options.protected,
        driver=options.driver,
        max_turns=options.max_turns,
        max_budget_usd=options.max_budget_usd,
        system_prompt=options.system_prompt,
        append_system_prompt=options.append_system_prompt,
        output_schema=options.output_schema,
        mcp_servers=options.mcp_servers,
        timeout=options.timeout,
        permission_timeout=options.permission_timeout,
        worktree=options.worktree,
        from_branch=options.from_branch,
        trust=options.trust,
    )


def _sandbox(agent: str, name: str | None) -> tuple[Sandbox | None, str]:
    """One of our modes, or a container that the agent's program starts for itself."""
    if not name or name in catalog.agent(agent).own_sandboxes:
        return None, name or ""
    modes: tuple[Sandbox, ...] = get_args(Sandbox)
    for mode in modes:
        if mode == name:
            return mode, ""
    names = ", ".join((*modes, *catalog.agent(agent).own_sandboxes))
    raise InvalidField(f"unknown sandbox {name[:100]!r} for {agent}; use one of {names}", field="$.sandbox")


async def stop(call: RpcCall, params: StopParams) -> StopResult:
    session_id = call.session(params.session_id)
    if params.turn:
        view = await call.service.sessions.interrupt(session_id)
    else:
        view = await call.service.sessions.cancel(session_id)
    return StopResult(
        status="interrupted" if params.turn else "stopped",
        session_id=session_id,
        state=view.state,
        activity=view.activity,
    )


async def respond(call: RpcCall, params: RespondParams) -> RespondResult:
    question = await _question(call, params)
    questions, who = call.service.questions, call.caller.name
    words = params.response.split()
    refused = bool(words and words[0].strip(",.;:!").lower() in _NO)
    # "no" is an answer to what the agent itself asks; to a request for permission it is the refusal.
    if params.is_error or (refused and question.request.tool_name != "question"):
        answered = await questions.answer(question.id, Deny(params.response), who=who)
        return RespondResult(question_id=answered.id, decision="deny")
    answered = await questions.respond(question.id, params.response, who=who)
    return RespondResult(question_id=answered.id, decision="allow")


async def _question(call: RpcCall, params: RespondParams) -> Question:
    """The open question of that tool use; a question without a tool use goes by its own id. Where none is named: the
    only one that is open."""
    within = params.session_id or None
    matches = [
        question
        for question in await call.service.questions.list(session_id=within)
        if not params.tool_use_id
        or params.tool_use_id in (question.request.tool_use_id, question.request.request_id, question.id)
    ]
    matches = [question for question in matches if question.session_id == call.defaults.session_id] or matches
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise InvalidField(
            f"{len(matches)} open questions fit: send the toolUseId and the sessionId of the one you mean",
            field="$.toolUseId" if not params.tool_use_id else "$.sessionId",
        )
    if not params.tool_use_id:
        raise SessionNotFound("no question is open; permission/list shows all of them")
    if within := within or call.defaults.session_id:
        for question in await call.service.questions.list(session_id=within, open_only=False):
            if params.tool_use_id in (question.request.tool_use_id, question.request.request_id):
                raise AlreadyAnswered(
                    f"the question of {params.tool_use_id!r} has been answered already, or it timed out"
                )
    raise SessionNotFound(
        f"no open question for {params.tool_use_id[:200]!r}; permission/list shows the open questions"
    )


async def status(call: RpcCall, params: StatusParams) -> AgentStatusResult:
    session_id = params.session_id or call.defaults.session_id
    view: SessionView | None = None
    if session_id:
        try:
            view = await call.service.sessions.get(session_id)
        except SessionNotFound:
            if params.session_id:
                raise
    agent = view.agent if view is not None and params.session_id else await call.active()
    open_sessions, _ = await call.service.sessions.page(Query(agent=agent, ended=False, limit=10_000))
    waiting = sum(1 for session in open_sessions if session.activity == "waiting")
    running = sum(1 for session in open_sessions if session.activity in _WORKING)
    state: AgentState = "waiting" if waiting else "running" if running else "idle"
    return AgentStatusResult(
        type=agent,
        status=state if view is None else _state_of(view),
        session_id="" if view is None else view.id,
        running=running,
        waiting=waiting,
        session=None if view is None else UnifiedSession.of(view),
    )


def _state_of(view: SessionView) -> AgentState:
    if view.activity == "waiting":
        return "waiting"
    return "running" if view.activity in _WORKING else "idle"
