"""The settings with which Qwen Code talks to nobody but a scripted model."""

from __future__ import annotations

import json
from pathlib import Path

from ..agent import ScriptedSettings


def scripted_settings(url: str, home: Path, cwd: str, model: str, key: str) -> ScriptedSettings:
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
        "model": {"name": model},
    }
    env = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key, "OPENAI_MODEL": model, "QWEN_HOME": f"{home}/.qwen"}
    return ScriptedSettings(env, {".qwen/settings.json": json.dumps(settings, indent=2)})
