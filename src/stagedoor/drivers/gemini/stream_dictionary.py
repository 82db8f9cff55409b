"""``gemini --output-format stream-json`` in our words: a process for each turn. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

import msgspec

from ...agents.gemini import events as native_events
from ...agents.gemini.launch import error_line, startup_failure
from ...agents.gemini.records import ToolDetails
from ...errors import NotSignedIn, SessionNotFound
from ...transports.launch import Exited, Stalled
from ...unified.events import (
    Error,
    ErrorKind,
    Event,
    Init,
    Notice,
    Retry,
    Status,
    ToolResult,
    ToolUse,
    TurnCompleted,
    Unrecognized,
    Usage,
    UsageReport,
    stalled,
)
from ...unified.faults import kind_of, no_answer
from ...unified.pieces import Pieces
from ...unified.tools import operation_of
from ...wire import shapes
from .corrections import MESSAGE, Repeats, call_ended, error_of, is_denied, plan_of, requested_change
from .tools import TOOLS, target_of

PAUSE = 900
"""Milliseconds; the CLI waits at least a second before it asks again."""
_LOOP = "Loop detected"


class StreamDictionary:
    """One for the whole session, over all its processes.

    The details of a call (:class:`ToolDetails`, from the session file) come after its result and before whatever
    follows, so that results wait for the next event.
    """

    def __init__(self) -> None:
        self._pieces = Pieces()
        self._repeats = Repeats()
        self._calls: dict[str, native_events.GeminiToolUse] = {}
        self._finished: dict[str, native_events.GeminiToolResult] = {}
        self._complaint: native_events.GeminiError | None = None
        self._started = False
        self._nameless = 0
        self._text_at = ""
        self._answered = False  # whether there was any text since the last call

    def translate(self, native: native_events.Event) -> list[Event]:
        match native:
            case native_events.GeminiToolResult():
                self._finished[native.tool_id] = native
                return self._whole()
            case ToolDetails():
                result = self._finished.pop(native.tool_id, None)
                return [] if result is None else self._ended(result, native)
            case _:
                return [*self._overdue(), *self._translated(native)]

    def _translated(self, native: native_events.Event) -> list[Event]:
        match native:
            case native_events.GeminiInit():
                self._started = True
                self._complaint, self._answered = None, False
                return [Init(model=native.model, native_session_id=native.session_id)]
            case native_events.GeminiMessage():
                return self._text(native.content, native.printed_at) if native.role == "assistant" else []
            case native_events.GeminiContent():
                return self._text(native.value, native.printed_at)
            case native_events.GeminiToolUse():
                return self._called(native)
            case native_events.GeminiToolCall():
                self._nameless += 1  # the older form has no ids, and never reports results
                use = native_events.GeminiToolUse(
                    native.name, f"call-{self._nameless}", native.args, printed_at=native.printed_at
                )
                done = native_events.GeminiToolResult(use.tool_id, "success")
                return [*self._called(use), *self._ended(done, None)]
            case native_events.GeminiError():
                return self._complained(native)
            case native_events.GeminiRetry():
                return [Retry(attempt=native.attempt, max_attempts=native.max_attempts, delay_ms=native.delay_ms)]
            case native_events.GeminiResult():
                return self._turn_ended(native.status, native.stats, native.error)
            case native_events.GeminiDone():
                return self._turn_ended(native.status or "success", native.stats, None)
            case native_events.Truncated():
                return self._truncated(native)
            case Exited():
                return self._exited(native)
            case Stalled():
                return [stalled(native.seconds)]
            case shapes.UnknownMessage():
                return [Unrecognized(raw=native.raw.decode("utf-8", "replace"), why=native.why)]
            case native_events.GeminiToolResult() | ToolDetails():
                return []  # above
            case _:
                assert_never(native)

    # ------------------------------------------------------------------------------------------------- text and tools

    def _text(self, text: str, timestamp: str) -> list[Event]:
        before, self._text_at = self._text_at, timestamp
        self._answered = True
        new, repeated = self._repeats.feed(text, paused=(_between(before, timestamp) or 0) >= PAUSE)
        out: list[Event] = [Notice(level="warning", code="text_repeated", message=MESSAGE)] if repeated else []
        return [*out, *self._pieces.text(new)] if new else out

    def _whole(self) -> list[Event]:
        text = self._repeats.finish()
        return [*(self._pieces.text(text) if text else []), *self._pieces.whole()]

    def _called(self, native: native_events.GeminiToolUse) -> list[Event]:
        name = TOOLS.get(native.tool_name, "other")
        self._answered = False
        self._calls[native.tool_id] = native
        description = native.parameters.get("description", "")
        return [
            *self._whole(),
            ToolUse(
                tool_use_id=native.tool_id,
                name=name,
                native_name=native.tool_name,
                input=native.parameters,
                operation=operation_of(name),
                target=target_of(name, native.tool_name, native.parameters),
                description=description if isinstance(description, str) else "",
            ),
        ]

    def _overdue(self) -> list[Event]:
        """Results that no details will come for."""
        finished, self._finished = self._finished, {}
        return [event for result in finished.values() for event in self._ended(result, None)]

    def _ended(self, native: native_events.GeminiToolResult, details: ToolDetails | None) -> list[Event]:
        call = self._calls.pop(native.tool_id, None)
        tool = call.tool_name if call is not None else details.tool_name if details is not None else ""
        name = TOOLS.get(tool, "other")
        error = native.error or native_events.ErrorDetail()
        failed = native.status == "error" or native.error is not None
        message = error.message or native.output or ""
        result = ToolResult(
            tool_use_id=native.tool_id,
            name=name,
            status="success" if not failed else "denied" if is_denied(message, error.type) else "error",
            output=message if failed else native.output or "",
            duration_ms=_between(call.printed_at, native.printed_at) if call is not None else None,
        )
        arguments = call.parameters if call is not None else {}
        if name == "plan" and details is None and not failed:
            return [*plan_of(arguments), result]
        return call_ended(result, requested_change(tool, arguments, native.tool_id), details)

    # ------------------------------------------------------------------------------------------------- ends of a turn

    def _complained(self, native: native_events.GeminiError) -> list[Event]:
        """The run continues, or ends with a result that does not repeat why: the next event shows which."""
        before, self._complaint = self._complaint, native
        if native.severity == "warning":
            code = "loop_detected" if native.text.startswith(_LOOP) else "agent_warning"
            return [*self._whole(), Notice(level="warning", code=code, message=native.text)]
        earlier = [] if before is None or before.severity == "warning" else [error_of(before.text, fatal=False)]
        return [*self._whole(), *earlier]

    def _turn_ended(
        self, status: str, stats: native_events.Stats | None, error: native_events.ErrorDetail | None
    ) -> list[Event]:
        complaint, self._complaint = self._complaint, None
        out = self._whole()
        usage = _usage(stats or native_events.Stats())
        if usage != Usage():
            out.append(UsageReport(**msgspec.structs.asdict(usage)))
        duration = stats.duration_ms or None if stats is not None else None
        if error is not None and error.type == "FatalTurnLimitedError":
            return [*out, _completed("max_turns", usage, duration, error.message)]
        looped = complaint is not None and complaint.text.startswith(_LOOP)
        if status == "error" or error is not None or looped:
            reason = (error.message if error is not None else "") or (complaint.text if complaint is not None else "")
            out.append(error_of(reason or "Gemini CLI ended the turn with an error and no message", fatal=True))
            return [*out, _completed("error", usage, duration)]
        if complaint is not None and complaint.severity != "warning":
            out.append(error_of(complaint.text, fatal=False))
        if not self._answered:
            out.append(no_answer())
        return [*out, _completed("success", usage, duration)]

    def _truncated(self, native: native_events.Truncated) -> list[Event]:
        if native.interrupted:
            return [*self._whole(), TurnCompleted(status="interrupted")]
        if not self._started and self._complaint is None:
            return []  # it never started: ``Exited`` comes next and has the reason
        self._started = True
        if self._complaint is not None:
            error = error_of(self._complaint.text, fatal=True)
        else:
            error = Error(kind="connection_failed", message=native.why, fatal=True)
        return [*self._whole(), error, TurnCompleted(status="error")]

    def _exited(self, native: Exited) -> list[Event]:
        started, self._started, self._complaint = self._started, False, None
        self._calls.clear()
        if not started:
            failure = startup_failure(native)
            kind: ErrorKind = (
                "authentication_failed"
                if isinstance(failure, NotSignedIn)
                else "session_not_found"
                if isinstance(failure, SessionNotFound)
                else kind_of(error_line(native.stderr))
            )
            return [Error(kind=kind, message=str(failure), fatal=True), TurnCompleted(status="error")]
        return []


def _completed(status: Status, usage: Usage, duration: float | None, result: str = "") -> TurnCompleted:
    return TurnCompleted(status=status, usage=usage, duration_ms=duration, result=result)


def _usage(stats: native_events.Stats) -> Usage:
    """The process's tokens, which are the turn's. Thoughts are counted only in the total."""
    thoughts = stats.thought_tokens or max(0, stats.total_tokens - stats.input_tokens - stats.output_tokens)
    return Usage(
        input_tokens=stats.input_tokens,
        output_tokens=stats.output_tokens,
        cached_tokens=stats.cached or stats.cache_tokens,
        reasoning_tokens=thoughts,
        total_tokens=stats.total_tokens or stats.input_tokens + stats.output_tokens + thoughts,
    )


def _milliseconds(timestamp: str) -> float | None:
    try:
        return datetime.fromisoformat(timestamp).timestamp() * 1000
    except ValueError:
        return None


def _between(begin: str, end: str) -> float | None:
    since, until = _milliseconds(begin), _milliseconds(end)
    return None if since is None or until is None else float(max(0, round(until - since)))
