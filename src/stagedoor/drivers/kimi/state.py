"""Where Kimi Code keeps its own things."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..agent import StateFolders

SETTINGS = ("config.toml", "mcp.json", "workspace-trust/", "plugins/", "skills/", "agents/", "AGENTS.md")


def user_folder(env: Mapping[str, str]) -> Path:
    if named := env.get("KIMI_CODE_HOME"):
        return Path(named)
    return Path(env.get("HOME") or os.path.expanduser("~")) / ".kimi-code"  # noqa: PTH111 (of this environment)


def state_of(env: Mapping[str, str]) -> StateFolders:
    folder = user_folder(env)
    return StateFolders((str(folder),), tuple(f"{folder}/{name}" for name in SETTINGS))
