"""What an exit code of Gemini CLI means, as an exception that says what to do."""

from __future__ import annotations

import re

from stagedoor.errors import (
    LaunchError,
    LocalProtocolError,
    NotSignedIn,
    ProcessExited,
    SessionNotFound,
    StagedoorError,
)
from stagedoor.transports.launch import Exited

# Standard error is mostly chatter; these lines never say why a run failed.
_CHATTER = re.compile(
    r"YOLO mode is enabled|Approval mode overridden|Ripgrep is not available|Warning: |\[STARTUP\]|Loaded cached|\s*at "
)


def words(stderr: str) -> str:
    """The first line on standard error that is not chatter."""
    lines = (line.strip() for line in stderr.splitlines())
    return next((line for line in lines if line and not _CHATTER.match(line)), "")


def startup_failure(exited: Exited, *, session_id: str = "") -> StagedoorError:
    """Why a process ended before it began."""
    said = words(exited.stderr) or "nothing"
    match exited.code:
        case 41:
            return NotSignedIn(
                "Gemini CLI is not signed in: set GEMINI_API_KEY, or run gemini once and choose how to sign in. "
                f"It said: {said}"
            )
        case 42 if "resuming session" in exited.stderr:
            return SessionNotFound(
                f"Gemini CLI has no session {session_id} for this folder; list_sessions() shows those it has"
            )
        case 42:
            return LocalProtocolError(f"Gemini CLI refused the input: {said}")
        case 1 if "FatalSandboxError: " in exited.stderr:
            why = exited.stderr.partition("FatalSandboxError: ")[2].partition("\n")[0]
            return LaunchError(f"Gemini CLI cannot make its sandbox here; mend that, or leave sandbox out: {why}")
        case 44:
            return LaunchError(
                f"Gemini CLI cannot sandbox here; install docker or podman, or leave sandbox out: {said}"
            )
        case 52:
            return LaunchError(f"Gemini CLI refuses the settings; correct them: {said}")
        case 55:
            return LaunchError("Gemini CLI does not trust this folder; use trust_workspace=True, or trust it in gemini")
        case 1 if "Usage: gemini" in exited.stderr:
            return LocalProtocolError(f"Gemini CLI refused an option; correct it, or update the CLI: {said}")
        case _:
            return ProcessExited(
                f"Gemini CLI ended before it began, with code {exited.code}: {said}",
                code=exited.code,
                stderr=exited.stderr,
            )


def acp_failure(error: StagedoorError) -> StagedoorError:
    """The same for a session over ACP."""
    if isinstance(error, ProcessExited) and error.code is not None:
        return startup_failure(Exited(error.code, error.stderr))
    if isinstance(error, NotSignedIn):
        return NotSignedIn(
            f"Gemini CLI is not signed in: set GEMINI_API_KEY, or run gemini once and choose how to sign in. ({error})"
        )
    return error
