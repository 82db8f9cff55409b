"""The settings with which Gemini CLI talks to nobody but a scripted model."""

from __future__ import annotations

import json
from pathlib import Path

from ..agent import ScriptedSettings


def scripted_settings(url: str, home: Path, cwd: str, model: str, key: str) -> ScriptedSettings:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {
            "enableAutoUpdate": False,
            "enableAutoUpdateNotification": False,
            "sessionRetention": {"enabled": False},  # otherwise a resumed session may be deleted
            "maxAttempts": 2,
        },
        "tools": {"shell": {"enableInteractiveShell": False}},
    }
    env = {
        "GEMINI_API_KEY": key,
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_MODEL": model,
        "GEMINI_CLI_HOME": str(home),
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    return ScriptedSettings(env, {".gemini/settings.json": json.dumps(settings, indent=2)})
