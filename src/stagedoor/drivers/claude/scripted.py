"""The settings with which Claude Code talks to nobody but a scripted model."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ..agent import ScriptedSettings


def scripted_settings(url: str, home: Path, cwd: str, model: str, key: str) -> ScriptedSettings:
    folder = home / ".claude"
    env = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        "ANTHROPIC_MODEL": model,
        "CLAUDE_CONFIG_DIR": str(folder),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "2",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        env["IS_SANDBOX"] = "1"  # without it the bypass mode refuses to run as root
    state = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [key[-20:]], "rejected": []},
        "projects": {cwd: {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
    }
    settings = {"skipWebFetchPreflight": True, "includeCoAuthoredBy": False}
    files = {".claude/.claude.json": json.dumps(state, indent=2), ".claude/settings.json": json.dumps(settings)}
    return ScriptedSettings(env, files, once=True)
