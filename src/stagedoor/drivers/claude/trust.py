"""Claude Code in a folder that nobody trusts: started so that nothing of the project takes part.

It knows no trust of folders in this mode: without these switches hooks, helpers and servers run before the first
prompt, and the project's ``env`` may send the key elsewhere.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...agents.claude.config import ClaudeSessionConfig
from ...trust.project import ProjectPath
from ...unified.options import Options

PROJECT_PATHS = (
    ProjectPath(".claude/settings.json", "settings: hooks, helpers, environment"),
    ProjectPath(".claude/settings.local.json", "settings: hooks, helpers, environment", "repository"),
    ProjectPath(".mcp.json", "tool servers", "parents"),
    ProjectPath(".claude/scheduled_tasks.json", "scheduled prompts"),
    ProjectPath(".claude/commands", "commands", "repository"),
    ProjectPath(".claude/skills", "skills", "repository"),
    ProjectPath(".claude/agents", "sub-agents", "repository"),
    ProjectPath("CLAUDE.md", "instructions, not read", "repository or parents", is_text=True),
    ProjectPath("CLAUDE.local.md", "instructions, not read", "repository or parents", is_text=True),
    ProjectPath(".claude/CLAUDE.md", "instructions, not read", is_text=True),
    ProjectPath(".claude/rules", "instructions, not read", is_text=True),
)

OFF = {
    # No other switch stops the prompts that a project has scheduled.
    "CLAUDE_CODE_DISABLE_CRON": "1",
    # Its git status would run the repository's file monitor and filters.
    "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1",
}


def with_trust(config: ClaudeSessionConfig, options: Options) -> ClaudeSessionConfig:
    if options.trust:
        return config
    return replace(config, setting_sources=("user",), env={**config.env, **OFF})
