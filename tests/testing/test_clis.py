"""Where the machine has no Node.js, npm is the one that came from PyPI."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagedoor.testing.clis import InstallFailed, install_clis, installed_cli, proven_packages

NPM = """#!/bin/sh
[ "$1" = install ] || exit 1
for package; do :; done
[ "$package" = "{package}@{version}" ] || {{ echo "npm error no such package: $package" >&2; exit 1; }}
/bin/mkdir -p node_modules/.bin node_modules/{package}
echo '{{"version": "{version}"}}' > node_modules/{package}/package.json
echo program > node_modules/.bin/gemini
"""


def test_npm_of_the_wheel_installs_into_a_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = proven_packages()["gemini"]
    npm = tmp_path / ".clis" / "node" / "bin" / "npm"
    npm.parent.mkdir(parents=True)
    npm.write_text(NPM.format(package=package.name, version=package.version))
    npm.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    install_clis(Path(".clis"), ("gemini",))
    assert installed_cli(Path(".clis"), "gemini") == str(tmp_path / ".clis/node_modules/.bin/gemini")
    npm.unlink()
    install_clis(Path(".clis"), ("gemini",))  # nothing is missing


def test_the_output_of_a_failed_npm_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = tmp_path / "node" / "bin" / "npm"
    npm.parent.mkdir(parents=True)
    npm.write_text(NPM.format(package="other", version="1"))
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InstallFailed, match="no such package"):
        install_clis(tmp_path, ("codex",))
