"""Where OpenCode keeps its own things."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..agent import StateFolders

PLACES = (("XDG_DATA_HOME", ".local/share"), ("XDG_STATE_HOME", ".local/state"), ("XDG_CACHE_HOME", ".cache"))
CONFIG = ("XDG_CONFIG_HOME", ".config")
SETTINGS = (
    "opencode.json", "opencode.jsonc", "config.json", "plugin/", "plugins/", "agent/", "agents/", "command/",
    "commands/", "tool/", "tools/", "skill/", "skills/", "mode/", "modes/",
)  # fmt: skip
INSTALLED = ("bin", "node_modules", "package.json", "packages", "AGENTS.md")
"""What it has installed: programs, plugins and providers that it runs."""


def state_of(env: Mapping[str, str]) -> StateFolders:
    config = _folder(env, *CONFIG)
    folders = (*(_folder(env, *place) for place in PLACES), config)
    installed = [place for folder in folders for name in INSTALLED if (place := Path(folder) / name).exists()]
    return StateFolders(folders, (*(f"{config}/{name}" for name in SETTINGS), *map(str, installed)))


def _folder(env: Mapping[str, str], variable: str, usual: str) -> str:
    home = Path(env.get("HOME") or Path.home())
    return str(Path(env.get(variable) or home / usual) / "opencode")
