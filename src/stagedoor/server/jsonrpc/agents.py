"""``agent/*``: the seed's methods. One agent is this client's default; many sessions of many agents run at once."""

from __future__ import annotations

from typing import Any, get_args

from msgspec import UNSET
from msgspec.structs import replace

from stagedoor import catalog
from stagedoor.errors import AlreadyAnswered, BadRequest, SessionEnded, SessionNotFound
from stagedoor.service.agents import AgentView
from stagedoor.service.store import Query
from stagedoor.service.views import Question, SessionSpec, SessionView
from stagedoor.unified.decisions import Allow, Deny
from stagedoor.unified.options import Options, Sandbox

from ..problems import InvalidField
from .params import Configure, Nothing, Respond, Run, RunOptions, Select, Status, Stop
from .peer import Call
from .results import (
    AgentCapabilities,
    AgentState,
    AgentStatus,
    AvailableAgent,
    Configured,
    Discovered,
    MissingAgent,
    Ran,
    Responded,
    Selected,
    Stopped,
    UnifiedSession,
)

_NO = frozenset({"no", "n", "deny", "denied", "reject", "rejected", "refuse", "refused", "cancel", "false"})
_AT_WORK = ("starting", "working")


async def discover(call: Call, wish: Nothing) -> Discovered:
    found = await call.service.agents.list()
    now = await status(call, Status())
    return Discovered(
        available=[_available(one) for one in found if one.enabled and one.installed],
        active=now.type,
        status=now.status,
        unavailable=[
            MissingAgent(type=one.agent, name=catalog.agent(one.agent).title, problem=one.problem, fix=one.fix)
            for one in found
            if not (one.enabled and one.installed)
        ],
    )


def _available(found: AgentView) -> AvailableAgent:
    agent = catalog.agent(found.agent)
    can = agent.drivers[agent.choose_driver(Options())].capabilities
    modes = [*(mode for mode in can.sandbox if mode != "none"), *agent.own_sandboxes]
    return AvailableAgent(
        type=agent.name,
        name=agent.title,
        version=found.version,
        capabilities=AgentCapabilities(
            streaming=can.text_deltas,
            session_resume=can.resume,
            thinking=can.thinking,
            mcp=can.mcp_servers,
            sandbox=bool(modes),
        ),
        tools=list(agent.tools),
        drivers=list(agent.drivers),
        sandbox_modes=modes,
        signed_in=found.signed_in,
    )


async def select(call: Call, wish: Select) -> Selected:
    agent = catalog.agent(wish.type)
    if not call.service.agents.enabled(agent.name):
        raise BadRequest(f"{agent.name} is switched off in this server's configuration")
    call.choice.agent = agent.name
    return Selected(type=agent.name, name=agent.title)


async def configure(call: Call, wish: Configure) -> Configured:
    agent = await _active(call)
    if isinstance(wish.sandbox, str):
        _sandbox(agent, wish.sandbox)
    given: dict[str, Any] = {
        name: value for name in wish.__struct_fields__ if (value := getattr(wish, name)) is not UNSET
    }
    if given.get("auto_approve", ()) is None:
        given["auto_approve"] = ()
    configured = replace(call.choice.configured.get(agent, Configured(type=agent)), **given)
    call.choice.configured[agent] = configured
    return configured


async def run(call: Call, wish: Run) -> Ran:
    if wish.mode == "continue":
        return await _go_on(call, wish)
    if wish.session_id:
        raise InvalidField("sessionId goes with mode continue; leave it out for a new session", field="$.sessionId")
    view = await call.service.sessions.create(_wanted(await _active(call, wish.type), call, wish), who=call.caller.name)
    call.choice.session_id = view.id
    _follow(call, wish, view)
    return Ran(status="started", type=view.agent, session_id=view.id, last_seq=view.last_seq)


async def _go_on(call: Call, wish: Run) -> Ran:
    session_id = call.session(wish.session_id)
    if wish.options != RunOptions():
        raise InvalidField("options count for a new session; leave them out to continue one", field="$.options")
    view = await call.service.sessions.get(session_id)
    try:
        message = await call.service.sessions.send(session_id, wish.prompt, who=call.caller.name)
    except SessionEnded:
        view = await call.service.sessions.resume(session_id, wish.prompt, who=call.caller.name)
        call.choice.session_id = view.id
        _follow(call, wish, view)
        return Ran(status="resumed", type=view.agent, session_id=view.id, last_seq=view.last_seq)
    call.choice.session_id = session_id
    _follow(call, wish, view)
    return Ran(status="queued", type=view.agent, session_id=session_id, last_seq=view.last_seq, message_id=message.id)


def _follow(call: Call, wish: Run, view: SessionView) -> None:
    """From here on; one that is followed already goes on as it is."""
    if wish.subscribe and call.peer.listens and not call.peer.follows(view.id):
        call.subscribe(view.id, view.last_seq, wish.dialect)


