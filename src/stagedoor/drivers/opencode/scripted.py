"""The settings with which OpenCode talks to nobody but a scripted model."""

from __future__ import annotations

import json
from pathlib import Path

from ..agent import ScriptedSettings

_MODELS = ".cache/opencode/no-models.json"


def scripted_settings(url: str, home: Path, cwd: str, model: str, key: str) -> ScriptedSettings:
    provider, _, name = model.partition("/")
    offered = {
        "name": "Scripted",
        "tool_call": True,
        "reasoning": True,
        "limit": {"context": 128_000, "output": 8_192},
        "cost": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "model": model,
        "small_model": model,
        "enabled_providers": [provider],
        "provider": {
            provider: {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Scripted",
                "options": {"baseURL": url + "/v1", "apiKey": key},
                "models": {name: offered},
            }
        },
    }
    env = {
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_SHARE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        # It carries a list of some thousand models and reads all of them at each start: half of the time a turn takes.
        "OPENCODE_MODELS_PATH": str(home / _MODELS),
        # A test is over before optimized code and a collector with threads of its own pay for themselves.
        "BUN_JSC_useFTLJIT": "0",
        "BUN_JSC_useConcurrentGC": "0",
        "BUN_JSC_thresholdForJITAfterWarmUp": "3000",
        "BUN_JSC_thresholdForOptimizeAfterWarmUp": "10000",
        # It installs a plugin in the background at each start; there is no switch.
        "npm_config_registry": "http://127.0.0.1:9/",
    }
    files = {".config/opencode/opencode.json": json.dumps(config, indent=2), _MODELS: "{}"}
    return ScriptedSettings(env, files)
