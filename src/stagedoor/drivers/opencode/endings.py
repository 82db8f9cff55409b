"""How a turn of ``serve`` or ``run`` ended: what OpenCode's errors mean, and what the turn used."""

from __future__ import annotations

from ...agents.opencode.events import Runaway
from ...agents.opencode.parts import OpenCodeFailure, OpenCodeTokens, StepFinishPart
from ...unified.events import Error, ErrorKind, Usage, UsageReport, dollars, report_of
from ...unified.faults import kind_of
from ...wire.fitting import whole_number

_KINDS: dict[str, ErrorKind] = {
    "ProviderAuthError": "authentication_failed",
    "ContextOverflowError": "context_overflow",
    "ProviderModelNotFoundError": "model_not_found",
}
_UNEXPLAINED = "Unexpected server error"
NO_MODEL = "most likely there is no such model: `opencode models` names those there are"

CUT_OFF = "the model's answer was cut off at its token limit"
REASONS: dict[str, str] = {
    "length": CUT_OFF,
    "content-filter": "the provider's content filter ended the answer",
    "error": "the provider ended the answer with an error",
    "unknown": "the model's answer ended without a reason: it was cut off",
}
"""Why an answer with this finish reason is incomplete."""

_RUNAWAYS = {
    "empty_steps": "the model's answers end without a reason, and OpenCode repeats the request without limit",
    "context_overflow": "the context is still too long after OpenCode has summarized the conversation several times",
}


def kind_of_failure(failure: OpenCodeFailure) -> ErrorKind:
    if failure.name in _KINDS:
        return _KINDS[failure.name]
    if failure.message.startswith(_UNEXPLAINED):
        return "model_not_found"
    status: object = failure.data.get("statusCode")
    return kind_of(failure.message, whole_number(status))


def error_of(failure: OpenCodeFailure) -> Error:
    """The error that ended a turn."""
    message = failure.message
    if message.startswith(_UNEXPLAINED):  # all that OpenCode reports of an unknown model or provider
        message = f"{message} ({NO_MODEL})"
    return Error(kind=kind_of_failure(failure), message=message, fatal=True)


def runaway_error(runaway: Runaway) -> Error:
    kind: ErrorKind = "context_overflow" if runaway.cause == "context_overflow" else "connection_failed"
    message = f"{_RUNAWAYS[runaway.cause]}; ended after {runaway.steps} tries"
    return Error(kind=kind, message=message, fatal=True)


# ---------------------------------------------------------------------------------------------------- tokens and money


def usage_of(tokens: OpenCodeTokens, cost: float) -> Usage:
    """OpenCode counts cached and reasoning tokens apart. Its cost is zero when it knows no prices."""
    cached, sent = int(tokens.cache.read), int(tokens.input + tokens.cache.read + tokens.cache.write)
    output, reasoning = int(tokens.output), int(tokens.reasoning)
    return Usage(
        input_tokens=sent,
        output_tokens=output,
        cached_tokens=cached,
        reasoning_tokens=reasoning,
        total_tokens=sent + output + reasoning,
        cost_usd=dollars(cost) or None,
    )


class TurnSpending:
    """Counted step by step, sub-agents included."""

    def __init__(self) -> None:
        self.turn = Usage()

    def step(self, part: StepFinishPart) -> list[UsageReport]:
        usage = usage_of(part.tokens, part.cost)
        if usage == Usage():
            return []
        self.turn = self.turn + usage
        return [report_of(self.turn)]

    def end(self) -> Usage:
        turn, self.turn = self.turn, Usage()
        return turn
