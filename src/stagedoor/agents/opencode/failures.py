"""Why OpenCode did not begin, as an exception whose sentence says what to do next. Pure."""

from __future__ import annotations

import re

from stagedoor.errors import LaunchError, NotSignedIn, SessionNotFound, StagedoorError
from stagedoor.transports.launch import Exited

INSTALL = "npm install -g opencode-ai"
LEAST_VERSION = (1, 18, 0)
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def startup_failure(exited: Exited, session_id: str | None = None) -> StagedoorError:
    """OpenCode ended before it said anything."""
    said = complaint(exited.stderr)
    if "Session not found" in exited.stderr:
        return unknown_session(session_id or "")
    if "Configuration is invalid" in exited.stderr or "not valid JSON" in exited.stderr:
        return LaunchError(
            f"OpenCode refused its configuration: {said}. Correct permission, settings or the files named"
        )
    if "Unknown argument" in exited.stderr or "Unknown option" in exited.stderr:
        return LaunchError(f"OpenCode does not know an option it was given: {said}. Correct extra_args, or update it")
    return LaunchError(f"opencode ended with code {exited.code} before it began: {said or 'it said nothing'}")


def refused_configuration(said: str) -> LaunchError:
    return LaunchError(f"OpenCode refused its configuration: {said}. Correct permission, settings or the files named")


def unknown_session(session_id: str) -> SessionNotFound:
    return SessionNotFound(f"OpenCode has no session {session_id!r}; list_sessions() names those of this folder")


def no_provider(provider: str | None) -> NotSignedIn:
    if provider is None:
        return NotSignedIn(
            "OpenCode has no provider with credentials and would send everything to its own hosted model; "
            "run `opencode auth login`, or name a model"
        )
    return NotSignedIn(
        f"OpenCode has no credentials for the provider {provider!r}; run `opencode auth login`, or choose another model"
    )


def complaint(stderr: str) -> str:
    """The lines of standard error that matter, without colours."""
    lines = [ANSI.sub("", line).strip() for line in stderr.splitlines()]
    lines = [line for line in lines if line]
    errors = [line for line in lines if line.lower().startswith("error")]
    return " ".join((errors or lines)[-3:])[:600]
