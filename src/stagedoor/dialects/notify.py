"""``notify``: JSON-RPC notifications ``agent_*``, and beside them the old ``claude_*`` ones for Claude.

``agent_*`` payloads come for every agent. ``claude_*`` ones are what clients understood before there was more than one
agent; they keep their old shapes (``notify_claude``).

Two things are told a moment later, because only what comes next says them: why a message ended (``stop_reason``), and
whether a call waits for somebody (``requires_permission``).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from stagedoor.unified import events as canonical
from stagedoor.unified.events import Event, Operation, PlanItem, Risk, Status, ToolStatus, Usage

from .event_parts import Drafts, iso_time, unfinished_parts
from .notify_claude import (
    LEGACY_AGENT,
    ClaudeLines,
    NotifyClaudeLog,
    NotifyClaudeStatus,
    NotifyClaudeWaiting,
    NotifyState,
    claude_waiting,
)

SILENT: dict[str, str] = {
    "tool_progress": "the dialect has no notification for it; the complete output comes with `agent_tool_result`",
}

NotifyOperation = Literal["file_read", "file_write", "shell_execute", "web_fetch", "other"]


class NotifyTokenUsage(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    total_tokens: int

    @classmethod
    def of(cls, usage: Usage) -> NotifyTokenUsage:
        return cls(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            total_tokens=usage.total_tokens,
        )


class NotifyTextBlock(msgspec.Struct, frozen=True, tag="text"):
    text: str


class NotifyPlanBlock(msgspec.Struct, frozen=True, tag="plan"):
    items: list[PlanItem]


class NotifyFileChangeBlock(msgspec.Struct, frozen=True, kw_only=True, tag="file_change", omit_defaults=True):
    path: str
    change: Literal["created", "modified", "deleted", "moved"]
    diff: str = ""
    before: str | None = None
    after: str | None = None
    tool_id: str = ""


NotifyContentBlock: TypeAlias = NotifyTextBlock | NotifyPlanBlock | NotifyFileChangeBlock


class NotifyAgentInit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    agent_type: str
    session_id: str
    model: str
    version: str
    cwd: str
    tools: list[str]
    capabilities: dict[str, Any] = {}
    native_session_id: str = ""
    resumed: bool = False


class NotifyAgentMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    agent_type: str
    session_id: str
    role: Literal["assistant", "user"]
    content: list[NotifyContentBlock]
    stop_reason: str = ""
    message_id: str = ""


class NotifyAgentDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a message as it is written; the whole follows as ``agent_message``."""

    agent_type: str
    session_id: str
    text: str
    message_id: str = ""


class NotifyAgentThinkingDelta(msgspec.Struct, frozen=True, kw_only=True):
    agent_type: str
    session_id: str
    text: str


class NotifyAgentThinking(msgspec.Struct, frozen=True, kw_only=True):
    agent_type: str
    session_id: str
    text: str


class NotifyAgentToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``requires_permission``: somebody must answer first, and an ``agent_permission`` follows. Most agents tell a call
    before they ask about it: it is sent when it is known which, at the latest when something comes of it."""

    agent_type: str
    tool_id: str
    tool_name: str
    tool_name_native: str
    arguments: dict[str, Any]
    requires_permission: bool
    risk_level: Risk
    description: str = ""
    operation: NotifyOperation
    target: str = ""


class NotifyAgentToolResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    agent_type: str
    tool_id: str
    tool_name: str
    status: ToolStatus
    content: str
    exit_code: int | None = None
    duration_ms: float | None = None


class NotifyAgentPermission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody must answer: what a rule has decided raises none. ``auto_approve_hint``: it only reads, with low risk.
    ``request_id`` is what an answer names."""

    agent_type: str
    tool_id: str
    tool_name: str
    tool_name_native: str = ""
    operation: NotifyOperation
    target: str
    risk_level: Risk
    description: str
    auto_approve_hint: bool
    request_id: str
    arguments: dict[str, Any]
    choices: list[str] = []
    expires_at: str | None = None


