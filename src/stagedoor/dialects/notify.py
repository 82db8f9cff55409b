"""``notify``: JSON-RPC notifications ``agent_*``, and beside them the old ``claude_*`` ones for Claude."""

from __future__ import annotations

from typing import Any, assert_never

from stagedoor.unified import events as canonical
from stagedoor.unified.events import Event, Operation

from .drafts import Drafts, unsaid
from .moments import iso_time
from .notify_legacy import claude_log, claude_waiting
from .notify_payloads import (
    METHODS,
    AgentComplete,
    AgentError,
    AgentInit,
    AgentMessage,
    AgentPermission,
    AgentStatus,
    AgentThinking,
    AgentToolCall,
    AgentToolResult,
    Answered,
    ClaudeStatus,
    ContentBlock,
    Doing,
    FileChangeBlock,
    Notification,
    Outcome,
    Params,
    Payload,
    PlanBlock,
    Remark,
    Retrying,
    Spent,
    State,
    TextBlock,
    TokenUsage,
)

SILENT: dict[str, str] = {
    "text_delta": "held, because `text` repeats it; what nothing repeats is an `agent_message` when the turn ends",
    "thinking_delta": "held, because `thinking` repeats it; what nothing repeats is told when the turn ends",
    "tool_progress": "the dialect has no word for it; the whole output comes with `agent_tool_result`",
}

