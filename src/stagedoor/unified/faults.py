"""What kind of error an agent's words or an HTTP status mean."""

from __future__ import annotations

import re

from ..errors import NotSignedIn, SessionNotFound
from .events import Error, ErrorKind, Notice

_BY_STATUS: dict[int, ErrorKind] = {
    401: "authentication_failed", 402: "quota_exceeded", 403: "authentication_failed", 404: "model_not_found",
    408: "timeout", 413: "context_overflow", 429: "rate_limited", 500: "connection_failed", 502: "connection_failed",
    503: "connection_failed", 504: "timeout", 529: "rate_limited",
}  # fmt: skip

# The first word that matches decides: the telling ones before the vague ones.
_WORDS: dict[ErrorKind, tuple[str, ...]] = {
    "context_overflow": (
        r"context.?(window|length|overflow|limit)",
        "prompt is too long",
        "maximum context",
        "too many tokens",
        "input token count",
    ),
    "quota_exceeded": (r"(?<!check )quota", r"usage.?limit", "credit balance", "billing", "out of credits"),
    "rate_limited": (
        r"rate.?limit",
        "too many requests",
        "overloaded",
        "high demand",
        r"\b(429|529)\b",
        r"resource.{0,10}exhausted",
    ),
    "authentication_failed": (
        r"api.?key",
        r"unauthori[sz]ed",
        r"not (logged|signed) in",
        "authenticat",
        r"\b(401|403)\b",
        "forbidden",
        "permission_error",
    ),
    "model_not_found": (
        r"model.{0,40}(not found|not exist|not supported|does not exist|unknown|invalid)",
        r"(unknown|invalid|no such) model",
        r"\b404\b",
    ),
    "session_not_found": (
        "no conversation found",
        r"(session|thread).{0,60}not found",
        "no rollout found",
        "requires a valid session",
        "(unknown|invalid) session",
    ),
    "timeout": (r"timed? ?out", "timeout"),
    "protocol_error": (
        "malformed",
        r"(in|invalid|valid) json|json input",
        r"protocol.?(error|version|violation|mismatch)",
        "unexpected message",
        "parse error",
    ),
    "connection_failed": (
        r"connect|network|socket|econn|dns",
        r"stream (disconnected|closed|ended|error)",
        r"terminated|premature|truncated|incomplete|reset by peer|fetch failed",
        r"\b50[0234]\b|server.?error|internal error",
    ),
    "permission_denied": ("denied", "rejected", "not allowed", "permission"),
}
_PATTERNS: dict[ErrorKind, re.Pattern[str]] = {
    kind: re.compile("|".join(words), re.IGNORECASE) for kind, words in _WORDS.items()
}
_ADVICE = re.compile(r"(?:^|(?<=[.;!?]\s))if\b[^.;!?]*", re.IGNORECASE)
"""What may be so tells nothing of what was: "If your context window is near capacity, …"."""
_PLAIN: tuple[ErrorKind, ...] = ("context_overflow", "quota_exceeded")
_TELLING: tuple[ErrorKind, ...] = ("rate_limited", "model_not_found")


def kind_of(message: str, status: int | None = None) -> ErrorKind:
    """The words decide where they are plain; else the status does; else the words again."""
    message = _ADVICE.sub("", message)
    for kind in _PLAIN:
        if _PATTERNS[kind].search(message):
            return kind
    if status is not None and status >= 500:  # what is told late, or by another program, has lost its own status
        for kind in _TELLING:
            if _PATTERNS[kind].search(message):
                return kind
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    for kind, pattern in _PATTERNS.items():
        if pattern.search(message):
            return kind
    return "unknown"


def no_answer() -> Notice:
    """What the stream says of a turn that its agent calls a good one, though nothing came of it."""
    return Notice(level="warning", code="no_answer", message="the model ended its turn without a word")


def error_of(fault: BaseException) -> Error:
    """What the stream says of an exception that ended it."""
    message = str(fault) or type(fault).__name__
    match fault:
        case NotSignedIn():
            return Error(kind="authentication_failed", message=message, fatal=True)
        case SessionNotFound():
            return Error(kind="session_not_found", message=message, fatal=True)
        case _:
            return Error(kind=kind_of(message), message=message, fatal=True)
