"""What OpenCode prints when it does not begin, as errors that say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagedoor.agents.opencode.failures import complaint, no_provider, startup_failure
from stagedoor.errors import LaunchError, NotSignedIn, SessionNotFound, StagedoorError
from stagedoor.transports.launch import Exited

FOLDER = Path(__file__).parents[2] / "transcripts" / "opencode-1.18.33"


@pytest.mark.parametrize(
    ("recording", "error", "says"),
    [
        ("74-resume-unknown", SessionNotFound, r"no session 'ses_x'; list_sessions\(\) names those"),
        (
            "97-bad-config-content",
            LaunchError,
            "refused its configuration: Error: Config file at OPENCODE_CONFIG_CONTENT",
        ),
        ("80-no-prompt", LaunchError, "ended with code 1 before it began: Error: You must provide a message"),
    ],
)
def test_recorded_complaints(recording: str, error: type[StagedoorError], says: str) -> None:
    stderr = (FOLDER / f"{recording}.stderr.txt").read_text()
    failure = startup_failure(Exited(1, stderr), "ses_x")
    assert type(failure) is error
    with pytest.raises(error, match=says):
        raise failure


def test_silence_and_unknown_options() -> None:
    assert str(startup_failure(Exited(-9))) == "opencode ended with code -9 before it began: it said nothing"
    assert "Correct extra_args" in str(startup_failure(Exited(1, "Unknown argument: nonsense\n")))
    assert complaint("\x1b[91m\x1b[1mError: \x1b[0mOh\n") == "Error: Oh"


@pytest.mark.parametrize("provider", [None, "anthropic"])
def test_no_provider(provider: str | None) -> None:
    failure = no_provider(provider)
    assert isinstance(failure, NotSignedIn)
    assert "opencode auth login" in str(failure)