class NotifyAgentComplete(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    agent_type: str
    turn: int
    status: Status
    usage: NotifyTokenUsage
    result: str = ""
    structured: Any = None
    cost_usd: float | None = None
    duration_ms: float | None = None


class NotifyAgentError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``raw`` is the agent's message when it could not be decoded."""

    agent_type: str
    code: str
    message: str
    fatal: bool
    raw: str | None = None


class NotifyAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    request_id: str
    tool_id: str
    decision: Literal["allow", "deny"]
    remember: Literal["once", "session", "always"]
    by: str
    message: str = ""


class NotifyUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    turn: NotifyTokenUsage
    session: NotifyTokenUsage
    turn_cost_usd: float | None = None
    session_cost_usd: float | None = None


class NotifyRetry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    attempt: int
    max_attempts: int | None = None
    delay_ms: float | None = None
    reason: str = ""


class NotifyNotice(msgspec.Struct, frozen=True, kw_only=True):
    level: Literal["info", "warning", "error"]
    code: str
    message: str


class NotifyOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    status: Status
    usage: NotifyTokenUsage
    tool_uses: int
    result: str = ""
    cost_usd: float | None = None
    duration_ms: float | None = None


class NotifyAgentStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Comes when the state changes, and with news that has no notification of its own."""

    agent_type: str
    session_id: str
    state: NotifyState
    prompt: str = ""
    error: str = ""
    permission: NotifyAnswer | None = None
    usage: NotifyUsage | None = None
    retry: NotifyRetry | None = None
    notice: NotifyNotice | None = None
    outcome: NotifyOutcome | None = None


NotifyPayload: TypeAlias = (
    NotifyAgentInit
    | NotifyAgentMessage
    | NotifyAgentDelta
    | NotifyAgentThinking
    | NotifyAgentThinkingDelta
    | NotifyAgentToolCall
    | NotifyAgentToolResult
    | NotifyAgentPermission
    | NotifyAgentComplete
    | NotifyAgentError
    | NotifyAgentStatus
    | NotifyClaudeLog
    | NotifyClaudeStatus
    | NotifyClaudeWaiting
)

METHODS: dict[type[NotifyPayload], str] = {
    NotifyAgentInit: "agent_init",
    NotifyAgentMessage: "agent_message",
    NotifyAgentDelta: "agent_message_delta",
    NotifyAgentThinking: "agent_thinking",
    NotifyAgentThinkingDelta: "agent_thinking_delta",
    NotifyAgentToolCall: "agent_tool_call",
    NotifyAgentToolResult: "agent_tool_result",
    NotifyAgentPermission: "agent_permission",
    NotifyAgentComplete: "agent_complete",
    NotifyAgentError: "agent_error",
    NotifyAgentStatus: "agent_status",
    NotifyClaudeLog: "claude_log",
    NotifyClaudeStatus: "claude_status",
    NotifyClaudeWaiting: "claude_waiting",
}


class NotifyParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    event: str
    timestamp: str
    agent_type: str
    session_id: str
    seq: int
    parent_tool_use_id: str | None = None
    native: Any = None
    payload: msgspec.Struct


class AgentNotification(msgspec.Struct, frozen=True, kw_only=True):
    jsonrpc: Literal["2.0"] = "2.0"
    method: str
    params: NotifyParams


_OPERATIONS: dict[Operation, NotifyOperation] = {
    "read": "file_read",
    "write": "file_write",
    "execute": "shell_execute",
    "network": "web_fetch",
    "other": "other",
}


_STOPS: dict[Status, str] = {"success": "end_turn", "max_turns": "max_turns", "max_budget": "max_budget"}


class NotifyProjection:
    def __init__(self) -> None:
        self._texts = Drafts()
        self._thoughts = Drafts()
        self._questions: dict[str, str] = {}
        self._automatic: dict[str, str] = {}
        self._state: NotifyState | None = None
        self._failure = ""
        self._asks = True
        self._messages: dict[str | None, tuple[Event, NotifyAgentMessage]] = {}
        """The last message of each speaker, until it is known why it ended."""
        self._calls: dict[str, canonical.ToolUse] = {}
        """Those of which it is not known yet whether somebody is asked."""
        self._lines = ClaudeLines()

    def project(self, event: Event) -> list[AgentNotification]:
        out: list[AgentNotification] = []
        for each in [*unfinished_parts(event, self._thoughts, self._texts), event]:
            out += [_notification(earlier, payload, seq=event.seq) for earlier, payload in self._explained(each)]
            payloads: list[NotifyPayload] = [*self._payloads(each), *self._lines.of(each)]
            out += [_notification(each, payload) for payload in payloads]
        return out

    def _explained(self, event: Event) -> list[tuple[Event, NotifyPayload]]:
        """What was held back and what ``event`` says of it."""
        explained: list[tuple[Event, NotifyPayload]] = []
        for speaker in [speaker for speaker in self._messages if self._is_over(speaker, event)]:
            earlier, message = self._messages.pop(speaker)
            explained.append((earlier, replace(message, stop_reason=_stop_reason(speaker, event))))
        for call in [call for call in self._calls.values() if _is_decided(call, event)]:
            del self._calls[call.tool_use_id]
            asks = isinstance(event, canonical.PermissionRequest) and not event.automatic
            explained.append((call, _tool_call(call, requires_permission=asks)))
        return explained

    def _is_over(self, speaker: str | None, event: Event) -> bool:
        match event:
            case canonical.TurnCompleted() | canonical.Done():
                return True
            case canonical.UsageReport() | canonical.Notice() | canonical.ToolProgress() | canonical.Retry():
                return False
            case canonical.FilesRestored():
                return False
            case canonical.ToolResult(tool_use_id=tool_id) if tool_id == speaker:
                return True
            case canonical.PermissionResolved():
                return False
            case _:
                return event.parent_tool_use_id == speaker

    def _payloads(self, event: Event) -> list[NotifyPayload]:
        parent = event.parent_tool_use_id
        match event:
            case canonical.Init():
                self._asks = event.approval != "autoAll" and event.tier != "dry-run"
                return [_init(event), *self._set_state(event, "idle")]
            case canonical.TurnStarted(prompt=prompt):
                self._failure = ""
                user = _message(event, NotifyTextBlock(prompt), role="user")
                return [*([user] if prompt else []), *self._set_state(event, "running", prompt=prompt)]
            case canonical.TextDelta(text=text, message_id=message_id):
                self._texts.add((parent, message_id), text)
                header: dict[str, str] = {"agent_type": event.agent, "session_id": event.session_id}
                return [NotifyAgentDelta(**header, text=text, message_id=message_id)]
            case canonical.Text(text=text, message_id=message_id):
                self._texts.rest((parent, message_id), text)
                self._messages[parent] = event, _message(event, NotifyTextBlock(text), message_id)
                return []
            case canonical.ThinkingDelta(text=text):
                self._thoughts.add((parent, ""), text)
                return [NotifyAgentThinkingDelta(agent_type=event.agent, session_id=event.session_id, text=text)]
            case canonical.Thinking(text=text):
                self._thoughts.rest((parent, ""), text)
                return [NotifyAgentThinking(agent_type=event.agent, session_id=event.session_id, text=text)]
            case canonical.ToolUse():
                requires = self._requires_permission(event.tool_use_id)
                if requires is None and self._asks and event.operation != "read":
                    self._calls[event.tool_use_id] = event
                    return []
                return [_tool_call(event, requires_permission=bool(requires))]
            case canonical.ToolProgress():
                return []
            case canonical.ToolResult():
                return [_tool_result(event)]
            case canonical.FileChange():
                return [_message(event, _file_change(event))]
            case canonical.Plan(items=items):
                return [_message(event, NotifyPlanBlock(items))]
            case canonical.PermissionRequest(request_id=request_id, automatic=True):
                self._automatic[request_id] = event.tool_use_id or request_id
                return []
            case canonical.PermissionRequest(request_id=request_id):
                self._questions[request_id] = event.tool_use_id or request_id
                self._asks = True  # a rule may ask in a session that would not
                payloads: list[NotifyPayload] = [_permission(event)]
                if event.agent == LEGACY_AGENT:
                    payloads.append(claude_waiting(event))
                return [*payloads, *self._set_state(event, "waiting")]
            case canonical.PermissionResolved():
                return self._answer(event)
            case canonical.UsageReport():
                return self._status(event, usage=_usage(event))
            case canonical.Retry(attempt=attempt, max_attempts=most, delay_ms=delay_ms, reason=reason):
                retry = NotifyRetry(attempt=attempt, max_attempts=most, delay_ms=delay_ms, reason=reason)
                return self._status(event, retry=retry)
            case canonical.Notice(code="steered", message=message):
                return [_message(event, NotifyTextBlock(message), role="user")]
            case canonical.Notice(level=level, code=code, message=message):
                return self._status(event, notice=NotifyNotice(level=level, code=code, message=message))
            case canonical.FilesRestored():
                words = canonical.restored_words(event)
                return self._status(event, notice=NotifyNotice(level="info", code=event.type, message=words))
            case canonical.Error(kind=kind, message=message, fatal=fatal):
                self._failure = message if fatal else self._failure
                error_payload = NotifyAgentError(agent_type=event.agent, code=kind, message=message, fatal=fatal)
                return [error_payload, *(self._set_state(event, "error", error=message) if fatal else [])]
            case canonical.TurnCompleted():
                self._questions.clear()
                self._automatic.clear()
                error = self._failure or event.result if event.status == "error" else ""
                state: NotifyState = "error" if event.status == "error" else "idle"
                return [_complete(event), *self._set_state(event, state, error=error)]
            case canonical.Done():
                error = self._failure or event.result if event.status == "error" else ""
                state = "error" if event.status == "error" else "stopped"
                return self._set_state(event, state, error=error, outcome=_outcome(event))
            case canonical.Unrecognized(raw=raw, why=why):
                return [
                    NotifyAgentError(agent_type=event.agent, code="unrecognized", message=why, fatal=False, raw=raw)
                ]
            case _:
                assert_never(event)

    def _requires_permission(self, tool_id: str) -> bool | None:
        if tool_id in self._questions.values():
            return True
        return False if tool_id in self._automatic.values() else None

    def _answer(self, event: canonical.PermissionResolved) -> list[NotifyPayload]:
        tool_id = self._questions.pop(event.request_id, None) or self._automatic.pop(event.request_id, event.request_id)
        answer = NotifyAnswer(
            request_id=event.request_id,
            tool_id=tool_id,
            decision=event.decision,
            remember=event.remember,
            by=event.by,
            message=event.message,
        )
        return self._set_state(event, "waiting" if self._questions else "running", permission=answer)

    def _set_state(
        self, event: Event, state: NotifyState, *, prompt: str = "", error: str = "", **details: Any
    ) -> list[NotifyPayload]:
        """The state is now ``state``; reported when that is a change or there are details."""
        changed, self._state = state != self._state, state
        payloads: list[NotifyPayload] = []
        if changed or prompt or details:
            payloads += self._status(event, prompt=prompt, error=error, **details)
        if event.agent == LEGACY_AGENT and (changed or prompt):
            payloads.append(NotifyClaudeStatus(state=state, prompt=prompt, error=error))
        return payloads

    def _status(self, event: Event, **details: Any) -> list[NotifyPayload]:
        state = self._state or "idle"
        return [NotifyAgentStatus(agent_type=event.agent, session_id=event.session_id, state=state, **details)]


def _stop_reason(speaker: str | None, event: Event) -> str:
    match event:
        case canonical.TurnCompleted(status=status):
            return _STOPS.get(status, "")
        case canonical.ToolUse() | canonical.PermissionRequest() if event.parent_tool_use_id == speaker:
            return "tool_use"
        case canonical.ToolResult(tool_use_id=tool_id) if tool_id == speaker:
            return "end_turn"
        case _:
            return ""


def _is_decided(call: canonical.ToolUse, event: Event) -> bool:
    """Whether it is known now if somebody is asked about ``call``."""
    match event:
        case canonical.TurnCompleted() | canonical.Done():
            return True
        case (
            canonical.PermissionRequest(tool_use_id=tool_id)
            | canonical.ToolProgress(tool_use_id=tool_id)
            | canonical.ToolResult(tool_use_id=tool_id)
            | canonical.FileChange(tool_use_id=tool_id)
        ) if tool_id == call.tool_use_id:
            return True
        case canonical.Text() | canonical.TextDelta() | canonical.Thinking() | canonical.ThinkingDelta() if (
            event.parent_tool_use_id == call.parent_tool_use_id
        ):
            return True  # the agent goes on
        case _:
            return event.parent_tool_use_id == call.tool_use_id


def _notification(event: Event, payload: NotifyPayload, *, seq: int | None = None) -> AgentNotification:
    """``seq``: of the event that it is sent with."""
    method = METHODS[type(payload)]
    return AgentNotification(
        method=method,
        params=NotifyParams(
            event=method,
            timestamp=iso_time(event.timestamp),
            agent_type=event.agent,
            session_id=event.session_id,
            seq=event.seq if seq is None else seq,
            parent_tool_use_id=event.parent_tool_use_id,
            native=None if event.agent == LEGACY_AGENT else event.native,  # it comes once, as a line
            payload=payload,
        ),
    )


def _message(
    event: Event, block: NotifyContentBlock, message_id: str = "", *, role: Literal["assistant", "user"] = "assistant"
) -> NotifyAgentMessage:
    return NotifyAgentMessage(
        agent_type=event.agent,
        session_id=event.session_id,
        role=role,
        content=[block],
        message_id=message_id,
    )


def _init(event: canonical.Init) -> NotifyAgentInit:
    return NotifyAgentInit(
        agent_type=event.agent,
        session_id=event.session_id,
        model=event.model,
        version=event.agent_version,
        cwd=event.cwd,
        tools=event.tools,
        capabilities=event.capabilities,
        native_session_id=event.native_session_id,
        resumed=event.resumed,
    )


def _tool_call(event: canonical.ToolUse, *, requires_permission: bool) -> NotifyAgentToolCall:
    return NotifyAgentToolCall(
        agent_type=event.agent,
        tool_id=event.tool_use_id,
        tool_name=event.name,
        tool_name_native=event.native_name or event.name,
        arguments=event.input,
        requires_permission=requires_permission,
        risk_level=event.risk,
        description=event.description,
        operation=_OPERATIONS[event.operation],
        target=event.target,
    )


def _tool_result(event: canonical.ToolResult) -> NotifyAgentToolResult:
    return NotifyAgentToolResult(
        agent_type=event.agent,
        tool_id=event.tool_use_id,
        tool_name=event.name,
        status=event.status,
        content=event.output,
        exit_code=event.exit_code,
        duration_ms=event.duration_ms,
    )


def _file_change(event: canonical.FileChange) -> NotifyFileChangeBlock:
    return NotifyFileChangeBlock(
        path=event.path,
        change=event.change,
        diff=event.diff,
        before=event.before,
        after=event.after,
        tool_id=event.tool_use_id,
    )


def _permission(event: canonical.PermissionRequest) -> NotifyAgentPermission:
    return NotifyAgentPermission(
        agent_type=event.agent,
        tool_id=event.tool_use_id or event.request_id,
        tool_name=event.tool_name,
        tool_name_native=event.native_name,
        operation=_OPERATIONS[event.operation],
        target=event.target,
        risk_level=event.risk,
        description=event.description,
        auto_approve_hint=event.risk == "low" and event.operation == "read",
        request_id=event.request_id,
        arguments=event.input,
        choices=event.choices,
        expires_at=None if event.expires_at is None else iso_time(event.expires_at),
    )


def _usage(event: canonical.UsageReport) -> NotifyUsage:
    return NotifyUsage(
        turn=NotifyTokenUsage(
            input_tokens=event.input_tokens,
            output_tokens=event.output_tokens,
            cached_tokens=event.cached_tokens,
            reasoning_tokens=event.reasoning_tokens,
            total_tokens=event.total_tokens,
        ),
        session=NotifyTokenUsage.of(event.session),
        turn_cost_usd=event.cost_usd,
        session_cost_usd=event.session.cost_usd,
    )


def _complete(event: canonical.TurnCompleted) -> NotifyAgentComplete:
    return NotifyAgentComplete(
        agent_type=event.agent,
        turn=event.turn,
        status=event.status,
        usage=NotifyTokenUsage.of(event.usage),
        result=event.result,
        structured=event.structured,
        cost_usd=event.cost_usd,
        duration_ms=event.duration_ms,
    )


def _outcome(event: canonical.Done) -> NotifyOutcome:
    return NotifyOutcome(
        status=event.status,
        usage=NotifyTokenUsage.of(event.usage),
        tool_uses=event.tool_uses,
        result=event.result,
        cost_usd=event.cost_usd,
        duration_ms=event.duration_ms,
    )
