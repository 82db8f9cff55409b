"""What kind of error an agent's words or a status mean."""

from __future__ import annotations

import pytest

from stagedoor.errors import NotSignedIn, ProcessExited, SessionNotFound
from stagedoor.unified.events import Error, ErrorKind
from stagedoor.unified.faults import error_of, kind_of


@pytest.mark.parametrize(
    ("message", "status", "kind"),
    [
        ("This model's maximum context length is 1000 tokens.", None, "context_overflow"),
        ("Your input exceeds the context window of this model.", 400, "context_overflow"),
        ("No final text. If your context window is near capacity, try using /compress.", None, "unknown"),
        ("If it helps: your quota is fine", None, "unknown"),
        ("The request failed; if your API key is new, wait. Too many requests.", None, "rate_limited"),
        ("Verified: if-match failed with 401", None, "authentication_failed"),
        ("You exceeded your daily quota.", 429, "quota_exceeded"),
        ("No capacity (check quota).", 429, "rate_limited"),
        ("Too many requests", 503, "rate_limited"),
        ("model nope not found", 500, "model_not_found"),
        ("no", 401, "authentication_failed"),
        ("no", 404, "model_not_found"),
        ("no", 504, "timeout"),
        ("no", 400, "unknown"),
        ("No conversation found with session ID x", None, "session_not_found"),
        ("the request timed out", None, "timeout"),
        ("Model stream ended with malformed function call.", None, "protocol_error"),
        ("[API Error: Expected property name or '}' in JSON at position 1]", None, "protocol_error"),
        ("Unexpected end of JSON input", None, "protocol_error"),
        ("Unexpected token '<', \"<html>\" is not valid JSON", None, "protocol_error"),
        ("unsupported protocol version", None, "protocol_error"),
        ("Model stream ended without a finish reason.", None, "connection_failed"),
        ("stream disconnected before completion", None, "connection_failed"),
        ("fetch failed", None, "connection_failed"),
        ("the call was rejected", None, "permission_denied"),
        ("oops", None, "unknown"),
        ("", None, "unknown"),
    ],
)
def test_kinds(message: str, status: int | None, kind: ErrorKind) -> None:
    assert kind_of(message, status) == kind


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (NotSignedIn("sign in"), Error(kind="authentication_failed", message="sign in", fatal=True)),
        (SessionNotFound("none such"), Error(kind="session_not_found", message="none such", fatal=True)),
        (ProcessExited("connection reset"), Error(kind="connection_failed", message="connection reset", fatal=True)),
        (RuntimeError(), Error(kind="unknown", message="RuntimeError", fatal=True)),
    ],
)
def test_faults_that_end_the_stream(fault: BaseException, error: Error) -> None:
    assert error_of(fault) == error
