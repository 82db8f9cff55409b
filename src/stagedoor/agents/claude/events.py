"""Every line Claude Code prints, in its own words: the turn, its notices, the control channel with its questions to us.

Only the fields we use; the rest stays in the raw line.
"""

from __future__ import annotations

# A session that the CLI names itself takes the place of the one we know:
# pyright: reportIncompatibleMethodOverride=false
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from ...transports.launch import Exited, Stalled
from ...wire.shapes import Shapes, UnknownMessage
from ...wire.stamps import Stamped, written_at
from .blocks import NOTHING, ApiMessage, ClaudeUsage, StreamStep

# ------------------------------------------------------------------------------------------------------------- the turn


class McpServerStatus(msgspec.Struct, frozen=True):
    name: str = ""
    status: str = ""


class SystemInit(Stamped, frozen=True, kw_only=True):
    """The start of each turn (not once per process). Older versions print it as a plain ``init``."""

    cwd: str = ""
    model: str = ""
    tools: list[str] = []
    mcp_servers: list[McpServerStatus] = []
    permission_mode: str = msgspec.field(name="permissionMode", default="")
    slash_commands: list[str] = []
    api_key_source: str = msgspec.field(name="apiKeySource", default="")
    claude_code_version: str = ""
    output_style: str = ""
    agents: list[str] = []
    skills: list[str] = []
    session_id: str = ""


class Assistant(Stamped, frozen=True, kw_only=True, gc=False):
    """One content block of the model's message. ``error`` is the class of an API failure, which comes as a message."""

    message: ApiMessage
    parent_tool_use_id: str | None = None
    error: str | None = None
    request_id: str | None = None
    subagent_type: str | None = None
    task_description: str | None = None
    session_id: str = ""
    uuid: str = ""


class User(Stamped, frozen=True, kw_only=True, gc=False):
    """A tool result, a sub-agent's prompt, a note of interruption, or a replayed prompt."""

    message: ApiMessage
    parent_tool_use_id: str | None = None
    printed_at: str | None = msgspec.field(default=None, name="timestamp")
    """As Claude Code printed it."""
    tool_use_result: msgspec.Raw = NOTHING
    is_replay: bool = msgspec.field(name="isReplay", default=False)
    is_synthetic: bool = msgspec.field(name="isSynthetic", default=False)
    subagent_type: str | None = None
    task_description: str | None = None
    session_id: str = ""
    uuid: str = ""

    @property
    def timestamp(self) -> datetime:
        return written_at(self.printed_at, self)

    def structured_result(self) -> Any:
        """What the tool gave, in the tool's own form; a string ``"Error: …"`` when it failed, ``None`` without one."""
        return msgspec.json.decode(self.tool_use_result)


class StreamEvent(Stamped, frozen=True, kw_only=True, gc=False):
    """A piece of the model's stream, as the API sent it (``include_partial_messages``)."""

    event: StreamStep
    parent_tool_use_id: str | None = None
    ttft_ms: float | None = None
    session_id: str = ""


class PermissionDenial(msgspec.Struct, frozen=True):
    tool_name: str = ""
    tool_use_id: str = ""
    tool_input: dict[str, Any] = {}


class ModelUsage(msgspec.Struct, frozen=True):
    """What one model used, over the whole process."""

    input_tokens: int = msgspec.field(name="inputTokens", default=0)
    output_tokens: int = msgspec.field(name="outputTokens", default=0)
    cache_read_input_tokens: int = msgspec.field(name="cacheReadInputTokens", default=0)
    cache_creation_input_tokens: int = msgspec.field(name="cacheCreationInputTokens", default=0)
    web_search_requests: int = msgspec.field(name="webSearchRequests", default=0)
    cost_usd: float = msgspec.field(name="costUSD", default=0.0)
    context_window: int = msgspec.field(name="contextWindow", default=0)
    max_output_tokens: int = msgspec.field(name="maxOutputTokens", default=0)


class Origin(msgspec.Struct, frozen=True):
    kind: str = ""


class ClaudeResult(Stamped, frozen=True, kw_only=True):
    """The end of one run of the model. Judge by ``is_error``: every API failure has the subtype ``success``.

    ``usage``, ``num_turns`` and ``duration_ms`` are of this turn; ``total_cost_usd`` and ``model_usage`` are cumulative
    over the process. A background task that ends wakes the model again, which gives one more result; ``TurnSettled``
    marks the real end of the turn.
    """

    subtype: str = ""
    is_error: bool = False
    result: str | None = None
    errors: list[str] = []
    terminal_reason: str | None = None
    api_error_status: int | None = None
    stop_reason: str | None = None
    num_turns: int = 0
    duration_ms: float = 0.0
    duration_api_ms: float = 0.0
    total_cost_usd: float | None = None
    usage: ClaudeUsage | None = None
    model_usage: dict[str, ModelUsage] = msgspec.field(
        name="modelUsage", default_factory=lambda: dict[str, ModelUsage]()
    )
    permission_denials: list[PermissionDenial] = []
    structured_output: Any = None
    origin: Origin | None = None
    cost_usd: float | None = None
    error: str | None = None
    session_id: str = ""
    uuid: str = ""

    @property
    def interrupted(self) -> bool:
        return self.terminal_reason in ("aborted_streaming", "aborted_tools")

    @property
    def failed(self) -> bool:
        """Also true for the older plain subtypes ``error`` and ``cancelled``, which come without ``is_error``."""
        return self.is_error or self.subtype not in ("success", "")


