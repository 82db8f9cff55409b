"""The workspaces of sessions: what git says of them, their files, and how they change."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stagedoor.errors import BadRequest, NotAllowed, SessionNotFound
from stagedoor.machine.names import is_beneath
from stagedoor.register import home
from stagedoor.whole_file import replace_file
from stagedoor.worktrees import GitFailed, Worktree, add_worktree, repository_of

from ..config.settings import Settings
from ..views import SessionSpec, SessionView
from . import files, git
from .files import FileText, Folder, Folders, FoundFiles, Listing
from .git import GitStatus, WorkspaceDiff
from .git_changes import GitChanges
from .watch import Touched, Watches

_DIFF = "diff.json"


class Workspaces:
    """``get`` finds a session by its id; ``kept`` is the folder for how workspaces were when sessions began.

    ``check`` raises for a place that may not be shown or changed; ``push_to``: where branches may be pushed.
    """

    def __init__(
        self,
        get: Callable[[str], Awaitable[SessionView]],
        snapshots: Path | None = None,
        *,
        check: Callable[[Path], None] = lambda place: None,
        push_to: Sequence[str] = (),
    ) -> None:
        self._get = get
        self._snapshots = snapshots
        self._check = check
        self._push_to = push_to
        self._watches = Watches()

    async def standing(self, session_id: str, folder: Path) -> tuple[str, str]:
        """Branch and state of the folder where a session is about to begin; ``diff`` tells what changed since."""
        return await git.standing(folder, self._snapshots and own_folder(self._snapshots, session_id))

    async def forget(self, session_id: str) -> None:
        """The session is deleted: nobody will ask what it changed."""
        if self._snapshots is not None:
            await asyncio.to_thread(remove_own_folder, self._snapshots, session_id)

    async def git_status(self, session_id: str) -> GitStatus:
        return await git.status(await self.folder(session_id), self._push_to)

    async def changes(self, session_id: str, *, who: str = "") -> GitChanges:
        """What can be changed with git there."""
        folder = await self.folder(session_id)
        return GitChanges(folder, check=self._check, push_to=self._push_to, who=who)

    async def diff(self, session_id: str, *, path: str = "") -> WorkspaceDiff:
        """All that has changed since the session began; with ``path`` of that file or folder alone."""
        view = await self._get(session_id)
        if not path and (last := await asyncio.to_thread(self._last_diff, view)) is not None:
            return last
        folder = await self.folder(session_id)
        if path:
            await self._place(session_id, path)
        snapshots = self._snapshots and own_folder(self._snapshots, session_id)
        return await git.diff(
            folder, view.base, path=path, keep=snapshots if snapshots and snapshots.is_dir() else None
        )

    async def keep_diff(self, session_id: str) -> None:
        """The workspace is about to be taken away: what was changed in it can still be shown."""
        if self._snapshots is None:
            return
        with contextlib.suppress(BadRequest):  # git cannot tell, and nobody can later
            text = msgspec.json.encode(await self.diff(session_id)).decode()
            await asyncio.to_thread(replace_file, own_folder(self._snapshots, session_id) / _DIFF, text)

    def _last_diff(self, view: SessionView) -> WorkspaceDiff | None:
        if self._snapshots is None or view.worktree not in ("kept", "removed"):
            return None
        try:
            return msgspec.json.decode((own_folder(self._snapshots, view.id) / _DIFF).read_bytes(), type=WorkspaceDiff)
        except OSError:
            return None

    async def files(self, session_id: str, path: str = "") -> Listing:
        await self._place(session_id, path)
        return await asyncio.to_thread(files.listing, await self.folder(session_id), path)

    async def find(self, session_id: str, words: str) -> FoundFiles:
        """Files of the workspace by some letters of their path."""

        def allowed(place: Path) -> bool:
            try:
                self._check(place)
            except NotAllowed:
                return False
            return True

        return await asyncio.to_thread(files.find, await self.folder(session_id), words, allowed)

    async def read(
        self, session_id: str, path: str, *, first_line: int | None = None, last_line: int | None = None
    ) -> FileText:
        await self._place(session_id, path)
        folder = await self.folder(session_id)
        return await asyncio.to_thread(files.read, folder, path, first_line=first_line, last_line=last_line)

    async def watch(self, session_id: str) -> AsyncGenerator[Touched]:
        """What is touched in the workspace. An empty one comes first: from then on nothing is missed."""
        async with aclosing(self._watches.follow(await self.folder(session_id))) as touches:
            async for touched in touches:
                yield touched

    async def folder(self, session_id: str) -> Path:
        """Of a session. Raises when it is gone, or leads to what is shown to nobody."""
        view = await self._get(session_id)
        folder = Path(view.cwd)
        if not await asyncio.to_thread(folder.is_dir):
            raise BadRequest(f"the workspace {folder} no longer exists")
        # The agent may have put a link in its place since.
        self._check(await asyncio.to_thread(folder.resolve))
        return folder

    async def _place(self, session_id: str, path: str) -> None:
        """Raises when ``path`` leads out of the workspace, or to what is shown to nobody."""
        view = await self._get(session_id)
        self._check(await asyncio.to_thread(files.inside, Path(view.cwd), path))


def roots(settings: Settings) -> list[Path]:
    """The folders that sessions run in."""
    return [Path(root).expanduser().resolve() for root in settings.roots]


def session_folder(spec: SessionSpec, settings: Settings) -> Path:
    """The folder a new session runs in. Raises ``NotAllowed`` outside the roots, ``BadRequest`` when there is none."""
    if spec.cwd:
        folder = Path(spec.cwd).expanduser()
        if not folder.is_absolute():
            folder = roots(settings)[0] / folder
    elif spec.project_id:
        folder = _project(spec.project_id, settings)
    else:
        folder = roots(settings)[0]
    found = folder.resolve()
    check_allowed(found, settings)
    if not found.is_dir():
        raise BadRequest(f"{found} is not a folder; create it first, or choose another one")
    return found


async def folders_in(path: str, settings: Settings) -> Folders:
    """The folders in ``path``, for somebody who chooses where a session runs; without one the roots."""
    if not path:
        tops = tuple(Folder(path=str(root), name=str(root)) for root in roots(settings))
        return Folders(path="", folders=tops) if len(tops) != 1 else await folders_in(tops[0].path, settings)
    try:
        folder = await asyncio.to_thread(session_folder, SessionSpec(prompt="", cwd=path), settings)
    except (BadRequest, OSError, ValueError) as fault:
        raise SessionNotFound(f"folder {path!r} not found; choose another one") from fault
    inside, cut = await asyncio.to_thread(files.folders, folder, lambda place: _may_run_in(place, settings))
    top = "" if len(roots(settings)) > 1 else None
    parent = str(folder.parent) if _may_run_in(folder.parent, settings) else top
    branch, others = await git.branches_of(folder, lambda place: _may_run_in(place, settings))
    return Folders(path=str(folder), parent=parent, branch=branch, branches=others, folders=inside, cut=cut)


def _may_run_in(place: Path, settings: Settings) -> bool:
    try:
        check_allowed(place, settings)
    except NotAllowed:
        return False
    return any(place.is_relative_to(root) for root in roots(settings))


def check_allowed(path: Path, settings: Settings) -> None:
    """Raises ``NotAllowed`` for what is outside the roots, or in Stagedoor's own folder."""
    own = (Path(settings.home) if settings.home else home()).resolve()
    ours = (worktrees_folder(own), places_folder(own))
    if not any(path.is_relative_to(root) for root in (*roots(settings), *ours)):
        raise NotAllowed(f"{path} is outside the folders this server works in; add it to roots in its configuration")
    if is_beneath(path, own) and not any(path.is_relative_to(folder) for folder in ours):
        raise NotAllowed(f"{path} is in the server's own folder, which holds its token; choose another one")


