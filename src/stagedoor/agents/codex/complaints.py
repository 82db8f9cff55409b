"""What Codex says on standard error when it does not even start, as exceptions that say what to do."""

from __future__ import annotations

from ...errors import AgentRefused, LaunchError, SessionNotFound, StagedoorError
from ...transports.launch import Exited

UNKNOWN_SESSION = "Codex has no session {!r}; list_sessions() names those of this folder"


def unknown_session(session_id: str) -> SessionNotFound:
    return SessionNotFound(UNKNOWN_SESSION.format(session_id))


def failure(exited: Exited, session_id: str | None = None) -> StagedoorError:
    """Why Codex ended before it named a thread or answered a greeting."""
    words = complaint(exited.stderr)
    if "no rollout found" in exited.stderr:
        return unknown_session(session_id or "")
    if "active writer" in exited.stderr:
        return AgentRefused(f"session {session_id!r} is in use by another Codex process; end that one first")
    if "Not inside a trusted directory" in exited.stderr:
        return LaunchError("the folder is no git repository; leave require_git_repo off, or run `git init` there")
    if exited.code == 2:
        return LaunchError(f"Codex does not know an option it was given ({words}); correct extra_args, or update Codex")
    return LaunchError(f"Codex ended with code {exited.code} before it began: {words or 'it said nothing'}")


def complaint(stderr: str) -> str:
    """The line of standard error that matters: the one that says error, else the last."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not line.startswith("WARNING: ")]
    said = [line for line in lines if line.lower().startswith("error")]
    return (said or lines or [""])[-1]
