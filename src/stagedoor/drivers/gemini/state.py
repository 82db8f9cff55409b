"""Where Gemini CLI keeps its own things."""

from __future__ import annotations

from collections.abc import Mapping

from ...agents.gemini.store import user_folder
from ..agent import StateFolders

SETTINGS = (
    "settings.json", ".env", "trustedFolders.json", "extensions/", "commands/", "policies/", "hooks/", "skills/",
    "agents/",
)  # fmt: skip


def state_of(env: Mapping[str, str]) -> StateFolders:
    folder = user_folder(env)
    return StateFolders((str(folder),), tuple(f"{folder}/{name}" for name in SETTINGS))
