"""Token counts, retries and failures of both drivers, as Codex words them. Pure."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ...agents.codex.events import CodexUsage
from ...agents.codex.launch import error_line
from ...agents.codex.threads import TurnErrorDetails
from ...transports.launch import Exited
from ...unified.events import Error, ErrorKind, Retry, Unrecognized, Usage
from ...unified.faults import kind_of
from ...wire import shapes

REPEATED = "the answer broke off and is asked for again: what was said of it so far is not the answer"

_RECONNECTING = re.compile(r"Reconnecting\.\.\. (?:(\d+)/(\d+)|waiting for network)(?: \((.*)\))?\s*\Z", re.DOTALL)
_STATUS = re.compile(r"\bstatus:? (\d{3})\b")
_WORDS: dict[str, ErrorKind] = {
    "experiencing high demand": "connection_failed",  # what ``exec`` makes of an answer 500
    "at capacity": "rate_limited",
    "Missing environment variable": "authentication_failed",  # the one that holds the provider's key
}
_KINDS: dict[str, ErrorKind] = {
    "contextWindowExceeded": "context_overflow",
    "sessionBudgetExceeded": "quota_exceeded",
    "usageLimitExceeded": "quota_exceeded",
    "modelNotFound": "model_not_found",
    "unauthorized": "authentication_failed",
    "serverOverloaded": "rate_limited",
    "internalServerError": "connection_failed",
}
"""The app-server's own words for what went wrong, where they are plainer than the sentence beside them."""


def usage_of(native: CodexUsage) -> Usage:
    """Codex counts the cached tokens in the input and the reasoning in the output."""
    return Usage(
        input_tokens=native.input_tokens,
        output_tokens=native.output_tokens,
        cached_tokens=native.cached_input_tokens,
        reasoning_tokens=native.reasoning_output_tokens,
        total_tokens=native.total_tokens,
    )


def retry_of(message: str, details: str | None = None, *, earlier: int = 0) -> Retry | None:
    """``Reconnecting... 2/5 (reason)``; ``None`` when the words say something else. ``earlier``: retries before it."""
    match = _RECONNECTING.match(message)
    if match is None:
        return None
    attempt, most, reason = match.groups()
    return Retry(
        attempt=int(attempt) if attempt else earlier + 1,
        max_attempts=int(most) if most else None,
        reason=details or reason or ("" if attempt else "waiting for network"),
    )


def kind_of_message(message: str, status: int | None = None) -> ErrorKind:
    match = _STATUS.search(message)
    status = status or (int(match[1]) if match else None)
    kind: ErrorKind | None = next((kind for words, kind in _WORDS.items() if words in message), None)
    return kind if kind is not None and status in (None, 500) else kind_of(message, status)


def error_of(details: TurnErrorDetails, *, fatal: bool = True) -> Error:
    message = _sentence(details.message) or details.additional_details or "the turn failed"
    kind = _KINDS.get(details.kind) if details.http_status is None else None
    return Error(kind=kind or kind_of_message(message, details.http_status), message=message, fatal=fatal)


def turn_error(message: str) -> Error:
    sentence = _sentence(message)
    return Error(kind=kind_of_message(sentence), message=sentence or "the turn failed", fatal=True)


def exit_error(exited: Exited, last_error: str = "") -> Error:
    """The program ended in the middle of a turn."""
    words = last_error or error_line(exited.stderr)
    kind = kind_of_message(words) if words else "unknown"
    ended = f"Codex exited with code {exited.code} before the turn ended"
    return Error(
        kind="connection_failed" if kind == "unknown" else kind,
        message=f"{ended}: {words}" if words else ended,
        fatal=True,
    )


def structured(text: str) -> Any:
    """The answer of a turn with an output schema; ``None`` when it is no JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _sentence(message: str) -> str:
    """Codex passes the body of an API error on as it came; the message is inside."""
    match structured(message) if message.startswith("{") else None:
        case {"error": {"message": str(inner)}} if inner:
            return inner
        case _:
            return message


def unrecognized(native: shapes.UnknownMessage) -> Unrecognized:
    return Unrecognized(raw=native.raw.decode("utf-8", "replace"), why=native.why)
