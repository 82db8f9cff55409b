"""``notify``: JSON-RPC notifications ``agent_*``, and beside them the old ``claude_*`` ones for Claude.

``agent_*`` payloads come for every agent. ``claude_*`` ones are what clients understood before there was more than one
agent; they keep their old shapes. A ``claude_log`` line is written as Claude Code itself would have printed it.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, assert_never

import msgspec

from stagedoor.unified import events as canonical
from stagedoor.unified.events import Event, Operation, PlanItem, Risk, Status, ToolStatus, Usage

from .event_parts import Drafts, iso_time, unfinished_parts, whole_ms

SILENT: dict[str, str] = {
    "text_delta": "not sent: `text` repeats it; what is not repeated comes as an `agent_message` when the turn ends",
    "thinking_delta": "not sent: `thinking` repeats it; what is not repeated comes when the turn ends",
    "tool_progress": "the dialect has no notification for it; the complete output comes with `agent_tool_result`",
}

NotifyState = Literal["idle", "running", "waiting", "error", "stopped"]
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


class NotifyAgentThinking(msgspec.Struct, frozen=True, kw_only=True):
    agent_type: str
    session_id: str
    text: str


class NotifyAgentToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``requires_permission``: whether somebody must answer first. Absent where that is not known yet: most agents tell
    a call before they ask about it, and an ``agent_permission`` follows if anybody is asked."""

    agent_type: str
    tool_id: str
    tool_name: str
    tool_name_native: str
    arguments: dict[str, Any]
    requires_permission: bool | None = None
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


class NotifyClaudeBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: Literal["text", "thinking", "tool_use", "tool_result"]
    text: str = ""
    tool_name: str = ""
    tool_id: str = ""
    tool_input: str = ""


class NotifyClaudeMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: Literal["assistant", "user", "result", "system"]
    session_id: str = ""
    content: list[NotifyClaudeBlock] = []
    stop_reason: str = ""
    cost_usd: float | None = None
    duration_ms: int | None = None
    output_tokens: int = 0
    is_thinking: bool = False


class NotifyClaudeLog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    line: str
    stream: Literal["stdout", "stderr"]
    parsed: NotifyClaudeMessage | None = None


class NotifyClaudeStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    state: NotifyState
    prompt: str = ""
    error: str = ""


class NotifyClaudeWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """``input`` is JSON in a string, as it always was."""

    tool_use_id: str
    tool_name: str
    input: str


