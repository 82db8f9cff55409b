"""How a command ends: the exit code of an outcome, and one clear line for an error."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from . import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_LIMIT,
    EXIT_NOT_INSTALLED,
    EXIT_NOT_SIGNED_IN,
    EXIT_SUCCESS,
    EXIT_USAGE,
)

EXTRAS = {
    "h11": "testing",
    "httpx": "http",
    "websockets": "websocket",
    "mcp": "mcp",
    "starlette": "server",
    "uvicorn": "server",
    "segno": "server",
    "watchfiles": "server",
}


def code_of_status(status: str, error_kinds: Iterable[str] = ()) -> int:
    """The exit code of ``done``, given the kinds of the fatal errors that came before it."""
    kinds = set(error_kinds)
    if status == "success":
        return EXIT_SUCCESS
    if status in ("max_turns", "max_budget") or "timeout" in kinds:
        return EXIT_LIMIT
    if status == "interrupted":
        return EXIT_INTERRUPTED
    return EXIT_NOT_SIGNED_IN if "authentication_failed" in kinds else EXIT_FAILED


def code_of_error(error: BaseException) -> int:
    from ..errors import (
        BadRequest,
        ConfigError,
        NotAllowed,
        NotInstalled,
        NotSignedIn,
        NotSupported,
        PolicyError,
        SessionNotFound,
        UnsupportedVersion,
    )

    match error:
        case NotSignedIn():
            return EXIT_NOT_SIGNED_IN
        case NotInstalled() | UnsupportedVersion() | ModuleNotFoundError():
            return EXIT_NOT_INSTALLED
        case (
            BadRequest()
            | NotAllowed()
            | NotSupported()
            | PolicyError()
            | ConfigError()
            | SessionNotFound()
            | ValueError()
        ):
            return EXIT_USAGE
        case _:
            return EXIT_FAILED


def sentence(error: BaseException) -> str:
    """What is said of an error: never a traceback, never empty."""
    if isinstance(error, ModuleNotFoundError):
        if error.name in EXTRAS:
            return f"{error.name} is not installed; run: pip install 'stagedoor[{EXTRAS[error.name]}]'"
        return f"{error.name} is not part of this installation; reinstall Stagedoor, or choose another agent"
    return str(error).strip() or type(error).__name__


def report(command: str, error: BaseException) -> int:
    """Say the error on stderr; returns its exit code."""
    print(f"stagedoor {command}: {sentence(error)}", file=sys.stderr)
    return code_of_error(error)
