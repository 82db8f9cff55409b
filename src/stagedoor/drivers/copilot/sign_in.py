"""Whether Copilot CLI has what it needs to reach a model. No model is called."""

from __future__ import annotations

from collections.abc import Mapping

from ..inspection import SignIn
from .state import user_folder

TOKENS = ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_BASE_URL")


def sign_in(env: Mapping[str, str]) -> SignIn:
    if any(env.get(name) for name in TOKENS):
        return True, "", ""
    if (user_folder(env) / "config.json").exists():
        return None, "", ""  # it may have signed in: what it needs is in the system's keychain
    fix = "run copilot login, or set COPILOT_GITHUB_TOKEN, or COPILOT_PROVIDER_BASE_URL and COPILOT_MODEL"
    return False, "Copilot CLI is not signed in", fix