_LEGACY = "claude"
_DOING: dict[Operation, Doing] = {
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
        self._state: State | None = None
        self._failure = ""

    def project(self, event: Event) -> list[Notification]:
        told = [*unsaid(event, self._thoughts, self._texts), event]
        return [_notification(each, payload) for each in told for payload in [*self._said(each), *_logged(each)]]

    def _said(self, event: Event) -> list[Payload]:
        parent = event.parent_tool_use_id
        match event:
            case canonical.Init():
                return [_introduced(event), *self._move(event, "idle")]
            case canonical.TurnStarted(prompt=prompt):
                self._failure = ""
                return self._move(event, "running", prompt=prompt)
            case canonical.TextDelta(text=text, message_id=message_id):
                self._texts.add((parent, message_id), text)
                return []
            case canonical.Text(text=text, message_id=message_id):
                self._texts.rest((parent, message_id), text)
                return [_message(event, TextBlock(text), message_id)]
            case canonical.ThinkingDelta(text=text):
                self._thoughts.add((parent, ""), text)
                return []
            case canonical.Thinking(text=text):
                self._thoughts.rest((parent, ""), text)
                return [AgentThinking(agent_type=event.agent, session_id=event.session_id, text=text)]
            case canonical.ToolUse():
                return [_called(event, asked=event.tool_use_id in self._questions.values())]
            case canonical.ToolProgress():
                return []
            case canonical.ToolResult():
                return [_returned(event)]
            case canonical.FileChange():
                return [_message(event, _changed(event))]
            case canonical.Plan(items=items):
                return [_message(event, PlanBlock(items))]
            case canonical.PermissionRequest(request_id=request_id):
                self._questions[request_id] = event.tool_use_id or request_id
                asked: list[Payload] = [_asked(event)]
                if event.agent == _LEGACY:
                    asked.append(claude_waiting(event))
                return [*asked, *self._move(event, "waiting")]
            case canonical.PermissionResolved():
                return self._answered(event)
            case canonical.UsageReport():
                return self._news(event, usage=_spent(event))
            case canonical.Retry(attempt=attempt, max_attempts=most, delay_ms=delay_ms, reason=reason):
                retry = Retrying(attempt=attempt, max_attempts=most, delay_ms=delay_ms, reason=reason)
                return self._news(event, retry=retry)
            case canonical.Notice(level=level, code=code, message=message):
                return self._news(event, notice=Remark(level=level, code=code, message=message))
            case canonical.Error(kind=kind, message=message, fatal=fatal):
                self._failure = message if fatal else self._failure
                said = AgentError(agent_type=event.agent, code=kind, message=message, fatal=fatal)
                return [said, *(self._move(event, "error", error=message) if fatal else [])]
            case canonical.TurnCompleted():
                self._questions.clear()
                error = self._failure or event.result if event.status == "error" else ""
                state: State = "error" if event.status == "error" else "idle"
                return [_completed(event), *self._move(event, state, error=error)]
            case canonical.Done():
                error = self._failure or event.result if event.status == "error" else ""
                state = "error" if event.status == "error" else "stopped"
                return self._move(event, state, error=error, outcome=_outcome(event))
            case canonical.Unrecognized(raw=raw, why=why):
                return [AgentError(agent_type=event.agent, code="unrecognized", message=why, fatal=False, raw=raw)]
            case _:
                assert_never(event)

    def _answered(self, event: canonical.PermissionResolved) -> list[Payload]:
        tool_id = self._questions.pop(event.request_id, event.request_id)
        answer = Answered(
            request_id=event.request_id,
            tool_id=tool_id,
            decision=event.decision,
            remember=event.remember,
            by=event.by,
            message=event.message,
        )
        return self._move(event, "waiting" if self._questions else "running", permission=answer)

    def _move(self, event: Event, state: State, *, prompt: str = "", error: str = "", **news: Any) -> list[Payload]:
        """The state is now ``state``; said when that is a change or there is more to say."""
        changed, self._state = state != self._state, state
        said: list[Payload] = []
        if changed or prompt or news:
            said += self._news(event, prompt=prompt, error=error, **news)
        if event.agent == _LEGACY and (changed or prompt):
            said.append(ClaudeStatus(state=state, prompt=prompt, error=error))
        return said

    def _news(self, event: Event, **news: Any) -> list[Payload]:
        state = self._state or "idle"
        return [AgentStatus(agent_type=event.agent, session_id=event.session_id, state=state, **news)]


def _logged(event: Event) -> list[Payload]:
    log = claude_log(event) if event.agent == _LEGACY else None
    return [] if log is None else [log]


def _notification(event: Event, payload: Payload) -> Notification:
    method = METHODS[type(payload)]
    return Notification(
        method=method,
        params=Params(
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


def _message(event: Event, block: ContentBlock, message_id: str = "") -> AgentMessage:
    return AgentMessage(
        agent_type=event.agent,
        session_id=event.session_id,
        role="assistant",
        content=[block],
        message_id=message_id,
    )


def _introduced(event: canonical.Init) -> AgentInit:
    return AgentInit(
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


def _called(event: canonical.ToolUse, *, asked: bool) -> AgentToolCall:
    return AgentToolCall(
        agent_type=event.agent,
        tool_id=event.tool_use_id,
        tool_name=event.name,
        tool_name_native=event.native_name or event.name,
        arguments=event.input,
        requires_permission=asked,
        risk_level=event.risk,
        description=event.description,
        operation=_DOING[event.operation],
        target=event.target,
    )


def _returned(event: canonical.ToolResult) -> AgentToolResult:
    return AgentToolResult(
        agent_type=event.agent,
        tool_id=event.tool_use_id,
        tool_name=event.name,
        status=event.status,
        content=event.output,
        exit_code=event.exit_code,
        duration_ms=event.duration_ms,
    )


def _changed(event: canonical.FileChange) -> FileChangeBlock:
    return FileChangeBlock(
        path=event.path,
        change=event.change,
        diff=event.diff,
        before=event.before,
        after=event.after,
        tool_id=event.tool_use_id,
    )


def _asked(event: canonical.PermissionRequest) -> AgentPermission:
    return AgentPermission(
        agent_type=event.agent,
        tool_id=event.tool_use_id or event.request_id,
        tool_name=event.tool_name,
        tool_name_native=event.native_name,
        operation=_DOING[event.operation],
        target=event.target,
        risk_level=event.risk,
        description=event.description,
        auto_approve_hint=event.risk == "low",
        request_id=event.request_id,
        arguments=event.input,
        choices=event.choices,
        expires_at=None if event.expires_at is None else iso_time(event.expires_at),
    )


def _spent(event: canonical.UsageReport) -> Spent:
    return Spent(
        turn=TokenUsage(
            input_tokens=event.input_tokens,
            output_tokens=event.output_tokens,
            cached_tokens=event.cached_tokens,
            reasoning_tokens=event.reasoning_tokens,
            total_tokens=event.total_tokens,
        ),
        session=TokenUsage.of(event.session),
        turn_cost_usd=event.cost_usd,
        session_cost_usd=event.session.cost_usd,
    )


def _completed(event: canonical.TurnCompleted) -> AgentComplete:
    return AgentComplete(
        agent_type=event.agent,
        turn=event.turn,
        status=event.status,
        usage=TokenUsage.of(event.usage),
        result=event.result,
        structured=event.structured,
        cost_usd=event.cost_usd,
        duration_ms=event.duration_ms,
    )


def _outcome(event: canonical.Done) -> Outcome:
    return Outcome(
        status=event.status,
        usage=TokenUsage.of(event.usage),
        tool_uses=event.tool_uses,
        result=event.result,
        cost_usd=event.cost_usd,
        duration_ms=event.duration_ms,
    )
