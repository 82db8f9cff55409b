"""``opencode run --format json``: finished parts, one a line, and nothing about the end; that is judged here.

The exit code says little: it is 0 after a refused permission, and 1 after a full context that was summarized and
answered.
"""

from __future__ import annotations

from typing import assert_never

from ...agents.opencode import events
from ...agents.opencode.launch import complaint
from ...agents.opencode.parts import OpenCodeFailure
from ...agents.opencode.protocol import OVERFLOW
from ...transports.launch import Exited, Stalled
from ...unified.events import (
    Error,
    Event,
    Init,
    Notice,
    Retry,
    Status,
    Text,
    Thinking,
    TurnCompleted,
    Unrecognized,
    stalled,
)
from ...unified.faults import kind_of, no_answer
from ...wire import shapes
from .calls import Calls
from .endings import REASONS, TurnSpending, error_of, runaway_error

REFUSED = "a permission was refused, and OpenCode did not go on; use driver='serve' to be asked"
AGAIN = "the model's answer broke off, and OpenCode asks again; it does not say why"
BROKEN_OFF = "opencode ended in the middle of its turn"


class RunDictionary:
    def __init__(self) -> None:
        self._session_id = ""
        self._calls = Calls()
        self._spending = TurnSpending()
        self._in_turn = False
        self._reset()

    def _reset(self) -> None:
        self._reason = ""  # why the last step ended; empty while one is running, and where older versions name none
        self._stepping = False
        self._attempts = 0
        self._answered = False  # whether the last step had any text
        self._failure: OpenCodeFailure | None = None
        self._compacting = False
        self._runaway: Error | None = None
        self._exhausted = False

    def translate(self, native: events.RunEvent) -> list[Event]:
        match native:
            case (
                events.StepStart()
                | events.OpenCodeText()
                | events.OpenCodeReasoning()
                | events.OpenCodeToolUse()
                | events.StepFinish()
                | events.OpenCodeError()
            ):
                self._in_turn = True
                return [*self._init(native.session_id), *self._translated(native)]
            case events.Runaway():
                self._runaway = runaway_error(native)
                return []
            case events.StepsExhausted():
                self._exhausted = True
                return []
            case Exited():
                return self._end_turn(native)
            case Stalled():
                return [stalled(native.seconds)]
            case shapes.UnknownMessage():
                return [Unrecognized(raw=native.raw.decode("utf-8", "replace"), why=native.why)]
            case _:
                assert_never(native)

    def _init(self, session_id: str) -> list[Event]:
        if self._session_id or not session_id:
            return []
        self._session_id = session_id
        return [Init(native_session_id=session_id)]

    def _translated(self, native: events.KnownRunEvent) -> list[Event]:
        match native:
            case events.StepStart():
                return self._start_step()
            case events.OpenCodeText(part=part):
                if part.synthetic or part.ignored:
                    self._compacting = False
                    return []
                if self._compacting:  # a summary for the model itself
                    return [Notice(level="info", code="compacted", message=part.text)]
                self._answered = self._answered or bool(part.text)
                return [Text(text=part.text, message_id=part.message_id)] if part.text else []
            case events.OpenCodeReasoning(part=part):
                return [Thinking(text=part.text)] if part.text and not self._compacting else []
            case events.OpenCodeToolUse(part=part):
                self._answered = False  # a call is followed by another step
                return self._calls.update(part)
            case events.StepFinish(part=part):
                self._reason = part.reason
                self._stepping = False
                self._attempts = 0
                if self._failure is not None and not self._compacting and part.reason == "stop":
                    self._failure = None  # OpenCode has overcome it
                return [*self._spending.step(part)]
            case events.OpenCodeError(error=error):
                self._failure = error
                if error.name != OVERFLOW:
                    return []
                self._compacting = True
                return [Notice(level="warning", code="context_overflow", message=error.message)]
            case _:
                assert_never(native)

    def _start_step(self) -> list[Event]:
        """A step that starts where another has not ended takes its place."""
        again, self._stepping, self._reason, self._answered = self._stepping, True, "", False
        if not again:
            return []
        self._attempts += 1
        return [Retry(attempt=self._attempts, reason=AGAIN)]

    def _end_turn(self, exited: Exited) -> list[Event]:
        if not self._in_turn and exited.code >= 0 and (reason := complaint(exited.stderr)):
            message = f"opencode ended at its start: {reason}"
            return [Error(kind=kind_of(reason), message=message, fatal=True), TurnCompleted(status="error")]
        status, error = self._judge(exited)
        silent = status == "success" and not self._answered
        self._in_turn = False
        self._reset()
        completed = TurnCompleted(status=status, usage=self._spending.end())
        out: list[Event] = [no_answer()] if silent else []
        return [*out, completed] if error is None else [*out, error, completed]

    def _judge(self, exited: Exited) -> tuple[Status, Error | None]:
        if self._runaway is not None:
            return "error", self._runaway
        if self._exhausted:
            return "max_turns", None
        if self._failure is not None:
            return "error", error_of(self._failure)
        if self._reason in REASONS:
            return "error", Error(kind="unknown", message=REASONS[self._reason], fatal=True)
        if self._reason == "tool-calls" and self._calls.last_denied:
            return "error", Error(kind="permission_denied", message=REFUSED, fatal=True)
        if self._reason == "stop" or (not self._reason and self._answered and not self._stepping):
            return "success", None
        if exited.code < 0:
            return "error", None  # somebody stopped it, and knows
        if not (stderr := exited.stderr.strip()):
            return "error", Error(kind="connection_failed", message=BROKEN_OFF, fatal=True)
        last = stderr.splitlines()[-1]
        return "error", Error(kind=kind_of(last), message=f"{BROKEN_OFF}: {last}", fatal=True)
