"""The server that runs for this user on this machine: ``run`` and ``chat`` use it where nothing changes by it.

Nothing is sent to a program that has not proven to be ours, and a file that a dead server has left costs nothing.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import StagedoorError
from ...register import home
from ...unified.options import Options

LOCAL = "STAGEDOOR_LOCAL"
"""With any value but 0 in the environment, as ``--local``."""
SECONDS = 10.0
"""For a server on a busy machine: one that is not heard in time would not be used, nor its rules."""
_FLAGS = {
    "images": "--image",
    "extra_args": "--extra-arg",
    "inherit_env": "--no-inherit-env",
    "watch_files": "--no-watch-files",
}


async def can_run_there(agent: str, options: Mapping[str, Any], *, local: bool, command: str) -> bool:
    """Whether a server runs that would run this just as we would. Why not is said to a person only."""
    if local or os.environ.get(LOCAL, "0") not in ("", "0"):
        return False
    if not (home() / "server.json").exists():
        return False  # before anything is imported for it
    from ...server.running import find_own_server

    if await asyncio.to_thread(find_own_server, home(), seconds=SECONDS) is None:
        return False
    why = _refused(options) or await asyncio.to_thread(_why_not_there, agent, options)
    if why and sys.stderr.isatty():
        print(f"stagedoor {command}: not in the running server: {why}", file=sys.stderr)
    return not why


def with_whole_path(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same machine has the same folders, by their whole path."""
    return {**options, "cwd": str(Path(options.get("cwd", ".")).resolve())}


def for_server(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the server gets them: everything is named that it would otherwise choose itself."""
    from ...trust.record import TrustRecord

    folder = Path(options.get("cwd", ".")).resolve()
    trust = options.get("trust")
    return {
        **options,
        "cwd": str(folder),
        "tier": options.get("tier") or Options().tier,
        "trust": TrustRecord().covers(folder) if trust is None else trust,
        "permission_timeout": options.get("permission_timeout", Options().permission_timeout),
        "only_refusing": True,
    }


def _refused(options: Mapping[str, Any]) -> str:
    from ...remote.client import REFUSED

    if options.get("resume") is not None:
        return "a session that an agent has stored is resumed here (chat --attach continues one of the server)"
    if options.get("permission_timeout", 0) is None:
        return "there a question never waits forever"
    for name in options:
        if name in REFUSED:
            return f"{_FLAGS.get(name, '--' + name.replace('_', '-'))} has a meaning only here"
    return ""


def _why_not_there(agent: str, options: Mapping[str, Any]) -> str:
    from ...server.running import send_request
    from ...service.terminal import TerminalBody, digests

    salt = secrets.token_hex(16)
    folder = str(Path(options.get("cwd", ".")).resolve())
    body = TerminalBody(agent=agent, cwd=folder, salt=salt, environment=digests(salt))
    try:
        answer: dict[str, str] = send_request(home(), "POST", "/api/terminal", body, seconds=SECONDS)
    except (StagedoorError, OSError) as fault:
        return str(fault)
    return answer["why"]
