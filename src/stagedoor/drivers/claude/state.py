"""Where Claude Code keeps its own things."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from ...agents.claude.history import config_folder, folder_name
from ..agent import StateFolders
from ..transcripts import Transcript

SETTINGS = ("settings.json", "hooks/", "commands/", "agents/", "skills/", "plugins/", "output-styles/", "rules/")
NOT_ALWAYS_THERE = (".claude.json", "CLAUDE.md", "local")
"""With ``CLAUDE_CONFIG_DIR`` its MCP servers and trusted folders are in the first. The last is where it installs
itself."""


def project_folder(cwd: str, env: Mapping[str, str]) -> Path:
    """Where it keeps the sessions of a working directory."""
    return Path(config_folder(env)) / "projects" / folder_name(unicodedata.normalize("NFC", os.path.realpath(cwd)))


TRANSCRIPT = Transcript(project_folder, ("{id}.jsonl", "{id}/**"))


def state_of(env: Mapping[str, str]) -> StateFolders:
    folder = Path(config_folder(env))
    more = [name for name in NOT_ALWAYS_THERE if (folder / name).exists()]
    return StateFolders((str(folder),), tuple(f"{folder}/{name}" for name in (*SETTINGS, *more)))
