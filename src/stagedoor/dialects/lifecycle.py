"""``lifecycle``: sessions, turns and tools that start, progress and end. Every event validates against its schema.

Fields that the schema does not name are additions, always optional.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypeVar, assert_never, get_args

import msgspec

from stagedoor.unified import events as canonical
from stagedoor.unified.events import ErrorKind, Event, Operation, Risk, Status, Usage

from .event_parts import Drafts, checklist, iso_time, whole_ms

SILENT: dict[str, str] = {
    "thinking_delta": "the dialect has no event for thoughts",
    "thinking": "the dialect has no event for thoughts",
    "files_restored": "the dialect has no event for what people do to files",
    "usage": "tokens are reported once, by `turnCompleted`, `turnFailed` and `sessionEnded`",
    "notice": "only a notice of level `error` has an event, `error`",
}

ApprovalMode = Literal["ask", "askDangerous", "autoEdit", "autoAll"]
SandboxMode = Literal["none", "readOnly", "workspaceWrite", "fullAccess"]
LifecycleErrorType = Literal[
    "connectionFailed", "authenticationFailed", "sessionNotFound", "permissionDenied", "toolExecutionFailed",
    "timeout", "protocolError", "unknown",
]  # fmt: skip


Mode = TypeVar("Mode", bound=str)


class LifecycleSessionConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    agent_type: str | None = None
    project_id: str | None = None
    working_directory: str | None = None
    model: str | None = None
    approval_mode: ApprovalMode | None = None
    sandbox_mode: SandboxMode | None = None
    allowed_tools: list[str] | None = None
    blocked_tools: list[str] | None = None
    max_turns: int | None = None


class LifecycleTokenUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int

    @classmethod
    def of(cls, usage: Usage) -> LifecycleTokenUsage:
        return cls(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            total_tokens=usage.total_tokens,
        )


class LifecycleHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True):
    """What every event carries. Never made on its own."""

    id: str
    session_id: str
    timestamp: str
    parent_tool_use_id: str | None = None
    native: Any = None


class LifecycleSessionStarted(LifecycleHeader, frozen=True, kw_only=True, tag="sessionStarted"):
    agent_type: str
    config: LifecycleSessionConfig
    agent_version: str = ""
    native_session_id: str = ""
    resumed: bool = False
    tools: list[str] = []
    capabilities: dict[str, Any] = {}


class LifecycleSessionEnded(LifecycleHeader, frozen=True, kw_only=True, tag="sessionEnded"):
    reason: Literal["completed", "failed", "cancelled", "timeout"]
    error: str | None = None
    status: Status
    result: str = ""
    usage: LifecycleTokenUsage
    cost_usd: float | None = None
    duration_ms: int | None = None
    tool_uses: int = 0


class LifecycleTurnStarted(LifecycleHeader, frozen=True, kw_only=True, tag="turnStarted"):
    turn_number: int
    prompt: str


class LifecycleTurnCompleted(LifecycleHeader, frozen=True, kw_only=True, tag="turnCompleted"):
    turn_number: int
    usage: LifecycleTokenUsage
    duration_ms: int | None = None
    cost_usd: float | None = None
    result: str = ""
    structured: Any = None


class LifecycleTurnFailed(LifecycleHeader, frozen=True, kw_only=True, tag="turnFailed"):
    turn_number: int
    error: str
    status: Status
    usage: LifecycleTokenUsage
    duration_ms: int | None = None
    cost_usd: float | None = None


class LifecycleTextChunk(LifecycleHeader, frozen=True, kw_only=True, tag="textChunk"):
    """Chunks are appended to each other; ``is_complete`` ends a message. ``kind`` is set when it is not a message."""

    content: str
    is_complete: bool
    message_id: str = ""
    kind: Literal["message", "plan"] = "message"


class LifecycleToolStarted(LifecycleHeader, frozen=True, kw_only=True, tag="toolStarted"):
    tool_id: str
    tool_name: str
    arguments: dict[str, Any]
    native_name: str = ""
    operation: Operation
    target: str = ""
    risk: Risk
    description: str = ""


class LifecycleQuestion(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The tool waits for a decision."""

    request_id: str
    tool_name: str
    native_name: str = ""
    operation: Operation
    target: str = ""
    risk: Risk
    input: dict[str, Any] = {}
    description: str = ""
    choices: list[str] = []
    expires_at: str | None = None


class LifecycleAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The decision was taken."""

    request_id: str
    decision: Literal["allow", "deny"]
    remember: Literal["once", "session", "always"]
    by: str
    message: str = ""


class LifecycleToolProgress(LifecycleHeader, frozen=True, kw_only=True, tag="toolProgress"):
    """``permission_request`` and ``permission_resolved`` are progress of a tool that waits for a decision."""

    tool_id: str
    output: str | None = None
    progress: float | None = None
    permission_request: LifecycleQuestion | None = None
    permission_resolved: LifecycleAnswer | None = None


class LifecycleToolCompleted(LifecycleHeader, frozen=True, kw_only=True, tag="toolCompleted"):
    tool_id: str
    success: bool
    result: Any
    tool_name: str
    exit_code: int | None = None
    duration_ms: int | None = None


class LifecycleToolFailed(LifecycleHeader, frozen=True, kw_only=True, tag="toolFailed"):
    tool_id: str
    success: bool
    error: str
    denied: bool
    tool_name: str
    exit_code: int | None = None
    duration_ms: int | None = None


class LifecycleFileChanged(LifecycleHeader, frozen=True, kw_only=True, tag="fileChanged"):
    """A file that was moved is ``modified`` with ``moved`` set: the dialect has three kinds of change."""

    file_path: str
    change_type: Literal["created", "modified", "deleted"]
    diff: str | None = None
    before: str | None = None
    after: str | None = None
    moved: bool = False
    tool_id: str = ""


class LifecycleError(LifecycleHeader, frozen=True, kw_only=True, tag="error"):
    """``error_type`` is the dialect's own type; ``kind`` the canonical one, or ``code`` that of a notice."""

    error_type: LifecycleErrorType
    message: str
    fatal: bool
    agent_type: str
    kind: ErrorKind | None = None
    code: str = ""
    native_error: str | None = None
    attempt: int | None = None
    max_attempts: int | None = None
    delay_ms: int | None = None


LifecycleEvent: TypeAlias = (
    LifecycleSessionStarted
    | LifecycleSessionEnded
    | LifecycleTurnStarted
    | LifecycleTurnCompleted
    | LifecycleTurnFailed
    | LifecycleTextChunk
    | LifecycleToolStarted
    | LifecycleToolProgress
    | LifecycleToolCompleted
    | LifecycleToolFailed
    | LifecycleFileChanged
    | LifecycleError
)

_DECODER: msgspec.json.Decoder[LifecycleEvent] = msgspec.json.Decoder(LifecycleEvent)


def decode(line: bytes) -> LifecycleEvent:
    """One event of the dialect. Raises ``msgspec.ValidationError`` when it is none."""
    return _DECODER.decode(line)


