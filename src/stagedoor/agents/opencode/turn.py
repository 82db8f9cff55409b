"""When a turn of the server is over, judged from what it says. Pure.

After an abort or an error the server says *idle* twice, and the last parts and the message's end come in between; so
idle alone proves nothing. A turn is over when the session is idle and no assistant message of it is unfinished.
"""

from __future__ import annotations

from typing import Literal

from .events import (
    KnownServerEvent,
    Message,
    MessagePartUpdated,
    MessageUpdated,
    Refused,
    Runaway,
    SessionError,
    SessionIdle,
    SessionStatus,
    StepsExhausted,
    TurnEnded,
)
from .parts import Failure, StepFinishPart, StepStartPart, Tokens
from .runaway import STAYS_TOO_LONG, RunawayWatch, StepLimit

ABORTED = "MessageAbortedError"
OVERFLOW = "ContextOverflowError"


class Turn:
    def __init__(self, watch: RunawayWatch, limit: StepLimit | None = None) -> None:
        self.running = False
        self._watch = watch
        self._limit = limit or StepLimit(None)
        self._session_id = ""
        self._messages: dict[str, Message] = {}
        self._older: set[str] = set()
        self._failure: Failure | None = None
        self.began = False

    def begin(self, session_id: str) -> None:
        self._older |= set(self._messages)
        self.running, self.began = True, False
        self._session_id = session_id
        self._messages = {}
        self._failure = None
        self._watch.turn_began()
        self._limit.turn_began()

    def sees(self, event: KnownServerEvent) -> list[TurnEnded | Runaway | StepsExhausted]:
        if not self.running or getattr(event, "session_id", None) != self._session_id:
            return []
        match event:
            case MessageUpdated(info=info):
                if info.role == "assistant" and info.id not in self._older:
                    self.began = True
                    self._messages[info.id] = info
            case MessagePartUpdated():
                return self._step(event)
            case SessionStatus(status=status):
                self.began = self.began or status.type in ("busy", "retry")
            case SessionError(error=error):
                self.began = True
                self._failure = self._failure or error
                if error.name == OVERFLOW and self._watch.overflowed():
                    return [Runaway(self._session_id, self._watch.overflows, STAYS_TOO_LONG)]
            case SessionIdle() if self.began and all(one.time.completed for one in self._messages.values()):
                return [self._end()]
            case _:
                pass
        return []

    def refused(self, refusal: Refused) -> list[TurnEnded]:
        """The prompt itself was not taken."""
        if not self.running:
            return []
        self._failure = Failure("UnknownError", {"message": refusal.message, "statusCode": refusal.status})
        return [self._end()]

    def found_idle(self) -> list[TurnEnded]:
        """We asked, and the session is not busy: its end was said while nobody listened."""
        return [self._end()] if self.running else []

    def cut_off(self) -> list[TurnEnded]:
        """The server is gone."""
        if not self.running:
            return []
        self._failure = self._failure or Failure(
            "UnknownError", {"message": "the server ended in the middle of a turn"}
        )
        return [self._end()]

    def _step(self, event: MessagePartUpdated) -> list[TurnEnded | Runaway | StepsExhausted]:
        match event.typed():
            case StepFinishPart(reason=reason):
                self._watch.step_finished(reason)
                if self._limit.step_finished(reason):
                    return [StepsExhausted(self._session_id, self._limit.steps)]
            case StepStartPart() if self._watch.step_began():
                return [Runaway(self._session_id, self._watch.steps)]
            case _:
                pass
        return []

    def _end(self) -> TurnEnded:
        self.running = False
        tokens, cost = Tokens(), 0.0
        last: Message | None = None
        for last in self._messages.values():
            tokens, cost = tokens.plus(last.tokens), cost + last.cost
        # A failure that OpenCode mended (a full context, compacted) is not the turn's: its last message is judged.
        error = last.error if last is not None and (last.finish or last.error) else self._failure
        return TurnEnded(self._session_id, _outcome(error), last.finish if last else None, error, tokens, cost)


def _outcome(error: Failure | None) -> Literal["completed", "failed", "aborted"]:
    if error is None:
        return "completed"
    return "aborted" if error.name == ABORTED else "failed"
