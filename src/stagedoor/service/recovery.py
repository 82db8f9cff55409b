"""How a session is closed truthfully when nobody is left to do it: from its row and the records of its last turn."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from stagedoor.unified.events import (
    Done,
    Error,
    Event,
    Init,
    PermissionResolved,
    Status,
    ToolUse,
    TurnCompleted,
    stamp,
)
from stagedoor.unified.grammar import Grammar

from .views import SessionView

UNTOLD = ("text_delta", "thinking_delta", "tool_progress", "notice", "retry", "file_change", "plan", "unrecognized")
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
) -> list[Event]:
    """What is to be appended: open calls and questions closed, the turn ended, and with ``end`` the session ``done``.

    A session that was in the middle of something fails because of ``why``; one between turns ends as its last turn
    did. ``keep`` are the questions that stay open though their turn ends.
    """
    grammar = Grammar(Init(cwd=view.cwd))
    if view.last_seq:
        grammar.accept(Init())
    for event in last_turn:
        grammar.accept(event, event.timestamp)
    grammar.turn = view.turn
    error = Error(kind="unknown", message=why, fatal=True) if end and view.activity in MID_TURN else None
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