class TurnSettled(Stamped, frozen=True, kw_only=True):
    """Not a line of Claude Code's but our judgement: the turn is really over, its background tasks included."""

    result: ClaudeResult | None = None
    unfinished: tuple[str, ...] = ()


# ------------------------------------------------------------------ beside the conversation: retries, hooks, compaction


class SystemStatus(Stamped, frozen=True, kw_only=True, gc=False):
    """``requesting`` before an API call, ``compacting``, or a change of the permission mode."""

    status: str | None = None
    permission_mode: str | None = msgspec.field(name="permissionMode", default=None)
    compact_result: str | None = None
    compact_error: str | None = None
    session_id: str = ""


class ThinkingTokens(Stamped, frozen=True, kw_only=True):
    estimated_tokens: int = 0
    estimated_tokens_delta: int = 0
    session_id: str = ""


class ApiRetry(Stamped, frozen=True, kw_only=True):
    attempt: int = 0
    max_retries: int = 0
    retry_delay_ms: float = 0.0
    error_status: int | None = None
    error: str = ""
    session_id: str = ""


class ModelFallback(Stamped, frozen=True, kw_only=True):
    original_model: str = ""
    fallback_model: str = ""
    trigger: str = ""
    content: str = ""
    session_id: str = ""


class ModelRefusal(Stamped, frozen=True, kw_only=True):
    """``model_refusal_no_fallback`` and ``model_refusal_fallback``."""

    original_model: str = ""
    fallback_model: str | None = None
    request_id: str | None = None
    api_refusal_category: str | None = None
    api_refusal_explanation: str | None = None
    content: str = ""
    session_id: str = ""


class PermissionDenied(Stamped, frozen=True, kw_only=True):
    """Refused without a question. Denials by the host do not come this way."""

    tool_name: str = ""
    tool_use_id: str = ""
    message: str = ""
    decision_reason_type: str | None = None
    decision_reason: str | None = None
    agent_id: str | None = None
    session_id: str = ""


class CompactMetadata(msgspec.Struct, frozen=True):
    trigger: str = ""
    pre_tokens: int = 0
    post_tokens: int | None = None


class CompactBoundary(Stamped, frozen=True, kw_only=True):
    compact_metadata: CompactMetadata = CompactMetadata()
    session_id: str = ""


class HookStarted(Stamped, frozen=True, kw_only=True):
    hook_id: str = ""
    hook_name: str = ""
    hook_event: str = ""
    session_id: str = ""


class HookProgress(Stamped, frozen=True, kw_only=True):
    hook_id: str = ""
    hook_name: str = ""
    hook_event: str = ""
    output: str = ""
    stdout: str = ""
    stderr: str = ""
    session_id: str = ""


class HookResponse(Stamped, frozen=True, kw_only=True):
    hook_id: str = ""
    hook_name: str = ""
    hook_event: str = ""
    output: str = ""
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    outcome: str = ""
    session_id: str = ""


class SessionStateChanged(Stamped, frozen=True, kw_only=True):
    """``running``, ``requires_action`` or ``idle`` (we switch these events on)."""

    state: str = ""
    session_id: str = ""


class SystemNotice(Stamped, frozen=True, kw_only=True):
    """The rarer ``system`` lines. Which field holds the text differs: see :meth:`words`."""

    subtype: str
    content: str | None = None
    text: str | None = None
    detail: str | None = None
    status_detail: str | None = None
    error: Any = None
    level: str | None = None
    priority: str | None = None
    session_id: str = ""

    def words(self) -> str:
        error = self.error if isinstance(self.error, str) else None
        return self.content or self.text or self.detail or self.status_detail or error or self.subtype


class RateLimitEvent(Stamped, frozen=True, kw_only=True):
    rate_limit_info: dict[str, Any] = {}
    session_id: str = ""


class ClaudeToolProgress(Stamped, frozen=True, kw_only=True):
    tool_use_id: str = ""
    tool_name: str = ""
    parent_tool_use_id: str | None = None
    elapsed_time_seconds: float = 0.0
    task_id: str | None = None
    session_id: str = ""


