"""The words of the ``lifecycle`` dialect. Fields its schema does not name are additions, always optional."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from stagedoor.unified.events import ErrorKind, Operation, Risk, Status, Usage

ApprovalMode = Literal["ask", "askDangerous", "autoEdit", "autoAll"]
SandboxMode = Literal["none", "readOnly", "workspaceWrite", "fullAccess"]
ErrorType = Literal[
    "connectionFailed", "authenticationFailed", "sessionNotFound", "permissionDenied", "toolExecutionFailed",
    "timeout", "protocolError", "unknown",
]  # fmt: skip


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    agent_type: str | None = None
    project_id: str | None = None
    working_directory: str | None = None
    model: str | None = None
    approval_mode: ApprovalMode | None = None
    sandbox_mode: SandboxMode | None = None
    allowed_tools: list[str] | None = None
    blocked_tools: list[str] | None = None
    max_turns: int | None = None


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int

    @classmethod
    def of(cls, usage: Usage) -> TokenUsage:
        return cls(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            total_tokens=usage.total_tokens,
        )


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True):
    """What every event carries. Never made on its own."""

    id: str
    session_id: str
    timestamp: str
    parent_tool_use_id: str | None = None
    native: Any = None


class SessionStarted(Header, frozen=True, kw_only=True, tag="sessionStarted"):
    agent_type: str
    config: SessionConfig
    agent_version: str = ""
    native_session_id: str = ""
    resumed: bool = False
    tools: list[str] = []
    capabilities: dict[str, Any] = {}


class SessionEnded(Header, frozen=True, kw_only=True, tag="sessionEnded"):
    reason: Literal["completed", "failed", "cancelled", "timeout"]
    error: str | None = None
    status: Status
    result: str = ""
    usage: TokenUsage
    cost_usd: float | None = None
    duration_ms: int | None = None
    tool_uses: int = 0


class TurnStarted(Header, frozen=True, kw_only=True, tag="turnStarted"):
    turn_number: int
    prompt: str


class TurnCompleted(Header, frozen=True, kw_only=True, tag="turnCompleted"):
    turn_number: int
    usage: TokenUsage
    duration_ms: int | None = None
    cost_usd: float | None = None
    result: str = ""
    structured: Any = None


class TurnFailed(Header, frozen=True, kw_only=True, tag="turnFailed"):
    turn_number: int
    error: str
    status: Status
    usage: TokenUsage
    duration_ms: int | None = None
    cost_usd: float | None = None


class TextChunk(Header, frozen=True, kw_only=True, tag="textChunk"):
    """Chunks are appended to each other; ``is_complete`` ends a message. ``kind`` is told when it is not speech."""

    content: str
    is_complete: bool
    message_id: str = ""
    kind: Literal["message", "plan"] = "message"


class ToolStarted(Header, frozen=True, kw_only=True, tag="toolStarted"):
    tool_id: str
    tool_name: str
    arguments: dict[str, Any]
    native_name: str = ""
    operation: Operation
    target: str = ""
    risk: Risk
    description: str = ""


class Question(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
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


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The decision was taken."""

    request_id: str
    decision: Literal["allow", "deny"]
    remember: Literal["once", "session", "always"]
    by: str
    message: str = ""


class ToolProgress(Header, frozen=True, kw_only=True, tag="toolProgress"):
    """``permission_request`` and ``permission_resolved`` are progress of a tool that waits for a decision."""

    tool_id: str
    output: str | None = None
    progress: float | None = None
    permission_request: Question | None = None
    permission_resolved: Answer | None = None


class ToolCompleted(Header, frozen=True, kw_only=True, tag="toolCompleted"):
    tool_id: str
    success: bool
    result: Any
    tool_name: str
    exit_code: int | None = None
    duration_ms: int | None = None


class ToolFailed(Header, frozen=True, kw_only=True, tag="toolFailed"):
    tool_id: str
    success: bool
    error: str
    denied: bool
    tool_name: str
    exit_code: int | None = None
    duration_ms: int | None = None


class FileChanged(Header, frozen=True, kw_only=True, tag="fileChanged"):
    """A file that was moved is ``modified`` with ``moved`` set: the dialect has three kinds of change."""

    file_path: str
    change_type: Literal["created", "modified", "deleted"]
    diff: str | None = None
    before: str | None = None
    after: str | None = None
    moved: bool = False
    tool_id: str = ""


class Error(Header, frozen=True, kw_only=True, tag="error"):
    """``error_type`` is the dialect's own word; ``kind`` the canonical one, or ``code`` that of a notice."""

    error_type: ErrorType
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
    SessionStarted | SessionEnded | TurnStarted | TurnCompleted | TurnFailed | TextChunk | ToolStarted | ToolProgress
    | ToolCompleted | ToolFailed | FileChanged | Error
)  # fmt: skip

_DECODER: msgspec.json.Decoder[LifecycleEvent] = msgspec.json.Decoder(LifecycleEvent)


def decode(line: bytes) -> LifecycleEvent:
    """One event of the dialect. Raises ``msgspec.ValidationError`` when it is none."""
    return _DECODER.decode(line)
