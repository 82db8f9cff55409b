"""The results of the methods. The seed's fields keep the seed's spelling; our own are beside them."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from stagedoor.dialects.event_parts import iso_time
from stagedoor.service.stored import PastSession
from stagedoor.service.views import Activity, Question, SessionView, State
from stagedoor.unified.options import Approval, PermissionMode, Tier
from stagedoor.unified.settings import AgentSetting

from ..rest.sessions import public_view

UnifiedStatus: TypeAlias = Literal["active", "completed", "error"]
_STATUSES: dict[State, UnifiedStatus] = {
    "running": "active",
    "done": "completed",
    "cancelled": "completed",
    "failed": "error",
}


class RpcResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class CapabilitySummary(RpcResult, frozen=True, kw_only=True):
    streaming: bool
    session_resume: bool
    thinking: bool
    mcp: bool
    sandbox: bool


class AvailableAgent(RpcResult, frozen=True, kw_only=True):
    """``sandboxModes`` are the values ``sandbox`` takes with this agent."""

    type: str
    name: str
    version: str
    capabilities: CapabilitySummary
    tools: list[str]
    drivers: list[str]
    sandbox_modes: list[str]
    signed_in: bool | None = None


class MissingAgent(RpcResult, frozen=True, kw_only=True):
    type: str
    name: str
    problem: str
    fix: str


AgentState: TypeAlias = Literal["idle", "running", "waiting"]


class DiscoverResult(RpcResult, frozen=True, kw_only=True):
    available: list[AvailableAgent]
    active: str
    status: AgentState
    unavailable: list[MissingAgent]


class SelectResult(RpcResult, frozen=True, kw_only=True):
    status: Literal["selected"] = "selected"
    type: str
    name: str


class AgentConfiguration(RpcResult, frozen=True, kw_only=True):
    status: Literal["configured"] = "configured"
    type: str
    sandbox: str | None = None
    model: str | None = None
    auto_approve: tuple[str, ...] = ()
    tier: Tier | None = None
    approval: Approval | PermissionMode | None = None


class SettingsResult(RpcResult, frozen=True, kw_only=True):
    """``locked`` says why one cannot be changed; empty: it can."""

    settings: tuple[AgentSetting, ...]


class RunResult(RpcResult, frozen=True, kw_only=True):
    """``started`` a new session, ``queued`` in an open one, ``resumed`` an ended one as a new one."""

    status: Literal["started", "queued", "resumed"]
    type: str
    session_id: str
    last_seq: int
    message_id: str | None = None


class StopResult(RpcResult, frozen=True, kw_only=True):
    status: Literal["stopped", "interrupted"]
    session_id: str
    state: State
    activity: Activity


class RespondResult(RpcResult, frozen=True, kw_only=True):
    status: Literal["responded"] = "responded"
    question_id: str
    decision: Literal["allow", "deny"]


class UnifiedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A short form of a session; ``session`` is the whole row as every other door returns it. ``stored``: only the
    agent's own program keeps it so far, under ``id``; ``session/resume`` and ``session/events`` take it as it is."""

    id: str
    agent_type: str
    created_at: str
    updated_at: str
    status: UnifiedStatus
    repo_path: str
    message_count: int
    tokens_used: int
    cost_usd: float
    session: SessionView | None = None
    stored: bool = False
    title: str = ""

    @classmethod
    def of_program(cls, past: PastSession) -> UnifiedSession:
        """One that an agent's program keeps."""
        return cls(
            id=past.native_id,
            agent_type=past.agent,
            created_at=iso_time(past.started_at or past.updated_at),
            updated_at=iso_time(past.updated_at),
            status="completed",
            repo_path=past.cwd,
            message_count=past.messages or 0,
            tokens_used=past.tokens or 0,
            cost_usd=past.cost_usd or 0.0,
            stored=True,
            title=past.title or past.first_prompt[:80],
        )

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
            session=public_view(view),
            title=view.title,
        )


class AgentStatusResult(RpcResult, frozen=True, kw_only=True):
    """``status`` is that of the session in ``sessionId``, else of the one this client ran last."""

    type: str
    status: AgentState
    session_id: str
    running: int
    waiting: int
    session: UnifiedSession | None = None


class SessionListResult(RpcResult, frozen=True, kw_only=True):
    """``nextCursor``: send it as ``cursor`` to read on, which misses nothing though new ones come; empty at the end."""

    sessions: list[UnifiedSession]
    total: int
    offset: int
    limit: int
    next_cursor: str = ""


class EventsResult(RpcResult, frozen=True, kw_only=True):
    """``lastSeq`` is that of the session; continue with ``after`` = ``nextAfter``."""

    events: list[msgspec.Raw]
    session_id: str
    after: int
    next_after: int
    first_seq: int
    last_seq: int
    state: State


class SendResult(RpcResult, frozen=True, kw_only=True):
    status: Literal["queued"] = "queued"
    message_id: str
    session_id: str


class SubscribeResult(RpcResult, frozen=True, kw_only=True):
    """``gap``: the records from ``missingFrom`` to ``missingTo`` are no longer stored; those after them are sent."""

    status: Literal["subscribed"] = "subscribed"
    session_id: str
    verdict: Literal["ok", "gap"] = "ok"
    after: int = 0
    last_seq: int = 0
    missing_from: int | None = None
    missing_to: int | None = None


class UnsubscribeResult(RpcResult, frozen=True, kw_only=True):
    """``notSubscribed``: there was no subscription to end."""

    status: Literal["unsubscribed", "notSubscribed"]
    session_id: str


class ListenResult(RpcResult, frozen=True, kw_only=True):
    status: Literal["listening"] = "listening"
    to: Literal["all", "subscribed"]


class PermissionListResult(RpcResult, frozen=True, kw_only=True):
    permissions: list[Question]
    total: int
    offset: int
    limit: int


class PermissionAnswerResult(RpcResult, frozen=True, kw_only=True):
    status: Literal["answered"] = "answered"
    permission: Question
