"""What one decision about trust covers: a repository as a whole, its linked worktrees, and plain folders.

Agents take settings from the folder they start in and from those above it up to the repository's root, so the
repository is what is trusted, never a part of it. Everything is compared with links resolved. Nothing is run: git is
not asked, because a repository can lie to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def repository_root(folder: Path) -> Path | None:
    """The nearest folder, ``folder`` or one above it, with a ``.git``."""
    return next((place for place in (folder, *folder.parents) if _has_git(place)), None)


def _has_git(folder: Path) -> bool:
    try:
        return (folder / ".git").exists()
    except (OSError, ValueError):  # no such name can be
        return False


def trust_subject(folder: Path) -> Path:
    """The folder that is trusted or not when an agent starts in ``folder``: its repository, else itself.

    A linked worktree is its main repository's.
    """
    resolved = folder.resolve()
    root = repository_root(resolved)
    if root is None:
        return resolved
    return main_repository(root) or root


def main_repository(root: Path) -> Path | None:
    """The repository whose linked worktree ``root`` is.

    A folder cannot make itself one: the main repository has to name it, too.
    """
    pointer = _pointer(root / ".git", "gitdir:")
    if pointer is None or pointer.parent.name != "worktrees" or pointer.parent.parent.name != ".git":
        return None
    named = _pointer(pointer / "gitdir", "")
    if named is None or named != (root / ".git").resolve():
        return None
    main = pointer.parent.parent.parent
    return main if main != root else None


def _pointer(file: Path, prefix: str) -> Path | None:
    """The path in a file of one line, such as ``.git`` of a worktree."""
    try:
        if not file.is_file() or file.stat().st_size > 10_000:
            return None
        text = file.read_text("utf-8").strip()
    except (OSError, ValueError):
        return None
    if not text.startswith(prefix):
        return None
    try:
        return (file.parent / text.removeprefix(prefix).strip()).resolve()
    except (OSError, ValueError):
        return None


def is_covered(folder: Path, entries: Iterable[str]) -> bool:
    """Whether one of the ``entries`` covers what ``folder`` belongs to."""
    resolved = folder.resolve()
    subjects = {trust_subject(resolved), repository_root(resolved) or resolved}  # a worktree may be named by itself
    return any(_covers(entry, subject) for entry in entries for subject in subjects)


def _covers(entry: str, subject: Path) -> bool:
    place = Path(entry).expanduser()
    if not place.is_absolute():
        return False
    try:
        place = place.resolve()
    except (OSError, RuntimeError):
        return False
    if subject == place:
        return True
    # A plain folder covers all that is in it. A repository ends where another one begins, which is decided by itself.
    return subject.is_relative_to(place) and repository_root(place) is None
