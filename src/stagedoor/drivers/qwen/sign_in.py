"""Whether Qwen Code has what it needs to reach a model. No model is called."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..inspection import SignIn
from ..stored import table, text
from .state import user_folder

KEYS = {
    "openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY",
    "vertex-ai": "GOOGLE_API_KEY",
}  # fmt: skip
"""The ways to sign in by a key → the variable that holds it."""


def sign_in(env: Mapping[str, str]) -> SignIn:
    folder = user_folder(env)
    settings = _settings(folder / "settings.json")
    chosen = text(table(table(settings.get("security")).get("auth")).get("selectedType"))
    named = KEYS.get(chosen or "openai", "")
    if chosen and not named:
        return None, "", ""  # an account: the program keeps what it needs itself
    stored = text(table(table(settings.get("security")).get("auth")).get("apiKey")) or table(settings.get("env"))
    if env.get(named) or stored or settings.get("modelProviders") or _in_env_file(folder, named):
        return True, "", ""
    return False, "Qwen Code is not signed in", f"set {named}, or run qwen once and choose how to sign in with /auth"


def _settings(path: Path) -> dict[str, Any]:
    try:
        return table(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def _in_env_file(folder: Path, name: str) -> bool:
    for path in (folder / ".env", folder.parent / ".env"):
        try:
            if f"{name}=" in path.read_text("utf-8", "replace"):
                return True
        except OSError:
            continue
    return False
