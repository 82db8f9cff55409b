"""Qwen Code in a folder that nobody trusts: its own folder trust, switched on and answered with no.

Without it everything of a project takes part: hooks, permissions that allow, ``.env``. With it no tool server starts,
not even one of the user's. So a folder in which there is nothing to load runs as a trusted one, but for its texts.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from ...errors import UntrustedProject
from ...trust.folders import repository_root
from ...trust.git_filters import without_filters
from ...trust.project import MOST_NAMED, ProjectPath, project_places
from ...unified.options import Options
from ..confinement import environ_of

PROJECT_PATHS = (
    ProjectPath(".qwen", "settings, hooks, permissions, tool servers, commands", "parents"),
    ProjectPath(".agents", "skills", "parents"),
    ProjectPath(".mcp.json", "tool servers", "parents"),
    ProjectPath(".env", "environment", "parents"),
    ProjectPath("QWEN.md", "instructions, not read", "parents", is_text=True),
    ProjectPath("AGENTS.md", "instructions, not read", "parents", is_text=True),
)
FILES = tuple(path for path in PROJECT_PATHS if not path.is_text)
AGENTS = (ProjectPath(".qwen/agents", "agents", "parents"),)
"""Its restricted mode still tells the model of these, in the descriptions of two tools: then those are left out."""
ALWAYS_READ = (
    ProjectPath(".qwen/skills", "skills", "parents"),
    ProjectPath(".agents/skills", "skills", "parents"),
    ProjectPath(".qwen/output-language.md", "instructions", "parents"),
)
"""And of these whatever one says."""
FOLDER_TRUST: dict[str, Any] = {"security": {"folderTrust": {"enabled": True}}}


def is_restricted(options: Options) -> bool:
    """Whether it must run in the CLI's restricted mode. Raises ``UntrustedProject`` where it cannot."""
    if options.trust:
        return False
    home = environ_of(options).get("HOME")
    files = [file.path for file, _ in project_places(Path(options.cwd), FILES, home)]
    for file, _ in project_places(Path(options.cwd), ALWAYS_READ, home):
        raise UntrustedProject(
            f"Qwen Code tells the model what stands in {file.path}, also in a folder that is not trusted: remove it, "
            f"or look at it and run stagedoor trust {options.cwd}"
        )
    if files and options.mcp_servers:
        named = ", ".join(files[:MOST_NAMED])
        way = "use another tier" if options.tier == "dry-run" else f"look at it and run stagedoor trust {options.cwd}"
        raise UntrustedProject(
            f"Qwen Code starts no tool servers in a folder that is not trusted, not even yours ({named}): leave "
            f"mcp_servers out, or {way}"
        )
    return bool(files)


def withheld_tools(options: Options) -> list[str]:
    """The tools whose descriptions would repeat what an untrusted project wrote."""
    if options.trust:
        return []
    cwd, home = Path(options.cwd), environ_of(options).get("HOME")
    return ["agent", "list_agents"] if any(project_places(cwd, AGENTS, home)) else []


def unread_instructions() -> dict[str, Any]:
    """Settings under which it reads no instructions: a file of this name is nowhere."""
    return {"context": {"fileName": [f"{uuid.uuid4().hex}.md"]}}


def folder_list(options: Options, *, trusted: bool) -> str:
    """The CLI's list of folders, with what we decided for this one and its repository."""
    cwd = Path(options.cwd).resolve()
    places = dict.fromkeys((str(Path(options.cwd).absolute()), str(cwd), str(repository_root(cwd) or cwd)))
    return json.dumps(dict.fromkeys(places, "TRUST_FOLDER" if trusted else "DO_NOT_TRUST"))


def git_environment(options: Options) -> dict[str, str]:
    """It asks git for the state of the work tree at each start."""
    return without_filters(options.cwd, environ_of(options))
