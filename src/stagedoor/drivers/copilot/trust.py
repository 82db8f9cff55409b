"""Copilot CLI in a folder that nobody trusts: what can be left out is, and where its hooks would run nothing starts.

Over the protocol it runs the hooks of ``.github/hooks`` whatever it is told, and a hook may answer the questions that
are ours to answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from ...errors import UntrustedProject
from ...trust.project import MOST_NAMED, ProjectPath, project_places
from ...unified.options import Options
from ..confinement import environ_of
from .state import user_folder

HOOKS = ProjectPath(".github/hooks", "hooks", "repository")
AGENTS = (
    ProjectPath(".github/agents", "sub-agents and their tool servers", "repository"),
    ProjectPath(".claude/agents", "sub-agents and their tool servers", "repository"),
)
IF_TRUSTED = (
    ProjectPath(".mcp.json", "tool servers", "repository"),
    ProjectPath(".github/mcp.json", "tool servers", "repository"),
    ProjectPath(".github/copilot", "settings, hooks, plugins", "repository"),
    ProjectPath(".github/extensions", "extensions", "repository"),
    ProjectPath(".claude/settings.json", "hooks", "repository"),
    ProjectPath(".claude/settings.local.json", "hooks", "repository"),
)
"""What it loads where its own list of trusted folders has the folder."""
PROJECT_PATHS = (
    HOOKS,
    *AGENTS,
    *IF_TRUSTED,
    ProjectPath(".github/lsp.json", "language servers", "repository"),
    ProjectPath(".github/skills", "skills", "repository"),
)


def refuse_project(options: Options) -> None:
    """Raise ``UntrustedProject`` where something of the project would run although nobody trusts it."""
    if options.trust:
        return
    environ = environ_of(options)
    paths = (HOOKS, *(IF_TRUSTED if _is_listed(Path(options.cwd), user_folder(environ)) else ()))
    files = [file.path for file, _ in project_places(Path(options.cwd), paths, environ.get("HOME"))]
    if not files:
        return
    named = ", ".join(files[:MOST_NAMED])
    if options.tier == "dry-run":
        advice = "a dry run must run nothing of a project: use another tier, or work where there are none"
    else:
        advice = f"look at them, then run stagedoor trust {options.cwd}, or work where there are none"
    raise UntrustedProject(
        f"Copilot CLI runs the hooks and servers of a project whatever it is told: {named}; {advice}"
    )


def withheld_tools(options: Options) -> tuple[str, ...]:
    """The tools through which a project's own programs would run."""
    if options.trust:
        return ()
    has_agents = next(project_places(Path(options.cwd), AGENTS, environ_of(options).get("HOME")), None) is not None
    return ("lsp", "skill", *(("task",) if has_agents else ()))


def _is_listed(cwd: Path, folder: Path) -> bool:
    """Whether Copilot CLI itself trusts the folder, or one above it; a list that cannot be read may have it."""
    places = {str(place) for place in (cwd.absolute(), *cwd.absolute().parents, cwd.resolve(), *cwd.resolve().parents)}
    return any(
        str(Path(entry)) in places for name in ("config.json", "settings.json") for entry in _list(folder / name)
    )


def _list(file: Path) -> Iterator[str]:
    try:
        lines = file.read_text("utf-8").splitlines()
    except OSError:
        return
    try:
        settings: object = json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))
    except ValueError:
        yield "/"
        return
    members = cast("dict[str, object]", settings) if isinstance(settings, dict) else {}
    for key in ("trustedFolders", "trusted_folders"):
        entries = members.get(key)
        yield from (str(entry) for entry in cast("list[object]", entries)) if isinstance(entries, list) else ()
