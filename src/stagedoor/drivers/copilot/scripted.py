"""The settings with which Copilot CLI talks to nobody but a scripted model."""

from __future__ import annotations

import tempfile
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
        # It unpacks 235 MB there at its first start: once for all homes.
        "XDG_CACHE_HOME": str(Path(tempfile.gettempdir()) / "stagedoor-scripted-copilot"),
    }
    return ScriptedSettings(env)
