"""Sessions in a git worktree of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from stagedoor.errors import BadRequest, SessionRunning
from stagedoor.service.views import SessionSpec
from stagedoor.service.workspaces import folders_in
from stagedoor.service.workspaces.files import OtherBranch


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


def test_a_session_begins_at_another_branch(kit: Any, tmp_path: Path) -> None:
    repository = kit.house.workspace
    (repository / "inner").mkdir()
    (repository / "inner" / "a.txt").write_text("one\n")
    _git(repository, "init", "-q", "-b", "main")
    _git(repository, "add", ".")
    _git(repository, "commit", "-qm", "one")
    _git(repository, "branch", "old")
    (repository / "inner" / "a.txt").write_text("two\n")
    _git(repository, "commit", "-qam", "two")
    _git(repository, "worktree", "add", "-q", "-b", "near", str(repository / "near"))
    _git(repository, "worktree", "add", "-q", "-b", "far", str(tmp_path / "outside"))
    near, far = OtherBranch(name="near", path=str(repository / "near" / "inner")), OtherBranch(name="far")

    async def main() -> None:
        async with kit.house.service(tier="autonomous") as service:
            settings = service.settings
            here = await folders_in(str(repository / "inner"), settings)
            assert (here.branch, here.branches) == ("main", (far, near, OtherBranch(name="old")))
            linked = await folders_in(str(repository / "near" / "inner"), settings)
            main_tree = OtherBranch(name="main", path=str(repository / "inner"))
            assert (linked.branch, linked.branches) == ("near", (far, main_tree, OtherBranch(name="old")))
            options = {"worktree": True, "cwd": str(repository / "inner")}
            view, watch = await kit.start_session(
                service, kit.play([{"shell": "cat a.txt"}], [{"say": "ok"}]), **options, from_branch="old"
            )
            await watch.rest()
            assert view.base == _git(repository, "rev-parse", "old")
            assert (Path(view.cwd) / "a.txt").read_text() == "one\n"
            refused = {"new": "there is no branch 'new'; there is: far, main, near, old", "../x": "not a reference"}
            for name, why in refused.items():
                with pytest.raises(BadRequest, match=why):
                    await service.sessions.create(SessionSpec(prompt="x", **options, from_branch=name))

    kit.run(main())
