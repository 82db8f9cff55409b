"""Where Codex is and what it would look at: its program, its home, the project's root, whether anybody is signed in."""

from __future__ import annotations

import os
import platform
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import NotSignedIn
from ...transports.executables import find_executable
from ...transports.versions import ProvenVersions
from .config import CodexSessionConfig

INSTALL = "npm install -g @openai/codex"
VERSIONS = ProvenVersions("codex", "0.149.0", "0.166.0", INSTALL)
EXEC_FORK_SINCE = (0, 149, 0)

_TRIPLES = {
    ("Linux", "x86_64"): ("linux-x64", "x86_64-unknown-linux-musl"),
    ("Linux", "aarch64"): ("linux-arm64", "aarch64-unknown-linux-musl"),
    ("Darwin", "x86_64"): ("darwin-x64", "x86_64-apple-darwin"),
    ("Darwin", "arm64"): ("darwin-arm64", "aarch64-apple-darwin"),
}


def find_codex(executable: str | None, env: Mapping[str, str] | None) -> tuple[str, bool]:
    """The program to start, and whether it is the native one rather than npm's launcher around it."""
    program = find_executable("codex", executable=executable, env=env, install=INSTALL)
    native = native_executable(program)
    return (native, True) if native else (program, not _is_script(program))


def native_executable(launcher: str) -> str | None:
    """The native program that npm installed beside ``launcher``.

    Signals reach it directly; killing the launcher alone would leave it running.
    """
    names = _TRIPLES.get((platform.system(), platform.machine()))
    package = Path(launcher).resolve().parent.parent
    if names is None or not _is_script(launcher):
        return None
    suffix, triple = names
    name = f"codex-{suffix}"
    for vendor in (package.parent / name, package / "node_modules" / "@openai" / name, package):
        candidate = vendor / "vendor" / triple / "bin" / "codex"
        if os.access(candidate, os.X_OK):
            return str(candidate)
    return None


def environment(config: CodexSessionConfig, env: Mapping[str, str] | None) -> dict[str, str]:
    """What the program will see: ``env`` (else our own variables), with the config's laid over."""
    return {**(os.environ if env is None else env), **config.env}


def codex_home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("CODEX_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".codex")


def trust_roots(cwd: str) -> tuple[str, ...]:
    """The folders whose trust Codex decides on: ``cwd`` and its repository, the main one of a linked worktree too."""
    start = Path(cwd).resolve()
    roots = [str(Path(cwd).absolute()), str(start)]
    for folder in (start, *start.parents):
        git = folder / ".git"
        if git.exists():
            roots.append(str(folder))
            if main := _main_worktree(git):
                roots.append(str(main))
            break
    return tuple(dict.fromkeys(roots))


def require_sign_in(config: CodexSessionConfig, env: Mapping[str, str] | None) -> None:
    """Raise ``NotSignedIn`` when that is certain; when it is not, the provider will report it."""
    environ = environment(config, env)
    home = codex_home(environ)
    keys = {"model_provider", "openai_base_url", "cli_auth_credentials_store"}
    if (
        environ.get("CODEX_API_KEY")
        or (home / "auth.json").exists()
        or config.model_provider is not None
        or config.profile is not None
        or keys & {key.partition(".")[0] for key in config.config}
        or (not config.ignore_user_config and keys & _user_settings(home).keys())
        or "--oss" in config.extra_args
    ):
        return
    raise NotSignedIn(
        f"not signed in to Codex (no auth.json in {home}): run `codex login`, or set CODEX_API_KEY, "
        "or configure a model_provider"
    )


def _user_settings(home: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((home / "config.toml").read_text("utf-8"))
    except (OSError, ValueError):
        return {}  # missing, or broken: Codex itself will complain about that


def _is_script(path: str) -> bool:
    with open(path, "rb") as program:  # noqa: PTH123 - two bytes of a file of hundreds of megabytes
        return program.read(2) == b"#!"


def _main_worktree(git: Path) -> Path | None:
    """``.git`` of a linked worktree is a file that points into the main repository's ``.git/worktrees``."""
    if not git.is_file():
        return None
    try:
        pointer = Path(git.read_text("utf-8").removeprefix("gitdir:").strip())
    except (OSError, ValueError):
        return None
    target = pointer if pointer.is_absolute() else git.parent / pointer
    return target.parent.parent.parent.resolve() if target.parent.name == "worktrees" else None
