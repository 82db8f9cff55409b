"""A git worktree for each agent: they start from one commit, cannot disturb each other, and leave a branch behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from .errors import StagedoorError

_WHO = ("-c", "user.name=Stagedoor", "-c", "user.email=stagedoor@localhost")
_QUIET = ("-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0")
_NUMBERS = re.compile(r"(\d+) (file|insertion|deletion)")


LIST_SETTINGS = ("config", "--list", "--show-scope", "--includes", "--name-only", "-z")
_FILTER = re.compile(r"(?:local|worktree)\0(filter\.[^\0]*\.)(?:clean|smudge|process|required)\0", re.IGNORECASE)


def without_filters(listed: str) -> dict[str, str]:
    """Settings that switch off the filters which a repository itself defines; the user's own stay.

    An agent may have written them, and git would run them to tell what has changed. ``listed``: the answer to
    ``LIST_SETTINGS``.
    """
    names = {match[1] for match in _FILTER.finditer(listed)}
    off = (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))
    return {f"{name}{key}": value for name in sorted(names) for key, value in off}


def configured(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as the environment tells them to git."""
    env = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env


class GitFailed(StagedoorError):
    """git could not do what was needed; the sentence is git's own."""


class NoRepository(GitFailed):
    """There is no repository, or no commit in it, to start from."""


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
        await git(self.folder, "add", "--all")
        if await git(self.folder, "status", "--porcelain"):
            who = () if await _has_identity(self.folder) else _WHO
            await git(self.folder, *who, *_QUIET, "commit", "--quiet", "--no-verify", "-m", message)
        summary = await git(self.folder, "diff", "--shortstat", self.base, "HEAD")
        counts = {word: int(number) for number, word in _NUMBERS.findall(summary)}
        return DiffStat(counts.get("file", 0), counts.get("insertion", 0), counts.get("deletion", 0))

    async def is_untouched(self) -> bool:
        """Whether the branch is still where it began."""
        return await git(self.folder, "rev-parse", "HEAD") == self.base

    async def remove(self, *, branch: bool = False) -> None:
        """Take the folder away; the branch stays unless it is to go too."""
        await git(self.repository, "worktree", "remove", "--force", str(self.folder))
        with contextlib.suppress(OSError):  # others may still be beside it
            self.folder.parent.rmdir()
        if branch:
            await git(self.repository, "branch", "--quiet", "-D", self.branch)


async def repository_of(cwd: Path) -> Path:
    """The root of the repository ``cwd`` is in. Raises ``NoRepository`` when it is in none, or has no commit."""
    try:
        root = Path(await git(cwd, "rev-parse", "--show-toplevel"))
    except GitFailed:
        raise NoRepository(f"{cwd} is not in a git repository; git init and commit first") from None
    try:
        await git(root, "rev-parse", "--verify", "--quiet", "HEAD")
    except GitFailed:
        raise NoRepository(f"{root} has no commit yet, and a worktree starts from one; git commit first") from None
    return root


async def is_clean(repository: Path) -> bool:
    return not await git(repository, "status", "--porcelain")


async def add_worktree(cwd: Path, folder: Path, branch: str) -> Worktree:
    """A worktree of the repository around ``cwd`` in ``folder``, on a new branch from the commit checked out now."""
    root = await repository_of(cwd)
    base = await git(root, "rev-parse", "HEAD")
    folder.parent.mkdir(parents=True, exist_ok=True)
    await git(root, "worktree", "add", "--quiet", "-b", branch, str(folder), base)
    place = folder / await git(cwd, "rev-parse", "--show-prefix")
    place.mkdir(parents=True, exist_ok=True)  # an untracked folder is not in the new worktree
    return Worktree(root, folder, branch, base, place)


async def git(cwd: Path, *words: str, env: Mapping[str, str] | None = None, most: int | None = None) -> str:
    """What git says on stdout, without the last line break. Raises ``GitFailed`` with what it says on stderr.

    ``most``: git is stopped after so many bytes of answer.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        process = await asyncio.create_subprocess_exec(
            "git", *words, cwd=cwd, env={**own, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", **(env or {})},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
    except FileNotFoundError as fault:
        raise GitFailed("git is not installed; install it and try again") from fault
    try:
        out, complaint = await (process.communicate() if most is None else _at_most(process, most))
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if len(out) == most:
        return out.decode("utf-8", "replace")
    if process.returncode:
        raise GitFailed(f"git {words[0]}: {complaint.decode('utf-8', 'replace').strip() or process.returncode}")
    return out.decode("utf-8", "replace").rstrip("\n")


async def _at_most(process: asyncio.subprocess.Process, most: int) -> tuple[bytes, bytes]:
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.TaskGroup() as group:
        complaint = group.create_task(process.stderr.read())
        out = b""
        while len(out) < most and (part := await process.stdout.read(min(most - len(out), 1 << 20))):
            out += part
        if len(out) == most:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.stdout.read()  # it ends only when nothing is left to be read
        await process.wait()
    return out, complaint.result()


async def _has_identity(folder: Path) -> bool:
    try:
        return bool(await git(folder, "var", "GIT_COMMITTER_IDENT"))
    except GitFailed:
        return False
