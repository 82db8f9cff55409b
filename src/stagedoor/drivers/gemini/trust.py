"""Gemini CLI in a folder that nobody trusts.

Its restricted mode loads nothing of the project, but nothing of the user's tool servers and hooks either, and a
headless run refuses it. ``--skip-trust`` is no way out: it trusts the folder wholly as soon as the settings are read
again, ten seconds later. So a folder in which there is nothing to load runs as a trusted one; where there is something,
it runs restricted, and what cannot run restricted is refused.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ...agents.gemini import GeminiDriver, GeminiSessionConfig
from ...errors import UntrustedProject
from ...trust.project import MOST_NAMED, ProjectPath, project_places
from ...unified.events import ProjectFile
from ...unified.options import Options

ENVIRONMENT = ProjectPath(".env", "environment", "parents")
INSTRUCTIONS = ProjectPath("GEMINI.md", "instructions, not read", "parents", is_text=True)
PROJECT_PATHS = (
    ProjectPath(".gemini", "settings, hooks, tool servers, commands, skills, environment", "parents"),
    ProjectPath(".agents", "skills", "parents"),
    ENVIRONMENT,
    INSTRUCTIONS,
)


def with_trust(config: GeminiSessionConfig, options: Options, home: str | None) -> GeminiSessionConfig:
    """Raises ``UntrustedProject`` where the project would take part although nobody trusts it."""
    if options.trust:
        return replace(config, trust_workspace=True)
    restricted = config.driver is GeminiDriver.ACP and not config.mcp_servers
    if restricted and loaded_files(options, home):
        return replace(config, trust_workspace=False)

    def check_workspace() -> None:
        files = loaded_files(options, home)
        if files:
            raise UntrustedProject(_refusal(files, config, options))

    check_workspace()
    settings: dict[str, Any] = {**config.settings, "advanced": {"ignoreLocalEnv": True}}
    if next(project_places(Path(options.cwd), [INSTRUCTIONS], home), None) is not None:
        settings["context"] = {"fileName": [f"{uuid.uuid4().hex}.md"]}  # a file of this name is nowhere
    return replace(config, trust_workspace=True, check_workspace=check_workspace, settings=settings)


def loaded_files(options: Options, home: str | None) -> list[ProjectFile]:
    """What the CLI would load in a trusted folder, although it is told to leave ``.env`` alone."""
    paths = [path for path in PROJECT_PATHS if path is not ENVIRONMENT and not path.is_text]
    return [file for file, _ in project_places(Path(options.cwd), paths, home)]


def _refusal(files: list[ProjectFile], config: GeminiSessionConfig, options: Options) -> str:
    named = ", ".join(file.path for file in files[:MOST_NAMED])
    if config.driver is GeminiDriver.ACP:
        reason = "Gemini CLI starts no tool servers in a folder that is not trusted, not even yours"
        way = "leave mcp_servers out"
    else:
        reason = "Gemini CLI runs without a terminal only in a folder that is trusted, with all that is in it"
        way = "use driver acp"
    if options.tier == "dry-run":
        return f"{reason}, and a dry run must run nothing of a project ({named}): {way}, or use another tier"
    return f"{reason} ({named}): {way}, or look at it and run stagedoor trust {options.cwd}"
