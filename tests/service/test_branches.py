"""Sessions in a git worktree of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from stagedoor.errors import BadRequest, SessionRunning


def _git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "discarded"])
def test_a_session_on_a_branch_of_its_own(kit: Any, keep: bool) -> None:
    repository = kit.house.workspace
    _git(repository, "init", "-q", "-b", "main")
    (repository / "a.txt").write_text("one\n")
    _git(repository, "add", ".")
    _git(repository, "commit", "-qm", "one")

    async def main() -> None:
        async with kit.house.service(tier="autonomous") as service:
            prompt = kit.play([{"write_file": {"path": "b.txt", "content": "two\n"}}], [{"say": "ok"}])
            view, watch = await kit.start_session(service, prompt, worktree=True, title="Add b")
            assert view.base == _git(repository, "rev-parse", "HEAD")
            assert Path(view.cwd) == service.home / "worktrees" / view.id
            with pytest.raises(SessionRunning, match="still running"):
                await service.sessions.finish_worktree(view.id, keep=True)
            await watch.rest()
            assert not (repository / "b.txt").exists()
            assert (Path(view.cwd) / "b.txt").read_text() == "two\n"
            changed = await service.workspaces.diff(view.id)
            assert changed.insertions == 1
            finished = await service.sessions.finish_worktree(view.id, keep=keep)
            assert (view.worktree, finished.worktree) == ("open", "kept" if keep else "removed")
            assert finished.branch == (view.branch if keep else "")
            assert await service.workspaces.diff(view.id) == changed
            assert not Path(view.cwd).exists()
            branches = _git(repository, "branch", "--format=%(refname:short)").splitlines()
            assert branches == (["main", view.branch] if keep else ["main"])
            if keep:
                assert _git(repository, "show", f"{view.branch}:b.txt") == "two"
            with pytest.raises(BadRequest, match="no worktree"):
                await service.sessions.finish_worktree(view.id, keep=True)
            await service.sessions.delete(view.id)
            assert list((service.home / "snapshots").iterdir()) == []

    kit.run(main())
