"""What the command line remembers between runs, in the user's state folder."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..machine.folders import user_folder
from ..whole_file import replace_file


def state_folder(env: Mapping[str, str] = os.environ) -> Path:
    """``$STAGEDOOR_STATE_HOME``, else ``stagedoor`` in the user's folder for state (see ``machine.folders``)."""
    if named := env.get("STAGEDOOR_STATE_HOME"):
        return Path(named)
    return user_folder("state", env) / "stagedoor"


def find_installed_clis() -> None:
    """Let the CLIs be found that ``demo --real`` has installed: behind all that the user's own PATH has."""
    folder = state_folder() / "clis"
    if (programs := folder / "node_modules" / ".bin").is_dir():
        from ..testing.clis import path_with_node

        path = path_with_node({**os.environ, "STAGEDOOR_CLIS": str(folder)})
        os.environ["PATH"] = f"{path}{os.pathsep}{programs}"


def count_unrecognized(agent: str, version: str, count: int) -> None:
    """Add to the messages we could not type, per agent and version. It never fails a run."""
    counts = unrecognized_counts()
    counts.setdefault(agent, {})
    counts[agent][version or "unknown"] = counts[agent].get(version or "unknown", 0) + count
    path = _counts_path()
    with contextlib.suppress(OSError):
        replace_file(path, msgspec.json.encode(counts).decode())


def unrecognized_counts() -> dict[str, dict[str, int]]:
    try:
        return msgspec.json.decode(_counts_path().read_bytes(), type=dict[str, dict[str, int]])
    except (OSError, msgspec.MsgspecError):
        return {}


def audit_path() -> Path:
    """The log of Stagedoor's home: what ``run``, ``parallel`` and the server write, and ``audit`` reads."""
    from ..permissions.audit import FILE_NAME
    from ..register import home

    return home() / FILE_NAME


def with_audit(options: dict[str, Any]) -> dict[str, Any]:
    """The options with the command line's audit log, unless they name another one, or none (``-``)."""
    named = options.get("audit")
    if named == "-":
        return {**options, "audit": None}
    path = Path(named).absolute() if named else audit_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
    except OSError as fault:
        if named:
            raise
        print(f"stagedoor: cannot write {path}: {fault.strerror}; decisions are not logged", file=sys.stderr)
        return options
    return {**options, "audit": str(path)}


def _counts_path() -> Path:
    return state_folder() / "unrecognized.json"
