"""The questions of one session as rows: asked, answered once, and asked again after the server was away.

A question whose turn was cut off by the server's end stays open where the agent can be resumed: it is *re-armed*. Its
answer then wakes the agent with a prompt that says what was decided, and counts when the agent asks the same again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from stagedoor.unified.decisions import Allow, Decision, Deny
from stagedoor.unified.events import PermissionRequest, PermissionResolved

from .store import Change
from .views import Question, SessionView


class QuestionRows:
    """Those of one session; nothing else knows which are open."""

    def __init__(self) -> None:
        self.open: dict[str, Question] = {}
        """Those the agent waits for, by request id; answered ones too, until the agent has been told."""
        self.rearmed: dict[str, Question] = {}
        """Those that outlived their turn."""
        self.arranged: list[Question] = []
        """What somebody decided while the agent was away: it counts once, for the same question, in the turn that
        tells the agent."""
        self.due: list[tuple[str, Decision]] = []
        """Arranged answers to questions that are asked now, to be told when they are stored."""

    def ask(self, event: PermissionRequest, view: SessionView) -> Question:
        question = Question(
            id=event.request_id,
            session_id=view.id,
            agent=view.agent,
            request=event,
            asked_at=event.timestamp,
            expires_at=event.expires_at,
        )
        for before in self.arranged:
            decision = _again(before, event)
            if decision is not None:
                self.arranged.remove(before)
                self.due.append((event.request_id, decision))
                question = answered(question, decision, by="client", who=before.who, now=event.timestamp)
                break
        self.open[event.request_id] = question
        return question

    def answer_stored(self, question: Question) -> None:
        """Somebody answered, and the store has it."""
        rows = self.open if question.request.request_id in self.open else self.rearmed
        rows[question.request.request_id] = question

    def resolve(self, event: PermissionResolved) -> list[Change]:
        """The rows that follow from the agent's having been told, or from nobody's having answered."""
        question = self.open.pop(event.request_id, None) or self.rearmed.pop(event.request_id, None)
        if question is None:
            return []
        same = question.decision is not None and isinstance(question.decision, Allow) == (event.decision == "allow")
        decision: Decision | None = question.decision
        if not same or event.by not in ("client", question.by):
            decision = Allow(remember=event.remember) if event.decision == "allow" else Deny(event.message)
            question = replace(question, who="")
        row = replace(
            question,
            open=False,
            decision=decision,
            by=event.by,
            message=event.message or question.message,
            resolved_at=question.resolved_at or event.timestamp,
            applied=True,
        )
        return [row]


def answered(question: Question, decision: Decision, *, by: str, who: str, now: int, answer_id: str = "") -> Question:
    return replace(
        question,
        open=False,
        decision=decision,
        by=by,
        who=who,
        answer_id=answer_id,
        message=decision.message if isinstance(decision, Deny) else "",
        resolved_at=now,
    )


def resolution(question: Question) -> PermissionResolved:
    """What the stream says of a re-armed question that was answered."""
    decision = question.decision
    return PermissionResolved(
        request_id=question.request.request_id,
        decision="allow" if isinstance(decision, Allow) else "deny",
        remember=decision.remember if isinstance(decision, Allow) else "once",
        by="timeout" if question.by == "timeout" else "client",
        message=question.message,
    )


def needs_the_agent(decided: Iterable[Question]) -> bool:
    """Whether it is worth waking the agent to tell it: not when nobody answered, or its turn was to end anyway."""
    return any(
        isinstance(question.decision, Allow)
        or (question.by != "timeout" and not getattr(question.decision, "interrupt", False))
        for question in decided
    )


def words_of(decided: Iterable[Question]) -> str:
    """The prompt that tells an agent what was decided while it was away."""
    lines = ["You were stopped while you waited for a decision. It has come:"]
    for question in decided:
        request = question.request
        what = f"{request.native_name or request.tool_name} ({request.target or request.description or 'no target'})"
        match question.decision:
            case Allow(updated_input=None):
                outcome = "allowed"
            case Allow(updated_input=changed):
                outcome = f"allowed, with this input instead: {msgspec.json.encode(changed).decode()}"
            case Deny(message=message):
                outcome = f"denied{': ' + message if message else ''}; do not do it"
            case _:
                continue
        lines.append(f"- {what}: {outcome}")
    lines.append("If something allowed has not been done yet, ask for it again now. Then continue with your task.")
    return "\n".join(lines)


def _again(before: Question, event: PermissionRequest) -> Decision | None:
    """The decision on ``before`` if ``event`` asks the same, or what the changed input made of it."""
    earlier = before.request
    if (earlier.tool_name, earlier.native_name) != (event.tool_name, event.native_name):
        return None
    decision = before.decision
    if isinstance(decision, Allow) and decision.updated_input is not None and event.input == decision.updated_input:
        return replace(decision, updated_input=None)
    return decision if _essence(event) == _essence(earlier) else None


def _essence(request: PermissionRequest) -> dict[str, Any]:
    """The input without what a model words anew each time and what changes nothing."""
    return {name: value for name, value in request.input.items() if name not in ("description", "timeout")}
