"""What Claude Code says beside the conversation: retries, hooks, compaction, background tasks. Its own words."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec


class SystemStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``requesting`` before an API call, ``compacting``, or a change of the permission mode."""

    status: str | None = None
    permission_mode: str | None = msgspec.field(name="permissionMode", default=None)
    compact_result: str | None = None
    compact_error: str | None = None
    session_id: str = ""


class ThinkingTokens(msgspec.Struct, frozen=True, kw_only=True):
    estimated_tokens: int = 0
    estimated_tokens_delta: int = 0
    session_id: str = ""


class ApiRetry(msgspec.Struct, frozen=True, kw_only=True):
    attempt: int = 0
    max_retries: int = 0
    retry_delay_ms: float = 0.0
    error_status: int | None = None
    error: str = ""
    session_id: str = ""


class ModelFallback(msgspec.Struct, frozen=True, kw_only=True):
    original_model: str = ""
    fallback_model: str = ""
    trigger: str = ""
    content: str = ""
    session_id: str = ""


class ModelRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """``model_refusal_no_fallback`` and ``model_refusal_fallback``."""

    original_model: str = ""
    fallback_model: str | None = None
    request_id: str | None = None
    api_refusal_category: str | None = None
    api_refusal_explanation: str | None = None
    content: str = ""
    session_id: str = ""


class PermissionDenied(msgspec.Struct, frozen=True, kw_only=True):
    """Refused without asking. Denials by the host are not told this way."""

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


class CompactBoundary(msgspec.Struct, frozen=True, kw_only=True):
    compact_metadata: CompactMetadata = CompactMetadata()
    session_id: str = ""


class HookStarted(msgspec.Struct, frozen=True, kw_only=True):
    hook_id: str = ""
    hook_name: str = ""
    hook_event: str = ""
    session_id: str = ""


class HookProgress(msgspec.Struct, frozen=True, kw_only=True):
    hook_id: str = ""
    hook_name: str = ""
    hook_event: str = ""
    output: str = ""
    stdout: str = ""
    stderr: str = ""
    session_id: str = ""


class HookResponse(msgspec.Struct, frozen=True, kw_only=True):
    hook_id: str = ""
    hook_name: str = ""
    hook_event: str = ""
    output: str = ""
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    outcome: str = ""
    session_id: str = ""


class SessionStateChanged(msgspec.Struct, frozen=True, kw_only=True):
    """``running``, ``requires_action`` or ``idle`` (we switch these events on)."""

    state: str = ""
    session_id: str = ""


class SystemNotice(msgspec.Struct, frozen=True, kw_only=True):
    """The rarer ``system`` lines. Whichever words the line has for people are in ``text`` (see :meth:`words`)."""

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


class RateLimitEvent(msgspec.Struct, frozen=True, kw_only=True):
    rate_limit_info: dict[str, Any] = {}
    session_id: str = ""


class ToolProgress(msgspec.Struct, frozen=True, kw_only=True):
    tool_use_id: str = ""
    tool_name: str = ""
    parent_tool_use_id: str | None = None
    elapsed_time_seconds: float = 0.0
    task_id: str | None = None
    session_id: str = ""


class ToolUseSummary(msgspec.Struct, frozen=True, kw_only=True):
    summary: str = ""
    preceding_tool_use_ids: list[str] = []
    session_id: str = ""


class AuthStatus(msgspec.Struct, frozen=True, kw_only=True):
    is_authenticating: bool = msgspec.field(name="isAuthenticating", default=False)
    output: list[str] = []
    error: str | None = None
    session_id: str = ""


class PromptSuggestion(msgspec.Struct, frozen=True, kw_only=True):
    suggestion: str = ""
    session_id: str = ""


class KeepAlive(msgspec.Struct, frozen=True):
    pass


# ---------------------------------------------------------------------------------------- background tasks


class TaskUsage(msgspec.Struct, frozen=True):
    total_tokens: int = 0
    tool_uses: int = 0
    duration_ms: float = 0.0


class TaskStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A sub-agent, a background command, or any foreground command that runs longer than some seconds."""

    task_id: str
    tool_use_id: str | None = None
    description: str = ""
    task_type: str = ""
    subagent_type: str | None = None
    prompt: str | None = None
    session_id: str = ""


class TaskProgress(msgspec.Struct, frozen=True, kw_only=True):
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


class TaskUpdated(msgspec.Struct, frozen=True, kw_only=True):
    task_id: str
    patch: TaskPatch = TaskPatch()
    session_id: str = ""


class TaskNotification(msgspec.Struct, frozen=True, kw_only=True):
    """A task is over; the model is told of it."""

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
    | ToolProgress
    | ToolUseSummary
    | AuthStatus
    | PromptSuggestion
    | KeepAlive
    | TaskStarted
    | TaskProgress
    | TaskUpdated
    | TaskNotification
)

OTHER_SUBTYPES = (
    "agents_killed",
    "api_error",
    "away_summary",
    "commands_changed",
    "elicitation_complete",
    "file_snapshot",
    "files_persisted",
    "informational",
    "local_command_output",
    "memory_recall",
    "memory_saved",
    "mirror_error",
    "model_consent_fallback",
    "notification",
    "plugin_install",
    "post_turn_summary",
    "scheduled_task_fire",
    "stop_hook_summary",
    "task_summary",
    "thinking",
    "worker_shutting_down",
)
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
    "tool_progress": ToolProgress,
    "tool_use_summary": ToolUseSummary,
    "auth_status": AuthStatus,
    "prompt_suggestion": PromptSuggestion,
    "keep_alive": KeepAlive,
    **dict.fromkeys((f"system/{subtype}" for subtype in OTHER_SUBTYPES), SystemNotice),
}
