"""How a session is closed truthfully when nobody is left to do it: from its row and the records of its last turn."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from podium.unified.events import Done, Event, Init, PermissionResolved, Status, ToolUse, TurnCompleted, stamp
from podium.unified.grammar import Grammar

from .views import SessionView


def closing(
    view: SessionView,
    last_turn: Iterable[Event],
    now: int,
    *,
    why: str,
    keep: Collection[str] = (),
    end: bool = True,
) -> list[Event]:
    """What is to be appended: open calls and questions closed, the turn ended, and with ``end`` the session ``done``.

    ``keep`` are the questions that stay open though their turn ends.
    """
    grammar = Grammar(cwd=view.cwd)
    if view.last_seq:
        grammar.accept(Init())
    for event in last_turn:
        grammar.accept(event, event.timestamp)
    grammar.turn = view.turn
    status: Status = "interrupted"
    out: list[Event] = []
    for event in grammar.end(status, now=now):
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
                usage = view.usage
                event = replace(
                    event,
                    usage=usage,
                    cost_usd=usage.cost_usd,
                    result=event.result or view.result,
                    tool_uses=view.tool_uses,
                    duration_ms=float(now - view.created_at),
                )
            case ToolUse():
                continue
            case _:
                pass
        out.append(event)
    for seq, event in enumerate(out, view.last_seq + 1):
        stamp(event, view.agent, view.id, seq, now, view.turn)
    return out
