"""Where Codex keeps its own things."""

from __future__ import annotations

from collections.abc import Mapping

from ...agents.codex.locate import codex_home
from ..agent import StateFolders
from ..transcripts import Transcript

SETTINGS = ("config.toml", "hooks.json", "rules/", "prompts/", "agents/", "plugins/")


TRANSCRIPT = Transcript(lambda cwd, env: codex_home(env), ("sessions/*/*/*/rollout-*-{id}.jsonl",))


def state_of(env: Mapping[str, str]) -> StateFolders:
    folder = codex_home(env)
    return StateFolders((str(folder),), tuple(f"{folder}/{name}" for name in SETTINGS))
