"""OpenCode in a folder that nobody trusts: its switches, and the refusal where there is none.

It evaluates a project's plugins at the first prompt whatever is set: a second loader knows none of its switches. So
where there are any, no session starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ...agents.opencode.config import OpenCodeSessionConfig
from ...errors import UntrustedProject
from ...trust.project import LARGEST, MOST_NAMED, ProjectPath, project_places
from ...unified.events import ProjectFile
from ...unified.options import Options

CONFIGS = tuple(f"{folder}opencode.{kind}" for folder in ("", ".opencode/") for kind in ("json", "jsonc"))
PLUGINS = (".opencode/plugin", ".opencode/plugins")
# Up to / even inside a repository: OpenCode stops at the root that git names, and a .git that git refuses is no root.
PROJECT_PATHS = (
    *(ProjectPath(name, "settings: tool servers, plugins, formatters, permissions", "parents")
      for name in CONFIGS),
    *(ProjectPath(name, "plugins", "parents") for name in PLUGINS),
    *(ProjectPath(f".opencode/{name}", "tools", "parents") for name in ("tool", "tools")),
    *(ProjectPath(f".opencode/{name}", "commands", "parents") for name in ("command", "commands")),
    *(ProjectPath(f".opencode/{name}", "sub-agents and modes", "parents")
      for name in ("agent", "agents", "mode", "modes")),
    *(ProjectPath(f"{name}/skills", "skills", "parents") for name in (".opencode", ".claude", ".agents")),
    ProjectPath(".opencode/skill", "skills", "parents"),
    *(ProjectPath(name, "instructions, not read", "parents", is_text=True)
      for name in ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")),
)  # fmt: skip
OFF = {
    "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
    "OPENCODE_DISABLE_EXTERNAL_SKILLS": "1",
    "OPENCODE_DISABLE_CLAUDE_CODE": "1",
}


def with_trust(config: OpenCodeSessionConfig, options: Options) -> OpenCodeSessionConfig:
    if options.trust:
        return config
    # Its own formatters and language servers are looked for in the project's node_modules.
    settings = {**config.settings, "formatter": False, "lsp": False}
    return replace(config, env={**config.env, **OFF}, settings=settings)


def refuse_plugins(options: Options, home: str | None) -> None:
    """Raise ``UntrustedProject`` where the project has plugins that would run although nobody trusts it."""
    if options.trust:
        return
    files = [*plugin_files(Path(options.cwd), home)]
    if not files:
        return
    named = ", ".join(file.path for file in files[:MOST_NAMED])
    if options.tier == "dry-run":
        advice = "a dry run must run nothing of a project: use another tier, or work where there are none"
    else:
        advice = f"look at them, then run stagedoor trust {options.cwd}, or work where there are none"
    raise UntrustedProject(f"OpenCode always runs the plugins of a project: {named}; {advice}")


def plugin_files(cwd: Path, home: str | None) -> Iterator[ProjectFile]:
    for file, _ in project_places(cwd, PROJECT_PATHS, home):
        if file.kind == "plugins" or (file.path.endswith((".json", ".jsonc")) and _names_plugins(Path(file.path))):
            yield file


def _names_plugins(file: Path) -> bool:
    """Whether a configuration has plugins; one that cannot be read might."""
    try:
        if file.stat().st_size > LARGEST:
            return True
        members = msgspec.json.decode(_without_comments(file.read_text("utf-8-sig")), type=dict[str, Any])
    except (OSError, ValueError, RecursionError):
        return True
    return any("plugin" in key.lower() for key in members)


_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.S)
_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.S)


def _without_comments(text: str) -> str:
    plain = _COMMENT.sub(lambda match: match[1] or "", text)
    return _COMMA.sub(lambda match: match[1] or "", plain)
