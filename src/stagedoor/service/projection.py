"""What a session's row says after an event: pure, so that the row can always be made again from the records.

``state`` follows from how the session ended: an interrupted one was ``cancelled`` when a person ended it, and
``failed`` when something else did, which the stream then says in a fatal error before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from stagedoor.unified.events import (
    Done,
    Error,
    Event,
    FileChange,
    Init,
    Notice,
    PermissionRequest,
    PermissionResolved,
    Status,
    Text,
    TextDelta,
    ThinkingDelta,
    ToolProgress,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    UsageReport,
    stamp,
)
from stagedoor.unified.grammar import Grammar

from .views import SessionView, State

_STATES: dict[Status, State] = {
    "success": "done",
    "error": "failed",
    "interrupted": "cancelled",
    "max_turns": "failed",
    "max_budget": "failed",
}
PLAIN: frozenset[type[Event]] = frozenset((TextDelta, ThinkingDelta, ToolProgress))
"""Pieces of something: they change nothing but the number."""


def woken(native_id: str) -> Notice:
    """A session's CLI runs again. Stands where the agent's next ``init`` would."""
    return Notice(level="info", code="woken", message="the agent runs again", native_session_id=native_id)


def asleep(why: str) -> Notice:
    """A session's CLI was put away; the session goes on when somebody speaks to it."""
    return Notice(level="info", code="asleep", message=why)


def projected(view: SessionView, events: Iterable[Event]) -> SessionView:
    """``view`` after all of ``events``; most of them are pieces of text, which change nothing but the number."""
    last: Event | None = None
    for event in events:
        last = event
        if type(event) not in PLAIN:
            view = project(view, event)
    return view if last is None else replace(view, last_seq=last.seq, updated_at=last.timestamp)


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
            messages = view.messages + 1
            return replace(
                view, turn=event.turn, turn_seq=event.seq, activity="working", status=None, error="", messages=messages
            )
        case Text(parent_tool_use_id=None):
            return replace(view, messages=view.messages + 1)
        case ToolUse():
            return replace(view, tool_uses=view.tool_uses + 1)
        case FileChange():
            lines = event.diff.split("\n")
            added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
            removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
            return replace(view, lines_added=view.lines_added + added, lines_removed=view.lines_removed + removed)
        case PermissionRequest(automatic=automatic):
            activity = view.activity if automatic else "waiting"
            return replace(view, open_questions=view.open_questions + 1, activity=activity)
        case PermissionResolved():
            left = max(view.open_questions - 1, 0)
            working = "working" if view.activity == "waiting" and not left else view.activity
            return replace(view, open_questions=left, activity=working)
        case UsageReport():
            return replace(view, usage=event.session, cost_usd=event.session.cost_usd)
        case Error(fatal=True):
            return replace(view, error=event.message)
        case Notice(code="asleep"):
            return replace(view, activity="asleep")
        case Notice(code="woken"):
            return replace(view, native_id=event.native_session_id or view.native_id)
        case Notice(code="session_changed"):
            return replace(view, native_id=event.native_session_id)
        case TurnCompleted():
            failed = event.status not in ("success", "interrupted") and not view.error
            return replace(
                view,
                activity="idle",
                status=event.status,
                result=event.result or view.result,
                error=event.result if failed else view.error,
            )
        case Done():
            cut = event.status == "interrupted" and bool(view.error)
            return replace(
                view,
                activity="ended",
                state="failed" if cut else _STATES[event.status],
                status=event.status,
                result=event.result or view.result,
                usage=event.usage,
                cost_usd=event.cost_usd,
                tool_uses=max(view.tool_uses, event.tool_uses),
                open_questions=0,
                queued=0,
                queue_paused=False,
            )
        case _:
            return view


IRRELEVANT = (
    "text_delta", "thinking_delta", "tool_progress", "notice", "retry", "file_change", "plan", "unrecognized",
    "files_restored",
)  # fmt: skip
"""The types of records that do not matter for what is left open."""
MID_TURN = ("starting", "working", "waiting")


def closing(
    view: SessionView,
    last_turn: Iterable[Event],
    now: int,
    *,
    why: str,
    status: Status = "interrupted",
    keep: Collection[str] = (),
    end: bool = True,
    intended: bool = False,
) -> list[Event]:
    """What is to be appended: open calls and questions closed, the turn ended, and with ``end`` the session ``done``.

    A session that was in the middle of something fails because of ``why``, unless that was ``intended``; one between
    turns ends as its last turn did. ``keep`` are the questions that stay open though their turn ends.
    """
    grammar = Grammar(Init(cwd=view.cwd))
    if view.last_seq:
        grammar.accept(Init())
    for event in last_turn:
        grammar.accept(event, event.timestamp)
    grammar.turn = view.turn
    error = (
        Error(kind="unknown", message=why, fatal=True) if end and view.activity in MID_TURN and not intended else None
    )
    out: list[Event] = []
    for event in grammar.end(status, error, now=now):
        match event:
            case PermissionResolved() if event.request_id in keep:
                continue
            case PermissionResolved():
                event = replace(event, message=why)
            case TurnCompleted():
                event = replace(event, result=event.result or why)
            case Done() if not end:
                continue
            case Done():
                event = replace(
                    event,
                    usage=view.usage,
                    cost_usd=view.usage.cost_usd,
                    result=event.result or view.result,
                    tool_uses=view.tool_uses,
                    duration_ms=float(now - view.created_at),
                )
            case ToolUse():
                continue
            case _:
                pass
        out.append(event)
    for event in out:
        stamp(event, view.agent, view.id, 0, now, view.turn)
    return out