_ERROR_TYPES: dict[ErrorKind, LifecycleErrorType] = {
    "connection_failed": "connectionFailed", "authentication_failed": "authenticationFailed",
    "session_not_found": "sessionNotFound", "permission_denied": "permissionDenied",
    "tool_execution_failed": "toolExecutionFailed", "timeout": "timeout", "protocol_error": "protocolError",
    "rate_limited": "unknown", "quota_exceeded": "unknown", "context_overflow": "unknown", "model_not_found": "unknown",
    "unknown": "unknown",
}  # fmt: skip
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
                return [LifecycleTurnStarted(**head, turn_number=turn, prompt=prompt)]
            case canonical.TextDelta(text=text, message_id=message_id):
                self._drafts.add((event.parent_tool_use_id, message_id), text)
                return [LifecycleTextChunk(**head, content=text, is_complete=False, message_id=message_id)]
            case canonical.Text(text=text, message_id=message_id):
                rest = self._drafts.rest((event.parent_tool_use_id, message_id), text)
                return [LifecycleTextChunk(**head, content=rest, is_complete=True, message_id=message_id)]
            case canonical.ThinkingDelta() | canonical.Thinking() | canonical.UsageReport():
                return []
            case canonical.ToolUse():
                return [_tool_started(event, head)]
            case canonical.ToolProgress(tool_use_id=tool_id, output=output):
                return [LifecycleToolProgress(**head, tool_id=tool_id, output=output)]
            case canonical.ToolResult():
                return [_tool_end(event, head)]
            case canonical.FileChange():
                return [_file_changed(event, head)]
            case canonical.Plan():
                return [LifecycleTextChunk(**head, content=checklist(event) + "\n", is_complete=True, kind="plan")]
            case canonical.PermissionRequest(request_id=request_id, tool_use_id=tool_use_id):
                tool_id = self._questions[request_id] = tool_use_id or request_id
                return [LifecycleToolProgress(**head, tool_id=tool_id, permission_request=_question(event))]
            case canonical.PermissionResolved(request_id=request_id):
                tool_id = self._questions.pop(request_id, request_id)
                return [LifecycleToolProgress(**head, tool_id=tool_id, permission_resolved=_answer(event))]
            case canonical.Retry():
                return [_retry(event, head)]
            case canonical.Notice(level=level, code=code, message=message):
                head |= {"error_type": "unknown", "code": code}
                error = LifecycleError(**head, message=message, fatal=False, agent_type=event.agent)
                return [error] if level == "error" else []
            case canonical.FilesRestored():
                return []
            case canonical.Error(kind=kind, message=message, fatal=fatal):
                self._failure = event if fatal else self._failure
                error_type = _ERROR_TYPES[kind]
                return [
                    LifecycleError(
                        **head, error_type=error_type, message=message, fatal=fatal, agent_type=event.agent, kind=kind
                    )
                ]
            case canonical.TurnCompleted():
                return [*self._close_drafts(head), self._turn_end(event, head)]
            case canonical.Done():
                return [*self._close_drafts(head), self._session_end(event, head)]
            case canonical.Unrecognized(raw=raw, why=why):
                return [
                    LifecycleError(
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

    def _close_drafts(self, head: dict[str, Any]) -> list[LifecycleEvent]:
        """The ends of messages whose deltas were passed on and whose whole text never came."""
        ends: list[LifecycleEvent] = []
        for number, ((parent, message_id), _) in enumerate(self._drafts.drain(), 1):
            identity: dict[str, Any] = {"id": f"{head['id']}_{number}", "parent_tool_use_id": parent}
            ends.append(LifecycleTextChunk(**head | identity, content="", is_complete=True, message_id=message_id))
        return ends

    def _turn_end(
        self, event: canonical.TurnCompleted, head: dict[str, Any]
    ) -> LifecycleTurnCompleted | LifecycleTurnFailed:
        usage, duration_ms = LifecycleTokenUsage.of(event.usage), whole_ms(event.duration_ms)
        if event.status != "success":
            return LifecycleTurnFailed(
                **head,
                turn_number=event.turn,
                error=self._reason(event.status, event.result),
                status=event.status,
                usage=usage,
                duration_ms=duration_ms,
                cost_usd=event.cost_usd,
            )
        return LifecycleTurnCompleted(
            **head,
            turn_number=event.turn,
            usage=usage,
            duration_ms=duration_ms,
            cost_usd=event.cost_usd,
            result=event.result,
            structured=event.structured,
        )

    def _session_end(self, event: canonical.Done, head: dict[str, Any]) -> LifecycleSessionEnded:
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
        return LifecycleSessionEnded(
            **head,
            reason=reason,
            error=None if reason == "completed" else self._reason(event.status, event.result),
            status=event.status,
            result=event.result,
            usage=LifecycleTokenUsage.of(event.usage),
            cost_usd=event.cost_usd,
            duration_ms=whole_ms(event.duration_ms),
            tool_uses=event.tool_uses,
        )

    def _reason(self, status: Status, result: str) -> str:
        if self._failure is not None and (status == "error" or self._failure.kind == "timeout"):
            return self._failure.message
        return _LIMITS.get(status) or result or "the agent failed and gave no reason"


def _header(event: Event) -> dict[str, Any]:
    return {
        "id": f"evt_{event.session_id}_{event.seq}",
        "session_id": event.session_id,
        "timestamp": iso_time(event.timestamp),
        "parent_tool_use_id": event.parent_tool_use_id,
        "native": event.native,
    }


_APPROVALS: tuple[ApprovalMode, ...] = get_args(ApprovalMode)
_SANDBOXES: tuple[SandboxMode, ...] = get_args(SandboxMode)


def _named(word: str, words: tuple[Mode, ...]) -> Mode | None:
    """One of the words the schema knows."""
    return next((known for known in words if known == word), None)


def _session_started(event: canonical.Init, head: dict[str, Any]) -> LifecycleSessionStarted:
    return LifecycleSessionStarted(
        **head,
        agent_type=event.agent,
        config=LifecycleSessionConfig(
            agent_type=event.agent or None,
            project_id=event.project_id or None,
            working_directory=event.cwd or None,
            model=event.model or None,
            approval_mode=_named(event.approval, _APPROVALS),
            sandbox_mode=_named(event.sandbox, _SANDBOXES),
            allowed_tools=event.allowed_tools,
            blocked_tools=event.disallowed_tools or None,
            max_turns=event.max_turns,
        ),
        agent_version=event.agent_version,
        native_session_id=event.native_session_id,
        resumed=event.resumed,
        tools=event.tools,
        capabilities=event.capabilities,
    )


def _tool_started(event: canonical.ToolUse, head: dict[str, Any]) -> LifecycleToolStarted:
    return LifecycleToolStarted(
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


def _tool_end(event: canonical.ToolResult, head: dict[str, Any]) -> LifecycleToolCompleted | LifecycleToolFailed:
    head = head | {
        "tool_id": event.tool_use_id,
        "tool_name": event.name,
        "exit_code": event.exit_code,
        "duration_ms": whole_ms(event.duration_ms),
    }
    if event.status == "success":
        return LifecycleToolCompleted(**head, success=True, result=event.output)
    return LifecycleToolFailed(**head, success=False, error=event.output, denied=event.status == "denied")


def _file_changed(event: canonical.FileChange, head: dict[str, Any]) -> LifecycleFileChanged:
    return LifecycleFileChanged(
        **head,
        file_path=event.path,
        change_type="modified" if event.change == "moved" else event.change,
        diff=event.diff or None,
        before=event.before,
        after=event.after,
        moved=event.change == "moved",
        tool_id=event.tool_use_id,
    )


def _question(event: canonical.PermissionRequest) -> LifecycleQuestion:
    return LifecycleQuestion(
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


def _answer(event: canonical.PermissionResolved) -> LifecycleAnswer:
    return LifecycleAnswer(
        request_id=event.request_id,
        decision=event.decision,
        remember=event.remember,
        by=event.by,
        message=event.message,
    )


def _retry(event: canonical.Retry, head: dict[str, Any]) -> LifecycleError:
    return LifecycleError(
        **head,
        error_type="unknown",
        message=event.reason,
        fatal=False,
        agent_type=event.agent,
        attempt=event.attempt,
        max_attempts=event.max_attempts,
        delay_ms=whole_ms(event.delay_ms),
    )
