"""Every verb of ours on hostile repositories: run on its own, so that each process it starts can be recorded.

``python verbs.py VERB,VERB=WORK…``: prints one line of JSON for each repository and verb, with what came of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stagedoor.errors import StagedoorError
from stagedoor.service.workspaces import git as service_git
from stagedoor.shadow_git import changing
from stagedoor.shadow_git.checkpoints import Checkpoints
from stagedoor.shadow_git.repository import GitFailed, locate
from stagedoor.unified.events import FileChange
from stagedoor.workspace import WorkspaceChanges
from stagedoor.worktrees import add_worktree, is_clean, repository_of


def track(work: Path) -> Any:
    """A turn that changes files, and one after which another ``.git`` stands there."""
    workspace = WorkspaceChanges(str(work))
    began = workspace.begin()
    (work / "turn.txt").write_text("by the turn\n")
    detail = workspace.detailed(FileChange(path="d.txt", change="modified"))
    changes = sorted(change.path for change in workspace.changes())
    (work / "turn.txt").unlink()
    return [began, changes, detail.path, workspace.failure]


def swapped(work: Path) -> Any:
    """Between two looks the git directory is exchanged for one that a sandboxed command made."""
    if not (work / ".git").is_dir() or (work / ".git").is_symlink():
        return None
    workspace = WorkspaceChanges(str(work))
    workspace.begin()
    aside = work.parent / "aside"
    (work / ".git").rename(aside)
    try:
        shutil.copytree(aside, work / ".git2", symlinks=True, ignore_dangling_symlinks=True)
        (work / ".git").write_text("gitdir: .git2\n")
        workspace.changes()
        (work / ".git").unlink()
        (work / ".git").symlink_to(aside)
        workspace.changes()
        failure = workspace.failure
    finally:
        (work / ".git").unlink()
        shutil.rmtree(work / ".git2")
        aside.rename(work / ".git")
    return failure


async def look(work: Path) -> Any:
    status = await service_git.status(work)
    return [status.repository, len(status.files), (await service_git.diff(work)).files]


async def read(work: Path) -> Any:
    status = await service_git.status(work)
    standing = await service_git.standing(work, work.parent / "kept")
    diff = await service_git.diff(work, standing[1], keep=work.parent / "kept")
    whole = await service_git.diff(work)
    part = await service_git.diff(work, path="a.txt")
    folder = await service_git.git_folder(work)
    return [status.repository, len(status.files), diff.files, whole.files, part.files, folder is not None]


async def worktree(work: Path) -> Any:
    root = await repository_of(work)
    clean = await is_clean(root)
    tree = await add_worktree(work, work.parent / "trees" / "one", "stagedoor/one")
    (tree.cwd / "made.txt").write_text("made\n")
    (tree.cwd / "d.txt").write_text("changed by an agent\n")
    (tree.folder / ".gitattributes").write_text("* filter=x diff=x\n")
    stat = await tree.keep("kept")
    untouched = await tree.is_untouched()
    await tree.remove(branch=True)
    return [clean, stat.files, untouched]


def change(work: Path) -> Any:
    repository = locate(work)
    if repository is None:
        return None
    changing.stage(repository, ["a.txt"])
    changing.unstage(repository, ["b.txt"])
    changing.discard(repository, ["c.txt"])
    made = changing.commit(repository, "by us")
    changing.stage_all(repository)
    again = changing.commit(repository, "by us again", everything=True)
    if "other" in repository.branches():
        changing.create_branch(repository, "third", repository.head().commit)
        changing.checkout(repository, "other")
        changing.delete_branch(repository, "third")
    return [bool(made), bool(again)]


def undo(work: Path) -> Any:
    """A turn that plants more, in the middle of which the git directory is another one, and its undo."""
    checkpoints = Checkpoints(work.parent / "home", work)
    kept = checkpoints.take("s", 1, at=1)
    before = (work / "d.txt").read_bytes() if (work / "d.txt").is_file() else None
    (work / "d.txt").write_text("changed by an agent\n")
    (work / "sub-turn").mkdir()
    (work / "sub-turn" / ".gitattributes").write_text("* filter=x diff=x ident\n")
    one = checkpoints.restore("s", paths=["d.txt"], at=2)
    assert before is None or (work / "d.txt").read_bytes() == before
    all_of_it = checkpoints.restore("s", at=3)
    assert not (work / "sub-turn").exists()
    checkpoints.restore("s", checkpoint=all_of_it.redo, at=4)
    shutil.rmtree(work / "sub-turn")
    checkpoints.forget("s")
    return [kept.files > 0, list(one.paths), list(all_of_it.not_restored)]


def attempt(verb: Callable[[Path], Any], work: Path) -> Any:
    try:
        outcome = verb(work)
        return asyncio.run(outcome) if asyncio.iscoroutine(outcome) else outcome
    except (GitFailed, StagedoorError) as fault:
        return f"{type(fault).__name__}: {fault}"


VERBS: dict[str, Callable[[Path], Any]] = {
    verb.__name__: verb for verb in (look, track, swapped, read, worktree, undo, change)
}

if __name__ == "__main__":
    path = os.environ["PATH"]
    for argument in sys.argv[1:]:
        names, _, place = argument.partition("=")
        # As npm and direnv do: programs of the folder come first, by a relative and by an absolute entry.
        os.environ["PATH"] = f".:{place}:{path}"
        for name in names.split(","):
            print(json.dumps([Path(place).parent.name, name, attempt(VERBS[name], Path(place))]), flush=True)