def worktrees_folder(home: Path) -> Path:
    """Where sessions that work in a git worktree of their own have it."""
    return home / "worktrees"


def _project(project_id: str, settings: Settings) -> Path:
    named = settings.projects.get(project_id)
    if named is not None:
        return Path(named).expanduser()
    for root in roots(settings):
        if root.name == project_id:
            return root
        if "/" not in project_id and project_id not in (".", "..") and (root / project_id).is_dir():
            return root / project_id
    known = ", ".join(sorted(settings.projects)) or "none"
    raise BadRequest(f"unknown project {project_id!r} (configured: {known}), and no root has a folder with that name")


def places_folder(home: Path) -> Path:
    """Where sessions that work in a repository of another place have their clones."""
    return home / "places"


def own_folder(root: Path, session_id: str) -> Path:
    """What a session has below ``root``. Raises ``BadRequest`` for an id that is not one plain name: rows of a shared
    log are written by others, and an id could lead anywhere."""
    if session_id in ("", ".", "..") or any(sign in session_id for sign in "/\\\0"):
        raise BadRequest(f"{session_id!r} cannot be the id of a session: no folder can have this name")
    return root / session_id


def remove_own_folder(root: Path, session_id: str) -> None:
    """With all that is in it. An id that is no name never had one."""
    with contextlib.suppress(BadRequest):
        shutil.rmtree(own_folder(root, session_id), ignore_errors=True)


async def start_worktree(view: SessionView, home: Path) -> SessionView:
    """``view`` in a new worktree; its branch starts from what is checked out where it was to run, or was chosen."""
    branch = f"stagedoor/{view.id[:8]}"
    start = "" if view.spec is None else view.spec.from_branch
    try:
        tree = await add_worktree(Path(view.cwd), own_folder(worktrees_folder(home), view.id), branch, start)
    except GitFailed as fault:
        raise BadRequest(f"cannot create a worktree: {fault}") from fault
    return replace(view, cwd=str(tree.cwd), branch=branch, worktree="open", base=tree.base)


async def discard_worktree(view: SessionView, home: Path) -> None:
    """The session never began: no worktree of it stays, if it had one."""
    with contextlib.suppress(BadRequest):
        await end_worktree(view, home, keep=False)


async def end_worktree(view: SessionView, home: Path, *, keep: bool) -> str:
    """Take the folder away. Returns the branch that is left: none unless ``keep``."""
    folder = own_folder(worktrees_folder(home), view.id)
    if view.spec is None or not view.spec.worktree or not folder.is_dir():
        raise BadRequest(f"session {view.id} has no worktree, or it was removed already")
    try:
        tree = Worktree(await repository_of(Path(view.spec.cwd)), folder, view.branch, view.base, Path(view.cwd))
        if keep:
            await tree.keep(view.title or "What the agent did")
        await tree.remove(branch=not keep)
    except GitFailed as fault:
        raise BadRequest(f"cannot remove the worktree: {fault}") from fault
    return view.branch if keep else ""
