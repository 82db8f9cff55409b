"""Whether Kimi Code has what it needs to reach a model. No model is called."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from ..inspection import SignIn
from .state import user_folder


def sign_in(env: Mapping[str, str]) -> SignIn:
    folder = user_folder(env)
    if not shutil.which("rg", path=env.get("PATH")):
        return (
            None,
            "rg (ripgrep) was not found: without it Kimi Code can neither search nor find files",
            "install ripgrep",
        )
    try:
        configured = "default_model" in (folder / "config.toml").read_text("utf-8", "replace")
    except OSError:
        configured = False
    if configured or env.get("KIMI_MODEL_NAME") or env.get("KIMI_API_KEY"):
        return True, "", ""
    return False, "Kimi Code is not signed in", "run kimi login, or set KIMI_MODEL_NAME and KIMI_MODEL_API_KEY"
