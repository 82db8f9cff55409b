"""A git worktree for each agent: they start from one commit, cannot disturb each other, and leave a branch behind."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import msgspec

from .shadow_git.changing import commit, create_worktree, delete_branch, remove_worktree
from .shadow_git.reading import changed, prefix_of, shortstat
from .shadow_git.repository import GitFailed, NoRepository, Repository, locate, worktree_of
from .shadow_git.shadow import Shadow
from .transports.programs import in_thread

__all__ = ["DiffStat", "GitFailed", "NoRepository", "Worktree", "add_worktree", "is_clean", "repository_of"]

_NUMBERS = re.compile(r"(\d+) (file|insertion|deletion)")


class DiffStat(msgspec.Struct, frozen=True):
    files: int = 0
    insertions: int = 0
    deletions: int = 0

    def __str__(self) -> str:
        if not self.files:
            return "no changes"
        return f"{self.files} file{'' if self.files == 1 else 's'} +{self.insertions} −{self.deletions}"


class Worktree(msgspec.Struct, frozen=True):
    """``cwd`` is the folder inside the worktree that matches where the caller stands in the repository."""

    repository: Path
    folder: Path
    branch: str
    base: str
    cwd: Path

    async def keep(self, message: str) -> DiffStat:
        """Commit what was changed and say how much all commits since the base change."""
        return await in_thread(self._keep, message)

    async def is_untouched(self) -> bool:
        """Whether the branch is still where it began."""
        return (await in_thread(self._linked)).head().commit == self.base

    async def remove(self, *, branch: bool = False) -> None:
        """Take the folder away; the branch stays unless it is to go too."""
        await in_thread(self._remove, branch=branch)

    def _keep(self, message: str) -> DiffStat:
        linked = self._linked()
        commit(linked, message, everything=True)
        with Shadow(linked) as shadow:
            summary = shortstat(shadow, self.base, shadow.head.commit)
        counts = {word: int(number) for number, word in _NUMBERS.findall(summary)}
        return DiffStat(counts.get("file", 0), counts.get("insertion", 0), counts.get("deletion", 0))

    def _remove(self, *, branch: bool) -> None:
        repository = _repository(self.repository)
        remove_worktree(repository, self.folder)
        with contextlib.suppress(OSError):  # others may still be beside it
            self.folder.parent.rmdir()
        if branch:
            delete_branch(repository, self.branch)

    def _linked(self) -> Repository:
        """By the repository's word: what the folder itself says may be an agent's."""
        linked = worktree_of(_repository(self.repository), self.folder)
        if linked is None or self.folder.is_symlink() or not self.folder.is_dir():
            raise GitFailed(f"{self.folder} is no longer a worktree of {self.repository}")
        return linked


async def repository_of(cwd: Path) -> Path:
    """The root of the repository ``cwd`` is in. Raises ``NoRepository`` when it is in none, or has no commit."""
    return (await in_thread(_with_commit, cwd)).top


async def is_clean(repository: Path) -> bool:
    def look() -> bool:
        with Shadow(_repository(repository)) as shadow:
            return not changed(shadow).entries

    return await in_thread(look)


async def add_worktree(cwd: Path, folder: Path, branch: str, start: str = "") -> Worktree:
    """A worktree of the repository around ``cwd`` in ``folder``, on a new branch from the commit checked out now, or
    from the last one of the branch ``start``."""
    return await in_thread(_add_worktree, cwd, folder, branch, start)


def _add_worktree(cwd: Path, folder: Path, branch: str, start: str) -> Worktree:
    repository = _with_commit(cwd)
    base = repository.commit_of(f"refs/heads/{start}") if start else repository.head().commit
    if not base:
        raise GitFailed(f"there is no branch {start!r}; there is: {', '.join(repository.branches())}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    create_worktree(repository, folder, branch, base)
    place = folder / prefix_of(repository, cwd)
    place.mkdir(parents=True, exist_ok=True)  # an untracked folder is not in the new worktree
    return Worktree(repository.top, folder, branch, base, place)


def _repository(cwd: Path) -> Repository:
    repository = locate(cwd)
    if repository is None:
        raise NoRepository(f"{cwd} is not in a git repository; git init and commit first")
    return repository


def _with_commit(cwd: Path) -> Repository:
    repository = _repository(cwd)
    if not repository.head().commit:
        raise NoRepository(f"{repository.top} has no commit yet, and a worktree starts from one; git commit first")
    return repository
