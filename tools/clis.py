"""Install the real CLIs for the live tests into a folder of the checkout: ``make clis``.

    python -m tools.clis [FOLDER] [AGENT …]

Main versions come from npm. Second versions, which show drift between versions, come from PyPI packages that carry the
program. What is already there in the right version is not fetched again.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec

from stagedoor.testing.clis import InstallFailed, install_clis, npm_install, pip, proven_packages

FOLDER = ".clis"


class SecondVersion(msgspec.Struct, frozen=True):
    """The PyPI package that carries another version of a program, and where in it the program is."""

    package: str
    version: str
    program: str


EDITORS = {"acpx": "0.19.1", "@agentclientprotocol/sdk": "2.4.0"}
"""Clients of the Agent Client Protocol, by npm package: what ``stagedoor acp`` is proven with."""

SECOND = {
    "claude": SecondVersion("claude-agent-sdk", "0.2.182", "claude_agent_sdk/_bundled/claude"),
    "codex": SecondVersion("openai-codex-cli-bin", "0.163.0", "codex_cli_bin/bin/codex"),
}


def second_executable(folder: Path, agent: str) -> str | None:
    """The second version's program, if it is there."""
    if agent not in SECOND:
        return None
    program = _second_folder(folder, agent) / SECOND[agent].program
    if not program.exists():
        return None
    if not os.access(program, os.X_OK):
        program.chmod(0o755)  # wheels do not always keep the executable bit
    return str(program.absolute())


def _install_second(folder: Path, agent: str) -> None:
    second = SECOND[agent]
    print(f"installing {second.package} {second.version} into {folder} (PyPI)", flush=True)
    target = str(_second_folder(folder.absolute(), agent))
    pip("install", "--no-deps", "--upgrade", "--target", target, f"{second.package}=={second.version}")


def _second_folder(folder: Path, agent: str) -> Path:
    return folder / "second" / f"{agent}-{SECOND[agent].version}"


def editor_packages(folder: Path) -> Path:
    """Where the clients for editors' tests are installed."""
    return folder / "editors" / "node_modules"


def _install_editors(folder: Path) -> None:
    manifests = {name: editor_packages(folder) / name / "package.json" for name in EDITORS}
    versions = {name: json.loads(one.read_text())["version"] for name, one in manifests.items() if one.exists()}
    if versions == EDITORS:
        return
    prefix = (folder / "editors").absolute()
    print(f"installing {', '.join(EDITORS)} into {prefix} (npm)", flush=True)
    prefix.mkdir(parents=True, exist_ok=True)
    (prefix / "package.json").write_text('{"private": true}\n')
    exact = [f"{name}@{version}" for name, version in EDITORS.items()]
    npm_install(prefix, "--save-exact", "--ignore-scripts", *exact, clis=folder)


def main() -> int:
    main_versions = proven_packages()
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else FOLDER)
    agents = tuple(sys.argv[2:]) or tuple(main_versions)
    unknown = [agent for agent in agents if agent not in main_versions]
    if unknown:
        print(f"unknown agent {unknown[0]!r}: choose from {', '.join(main_versions)}", file=sys.stderr)
        return 2
    try:
        install_clis(folder, agents)
        for agent in agents:
            if agent in SECOND and second_executable(folder, agent) is None:
                _install_second(folder, agent)
        if not sys.argv[2:]:
            _install_editors(folder)
    except InstallFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    for agent in agents:
        second = SECOND[agent].version if agent in SECOND else ""
        print(f"{agent:10} {main_versions[agent].version:12} {second}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