NotifyPayload: TypeAlias = (
    NotifyAgentInit
    | NotifyAgentMessage
    | NotifyAgentThinking
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
    NotifyAgentThinking: "agent_thinking",
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


_LEGACY_AGENT = "claude"
_OPERATIONS: dict[Operation, NotifyOperation] = {
    "read": "file_read",
    "write": "file_write",
    "execute": "shell_execute",
    "network": "web_fetch",
    "other": "other",
}


class NotifyProjection:
    def __init__(self) -> None:
        self._texts = Drafts()
        self._thoughts = Drafts()
        self._questions: dict[str, str] = {}
        self._automatic: dict[str, str] = {}
        self._state: NotifyState | None = None
        self._failure = ""

    def project(self, event: Event) -> list[AgentNotification]:
        events = [*unfinished_parts(event, self._thoughts, self._texts), event]
        return [
            _notification(each, payload) for each in events for payload in [*self._payloads(each), *_claude_logs(each)]
        ]

    def _payloads(self, event: Event) -> list[NotifyPayload]:
        parent = event.parent_tool_use_id
        match event:
            case canonical.Init():
                return [_init(event), *self._set_state(event, "idle")]
            case canonical.TurnStarted(prompt=prompt):
                self._failure = ""
                return self._set_state(event, "running", prompt=prompt)
            case canonical.TextDelta(text=text, message_id=message_id):
                self._texts.add((parent, message_id), text)
                return []
            case canonical.Text(text=text, message_id=message_id):
                self._texts.rest((parent, message_id), text)
                return [_message(event, NotifyTextBlock(text), message_id)]
            case canonical.ThinkingDelta(text=text):
                self._thoughts.add((parent, ""), text)
                return []
            case canonical.Thinking(text=text):
                self._thoughts.rest((parent, ""), text)
                return [NotifyAgentThinking(agent_type=event.agent, session_id=event.session_id, text=text)]
            case canonical.ToolUse():
                return [_tool_call(event, requires_permission=self._requires_permission(event.tool_use_id))]
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
                payloads: list[NotifyPayload] = [_permission(event)]
                if event.agent == _LEGACY_AGENT:
                    payloads.append(_claude_waiting(event))
                return [*payloads, *self._set_state(event, "waiting")]
            case canonical.PermissionResolved():
                return self._answer(event)
            case canonical.UsageReport():
                return self._status(event, usage=_usage(event))
            case canonical.Retry(attempt=attempt, max_attempts=most, delay_ms=delay_ms, reason=reason):
                retry = NotifyRetry(attempt=attempt, max_attempts=most, delay_ms=delay_ms, reason=reason)
                return self._status(event, retry=retry)
            case canonical.Notice(level=level, code=code, message=message):
                return self._status(event, notice=NotifyNotice(level=level, code=code, message=message))
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
        if event.agent == _LEGACY_AGENT and (changed or prompt):
            payloads.append(NotifyClaudeStatus(state=state, prompt=prompt, error=error))
        return payloads

    def _status(self, event: Event, **details: Any) -> list[NotifyPayload]:
        state = self._state or "idle"
        return [NotifyAgentStatus(agent_type=event.agent, session_id=event.session_id, state=state, **details)]


def _claude_logs(event: Event) -> list[NotifyPayload]:
    log = _claude_log(event) if event.agent == _LEGACY_AGENT else None
    return [] if log is None else [log]


def _notification(event: Event, payload: NotifyPayload) -> AgentNotification:
    method = METHODS[type(payload)]
    return AgentNotification(
        method=method,
        params=NotifyParams(
            event=method,
            timestamp=iso_time(event.timestamp),
            agent_type=event.agent,
            session_id=event.session_id,
            seq=event.seq,
            parent_tool_use_id=event.parent_tool_use_id,
            native=event.native,
            payload=payload,
        ),
    )


def _message(event: Event, block: NotifyContentBlock, message_id: str = "") -> NotifyAgentMessage:
    return NotifyAgentMessage(
        agent_type=event.agent,
        session_id=event.session_id,
        role="assistant",
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


def _tool_call(event: canonical.ToolUse, *, requires_permission: bool | None) -> NotifyAgentToolCall:
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


def _claude_log(event: Event) -> NotifyClaudeLog | None:
    """The line for ``event``, or ``None`` where the old stream had none."""
    match event:
        case canonical.Init():
            message: dict[str, Any] = {"type": "system", "subtype": "init", "cwd": event.cwd, "tools": event.tools}
            message |= {"model": event.model, "claude_code_version": event.agent_version}
            return _claude_line(event, message, NotifyClaudeMessage(type="system", session_id=event.session_id))
        case canonical.Text(text=text):
            block: dict[str, Any] = {"type": "text", "text": text}
            return _claude_message(event, "assistant", block, NotifyClaudeBlock(type="text", text=text))
        case canonical.Thinking(text=text):
            block = {"type": "thinking", "thinking": text}
            return _claude_message(event, "assistant", block, NotifyClaudeBlock(type="thinking", text=text))
        case canonical.ToolUse(tool_use_id=tool_id, input=arguments):
            name = event.native_name or event.name
            block = {"type": "tool_use", "id": tool_id, "name": name, "input": arguments}
            parsed = NotifyClaudeBlock(type="tool_use", tool_name=name, tool_id=tool_id, tool_input=_json(arguments))
            return _claude_message(event, "assistant", block, parsed)
        case canonical.ToolResult(tool_use_id=tool_id, output=output, status=status):
            block = {"type": "tool_result", "tool_use_id": tool_id, "content": output, "is_error": status != "success"}
            return _claude_message(
                event, "user", block, NotifyClaudeBlock(type="tool_result", text=output, tool_id=tool_id)
            )
        case canonical.TurnCompleted():
            return _claude_result(event)
        case canonical.Unrecognized(raw=raw):
            return NotifyClaudeLog(line=raw, stream="stdout")
        case (
            canonical.TurnStarted()
            | canonical.TextDelta()
            | canonical.ThinkingDelta()
            | canonical.ToolProgress()
            | canonical.FileChange()
            | canonical.Plan()
            | canonical.PermissionRequest()
            | canonical.PermissionResolved()
            | canonical.UsageReport()
            | canonical.Retry()
            | canonical.Notice()
            | canonical.Error()
            | canonical.Done()
        ):
            return None
        case _:
            assert_never(event)


def _claude_waiting(event: canonical.PermissionRequest) -> NotifyClaudeWaiting:
    return NotifyClaudeWaiting(
        tool_use_id=event.tool_use_id or event.request_id,
        tool_name=event.native_name or event.tool_name,
        input=_json(event.input),
    )


def _claude_message(event: Event, role: str, block: dict[str, Any], parsed: NotifyClaudeBlock) -> NotifyClaudeLog:
    message = {"type": role, "message": {"role": role, "content": [block]}}
    stop = "tool_use" if parsed.type == "tool_use" else ""
    return _claude_line(
        event,
        message,
        NotifyClaudeMessage(
            type="user" if role == "user" else "assistant",
            session_id=event.session_id,
            content=[parsed],
            stop_reason=stop,
            is_thinking=parsed.type == "thinking",
        ),
    )


def _claude_result(event: canonical.TurnCompleted) -> NotifyClaudeLog:
    subtypes = {"success": "success", "max_turns": "error_max_turns", "max_budget": "error_max_budget_usd"}
    message = {
        "type": "result",
        "subtype": subtypes.get(event.status, "error_during_execution"),
        "is_error": event.status != "success",
        "duration_ms": whole_ms(event.duration_ms),
        "result": event.result,
        "total_cost_usd": event.cost_usd,
        "usage": {"input_tokens": event.usage.input_tokens, "output_tokens": event.usage.output_tokens},
    }
    parsed = NotifyClaudeMessage(
        type="result",
        session_id=event.session_id,
        stop_reason="end_turn" if event.status == "success" else "",
        cost_usd=event.cost_usd,
        duration_ms=whole_ms(event.duration_ms),
        output_tokens=event.usage.output_tokens,
    )
    return _claude_line(event, message, parsed)


def _claude_line(event: Event, message: dict[str, Any], parsed: NotifyClaudeMessage) -> NotifyClaudeLog:
    return NotifyClaudeLog(line=_json(message | {"session_id": event.session_id}), stream="stdout", parsed=parsed)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
