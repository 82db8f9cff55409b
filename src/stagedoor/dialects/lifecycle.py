"""``lifecycle``: sessions, turns and tools that start, progress and end. Every event validates against its schema."""

from __future__ import annotations

from typing import Any, Literal, assert_never

from stagedoor.unified import events as canonical
from stagedoor.unified.events import ErrorKind, Event, Status

from .drafts import Drafts
from .fields import checklist
from .lifecycle_events import (
    Answer,
    Error,
    ErrorType,
    FileChanged,
    LifecycleEvent,
    Question,
    SessionConfig,
    SessionEnded,
    SessionStarted,
    TextChunk,
    TokenUsage,
    ToolCompleted,
    ToolFailed,
    ToolProgress,
    ToolStarted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from .moments import iso_time, whole_ms

SILENT: dict[str, str] = {
    "thinking_delta": "the dialect has no word for thoughts",
    "thinking": "the dialect has no word for thoughts",
    "usage": "tokens are told once, by `turnCompleted`, `turnFailed` and `sessionEnded`",
    "notice": "only a notice of level `error` has a word, `error`",
}

_ERROR_TYPES: dict[ErrorKind, ErrorType] = {
    "connection_failed": "connectionFailed",
    "authentication_failed": "authenticationFailed",
    "session_not_found": "sessionNotFound",
    "permission_denied": "permissionDenied",
    "tool_execution_failed": "toolExecutionFailed",
    "timeout": "timeout",
    "protocol_error": "protocolError",
    "rate_limited": "unknown",
    "quota_exceeded": "unknown",
    "context_overflow": "unknown",
    "model_not_found": "unknown",
    "unknown": "unknown",
}
_LIMITS: dict[Status, str] = {
    "max_turns": "the limit of turns was reached",
    "max_budget": "the budget was spent",
    "interrupted": "interrupted",
}


class LifecycleProjection:
    def __init__(self) -> None:
        self._drafts = Drafts()
        self._questions: dict[str, str] = {}
        self._failure: canonical.Error | None = None

    def project(self, event: Event) -> list[LifecycleEvent]:
        head = _header(event)
        match event:
            case canonical.Init():
                return [_session_started(event, head)]
            case canonical.TurnStarted(turn=turn, prompt=prompt):
                self._failure = None
                return [TurnStarted(**head, turn_number=turn, prompt=prompt)]
            case canonical.TextDelta(text=text, message_id=message_id):
                self._drafts.add((event.parent_tool_use_id, message_id), text)
                return [TextChunk(**head, content=text, is_complete=False, message_id=message_id)]
            case canonical.Text(text=text, message_id=message_id):
                rest = self._drafts.rest((event.parent_tool_use_id, message_id), text)
                return [TextChunk(**head, content=rest, is_complete=True, message_id=message_id)]
            case canonical.ThinkingDelta() | canonical.Thinking() | canonical.UsageReport():
                return []
            case canonical.ToolUse():
                return [_tool_started(event, head)]
            case canonical.ToolProgress(tool_use_id=tool_id, output=output):
                return [ToolProgress(**head, tool_id=tool_id, output=output)]
            case canonical.ToolResult():
                return [_tool_ended(event, head)]
            case canonical.FileChange():
                return [_file_changed(event, head)]
            case canonical.Plan():
                return [TextChunk(**head, content=checklist(event) + "\n", is_complete=True, kind="plan")]
            case canonical.PermissionRequest(request_id=request_id, tool_use_id=tool_use_id):
                tool_id = self._questions[request_id] = tool_use_id or request_id
                return [ToolProgress(**head, tool_id=tool_id, permission_request=_question(event))]
            case canonical.PermissionResolved(request_id=request_id):
                tool_id = self._questions.pop(request_id, request_id)
                return [ToolProgress(**head, tool_id=tool_id, permission_resolved=_answer(event))]
            case canonical.Retry():
                return [_retried(event, head)]
            case canonical.Notice(level=level, code=code, message=message):
                head |= {"error_type": "unknown", "code": code}
                said = Error(**head, message=message, fatal=False, agent_type=event.agent)
                return [said] if level == "error" else []
            case canonical.Error(kind=kind, message=message, fatal=fatal):
                self._failure = event if fatal else self._failure
                error_type = _ERROR_TYPES[kind]
                return [
                    Error(
                        **head, error_type=error_type, message=message, fatal=fatal, agent_type=event.agent, kind=kind
                    )
                ]
            case canonical.TurnCompleted():
                return [*self._cut_short(head), self._turn_ended(event, head)]
            case canonical.Done():
                return [*self._cut_short(head), self._session_ended(event, head)]
            case canonical.Unrecognized(raw=raw, why=why):
                return [
                    Error(
                        **head,
                        error_type="protocolError",
                        message=why,
                        fatal=False,
                        agent_type=event.agent,
                        native_error=raw,
                    )
                ]
            case _:
                assert_never(event)

    def _cut_short(self, head: dict[str, Any]) -> list[LifecycleEvent]:
        """The ends of messages whose deltas were passed on and that nobody said whole."""
        ends: list[LifecycleEvent] = []
        for number, ((parent, message_id), _) in enumerate(self._drafts.left(), 1):
            whose: dict[str, Any] = {"id": f"{head['id']}_{number}", "parent_tool_use_id": parent}
            ends.append(TextChunk(**head | whose, content="", is_complete=True, message_id=message_id))
        return ends

    def _turn_ended(self, event: canonical.TurnCompleted, head: dict[str, Any]) -> TurnCompleted | TurnFailed:
        usage, duration_ms = TokenUsage.of(event.usage), whole_ms(event.duration_ms)
        if event.status != "success":
            return TurnFailed(
                **head,
                turn_number=event.turn,
                error=self._reason(event.status, event.result),
                status=event.status,
                usage=usage,
                duration_ms=duration_ms,
                cost_usd=event.cost_usd,
            )
        return TurnCompleted(
            **head,
            turn_number=event.turn,
            usage=usage,
            duration_ms=duration_ms,
            cost_usd=event.cost_usd,
            result=event.result,
            structured=event.structured,
        )

    def _session_ended(self, event: canonical.Done, head: dict[str, Any]) -> SessionEnded:
        reason: Literal["completed", "failed", "cancelled", "timeout"]
        match event.status:
            case "success":
                reason = "completed"
            case "error" | "interrupted" if self._failure is not None and self._failure.kind == "timeout":
                reason = "timeout"
            case "interrupted":
                reason = "cancelled"
            case "error" | "max_turns" | "max_budget":
                reason = "failed"
            case _:
                assert_never(event.status)
        return SessionEnded(
            **head,
            reason=reason,
            error=None if reason == "completed" else self._reason(event.status, event.result),
            status=event.status,
            result=event.result,
            usage=TokenUsage.of(event.usage),
            cost_usd=event.cost_usd,
            duration_ms=whole_ms(event.duration_ms),
            tool_uses=event.tool_uses,
        )

    def _reason(self, status: Status, result: str) -> str:
        if self._failure is not None and (status == "error" or self._failure.kind == "timeout"):
            return self._failure.message
        return _LIMITS.get(status) or result or "the agent failed without saying why"


def _header(event: Event) -> dict[str, Any]:
    return {
        "id": f"evt_{event.session_id}_{event.seq}",
        "session_id": event.session_id,
        "timestamp": iso_time(event.timestamp),
        "parent_tool_use_id": event.parent_tool_use_id,
        "native": event.native,
    }


def _session_started(event: canonical.Init, head: dict[str, Any]) -> SessionStarted:
    return SessionStarted(
        **head,
        agent_type=event.agent,
        config=SessionConfig(working_directory=event.cwd or None, model=event.model or None),
        agent_version=event.agent_version,
        native_session_id=event.native_session_id,
        resumed=event.resumed,
        tools=event.tools,
        capabilities=event.capabilities,
    )


def _tool_started(event: canonical.ToolUse, head: dict[str, Any]) -> ToolStarted:
    return ToolStarted(
        **head,
        tool_id=event.tool_use_id,
        tool_name=event.name,
        arguments=event.input,
        native_name=event.native_name,
        operation=event.operation,
        target=event.target,
        risk=event.risk,
        description=event.description,
    )


def _tool_ended(event: canonical.ToolResult, head: dict[str, Any]) -> ToolCompleted | ToolFailed:
    head = head | {
        "tool_id": event.tool_use_id,
        "tool_name": event.name,
        "exit_code": event.exit_code,
        "duration_ms": whole_ms(event.duration_ms),
    }
    if event.status == "success":
        return ToolCompleted(**head, success=True, result=event.output)
    return ToolFailed(**head, success=False, error=event.output, denied=event.status == "denied")


def _file_changed(event: canonical.FileChange, head: dict[str, Any]) -> FileChanged:
    return FileChanged(
        **head,
        file_path=event.path,
        change_type="modified" if event.change == "moved" else event.change,
        diff=event.diff or None,
        before=event.before,
        after=event.after,
        moved=event.change == "moved",
        tool_id=event.tool_use_id,
    )


def _question(event: canonical.PermissionRequest) -> Question:
    return Question(
        request_id=event.request_id,
        tool_name=event.tool_name,
        native_name=event.native_name,
        operation=event.operation,
        target=event.target,
        risk=event.risk,
        input=event.input,
        description=event.description,
        choices=event.choices,
        expires_at=None if event.expires_at is None else iso_time(event.expires_at),
    )


def _answer(event: canonical.PermissionResolved) -> Answer:
    return Answer(
        request_id=event.request_id,
        decision=event.decision,
        remember=event.remember,
        by=event.by,
        message=event.message,
    )


def _retried(event: canonical.Retry, head: dict[str, Any]) -> Error:
    return Error(
        **head,
        error_type="unknown",
        message=event.reason,
        fatal=False,
        agent_type=event.agent,
        attempt=event.attempt,
        max_attempts=event.max_attempts,
        delay_ms=whole_ms(event.delay_ms),
    )
