"""Where a user's programs keep their things. ``XDG_…`` counts on every machine that sets it; else it is the custom of
the system: ``~/Library/…`` on a Mac, the folders of the XDG specification elsewhere. (It is what ``platformdirs`` says,
in fewer lines than a dependency needs.)"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Kind = Literal["config", "state", "cache"]
XDG: dict[Kind, tuple[str, str]] = {
    "config": ("XDG_CONFIG_HOME", ".config"),
    "state": ("XDG_STATE_HOME", ".local/state"),
    "cache": ("XDG_CACHE_HOME", ".cache"),
}
MAC: dict[Kind, str] = {
    "config": "Library/Application Support",
    "state": "Library/Application Support",
    "cache": "Library/Caches",
}


def user_folder(kind: Kind, env: Mapping[str, str] = os.environ) -> Path:
    """Where ours is made."""
    return user_folders(kind, env)[0]


def user_folders(kind: Kind, env: Mapping[str, str] = os.environ) -> list[Path]:
    """Where ours may be found, the first first: on a Mac many keep what they write themselves in ``~/.config``."""
    variable, usual = XDG[kind]
    if named := env.get(variable):
        return [Path(named)]
    home = Path(env.get("HOME") or Path.home())
    return [home / MAC[kind], home / usual] if sys.platform == "darwin" else [home / usual]
