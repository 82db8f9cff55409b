"""What one decision about trust covers. Whatever a hostile folder says about itself, it does not become trusted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stagedoor.trust.folders import is_covered, trust_subject
from stagedoor.trust.record import TrustRecord

pytestmark = pytest.mark.usefixtures("no_repository_above")


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git = ("git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@x")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """``mine`` with a worktree, a nested clone and a folder; plain folders; and one that pretends to be a worktree."""
    mine = repository(tmp_path / "mine")
    (mine / "sub").mkdir()
    repository(mine / "vendor" / "clone")
    subprocess.run(["git", "-C", str(mine), "worktree", "add", "-q", str(tmp_path / "tree")], check=True)
    (tmp_path / "tree" / "sub").mkdir()
    (tmp_path / "plain" / "below").mkdir(parents=True)
    repository(tmp_path / "plain" / "work")
    liar = tmp_path / "liar"
    liar.mkdir()
    (liar / ".git").write_text((tmp_path / "tree" / ".git").read_text())
    spoofed = tmp_path / "spoofed"
    spoofed.mkdir()
    (spoofed / ".git").write_text(f"gitdir: {mine}/.git\n")
    (tmp_path / "link").symlink_to("mine/sub")
    (tmp_path / "mine-too").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("entry", "folder", "covered"),
    [
        ("mine", "mine", True),
        ("mine", "mine/sub", True),
        ("mine", "link", True),
        ("link", "mine", False),
        ("mine", "tree", True),
        ("mine", "tree/sub", True),
        ("tree", "tree", True),
        ("tree", "mine", False),
        ("mine", "liar", False),
        ("mine", "spoofed", False),
        ("mine", "mine/vendor/clone", False),
        ("mine/vendor/clone", "mine/vendor/clone", True),
        ("mine/sub", "mine/sub", False),  # agents take the settings of the whole repository
        ("mine", "mine-too", False),
        ("plain", "plain", True),
        ("plain", "plain/below", True),
        ("plain", "plain/work", True),
        ("plain/below", "plain", False),
        ("plain/work", "plain/below", False),
        ("mine", "gone", False),
        (".", "mine", True),
    ],
)
def test_what_an_entry_covers(place: Path, entry: str, folder: str, covered: bool) -> None:
    assert is_covered(place / folder, [str(place / entry)]) is covered


def test_only_absolute_entries_count(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    assert not is_covered(place / "mine", ["mine", ".", ""])


def test_the_record(place: Path, tmp_path: Path) -> None:
    record = TrustRecord(tmp_path / "home")
    assert record.folders() == ()
    assert record.add(place / "tree" / "sub").folder == str(place / "mine")
    record.add(place / "mine", who="phone")
    assert [(entry.folder, entry.who) for entry in record.folders()] == [(str(place / "mine"), "phone")]
    assert record.covers(place / "mine" / "sub")
    assert record.path.stat().st_mode & 0o077 == 0
    assert [entry.folder for entry in record.remove(place / "tree")] == [str(place / "mine")]
    assert not record.covers(place / "mine")
    assert record.remove(place / "mine") == ()
    record.path.write_text("{")
    assert record.folders() == ()  # what cannot be read trusts nothing


def test_the_subject_of_a_removed_folder(tmp_path: Path) -> None:
    assert trust_subject(tmp_path / "gone") == tmp_path / "gone"
