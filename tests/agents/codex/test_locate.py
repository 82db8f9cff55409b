"""Finding the program, the project's root, and whether anybody is signed in."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest

from stagedoor.agents.codex.config import CodexSessionConfig
from stagedoor.agents.codex.locate import find_codex, native_executable, require_sign_in, trust_roots
from stagedoor.errors import NotInstalled, NotSignedIn


def program(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path


@pytest.mark.skipif((platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="names this platform")
def test_the_native_program_beside_npms_launcher(tmp_path: Path) -> None:
    modules = tmp_path / "lib" / "node_modules" / "@openai"
    launcher = program(modules / "codex" / "bin" / "codex.js", b"#!/usr/bin/env node\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "codex").symlink_to(launcher)
    env = {"PATH": str(tmp_path / "bin")}
    assert find_codex(None, env) == (str(tmp_path / "bin" / "codex"), False)
    vendor = Path("vendor") / "x86_64-unknown-linux-musl" / "bin" / "codex"
    nested = program(modules / "codex" / "node_modules" / "@openai" / "codex-linux-x64" / vendor, b"\x7fELF")
    assert find_codex(None, env) == (str(nested), True)
    beside = program(modules / "codex-linux-x64" / vendor, b"\x7fELF")
    assert find_codex(None, env) == (str(beside), True)
    assert find_codex(str(beside), env) == (str(beside), True)
    assert native_executable(str(beside)) is None


def test_a_missing_program_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(NotInstalled, match=r"Install it with: npm install -g @openai/codex \(looked in the PATH"):
        find_codex(None, {"PATH": str(tmp_path)})


def test_trust_is_decided_on_the_repository_too(tmp_path: Path) -> None:
    repository, plain = tmp_path / "repository", tmp_path / "plain"
    plain.mkdir()
    who = {f"GIT_{role}_{field}": "a@b" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **who}
    for command in (
        ["init", "-q", str(repository)],
        ["-C", str(repository), "commit", "-q", "--allow-empty", "-m", "x"],
        ["-C", str(repository), "worktree", "add", "-q", str(tmp_path / "linked")],
    ):
        subprocess.run(["git", *command], check=True, env=env)
    below = repository / "src"
    below.mkdir()
    (tmp_path / "link").symlink_to(below)
    assert trust_roots(str(plain))[0] == str(plain)  # what lies above is not ours
    assert trust_roots(str(repository)) == (str(repository),)
    assert trust_roots(str(below)) == (str(below), str(repository))
    assert trust_roots(str(tmp_path / "link")) == (str(tmp_path / "link"), str(below), str(repository))
    assert trust_roots(str(tmp_path / "linked")) == (str(tmp_path / "linked"), str(repository))


@pytest.mark.parametrize(
    ("config", "env", "files"),
    [
        (CodexSessionConfig(), {"CODEX_API_KEY": "k"}, {}),
        (CodexSessionConfig(), {}, {"auth.json": "{}"}),
        (CodexSessionConfig(model_provider="mine"), {}, {}),
        (CodexSessionConfig(profile="p"), {}, {}),
        (CodexSessionConfig(config={"openai_base_url": "http://localhost"}), {}, {}),
        (CodexSessionConfig(env={"CODEX_API_KEY": "k"}), {}, {}),
        (CodexSessionConfig(), {}, {"config.toml": 'model_provider = "mine"'}),
        (CodexSessionConfig(), {}, {"config.toml": 'cli_auth_credentials_store = "keyring"'}),
    ],
)
def test_somebody_may_be_signed_in(
    tmp_path: Path, config: CodexSessionConfig, env: dict[str, str], files: dict[str, str]
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    require_sign_in(config, {"CODEX_HOME": str(tmp_path), **env})


@pytest.mark.parametrize(
    ("config", "files"),
    [
        (CodexSessionConfig(), {}),
        (CodexSessionConfig(), {"config.toml": 'model = "m"'}),
        (CodexSessionConfig(), {"config.toml": "not toml ["}),
        (CodexSessionConfig(ignore_user_config=True), {"config.toml": 'model_provider = "mine"'}),
    ],
)
def test_nobody_is_signed_in(tmp_path: Path, config: CodexSessionConfig, files: dict[str, str]) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(NotSignedIn, match="codex login"):
        require_sign_in(config, {"CODEX_HOME": str(tmp_path)})
