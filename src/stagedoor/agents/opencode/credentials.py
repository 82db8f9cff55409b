"""Whether OpenCode has the credentials of any provider, judged from what it would read. Nothing is called."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

_KEYS = ("_API_KEY", "_API_TOKEN", "_AUTH_TOKEN")
_OTHERS = frozenset(
    {"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK", "GOOGLE_APPLICATION_CREDENTIALS", "GITHUB_TOKEN"}
)
_CONFIGURATIONS = ("config.json", "opencode.json", "opencode.jsonc")


def has_credentials(env: Mapping[str, str] | None = None) -> bool:
    """By ``opencode auth login``, by a variable, or in the user's configuration."""
    environ = os.environ if env is None else env
    if any(value and (name.endswith(_KEYS) or name in _OTHERS) for name, value in environ.items()):
        return True
    home = Path(environ.get("HOME") or Path.home())
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    if _entries(environ.get("OPENCODE_AUTH_CONTENT", "")) or _entries(_read(data / "opencode" / "auth.json")):
        return True
    said = [environ.get("OPENCODE_CONFIG_CONTENT", "")]
    if environ.get("OPENCODE_CONFIG"):
        said.append(_read(Path(environ["OPENCODE_CONFIG"])))
    said += [_read(config / "opencode" / name) for name in _CONFIGURATIONS]
    return any('"apiKey"' in one for one in said)


def _entries(content: str) -> bool:
    try:
        return bool(msgspec.json.decode(content, type=dict[str, msgspec.Raw]))
    except msgspec.DecodeError:
        return False


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
