"""What a ``result`` line means: how the turn ended, judged by what happened and not by the word ``success``;
what the turn used and cost.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from ...agents.claude.blocks import ClaudeUsage
from ...agents.claude.events import ClaudeResult
from ...unified.events import Error, ErrorKind, Event, Notice, Status, Usage, UsageReport, dollars, report_of
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


class ApiFault(msgspec.Struct, frozen=True):
    """An API failure, which Claude Code reports as a message of the model."""

    cause: str
    message: str


class Ending(msgspec.Struct, frozen=True):
    status: Status
    result: str = ""
    events: tuple[Event, ...] = ()
    """What belongs before ``turn_completed``: the error, and what had to be corrected."""


def broken_ending() -> Ending:
    """The output ended without a result."""
    message = "Claude Code ended before it had finished the turn; resume the session to go on"
    return Ending("error", events=(Error(kind="connection_failed", message=message, fatal=True),))


def ending_of(result: ClaudeResult, fault: ApiFault | None, *, wants_structure: bool) -> Ending:
    if result.interrupted:
        return Ending("interrupted")
    status = STATUSES.get(result.subtype, "error")
    if status in ("max_turns", "max_budget"):
        return Ending(status, events=(Notice(level="warning", code=status, message=_message(result, None)),))
    if status == "interrupted":
        return Ending(status)
    if status == "success" and result.is_error:
        return _failure(result, fault, corrected=True)
    if status == "error":
        return _failure(result, fault, corrected=False)
    text = result.result or ""
    if result.num_turns == 0 and text.startswith(UNKNOWN_COMMAND):
        return Ending("error", text, (_correction(text), Error(kind="unknown", message=text, fatal=True)))
    if result.terminal_reason == "hook_stopped":
        return Ending("success", text, (Notice(level="warning", code="hook_stopped", message=STOPPED),))
    if wants_structure and result.structured_output is None:
        message = "the model gave no answer in the form that output_schema asks for"
        events = (_correction(message), Error(kind="protocol_error", message=message, fatal=True))
        return Ending("error", text, events)
    silent = not text and result.structured_output is None and result.num_turns  # a command of the CLI itself has none
    return Ending("success", text, (no_answer(),) if silent else ())


def _failure(result: ClaudeResult, fault: ApiFault | None, *, corrected: bool) -> Ending:
    message = _message(result, fault)
    error = Error(kind=_kind(result, fault, message), message=message, fatal=True)
    return Ending("error", message, (_correction(message), error) if corrected else (error,))


def _correction(message: str) -> Notice:
    return Notice(level="info", code="success_was_error", message=f"Claude Code calls it a success: {message}")


def _message(result: ClaudeResult, fault: ApiFault | None) -> str:
    errors = [text for text in result.errors if not text.startswith(INTERNAL)]
    message = "; ".join(errors) or result.result or result.error or (fault.message if fault is not None else "")
    return message or f"the turn ended with {result.subtype!r}"


def _kind(result: ClaudeResult, fault: ApiFault | None, message: str) -> ErrorKind:
    if result.terminal_reason == "prompt_too_long":
        return "context_overflow"
    if result.subtype == "error_max_structured_output_retries":
        return "protocol_error"
    plain = KINDS.get(fault.cause) if fault is not None else None
    return plain or kind_of(message, result.api_error_status)


# --------------------------------------------------------------------------------------- what a turn used and cost

_NOTHING = Usage()


class ClaudeSpending:
    """Claude Code's figures are partly of the turn, partly of the whole process; ours are of the turn."""

    def __init__(self) -> None:
        self._of_process = _NOTHING
        self._cost_of_process = 0.0
        self._turn = _NOTHING
        self._running = _NOTHING
        self._explained = False

    def call(self, start: ClaudeUsage, end: ClaudeUsage) -> UsageReport:
        """One call to the model is over; the turn so far. Its cost comes with the result."""
        usage = _usage(
            end.input_tokens or start.input_tokens,
            end.output_tokens or start.output_tokens,
            end.cache_read_input_tokens or start.cache_read_input_tokens or 0,
            end.cache_creation_input_tokens or start.cache_creation_input_tokens or 0,
        )
        self._running = self._running + usage
        return report_of(self._turn + self._running)

    def result(self, result: ClaudeResult) -> list[UsageReport | Notice]:
        """One run of the model is over; the turn so far, and once per session how the figures were corrected."""
        tokens, share = self._tokens(result), self._cost(result)
        self._turn = self._turn + replace(tokens, cost_usd=share)
        cost = self._turn.cost_usd
        self._running = _NOTHING
        out: list[UsageReport | Notice] = [report_of(self._turn)]
        total = _total_cost(result)
        if not self._explained and cost is not None and total is not None and total - cost > 1e-9:
            self._explained = True
            message = (
                f"Claude Code counts from the start of its process ({total:.6g} USD by now); usage and cost are told "
                f"per turn here ({cost:.6g} USD for this one)"
            )
            out.append(Notice(level="info", code="cumulative_usage", message=message))
        return out

    def settle(self) -> Usage:
        """The whole turn's; the next one begins at nothing."""
        turn, self._turn, self._running = self._turn + self._running, _NOTHING, _NOTHING
        return turn

    def _tokens(self, result: ClaudeResult) -> Usage:
        """By model where the result has it: only that counts sub-agents, compaction and broken-off answers too."""
        if not result.model_usage:
            turn = result.usage or ClaudeUsage()
            return _usage(
                turn.input_tokens,
                turn.output_tokens,
                turn.cache_read_input_tokens or 0,
                turn.cache_creation_input_tokens or 0,
            )
        total = _NOTHING
        for used in result.model_usage.values():
            total = total + _usage(
                used.input_tokens,
                used.output_tokens,
                used.cache_read_input_tokens,
                used.cache_creation_input_tokens,
            )
        before, self._of_process = self._of_process, total
        if total.input_tokens < before.input_tokens or total.output_tokens < before.output_tokens:
            return total  # another process has begun to count
        return Usage(
            input_tokens=total.input_tokens - before.input_tokens,
            output_tokens=total.output_tokens - before.output_tokens,
            cached_tokens=max(0, total.cached_tokens - before.cached_tokens),
            total_tokens=total.total_tokens - before.total_tokens,
        )

    def _cost(self, result: ClaudeResult) -> float | None:
        total = _total_cost(result)
        if total is None:
            return None
        before, self._cost_of_process = self._cost_of_process, total
        return total if total < before else dollars(total - before)


def _total_cost(result: ClaudeResult) -> float | None:
    return result.cost_usd if result.total_cost_usd is None else result.total_cost_usd


def _usage(fresh: int, output: int, read: int, written: int) -> Usage:
    sent = fresh + read + written
    return Usage(input_tokens=sent, output_tokens=output, cached_tokens=read, total_tokens=sent + output)
