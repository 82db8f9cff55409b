"""Where Copilot CLI keeps its own things."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..agent import StateFolders

SETTINGS = ("settings.json", "mcp-config.json", "lsp-config.json", "hooks/", "agents/", "skills/", "installed-plugins/")


def user_folder(env: Mapping[str, str]) -> Path:
    if named := env.get("COPILOT_HOME"):
        return Path(named)
    return Path(env.get("HOME") or os.path.expanduser("~")) / ".copilot"  # noqa: PTH111 (of this environment)


def cache_folder(env: Mapping[str, str]) -> Path:
    named = env.get("XDG_CACHE_HOME")
    return Path(named) if named else Path(env.get("HOME") or os.path.expanduser("~")) / ".cache"  # noqa: PTH111


def state_of(env: Mapping[str, str]) -> StateFolders:
    """Its own program is unpacked into the cache at the first start."""
    folder, cache = user_folder(env), cache_folder(env)
    return StateFolders(
        (str(folder), f"{cache}/copilot", f"{cache}/Microsoft"), tuple(f"{folder}/{name}" for name in SETTINGS)
    )
