"""What OpenCode's errors mean."""

from __future__ import annotations

from ...agents.opencode.parts import Failure
from ...unified.events import Error, ErrorKind
from ...unified.faults import kind_of

ABORTED = "MessageAbortedError"
_KINDS: dict[str, ErrorKind] = {
    "ProviderAuthError": "authentication_failed",
    "ContextOverflowError": "context_overflow",
    "ProviderModelNotFoundError": "model_not_found",
}
_SAYS_NOTHING = "Unexpected server error"
NO_MODEL = "most likely there is no such model: `opencode models` names those there are"

CUT_OFF = "the model's answer was cut off at its token limit"
REASONS: dict[str, str] = {
    "length": CUT_OFF,
    "content-filter": "the provider's content filter ended the answer",
    "error": "the provider ended the answer with an error",
    "unknown": "the model's answer ended without a reason: it was cut off",
}
"""Why an answer that ended so is none."""


def kind(failure: Failure) -> ErrorKind:
    if failure.name in _KINDS:
        return _KINDS[failure.name]
    if failure.message.startswith(_SAYS_NOTHING):
        return "model_not_found"
    status: object = failure.data.get("statusCode")
    return kind_of(failure.message, status if isinstance(status, int) else None)


def error_of(failure: Failure) -> Error:
    """The error that ended a turn."""
    message = failure.message
    if message.startswith(_SAYS_NOTHING):  # all that is said of a model or provider that there is not
        message = f"{message} ({NO_MODEL})"
    return Error(kind=kind(failure), message=message, fatal=True)
