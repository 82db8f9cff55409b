"""Codex CLI in a folder that nobody trusts.

It trusts a folder by itself as soon as it may write there, so what we decide is always said to it. What no setting
stops are the filters of the repository's git configuration: it runs ``git status`` at every prompt, trusted or not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from ...agents.codex.config import CodexSessionConfig
from ...trust.git_filters import without_filters
from ...trust.project import ProjectPath
from ...unified.options import Options

PROJECT_PATHS = (
    ProjectPath(".codex/config.toml", "settings: tool servers, environment, instructions", "repository"),
    ProjectPath(".codex/hooks.json", "hooks, run once they are approved in Codex", "repository"),
    ProjectPath(".codex/agents", "sub-agents", "repository"),
    ProjectPath(".codex/rules", "rules", "repository"),
    ProjectPath(".agents/skills", "skills, not shown to the model", "repository", is_text=True),
    ProjectPath(".codex/skills", "skills, not shown to the model", "repository", is_text=True),
    ProjectPath("AGENTS.md", "instructions, not read", "repository", is_text=True),
    ProjectPath("AGENTS.override.md", "instructions, not read", "repository", is_text=True),
)


def with_trust(config: CodexSessionConfig, options: Options) -> CodexSessionConfig:
    if options.trust:
        return replace(config, project_trust="trusted")
    environ: Mapping[str, str] = {**os.environ, **options.env} if options.inherit_env else options.env
    quiet = {"skills.include_instructions": False} if _has_skills(options.cwd, environ.get("HOME", "")) else {}
    return replace(
        config,
        project_trust="untrusted",
        env={**config.env, **without_filters(options.cwd, environ)},
        config={**config.config, **quiet},
    )


def _has_skills(cwd: str, home: str) -> bool:
    """Whether the project describes skills to the model: there is no switch for these alone, so it is told of none."""
    folders = [folder for folder in (Path(cwd), *Path(cwd).parents) if str(folder) != home]
    return any(os.path.lexists(folder / place) for folder in folders for place in (".agents/skills", ".codex/skills"))
