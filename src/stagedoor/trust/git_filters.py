"""The environment in which git runs none of the filters that a repository configures for itself.

Read from its files, without git. There is no switch for all of them: each is blanked by its name. Conditional includes
are taken to hold, and what cannot be read is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import UntrustedProject
from .folders import repository_root

LARGEST = 1_000_000
DEEPEST = 10
_SECTION = re.compile(r'^[ \t]*\[[ \t]*([A-Za-z0-9.-]+)(?:[ \t]+"((?:\\.|[^"\\])*)")?[ \t]*\]', re.MULTILINE)
_PATH = re.compile(r"(?:^|\])[ \t]*path[ \t]*=[ \t]*(.*)$", re.MULTILINE | re.IGNORECASE)
_OFF = (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))


def without_filters(cwd: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for git, after those of the kind that ``environ`` has. Nothing where there is nothing to blank."""
    names = filter_names(Path(cwd))
    if not names:
        return {}
    settings = {"core.fsmonitor": "false"} | {
        f"filter.{name}.{key}": value for name in sorted(names) for key, value in _OFF
    }
    try:
        first = int(environ.get("GIT_CONFIG_COUNT") or 0)
    except ValueError:
        first = 0
    env = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (key, value) in enumerate(settings.items(), first):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env


def filter_names(cwd: Path) -> set[str]:
    """The filters that the repository of ``cwd`` defines in its own configuration."""
    root = repository_root(cwd.resolve())
    if root is None:
        return set()
    return {name for file in _configurations(root) for name in _names(file, DEEPEST)}


def _configurations(root: Path) -> Iterator[Path]:
    git = root / ".git"
    if git.is_file():
        git = (root / _read(git).removeprefix("gitdir:").strip()).resolve()
    yield from (git / "config", git / "config.worktree")
    if (git / "commondir").is_file():
        shared = (git / _read(git / "commondir").strip()).resolve()
        yield from (shared / "config", shared / "config.worktree")


def _names(file: Path, depth: int) -> Iterator[str]:
    if not file.exists():
        return
    if depth == 0:
        raise UntrustedProject(f"{file} is included too deeply to be checked; trust the folder, or fix its git config")
    text = _read(file).replace("\\\r\n", "").replace("\\\n", "")
    sections = [*_SECTION.finditer(text)]
    for number, section in enumerate(sections):
        kind, quoted = section[1].lower(), section[2]
        if kind == "filter" and quoted is not None:
            yield re.sub(r"\\(.)", r"\1", quoted)
        elif kind.startswith("filter."):
            yield section[1].partition(".")[2].lower()
        elif kind in ("include", "includeif") or kind.startswith("includeif."):
            end = sections[number + 1].start() if number + 1 < len(sections) else len(text)
            for path in _PATH.finditer(text, section.end() - 1, end):
                yield from _names(_included(path[1], file), depth - 1)


def _included(written: str, file: Path) -> Path:
    value = re.sub(r"\\(.)", r"\1", re.sub(r'(?<!\\)"', "", re.sub(r"\s+[#;].*$", "", written)).strip())
    return file.parent / Path(value).expanduser()


def _read(file: Path) -> str:
    try:
        if file.stat().st_size > LARGEST:
            raise UntrustedProject(f"{file} is too large to be checked; trust the folder to use it as it is")
        return file.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as fault:
        raise UntrustedProject(f"cannot read {file}: {fault.strerror}; trust the folder to use it as it is") from fault