class ToolUseSummary(Stamped, frozen=True, kw_only=True):
    summary: str = ""
    preceding_tool_use_ids: list[str] = []
    session_id: str = ""


class AuthStatus(Stamped, frozen=True, kw_only=True):
    is_authenticating: bool = msgspec.field(name="isAuthenticating", default=False)
    output: list[str] = []
    error: str | None = None
    session_id: str = ""


class PromptSuggestion(Stamped, frozen=True, kw_only=True):
    suggestion: str = ""
    session_id: str = ""


class KeepAlive(Stamped, frozen=True):
    pass


class ClaudeStateNotice(Stamped, frozen=True, kw_only=True):
    """What a user interface would draw anew, and what other lines tell too: tasks, goals, the progress of a request."""

    type: str = ""
    subtype: str = ""
    session_id: str = ""


# ---------------------------------------------------------------------------------------- background tasks


class TaskUsage(msgspec.Struct, frozen=True):
    total_tokens: int = 0
    tool_uses: int = 0
    duration_ms: float = 0.0


class TaskStarted(Stamped, frozen=True, kw_only=True):
    """A sub-agent, a background command, or any foreground command that runs longer than some seconds."""

    task_id: str
    tool_use_id: str | None = None
    description: str = ""
    task_type: str = ""
    subagent_type: str | None = None
    prompt: str | None = None
    session_id: str = ""


class TaskProgress(Stamped, frozen=True, kw_only=True):
    task_id: str
    tool_use_id: str | None = None
    description: str = ""
    subagent_type: str | None = None
    last_tool_name: str | None = None
    usage: TaskUsage | None = None
    session_id: str = ""


class TaskPatch(msgspec.Struct, frozen=True):
    status: str | None = None
    description: str | None = None
    error: str | None = None
    end_time: float | None = None
    is_backgrounded: bool | None = None


class TaskUpdated(Stamped, frozen=True, kw_only=True):
    task_id: str
    patch: TaskPatch = TaskPatch()
    session_id: str = ""


class TaskNotification(Stamped, frozen=True, kw_only=True):
    """A task is over; the model gets to know it."""

    task_id: str
    tool_use_id: str | None = None
    status: str = ""
    summary: str = ""
    output_file: str = ""
    usage: TaskUsage | None = None
    session_id: str = ""


Notice: TypeAlias = (
    SystemStatus
    | ThinkingTokens
    | ApiRetry
    | ModelFallback
    | ModelRefusal
    | PermissionDenied
    | CompactBoundary
    | HookStarted
    | HookProgress
    | HookResponse
    | SessionStateChanged
    | SystemNotice
    | RateLimitEvent
    | ClaudeToolProgress
    | ToolUseSummary
    | AuthStatus
    | PromptSuggestion
    | KeepAlive
    | ClaudeStateNotice
    | TaskStarted
    | TaskProgress
    | TaskUpdated
    | TaskNotification
)

OTHER_SUBTYPES = (
    "agents_killed", "api_error", "away_summary", "commands_changed", "elicitation_complete", "file_snapshot",
    "files_persisted", "informational", "local_command_output", "memory_recall", "memory_saved", "mirror_error",
    "model_consent_fallback", "notification", "plugin_install", "post_turn_summary", "scheduled_task_fire",
    "session_writes_lost", "stop_hook_summary", "task_summary", "thinking", "worker_shutting_down",
)  # fmt: skip
"""The subtypes of ``system`` that the program knows and no recording of ours shows."""

NOTICES: dict[str, type[Notice]] = {
    "system/status": SystemStatus,
    "system/thinking_tokens": ThinkingTokens,
    "system/api_retry": ApiRetry,
    "system/model_fallback": ModelFallback,
    "system/model_refusal_no_fallback": ModelRefusal,
    "system/model_refusal_fallback": ModelRefusal,
    "system/permission_denied": PermissionDenied,
    "system/compact_boundary": CompactBoundary,
    "system/hook_started": HookStarted,
    "system/hook_progress": HookProgress,
    "system/hook_response": HookResponse,
    "system/session_state_changed": SessionStateChanged,
    "system/task_started": TaskStarted,
    "system/task_progress": TaskProgress,
    "system/task_updated": TaskUpdated,
    "system/task_notification": TaskNotification,
    "rate_limit_event": RateLimitEvent,
    "tool_progress": ClaudeToolProgress,
    "tool_use_summary": ToolUseSummary,
    "auth_status": AuthStatus,
    "prompt_suggestion": PromptSuggestion,
    "keep_alive": KeepAlive,
    "system/background_tasks_changed": ClaudeStateNotice,
    "system/control_request_progress": ClaudeStateNotice,
    "conversation_reset": ClaudeStateNotice,
    "active_goal": ClaudeStateNotice,
    **dict.fromkeys((f"system/{subtype}" for subtype in OTHER_SUBTYPES), SystemNotice),
}


