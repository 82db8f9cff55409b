"""What a session's row says after an event: pure, so that the row can always be made again from the records."""

from __future__ import annotations

from msgspec.structs import replace

from podium.unified.events import (
    Done,
    Error,
    Event,
    Init,
    PermissionRequest,
    PermissionResolved,
    Status,
    Text,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    UsageReport,
)

from .views import SessionView, State

_STATES: dict[Status, State] = {
    "success": "done",
    "error": "failed",
    "interrupted": "cancelled",
    "max_turns": "failed",
    "max_budget": "failed",
}


def project(view: SessionView, event: Event) -> SessionView:
    """``view`` after ``event``; its number and time are those of the event."""
    view = replace(view, last_seq=event.seq, updated_at=event.timestamp)
    match event:
        case Init():
            return replace(
                view,
                model=event.model or view.model,
                native_id=event.native_session_id or view.native_id,
                agent_version=event.agent_version or view.agent_version,
            )
        case TurnStarted():
            told = view.messages + 1
            return replace(view, turn=event.turn, turn_seq=event.seq, activity="working", error="", messages=told)
        case Text(parent_tool_use_id=None):
            return replace(view, messages=view.messages + 1)
        case ToolUse():
            return replace(view, tool_uses=view.tool_uses + 1)
        case PermissionRequest():
            return replace(view, open_questions=view.open_questions + 1, activity="waiting")
        case PermissionResolved():
            left = max(view.open_questions - 1, 0)
            working = "waiting" if left else ("working" if view.activity == "waiting" else view.activity)
            return replace(view, open_questions=left, activity=working)
        case UsageReport():
            return replace(view, usage=event.session, cost_usd=event.session.cost_usd)
        case Error(fatal=True):
            return replace(view, error=event.message)
        case TurnCompleted():
            return replace(view, activity="idle", result=event.result or view.result)
        case Done():
            return replace(
                view,
                activity="ended",
                state=_STATES[event.status],
                status=event.status,
                result=event.result or view.result,
                usage=event.usage,
                cost_usd=event.cost_usd,
                open_questions=0,
                queued=0,
            )
        case _:
            return view
