"""The settings with which Kimi Code talks to nobody but a scripted model."""

from __future__ import annotations

from pathlib import Path

from ..agent import ScriptedSettings

CONFIG = """\
telemetry = false

[loop_control]
max_attempts_per_step = 2
"""


def scripted_settings(url: str, home: Path, cwd: str, model: str, key: str) -> ScriptedSettings:
    env = {
        "KIMI_MODEL_NAME": model,
        "KIMI_MODEL_BASE_URL": f"{url}/v1",
        "KIMI_MODEL_API_KEY": key,
        "KIMI_MODEL_PROVIDER_TYPE": "openai",
        "KIMI_MODEL_MAX_CONTEXT_SIZE": "200000",
        "KIMI_MODEL_CAPABILITIES": "thinking,image_in",
        "KIMI_CODE_HOME": str(home / ".kimi-code"),
        "KIMI_DISABLE_TELEMETRY": "1",
        "KIMI_CODE_NO_AUTO_UPDATE": "1",
    }
    return ScriptedSettings(env, {".kimi-code/config.toml": CONFIG})
