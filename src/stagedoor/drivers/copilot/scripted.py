"""The settings with which Copilot CLI talks to nobody but a scripted model."""

from __future__ import annotations

from pathlib import Path

from ..agent import ScriptedSettings


def scripted_settings(url: str, home: Path, cwd: str, model: str, key: str) -> ScriptedSettings:
    env = {
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": key,
        "COPILOT_MODEL": model,
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_HOME": str(home / ".copilot"),
    }
    return ScriptedSettings(env)