# -------------------------------------------------------------------------------------------------- the control channel


class ControlRequest(msgspec.Struct, frozen=True):
    """The envelope of a question to us; the protocol hands out the question itself."""

    request: msgspec.Raw
    request_id: str = ""


class ControlReply(msgspec.Struct, frozen=True):
    subtype: str = ""
    request_id: str = ""
    response: msgspec.Raw = NOTHING
    error: str = ""


class ControlResponse(Stamped, frozen=True):
    """The answer to a request of ours."""

    response: ControlReply

    @property
    def request_id(self) -> str:
        return self.response.request_id

    @property
    def ok(self) -> bool:
        return self.response.subtype == "success"

    def value(self) -> Any:
        return msgspec.json.decode(self.response.response)


class ControlCancelRequest(Stamped, frozen=True):
    """A question to us is void: it needs no answer any more."""

    request_id: str


# ------------------------------------------------------------------------------------------------ questions to the host
# Each waits for exactly one answer under its id.


class PermissionRuleValue(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One permission rule, such as ``Bash(git status:*)``."""

    tool_name: str
    rule_content: str | None = None


class PermissionUpdate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of the permissions: suggested with a question, and sent back to answer "always".

    ``destination``: ``session`` lasts as long as the process, ``localSettings``, ``projectSettings`` and
    ``userSettings`` are written to the settings files.
    """

    type: str
    destination: str
    behavior: str | None = None
    rules: tuple[PermissionRuleValue, ...] | None = None
    mode: str | None = None
    directories: tuple[str, ...] | None = None


class CanUseTool(Stamped, frozen=True):
    """May this call run? ``AskUserQuestion`` and ``ExitPlanMode`` come this way too."""

    tool_name: str
    input: dict[str, Any]
    request_id: str = ""
    tool_use_id: str = ""
    display_name: str = ""
    title: str = ""
    description: str = ""
    permission_suggestions: tuple[msgspec.Raw, ...] = ()
    blocked_path: str | None = None
    decision_reason: str | None = None
    decision_reason_type: str | None = None
    agent_id: str | None = None

    def suggestions(self) -> list[PermissionUpdate]:
        """The changes Claude Code offers for "always allow"; what we cannot read is left out."""
        updates: list[PermissionUpdate] = []
        for raw in self.permission_suggestions:
            try:
                updates.append(msgspec.json.decode(raw, type=PermissionUpdate))
            except msgspec.DecodeError:
                continue
        return updates


class HookCallback(Stamped, frozen=True):
    """A hook that ``initialize`` registered fires. ``input["hook_event_name"]`` says which."""

    callback_id: str
    input: dict[str, Any] = {}
    tool_use_id: str | None = None
    request_id: str = ""


class McpMessage(Stamped, frozen=True):
    """A JSON-RPC message for an MCP server that lives in the host process."""

    server_name: str
    message: msgspec.Raw = NOTHING
    request_id: str = ""


class Elicitation(Stamped, frozen=True):
    """An MCP server asks the user to fill in a form or to visit an address."""

    mcp_server_name: str
    message: str = ""
    mode: str | None = None
    url: str | None = None
    elicitation_id: str | None = None
    requested_schema: dict[str, Any] | None = None
    request_id: str = ""


class RequestUserDialog(Stamped, frozen=True):
    """Claude Code wants the host to show a dialog."""

    dialog_kind: str
    payload: dict[str, Any] = {}
    tool_use_id: str | None = None
    request_id: str = ""


Question: TypeAlias = CanUseTool | HookCallback | McpMessage | Elicitation | RequestUserDialog

QUESTIONS: Shapes[Question] = Shapes(
    {
        "can_use_tool": CanUseTool,
        "hook_callback": HookCallback,
        "mcp_message": McpMessage,
        "elicitation": Elicitation,
        "request_user_dialog": RequestUserDialog,
    },
    fields=("subtype",),
    exact=True,
)

OutputLine: TypeAlias = (
    SystemInit | Assistant | User | StreamEvent | ClaudeResult | ControlResponse | ControlCancelRequest | Notice
)
Event: TypeAlias = OutputLine | Question | TurnSettled | UnknownMessage | Exited | Stalled

SHAPES: Shapes[OutputLine | ControlRequest] = Shapes(
    {
        "system/init": SystemInit,
        "init": SystemInit,
        "assistant": Assistant,
        "user": User,
        "stream_event": StreamEvent,
        "result": ClaudeResult,
        "control_request": ControlRequest,
        "control_response": ControlResponse,
        "control_cancel_request": ControlCancelRequest,
        **NOTICES,
    },
    fields=("type", "subtype"),
)
