"""Sessions that work in a git worktree of their own, on a new branch."""

from __future__ import annotations

import contextlib
from pathlib import Path

from msgspec.structs import replace

from stagedoor.errors import BadRequest
from stagedoor.worktrees import GitFailed, Worktree, add_worktree, repository_of

from .places import worktrees
from .views import SessionView


async def branch_off(view: SessionView, home: Path) -> SessionView:
    """``view`` in a new worktree; its branch starts from the commit that is checked out where it was to run."""
    branch = f"stagedoor/{view.id[:8]}"
    try:
        tree = await add_worktree(Path(view.cwd), worktrees(home) / view.id, branch)
    except GitFailed as fault:
        raise BadRequest(f"a worktree cannot be made: {fault}") from fault
    return replace(view, cwd=str(tree.cwd), branch=branch, worktree="open", base=tree.base)


async def undo(view: SessionView, home: Path) -> None:
    """The session never began: no worktree of it stays, if it had one."""
    with contextlib.suppress(BadRequest):
        await finish(view, home, keep=False)


async def finish(view: SessionView, home: Path, *, keep: bool) -> str:
    """Take the folder away. Returns the branch that is left: none unless ``keep``."""
    folder = worktrees(home) / view.id
    if view.wanted is None or not view.wanted.worktree or not folder.is_dir():
        raise BadRequest(f"session {view.id} has no worktree, or it was taken away already")
    try:
        tree = Worktree(await repository_of(Path(view.wanted.cwd)), folder, view.branch, view.base, Path(view.cwd))
        if keep:
            await tree.keep(view.title or "What the agent did")
        await tree.remove(branch=not keep)
    except GitFailed as fault:
        raise BadRequest(f"the worktree cannot be taken away: {fault}") from fault
    return view.branch if keep else ""
