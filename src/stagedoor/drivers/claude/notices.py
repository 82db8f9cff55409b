"""What Claude Code says beside the conversation."""

from __future__ import annotations

from typing import Literal, assert_never

from ...agents.claude import notices as native
from ...unified.events import Event, Notice, Retry

_LEVELS: dict[str, Literal["info", "warning", "error"]] = {"warning": "warning", "error": "error"}


def told(notice: native.Notice) -> list[Event]:
    match notice:
        case native.ApiRetry():
            status = "" if notice.error_status is None else f" (HTTP {notice.error_status})"
            return [
                Retry(
                    attempt=notice.attempt,
                    max_attempts=notice.max_retries or None,
                    delay_ms=notice.retry_delay_ms,
                    reason=f"{notice.error or 'the model did not answer'}{status}",
                )
            ]
        case native.ModelFallback():
            words = notice.content or f"{notice.original_model} is not available; {notice.fallback_model} goes on"
            return [Notice(level="warning", code="model_fallback", message=words)]
        case native.ModelRefusal():
            words = notice.content or notice.api_refusal_explanation or f"{notice.original_model} refused to answer"
            return [Notice(level="warning", code="model_refusal", message=words)]
        case native.PermissionDenied():
            return [Notice(level="info", code="permission_denied", message=f"{notice.tool_name}: {notice.message}")]
        case native.CompactBoundary():
            figures = notice.compact_metadata
            after = "" if figures.post_tokens is None else f" → {figures.post_tokens}"
            words = f"the conversation was summarized ({figures.trigger}): {figures.pre_tokens}{after} tokens"
            return [Notice(level="info", code="compacted", message=words)]
        case native.SystemStatus():
            return _status(notice)
        case native.HookResponse():
            if not notice.exit_code and notice.outcome in ("", "success"):
                return []
            words = notice.stderr.strip() or notice.output.strip() or notice.outcome
            return [Notice(level="warning", code="hook_failed", message=f"{notice.hook_name}: {words}")]
        case native.RateLimitEvent():
            status = str(notice.rate_limit_info.get("status", ""))
            if status in ("", "allowed"):
                return []
            return [Notice(level="warning", code="rate_limit", message=f"the rate limit is near or reached: {status}")]
        case native.AuthStatus():
            return [] if notice.error is None else [Notice(level="error", code="sign_in", message=notice.error)]
        case native.PromptSuggestion():
            return [Notice(level="info", code="prompt_suggestion", message=notice.suggestion)]
        case native.SystemNotice():
            return [Notice(level=_LEVELS.get(notice.level or "", "info"), code=notice.subtype, message=notice.words())]
        case (
            native.ThinkingTokens()
            | native.HookStarted()
            | native.HookProgress()
            | native.SessionStateChanged()
            | native.ToolProgress()  # only how long it has been running
            | native.ToolUseSummary()
            | native.KeepAlive()
            | native.TaskStarted()
            | native.TaskProgress()  # the sub-agent's own calls are told themselves
            | native.TaskUpdated()
            | native.TaskNotification()
        ):
            return []
        case _:
            assert_never(notice)


def _status(notice: native.SystemStatus) -> list[Event]:
    if notice.permission_mode is not None:
        return [Notice(level="info", code="mode", message=notice.permission_mode)]
    if notice.status == "compacting":
        return [Notice(level="info", code="compacting", message="the conversation is being summarized")]
    if notice.compact_error:
        return [Notice(level="warning", code="compaction_failed", message=notice.compact_error)]
    return []
