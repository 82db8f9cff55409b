"""Finds the real CLIs for tests: in ``$PODIUM_CLIS``, in the checkout's ``.clis`` folder, then on the PATH."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

_BIN = Path("node_modules") / ".bin"


def find_cli(agent: str, environ: Mapping[str, str] | None = None, start: Path | None = None) -> Path | None:
    """The program of this agent, or ``None``."""
    for folder in folders(os.environ if environ is None else environ, start or Path.cwd()):
        found = shutil.which(agent, path=str(folder))
        if found:
            return Path(found)
    return None


def folders(environ: Mapping[str, str], start: Path) -> list[Path]:
    """Where to look, in this order. ``$PODIUM_CLIS`` may name an npm prefix or the folder of the programs itself."""
    places: list[Path] = []
    if named := environ.get("PODIUM_CLIS"):
        places += [Path(named) / _BIN, Path(named)]
    checkouts = [Path(__file__).resolve().parents[3], start, *start.parents]
    places += [checkout / ".clis" / _BIN for checkout in checkouts]
    return places + [Path(entry) for entry in environ.get("PATH", "").split(os.pathsep) if entry]
