"""What the methods answer. The seed's fields keep the seed's spelling; what is ours stands beside them."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from stagedoor.dialects.moments import iso_time
from stagedoor.service.views import Activity, Question, SessionView, State
from stagedoor.unified.options import Approval, Tier

from ..rest.sessions import shown

UnifiedStatus: TypeAlias = Literal["active", "completed", "error"]
_STATUSES: dict[State, UnifiedStatus] = {
    "running": "active",
    "done": "completed",
    "cancelled": "completed",
    "failed": "error",
}


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class AgentCapabilities(Result, frozen=True, kw_only=True):
    streaming: bool
    session_resume: bool
    thinking: bool
    mcp: bool
    sandbox: bool


class AvailableAgent(Result, frozen=True, kw_only=True):
    """``sandboxModes`` are the values ``sandbox`` takes with this agent."""

    type: str
    name: str
    version: str
    capabilities: AgentCapabilities
    tools: list[str]
    drivers: list[str]
    sandbox_modes: list[str]
    signed_in: bool | None = None


class MissingAgent(Result, frozen=True, kw_only=True):
    type: str
    name: str
    problem: str
    fix: str


AgentState: TypeAlias = Literal["idle", "running", "waiting"]


class Discovered(Result, frozen=True, kw_only=True):
    available: list[AvailableAgent]
    active: str
    status: AgentState
    unavailable: list[MissingAgent]


class Selected(Result, frozen=True, kw_only=True):
    status: Literal["selected"] = "selected"
    type: str
    name: str


class Configured(Result, frozen=True, kw_only=True):
    status: Literal["configured"] = "configured"
    type: str
    sandbox: str | None = None
    model: str | None = None
    auto_approve: tuple[str, ...] = ()
    tier: Tier | None = None
    approval: Approval | None = None


class Ran(Result, frozen=True, kw_only=True):
    """``started`` a new session, ``queued`` in an open one, ``resumed`` an ended one as a new one."""

    status: Literal["started", "queued", "resumed"]
    type: str
    session_id: str
    last_seq: int
    message_id: str | None = None


class Stopped(Result, frozen=True, kw_only=True):
    status: Literal["stopped", "interrupted"]
    session_id: str
    state: State
    activity: Activity


class Responded(Result, frozen=True, kw_only=True):
    status: Literal["responded"] = "responded"
    question_id: str
    decision: Literal["allow", "deny"]


class UnifiedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session in few words; ``session`` is the whole row as every other door shows it."""

    id: str
    agent_type: str
    created_at: str
    updated_at: str
    status: UnifiedStatus
    repo_path: str
    message_count: int
    tokens_used: int
    cost_usd: float
    session: SessionView

    @classmethod
    def of(cls, view: SessionView) -> UnifiedSession:
        return cls(
            id=view.id,
            agent_type=view.agent,
            created_at=iso_time(view.created_at),
            updated_at=iso_time(view.updated_at),
            status=_STATUSES[view.state],
            repo_path=view.cwd,
            message_count=view.messages,
            tokens_used=view.usage.total_tokens,
            cost_usd=view.cost_usd or 0.0,
            session=shown(view),
        )


class AgentStatus(Result, frozen=True, kw_only=True):
    """``status`` is that of the session asked about, else of the one this client ran last."""

    type: str
    status: AgentState
    session_id: str
    running: int
    waiting: int
    session: UnifiedSession | None = None


class SessionPage(Result, frozen=True, kw_only=True):
    sessions: list[UnifiedSession]
    total: int
    offset: int
    limit: int


class EventPage(Result, frozen=True, kw_only=True):
    """``lastSeq`` is that of the session; continue with ``after`` = ``nextAfter``."""

    events: list[msgspec.Raw]
    session_id: str
    after: int
    next_after: int
    first_seq: int
    last_seq: int
    state: State


class Sent(Result, frozen=True, kw_only=True):
    status: Literal["queued"] = "queued"
    message_id: str
    session_id: str


class Subscribed(Result, frozen=True, kw_only=True):
    """``gap``: the records from ``missingFrom`` to ``missingTo`` are no longer kept; what follows them is sent."""

    status: Literal["subscribed"] = "subscribed"
    session_id: str
    verdict: Literal["ok", "gap"] = "ok"
    after: int = 0
    last_seq: int = 0
    missing_from: int | None = None
    missing_to: int | None = None


class Unsubscribed(Result, frozen=True, kw_only=True):
    """``notSubscribed``: there was nothing to end."""

    status: Literal["unsubscribed", "notSubscribed"]
    session_id: str


class Questions(Result, frozen=True, kw_only=True):
    permissions: list[Question]
    total: int
    offset: int
    limit: int


class Answered(Result, frozen=True, kw_only=True):
    status: Literal["answered"] = "answered"
    permission: Question
