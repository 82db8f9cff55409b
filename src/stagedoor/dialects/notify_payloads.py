"""What the notifications of the ``notify`` dialect carry.

``agent_*`` payloads come for every agent. ``claude_*`` ones are what clients understood before there was more than one
agent; they keep their old shapes.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from stagedoor.unified.events import PlanItem, Risk, Status, ToolStatus, Usage

State = Literal["idle", "running", "waiting", "error", "stopped"]
Doing = Literal["file_read", "file_write", "shell_execute", "web_fetch", "other"]


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
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


class TextBlock(msgspec.Struct, frozen=True, tag="text"):
    text: str


class PlanBlock(msgspec.Struct, frozen=True, tag="plan"):
    items: list[PlanItem]


class FileChangeBlock(msgspec.Struct, frozen=True, kw_only=True, tag="file_change", omit_defaults=True):
    path: str
    change: Literal["created", "modified", "deleted", "moved"]
    diff: str = ""
    before: str | None = None
    after: str | None = None
    tool_id: str = ""


ContentBlock: TypeAlias = TextBlock | PlanBlock | FileChangeBlock


class AgentInit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    agent_type: str
    session_id: str
    model: str
    version: str
    cwd: str
    tools: list[str]
    capabilities: dict[str, Any] = {}
    native_session_id: str = ""
    resumed: bool = False


class AgentMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    agent_type: str
    session_id: str
    role: Literal["assistant", "user"]
    content: list[ContentBlock]
    stop_reason: str = ""
    message_id: str = ""


class AgentThinking(msgspec.Struct, frozen=True, kw_only=True):
    agent_type: str
    session_id: str
    text: str


class AgentToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``requires_permission``: somebody is being asked already. A later question is an ``agent_permission``."""

    agent_type: str
    tool_id: str
    tool_name: str
    tool_name_native: str
    arguments: dict[str, Any]
    requires_permission: bool
    risk_level: Risk
    description: str = ""
    operation: Doing
    target: str = ""


class AgentToolResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    agent_type: str
    tool_id: str
    tool_name: str
    status: ToolStatus
    content: str
    exit_code: int | None = None
    duration_ms: float | None = None


class AgentPermission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``auto_approve_hint``: the risk is low. ``request_id`` is what an answer names."""

    agent_type: str
    tool_id: str
    tool_name: str
    tool_name_native: str = ""
    operation: Doing
    target: str
    risk_level: Risk
    description: str
    auto_approve_hint: bool
    request_id: str
    arguments: dict[str, Any]
    choices: list[str] = []
    expires_at: str | None = None


class AgentComplete(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    agent_type: str
    turn: int
    status: Status
    usage: TokenUsage
    result: str = ""
    structured: Any = None
    cost_usd: float | None = None
    duration_ms: float | None = None


class AgentError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``raw`` is what an agent said that could not be understood."""

    agent_type: str
    code: str
    message: str
    fatal: bool
    raw: str | None = None


class Answered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    request_id: str
    tool_id: str
    decision: Literal["allow", "deny"]
    remember: Literal["once", "session", "always"]
    by: str
    message: str = ""


class Spent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    turn: TokenUsage
    session: TokenUsage
    turn_cost_usd: float | None = None
    session_cost_usd: float | None = None


class Retrying(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    attempt: int
    max_attempts: int | None = None
    delay_ms: float | None = None
    reason: str = ""


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    level: Literal["info", "warning", "error"]
    code: str
    message: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    status: Status
    usage: TokenUsage
    tool_uses: int
    result: str = ""
    cost_usd: float | None = None
    duration_ms: float | None = None


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Comes when the state changes, and with news that has no notification of its own."""

    agent_type: str
    session_id: str
    state: State
    prompt: str = ""
    error: str = ""
    permission: Answered | None = None
    usage: Spent | None = None
    retry: Retrying | None = None
    notice: Remark | None = None
    outcome: Outcome | None = None


class ParsedBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: Literal["text", "thinking", "tool_use", "tool_result"]
    text: str = ""
    tool_name: str = ""
    tool_id: str = ""
    tool_input: str = ""


class ParsedMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: Literal["assistant", "user", "result", "system"]
    session_id: str = ""
    content: list[ParsedBlock] = []
    stop_reason: str = ""
    cost_usd: float | None = None
    duration_ms: int | None = None
    output_tokens: int = 0
    is_thinking: bool = False


class ClaudeLog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    line: str
    stream: Literal["stdout", "stderr"]
    parsed: ParsedMessage | None = None


class ClaudeStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    state: State
    prompt: str = ""
    error: str = ""


class ClaudeWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """``input`` is JSON in a string, as it always was."""

    tool_use_id: str
    tool_name: str
    input: str


Payload: TypeAlias = (
    AgentInit | AgentMessage | AgentThinking | AgentToolCall | AgentToolResult | AgentPermission | AgentComplete
    | AgentError | AgentStatus | ClaudeLog | ClaudeStatus | ClaudeWaiting
)  # fmt: skip

METHODS: dict[type[Payload], str] = {
    AgentInit: "agent_init",
    AgentMessage: "agent_message",
    AgentThinking: "agent_thinking",
    AgentToolCall: "agent_tool_call",
    AgentToolResult: "agent_tool_result",
    AgentPermission: "agent_permission",
    AgentComplete: "agent_complete",
    AgentError: "agent_error",
    AgentStatus: "agent_status",
    ClaudeLog: "claude_log",
    ClaudeStatus: "claude_status",
    ClaudeWaiting: "claude_waiting",
}


class Params(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    event: str
    timestamp: str
    agent_type: str
    session_id: str
    seq: int
    parent_tool_use_id: str | None = None
    native: Any = None
    payload: msgspec.Struct


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    jsonrpc: Literal["2.0"] = "2.0"
    method: str
    params: Params
