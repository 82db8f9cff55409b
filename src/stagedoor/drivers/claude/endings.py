"""How a turn ended, judged from what happened and not from the word ``success``."""

from __future__ import annotations

import msgspec

from ...agents.claude.events import Result
from ...unified.events import Error, ErrorKind, Event, Notice, Status
from ...unified.faults import kind_of, no_answer

STATUSES: dict[str, Status] = {
    "success": "success",
    "": "success",
    "error_max_turns": "max_turns",
    "error_max_budget_usd": "max_budget",
    "cancelled": "interrupted",
}
KINDS: dict[str, ErrorKind] = {
    "authentication_failed": "authentication_failed",
    "oauth_org_not_allowed": "authentication_failed",
    "billing_error": "quota_exceeded",
    "rate_limit": "rate_limited",
    "overloaded": "rate_limited",
    "model_not_found": "model_not_found",
}
"""Claude Code's classes of API errors that say enough by themselves."""

INTERNAL = "[ede_diagnostic]"
STOPPED = "a hook ended the turn before the model had answered"
UNKNOWN_COMMAND = "Unknown command: /"


class Fault(msgspec.Struct, frozen=True):
    """An API failure, which Claude Code tells as if the model had said it."""

    cause: str
    message: str


class Ending(msgspec.Struct, frozen=True):
    status: Status
    result: str = ""
    said: tuple[Event, ...] = ()
    """What belongs before ``turn_completed``: the error, and what had to be corrected."""


def broken() -> Ending:
    """The output ended without a result."""
    message = "Claude Code ended before it had finished the turn; resume the session to go on"
    return Ending("error", said=(Error(kind="connection_failed", message=message, fatal=True),))


def ending_of(result: Result, fault: Fault | None, *, wants_structure: bool) -> Ending:
    if result.interrupted:
        return Ending("interrupted")
    status = STATUSES.get(result.subtype, "error")
    if status in ("max_turns", "max_budget"):
        return Ending(status, said=(Notice(level="warning", code=status, message=_words(result, None)),))
    if status == "interrupted":
        return Ending(status)
    if status == "success" and result.is_error:
        return _failed(result, fault, corrected=True)
    if status == "error":
        return _failed(result, fault, corrected=False)
    text = result.result or ""
    if result.num_turns == 0 and text.startswith(UNKNOWN_COMMAND):
        return Ending("error", text, (_called_success(text), Error(kind="unknown", message=text, fatal=True)))
    if result.terminal_reason == "hook_stopped":
        return Ending("success", text, (Notice(level="warning", code="hook_stopped", message=STOPPED),))
    if wants_structure and result.structured_output is None:
        message = "the model gave no answer in the form that output_schema asks for"
        said = (_called_success(message), Error(kind="protocol_error", message=message, fatal=True))
        return Ending("error", text, said)
    silent = not text and result.structured_output is None and result.num_turns  # a command of the CLI's own has none
    return Ending("success", text, (no_answer(),) if silent else ())


def _failed(result: Result, fault: Fault | None, *, corrected: bool) -> Ending:
    message = _words(result, fault)
    error = Error(kind=_kind(result, fault, message), message=message, fatal=True)
    return Ending("error", message, (_called_success(message), error) if corrected else (error,))


def _called_success(what: str) -> Notice:
    return Notice(level="info", code="success_was_error", message=f"Claude Code calls it a success: {what}")


def _words(result: Result, fault: Fault | None) -> str:
    told = [text for text in result.errors if not text.startswith(INTERNAL)]
    words = "; ".join(told) or result.result or result.error or (fault.message if fault is not None else "")
    return words or f"the turn ended with {result.subtype!r}"


def _kind(result: Result, fault: Fault | None, message: str) -> ErrorKind:
    if result.terminal_reason == "prompt_too_long":
        return "context_overflow"
    if result.subtype == "error_max_structured_output_retries":
        return "protocol_error"
    plain = KINDS.get(fault.cause) if fault is not None else None
    return plain or kind_of(message, result.api_error_status)
