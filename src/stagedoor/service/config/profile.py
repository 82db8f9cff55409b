"""``sandbox: custom``: a file that says what an agent may touch, kept by a sandbox of ours (docs/confine.md).

workspace: write     # or read
write: [~/.npm]      # more folders it may write
hide: [~/.ssh]       # what it cannot even read
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from stagedoor.errors import ConfigError
from stagedoor.yaml_with_lines import yaml_tree

CUSTOM = "custom"


class SandboxProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    workspace: Literal["write", "read"] = "read"
    write: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()


def read_profile(file: Path) -> dict[str, Any]:
    """The fields of ``AgentSettings`` that it stands for. Raises ``ConfigError``: no sandbox is never what is meant."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(f"the profile {file} cannot be read: {fault}") from fault
    tree, _ = yaml_tree(text, str(file), ConfigError)
    try:
        profile = msgspec.convert({} if tree is None else tree, SandboxProfile)
    except msgspec.ValidationError as fault:
        problem = f"{str(fault)[:1].lower()}{str(fault)[1:]}"
        raise ConfigError(f"the profile {file} is not valid: {problem}; it has workspace, write and hide") from None
    return {
        "confine": "workspace" if profile.workspace == "write" else "read-only",
        "confine_write": tuple(_placed(one, file.parent) for one in profile.write),
        "confine_hide": tuple(_placed(one, file.parent) for one in profile.hide),
    }


def _placed(written: str, folder: Path) -> str:
    return os.path.normpath(folder / Path(written).expanduser())
