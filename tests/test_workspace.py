"""What changed is found, in git and out of it, whatever changed it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stagedoor.shadow_git.repository import read_own
from stagedoor.unified.events import FileChange
from stagedoor.workspace import WorkspaceChanges

WHO = ["-c", "user.name=T", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *WHO, *words], cwd=folder, check=True, capture_output=True)


def plain(folder: Path) -> None:
    (folder / "kept.txt").write_text("kept\n")
    (folder / "edited.txt").write_text("before\n")
    (folder / "removed.txt").write_text("gone\n")


def committed(folder: Path) -> None:
    plain(folder)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")


def dirty(folder: Path) -> None:
    committed(folder)
    (folder / "edited.txt").write_text("dirty before\n")


def unborn(folder: Path) -> None:
    plain(folder)
    git(folder, "init", "-q")


def change(folder: Path) -> None:
    (folder / "edited.txt").write_text("after\n")
    (folder / "removed.txt").unlink()
    (folder / "new ünï.txt").write_text("new\n")


def change_and_commit(folder: Path) -> None:
    change(folder)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "two")


@pytest.mark.parametrize(
    ("make", "act", "before"),
    [
        (plain, change, "before\n"),
        (committed, change, "before\n"),
        (committed, change_and_commit, "before\n"),
        (dirty, change, "dirty before\n"),
        (unborn, change, "before\n"),
        (unborn, change_and_commit, "before\n"),
    ],
)
def test_changes(tmp_path: Path, make: Callable[[Path], None], act: Callable[[Path], None], before: str) -> None:
    make(tmp_path)
    workspace = WorkspaceChanges(str(tmp_path))
    assert workspace.begin()
    assert workspace.changes() == []
    act(tmp_path)
    found = {one.path: (one.change, one.before, one.after) for one in workspace.changes()}
    assert found == {
        "edited.txt": ("modified", before, "after\n"),
        "new ünï.txt": ("created", None, "new\n"),
        "removed.txt": ("deleted", "gone\n", None),
    }


def test_a_folder_inside_a_repository(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    plain(tmp_path / "sub")
    (tmp_path / "outside.txt").write_text("x")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    workspace = WorkspaceChanges(str(tmp_path / "sub"))
    workspace.begin()
    (tmp_path / "outside.txt").write_text("y")
    (tmp_path / "sub" / "edited.txt").write_text("after\n")
    [found] = workspace.changes()
    assert found.path == "edited.txt"
    assert found.diff == "--- a/edited.txt\n+++ b/edited.txt\n@@ -1 +1 @@\n-before\n+after\n"


def test_what_a_tool_has_told_is_not_told_again(tmp_path: Path) -> None:
    plain(tmp_path)
    workspace = WorkspaceChanges(str(tmp_path))
    workspace.begin()
    change(tmp_path)
    reported = [
        FileChange(path="edited.txt", change="modified", after="after\n"),
        FileChange(path="removed.txt", change="deleted"),
        FileChange(path="new ünï.txt", change="created", after="older\n"),
    ]
    [again] = workspace.changes(reported)
    assert (again.path, again.before, again.after) == ("new ünï.txt", "older\n", "new\n")


def test_what_was_told_once_is_not_told_again_after_a_turn_that_nobody_began(tmp_path: Path) -> None:
    plain(tmp_path)
    workspace = WorkspaceChanges(str(tmp_path))
    workspace.begin()
    change(tmp_path)
    first = workspace.changes()
    assert len(first) == 3
    assert workspace.changes(first) == []
    (tmp_path / "removed.txt").write_text("again\n")
    (tmp_path / "edited.txt").write_text("later\n")
    assert [(one.path, one.change, one.before, one.after) for one in workspace.changes(first)] == [
        ("edited.txt", "modified", "after\n", "later\n"),
        ("removed.txt", "created", None, "again\n"),
    ]


def test_a_folder_that_is_too_large_is_not_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain(tmp_path)
    monkeypatch.setattr("stagedoor.workspace.MOST_FILES", 2)
    workspace = WorkspaceChanges(str(tmp_path))
    assert not workspace.begin()
    assert workspace.changes() == []


@pytest.mark.parametrize("make", [plain, committed, dirty, unborn])
def test_a_change_of_which_only_the_name_was_told(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path)
    before = (tmp_path / "edited.txt").read_text()
    workspace = WorkspaceChanges(str(tmp_path))
    workspace.begin()
    change(tmp_path)
    edited = workspace.detailed(FileChange(path="edited.txt", change="modified", tool_use_id="1"))
    assert (edited.before, edited.after, edited.tool_use_id) == (before, "after\n", "1")
    assert edited.diff.startswith("--- a/edited.txt\n+++ b/edited.txt\n")
    removed = workspace.detailed(FileChange(path="removed.txt", change="deleted"))
    assert (removed.before, removed.after) == ("gone\n", None)
    created = workspace.detailed(FileChange(path="new ünï.txt", change="created"))
    assert (created.before, created.after) == (None, "new\n")
    (tmp_path / "edited.txt").write_text("later\n")
    again = workspace.detailed(FileChange(path="edited.txt", change="modified"), edited)
    assert (again.before, again.after) == ("after\n", "later\n")
    for reported in (
        FileChange(path="edited.txt", change="modified", diff="its own"),
        FileChange(path="edited.txt", change="created"),  # it is not what can be seen
        FileChange(path="removed.txt", change="modified"),
    ):
        assert workspace.detailed(reported) == reported


def test_nothing_of_the_repository_is_run_and_links_are_not_followed(tmp_path: Path) -> None:
    folder, ran = tmp_path / "work", tmp_path / "ran"
    folder.mkdir()
    committed(folder)
    (tmp_path / "program").write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    (tmp_path / "program").chmod(0o755)
    (tmp_path / "secret").write_text("secret\n")
    for key in ("core.fsmonitor", "filter.f.clean", "filter.f.process"):
        git(folder, "config", key, str(tmp_path / "program"))
    (folder / ".gitattributes").write_text("*.txt filter=f\n")
    workspace = WorkspaceChanges(str(folder))
    assert workspace.begin()
    (folder / "edited.txt").write_text("after\n")
    (folder / "link.txt").symlink_to(tmp_path / "secret")
    changes = {change.path: change.after for change in workspace.changes()}
    assert changes == {"edited.txt": "after\n", "link.txt": str(tmp_path / "secret")}
    assert not ran.exists()


def test_a_folder_that_ignores_itself_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / ".gitignore").write_text("*\n")
    workspace = WorkspaceChanges(str(tmp_path))
    assert workspace.begin()
    (tmp_path / "own" / "token").write_text("secret")
    (tmp_path / "seen").write_text("yes")
    assert [change.path for change in workspace.changes()] == ["seen"]


def test_a_folder_in_the_place_of_a_file_of_gits_is_not_read_and_not_left_open(tmp_path: Path) -> None:
    (tmp_path / "own" / ".gitignore").mkdir(parents=True)
    opened = set(os.listdir("/dev/fd"))  # noqa: PTH208
    assert read_own(tmp_path / "own", tmp_path, 10) is None
    workspace = WorkspaceChanges(str(tmp_path))
    assert workspace.begin()
    assert set(os.listdir("/dev/fd")) <= opened  # noqa: PTH208
    (tmp_path / "own" / "seen").write_text("yes")
    assert [change.path for change in workspace.changes()] == ["own/seen"]
