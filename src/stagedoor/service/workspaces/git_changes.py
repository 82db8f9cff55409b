"""What clients change with git in a session's workspace: stage, unstage, discard, commit, branches, checkout, push.

As with reading, no hook, filter or setting of the repository has a part in it. The repository must lie inside the
server's folders as a whole: a commit or a checkout is of all of it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from stagedoor.errors import BadRequest, NotAllowed
from stagedoor.shadow_git import changing, pushing
from stagedoor.shadow_git.reading import prefix_of
from stagedoor.shadow_git.repository import GitFailed, Repository, locate
from stagedoor.transports.programs import in_thread

from .files import inside
from .git import not_pushed

Value = TypeVar("Value")
_log = logging.getLogger("stagedoor.git")


class Branch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    commit: str
    current: bool = False


class GitBranches(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``current`` is empty where no branch is checked out."""

    current: str
    branches: tuple[Branch, ...]


class GitCommit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``commit`` is empty where there was nothing to commit."""

    commit: str
    branch: str


class GitPush(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    address: str
    branch: str
    commit: str


class GitChanges:
    """The verbs for one workspace ``folder``. ``check`` raises for a place outside the server's folders; ``push_to``
    are the addresses that may be pushed to."""

    def __init__(
        self, folder: Path, *, check: Callable[[Path], None], push_to: Sequence[str] = (), who: str = ""
    ) -> None:
        self._folder = folder
        self._check = check
        self._push_to = push_to
        self._who = who

    async def stage(self, paths: Sequence[str]) -> None:
        await self._run(lambda repository: changing.stage(repository, self._places(repository, paths)))

    async def unstage(self, paths: Sequence[str]) -> None:
        await self._run(lambda repository: changing.unstage(repository, self._places(repository, paths)))

    async def discard(self, paths: Sequence[str]) -> None:
        if not paths:
            raise BadRequest("name the files to discard; what is discarded cannot be brought back")
        await self._run(lambda repository: changing.discard(repository, self._places(repository, paths)))
        self._report("discarded", ", ".join(paths)[:200])

    async def commit(self, message: str, *, everything: bool) -> GitCommit:
        if not message.strip():
            raise BadRequest("the message of the commit is empty; write one")

        def work(repository: Repository) -> GitCommit:
            if everything:
                changing.stage(repository, self._places(repository, ()))
            made = changing.commit(repository, message)
            return GitCommit(commit=made, branch=repository.head().branch)

        made = await self._run(work)
        self._report("committed", made.commit or "nothing")
        return made

    async def branches(self) -> GitBranches:
        def work(repository: Repository) -> GitBranches:
            current = repository.head().branch
            found = tuple(
                Branch(name=name, commit=commit, current=name == current)
                for name, commit in repository.branches().items()
            )
            return GitBranches(current=current, branches=found)

        return await self._run(work)

    async def checkout(self, branch: str, *, create: bool) -> None:
        def work(repository: Repository) -> None:
            if create:
                commit = repository.head().commit
                if not commit:
                    raise GitFailed("there is no commit yet that a branch could begin at; commit something first")
                changing.create_branch(repository, branch, commit)
            changing.checkout(repository, branch)

        await self._run(work)
        self._report("checked out", branch)

    async def push(self, *, remote: str, branch: str) -> GitPush:
        def work(repository: Repository) -> GitPush:
            name = branch or repository.head().branch
            if not name:
                raise GitFailed("no branch is checked out; name the branch to push")
            address = pushing.address_of(repository, remote, name)
            if not pushing.is_allowed(address, self._push_to):
                raise NotAllowed(not_pushed(address))
            return GitPush(address=address, branch=name, commit=pushing.push(repository, address, name))

        pushed = await self._run(work)
        self._report("pushed", f"{pushed.branch} to {pushed.address}")
        return pushed

    async def _run(self, work: Callable[[Repository], Value]) -> Value:
        def whole() -> Value:
            repository = locate(self._folder)
            if repository is None:
                raise BadRequest(f"{self._folder} is not in a git repository; run git init there first")
            for place in (repository.top, repository.git_dir, repository.common):
                self._check(Path(os.path.realpath(place)))
            return work(repository)

        try:
            return await in_thread(whole)
        except (GitFailed, OSError) as fault:
            raise BadRequest(str(fault)) from fault

    def _places(self, repository: Repository, paths: Sequence[str]) -> list[str]:
        """``paths`` as seen from the top; without any, the whole workspace."""
        prefix = prefix_of(repository, self._folder)
        if not paths:
            return [prefix.rstrip("/") or "."]
        places: list[str] = []
        for path in paths:
            parent, name = os.path.split(os.path.normpath(path))
            if not path or name in ("", ".."):
                raise BadRequest(f"{path!r} is not a path in the workspace")
            inside(self._folder, parent)  # the file itself may be a link, which git takes as one
            places.append(os.path.normpath(f"{prefix}{path}"))
        return places

    def _report(self, deed: str, subject: str) -> None:
        _log.info("git: %s", deed, extra={"folder": str(self._folder), "subject": subject, "who": self._who})