def _wanted(agent: str, call: Call, wish: Run) -> SessionSpec:
    asked = wish.options
    set_before = call.choice.configured.get(agent, Configured(type=agent))
    approve = set_before.auto_approve if asked.auto_approve is None else asked.auto_approve
    sandbox, container = _sandbox(agent, asked.sandbox or set_before.sandbox)
    return SessionSpec(
        prompt=wish.prompt,
        agent=agent,
        cwd=wish.cwd,
        project_id=wish.project_id,
        title=wish.title,
        group=wish.group,
        keep_open=wish.keep_open,
        sandbox=sandbox,
        container=container,
        model=asked.model or set_before.model,
        tier=asked.tier or set_before.tier,
        approval=asked.approval or set_before.approval,
        auto_approve=approve,
        allowed_tools=asked.allowed_tools,
        disallowed_tools=asked.disallowed_tools,
        driver=asked.driver,
        max_turns=asked.max_turns,
        max_budget_usd=asked.max_budget_usd,
        system_prompt=asked.system_prompt,
        append_system_prompt=asked.append_system_prompt,
        output_schema=asked.output_schema,
        mcp_servers=asked.mcp_servers,
        timeout=asked.timeout,
        permission_timeout=asked.permission_timeout,
        worktree=asked.worktree,
    )


def _sandbox(agent: str, named: str | None) -> tuple[Sandbox | None, str]:
    """One of our modes, or a container the agent's program makes around itself."""
    if not named or named in catalog.agent(agent).own_sandboxes:
        return None, named or ""
    modes: tuple[Sandbox, ...] = get_args(Sandbox)
    for mode in modes:
        if mode == named:
            return mode, ""
    known = ", ".join((*modes, *catalog.agent(agent).own_sandboxes))
    raise InvalidField(f"{agent} has no sandbox {named[:100]!r}; use one of {known}", field="$.sandbox")


async def stop(call: Call, wish: Stop) -> Stopped:
    session_id = call.session(wish.session_id)
    if wish.turn:
        view = await call.service.sessions.interrupt(session_id)
    else:
        view = await call.service.sessions.cancel(session_id)
    return Stopped(
        status="interrupted" if wish.turn else "stopped",
        session_id=session_id,
        state=view.state,
        activity=view.activity,
    )


async def respond(call: Call, wish: Respond) -> Responded:
    question = await _question(call, wish)
    words = wish.response.split()
    refused = wish.is_error or bool(words and words[0].strip(",.;:!").lower() in _NO)
    decision = Deny(wish.response) if refused else Allow()
    answered = await call.service.questions.answer(question.id, decision, who=call.caller.name)
    return Responded(question_id=answered.id, decision="deny" if refused else "allow")


async def _question(call: Call, wish: Respond) -> Question:
    """The one open question of that tool use; a question that has no tool use is known by its own id."""
    within = wish.session_id or None
    found = [
        one
        for one in await call.service.questions.list(session_id=within)
        if wish.tool_use_id in (one.request.tool_use_id, one.request.request_id, one.id)
    ]
    found = [one for one in found if one.session_id == call.choice.session_id] or found
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidField(
            f"{len(found)} sessions wait for {wish.tool_use_id!r}: name the sessionId", field="$.sessionId"
        )
    if within := within or call.choice.session_id:
        for one in await call.service.questions.list(session_id=within, open_only=False):
            if wish.tool_use_id in (one.request.tool_use_id, one.request.request_id):
                raise AlreadyAnswered(f"the question of {wish.tool_use_id!r} has been answered, or its time was up")
    raise SessionNotFound(
        f"no open question belongs to {wish.tool_use_id[:200]!r}; permission/list shows those that wait"
    )


async def status(call: Call, wish: Status) -> AgentStatus:
    session_id = wish.session_id or call.choice.session_id
    view: SessionView | None = None
    if session_id:
        try:
            view = await call.service.sessions.get(session_id)
        except SessionNotFound:
            if wish.session_id:
                raise
    agent = view.agent if view is not None and wish.session_id else await _active(call)
    open_ones, _ = await call.service.sessions.page(Query(agent=agent, ended=False, limit=10_000))
    waiting = sum(1 for one in open_ones if one.activity == "waiting")
    running = sum(1 for one in open_ones if one.activity in _AT_WORK)
    state: AgentState = "waiting" if waiting else "running" if running else "idle"
    return AgentStatus(
        type=agent,
        status=state if view is None else _doing(view),
        session_id="" if view is None else view.id,
        running=running,
        waiting=waiting,
        session=None if view is None else UnifiedSession.of(view),
    )


def _doing(view: SessionView) -> AgentState:
    if view.activity == "waiting":
        return "waiting"
    return "running" if view.activity in _AT_WORK else "idle"


async def _active(call: Call, named: str = "") -> str:
    """The agent a call means: named, else selected, else the server's default."""
    return catalog.canonical_name(named or call.choice.agent or await call.service.agents.default())
