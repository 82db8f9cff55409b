"""What a run that never began means, on what the real CLI wrote."""

from pathlib import Path

import pytest

from stagedoor.agents.gemini.launch import acp_failure, error_line, startup_failure
from stagedoor.errors import (
    AgentRefused,
    LaunchError,
    LocalProtocolError,
    NotSignedIn,
    ProcessExited,
    SessionNotFound,
)
from stagedoor.transports.launch import Exited

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts" / "gemini-0.61.0"


@pytest.mark.parametrize(
    ("code", "name", "error", "says"),
    [
        (41, "61-noauth", NotSignedIn, "set GEMINI_API_KEY"),
        (41, "63-selectedtype-nokey", NotSignedIn, "set GEMINI_API_KEY"),
        (42, "53c-resume-none-uuid", SessionNotFound, "session 'x-1' not found"),
        (42, "56f-resume-short", SessionNotFound, "list_sessions"),
        (42, "46b-session-id-dup", LocalProtocolError, "already exists"),
        (52, "64-bad-settings", LaunchError, "Expected property name"),
        (55, "66e-yolo-untrusted", LaunchError, "trust_workspace=True"),
        (1, "66-unknown-flags", LocalProtocolError, "Unknown arguments: auto-edit"),
        (-9, "01-plain-text", ProcessExited, "code -9: no error message"),
    ],
)
def test_startup_failures(code: int, name: str, error: type[Exception], says: str):
    failure = startup_failure(Exited(code, (TRANSCRIPTS / f"{name}.stderr").read_text()), session_id="x-1")
    assert type(failure) is error
    assert says in str(failure)


def test_a_sandbox_that_is_not_there():
    assert "docker" in str(startup_failure(Exited(44, "GEMINI_SANDBOX is true but failed to determine command")))
    missing = (
        "Fatal error: Failed to relaunch the CLI process.\nFatalSandboxError: Sandbox image 'x' is missing\n    at y\n"
    )
    assert str(startup_failure(Exited(1, missing))) == (
        "Gemini CLI cannot start its sandbox: fix that, or turn sandbox off (Sandbox image 'x' is missing)"
    )


def test_chatter_says_nothing():
    chatter = (TRANSCRIPTS / "03-thought-yolo.stderr").read_text()
    assert error_line(chatter) == ""
    assert error_line(chatter + "\n  The reason.\nMore.") == "The reason."


def test_over_acp():
    ended = ProcessExited("the agent ended", code=55, stderr="")
    assert "trust_workspace" in str(acp_failure(ended))
    assert "set GEMINI_API_KEY" in str(acp_failure(NotSignedIn("The agent is not signed in.")))
    other = AgentRefused("no", code=-32603)
    assert acp_failure(other) is other
