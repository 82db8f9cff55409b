"""The environment in which a real CLI talks to nobody but the scripted model, and touches nothing but its own home."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

KEY = "sk-scripted-000000000000000000000000"
_NOWHERE = "http://127.0.0.1:9/"
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "SYSTEMROOT")


class Environment(msgspec.Struct, frozen=True):
    """Start the agent with exactly these variables (not on top of your own) and ask for this model."""

    agent: str
    env: dict[str, str]
    home: Path
    model: str


class _Settings(msgspec.Struct):
    env: dict[str, str]
    files: dict[str, str]
    once: bool = False  # the agent keeps its own state in them: written when the home is new, then left alone


def environment_for(
    agent: str, url: str, home: Path, cwd: Path | None, model: str | None, caller: Mapping[str, str]
) -> Environment:
    """Write the settings of this agent below ``home`` and return its environment."""
    if agent not in _AGENTS:
        raise ValueError(f"no environment for {agent!r}: choose one of {', '.join(_AGENTS)}")
    default, settings_for = _AGENTS[agent]
    home = home.resolve()
    home.mkdir(parents=True, exist_ok=True)
    temporary = home / "tmp"
    temporary.mkdir(exist_ok=True)
    chosen = model or default
    settings = settings_for(url, home, str((cwd or Path.cwd()).resolve()), chosen)
    for name, text in settings.files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not (settings.once and path.exists()):
            path.write_text(text)
    kept = {name: caller[name] for name in _KEPT if name in caller}
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        **kept,
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "SHELL": "/bin/bash",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "NO_COLOR": "1",
        "DO_NOT_TRACK": "1",
        **{f"XDG_{kind}_HOME": str(home / folder) for kind, folder in _XDG.items()},
        **settings.env,
    }
    return Environment(agent, env, home, chosen)


_XDG = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}


def _claude(url: str, home: Path, cwd: str, model: str) -> _Settings:
    folder = home / ".claude"
    env = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
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
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {cwd: {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
    }
    settings = {"skipWebFetchPreflight": True, "includeCoAuthoredBy": False}
    files = {".claude/.claude.json": json.dumps(state, indent=2), ".claude/settings.json": json.dumps(settings)}
    return _Settings(env, files, once=True)


def _codex(url: str, home: Path, cwd: str, model: str) -> _Settings:
    config = f"""\
model = {json.dumps(model)}
model_provider = "scripted"
check_for_update_on_startup = false

[model_providers.scripted]
name = "Scripted"
base_url = {json.dumps(url + "/v1")}
wire_api = "responses"
env_key = "SCRIPTED_API_KEY"
request_max_retries = 1
stream_max_retries = 1

[analytics]
enabled = false

[features]
plugins = false
unbounded_connection_retries = false

[tools.update_plan]
enabled = true

[projects.{json.dumps(cwd)}]
trust_level = "trusted"
"""
    env = {"CODEX_HOME": str(home / ".codex"), "SCRIPTED_API_KEY": KEY}
    return _Settings(env, {".codex/config.toml": config})


def _gemini(url: str, home: Path, cwd: str, model: str) -> _Settings:
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
        "GEMINI_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_MODEL": model,
        "GEMINI_CLI_HOME": str(home),
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    return _Settings(env, {".gemini/settings.json": json.dumps(settings, indent=2)})


def _opencode(url: str, home: Path, cwd: str, model: str) -> _Settings:
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
                "options": {"baseURL": url + "/v1", "apiKey": KEY},
                "models": {name: offered},
            }
        },
    }
    env = {
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_SHARE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "npm_config_registry": _NOWHERE,  # it installs a plugin in the background at each start, there is no switch
    }
    return _Settings(env, {".config/opencode/opencode.json": json.dumps(config, indent=2)})


_AGENTS: Mapping[str, tuple[str, Callable[[str, Path, str, str], _Settings]]] = {
    "claude": ("claude-sonnet-4-5", _claude),
    "codex": ("gpt-5.5", _codex),
    "gemini": ("gemini-2.5-flash", _gemini),
    "opencode": ("scripted/scripted-model", _opencode),
}
AGENTS: tuple[str, ...] = tuple(_AGENTS)
