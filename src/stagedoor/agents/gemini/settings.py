"""The settings file of a session: the user's own, with a little laid over it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from stagedoor.errors import LocalProtocolError

from .config import GeminiConfig


def settings(config: GeminiConfig, user: bytes | None, env: Mapping[str, str]) -> bytes:
    """The settings file of this session: the user's own, and laid over it only what we must and what was asked for."""
    mine = _parsed(user) if user else {}
    ours: dict[str, Any] = {
        "general": {
            "maxAttempts": config.max_attempts,
            # On: every start deletes sessions it takes for empty, and a resume leaves an empty file under the same id.
            "sessionRetention": {"enabled": False},
        },
        # On: shell output does not reach an ACP client.
        "tools": {"shell": {"enableInteractiveShell": False}},
    }
    chosen = _at(mine, "security", "auth", "selectedType")
    auth = config.auth_type or (None if chosen else _auth_by(env))
    if auth:
        ours["security"] = {"auth": {"selectedType": auth}}
    if config.usage_statistics is not None:
        ours["privacy"] = {"usageStatisticsEnabled": config.usage_statistics}
    if config.max_session_turns is not None:
        ours["model"] = {"maxSessionTurns": config.max_session_turns}
    if config.mcp_servers:
        ours["mcpServers"] = {name: msgspec.to_builtins(server) for name, server in config.mcp_servers.items()}
    return json.dumps(merged(merged(mine, ours), dict(config.settings)), indent=1).encode()


def chosen_auth(user: bytes | None) -> str:
    """How the user chose to sign in; empty when the settings do not say, or cannot be read."""
    try:
        chosen = _at(_parsed(user), "security", "auth", "selectedType") if user else None
    except LocalProtocolError:
        return ""
    return chosen if isinstance(chosen, str) else ""


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """``over`` laid over ``under``, object by object; lists and values are replaced whole."""
    result = dict(under)
    for key, value in over.items():
        below = result.get(key)
        both = isinstance(value, dict) and isinstance(below, dict)
        result[key] = merged(cast("dict[str, Any]", below), cast("dict[str, Any]", value)) if both else value
    return result


def _auth_by(env: Mapping[str, str]) -> str | None:
    # With a base URL the CLI would guess "gateway" and then refuse it; without a choice ACP refuses to begin.
    if env.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        return "vertex-ai"
    return "gemini-api-key" if env.get("GEMINI_API_KEY") else None


def _at(value: object, *path: str) -> object:
    for key in path:
        value = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    return value


_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.S)


def _parsed(content: bytes) -> dict[str, Any]:
    """settings.json may have comments."""
    try:
        value: object = json.loads(_COMMENT.sub(lambda match: match[1] or "", content.decode()))
    except ValueError as error:
        raise LocalProtocolError(f"the user's Gemini settings.json is not valid JSON ({error}); correct it") from None
    if not isinstance(value, dict):
        raise LocalProtocolError("the user's Gemini settings.json is not a JSON object; correct it")
    return cast("dict[str, Any]", value)
