"""How calls, turns and requests of the Agent Client Protocol ended."""

from __future__ import annotations

from typing import Any

import pytest

from stagedoor.agents.acp.events import RequestFailed
from stagedoor.drivers.acp.dictionary import AcpDictionary, reason_of
from stagedoor.unified.events import Error, Notice, TurnCompleted


@pytest.mark.parametrize(
    ("message", "details", "reason"),
    [
        ("Internal error", None, "Internal error"),
        ("Internal error", {"details": "no such mode"}, "Internal error: no such mode"),
        ("no such mode", {"details": "no such mode"}, "no such mode"),
        ("", {"details": "no such mode"}, "no such mode"),
        ("Invalid params", {"_errors": ["not a method", "nor a name"]}, "Invalid params: not a method; nor a name"),
        (
            "Internal error",
            [{"path": ["cwd"], "message": "expected string"}, {"path": [], "message": "?"}, 3],
            "Internal error: cwd: expected string",
        ),
        ("Method not found", {"method": "x"}, "Method not found"),
    ],
)
def test_reasons(message: str, details: Any, reason: str) -> None:
    assert reason_of(RequestFailed("session/new", -32603, message, details)) == reason


def test_what_a_failed_request_means() -> None:
    details = {"details": "Too many requests"}
    [notice] = AcpDictionary().translate(RequestFailed("session/set_mode", -32603, "Internal error", details))
    message = "session/set_mode: Internal error: Too many requests"
    assert notice == Notice(level="warning", code="request_failed", message=message)
    assert AcpDictionary().translate(RequestFailed("session/prompt", -32603, "Internal error", details)) == [
        Error(kind="rate_limited", message="Internal error: Too many requests", fatal=True),
        TurnCompleted(status="error"),
    ]
