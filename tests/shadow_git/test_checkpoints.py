"""Checkpoints: any folder, however odd, is byte for byte what it was. The oracle is ``find`` and ``sha256sum``."""

import os
import random
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from stagedoor.shadow_git import checkpoints as room
from stagedoor.shadow_git.checkpoints import CheckpointNotFound, Checkpoints, sweep
from stagedoor.shadow_git.repository import GitFailed

DAY = 86_400_000
ODD = [
    b"plain", b"with space", b"-dash", b"new\nline", b"tab\t", b"back\\slash", b'quo"te', b"colon:x", b"star*", b"[x]",
    b".hidden", b"\xff\xfe-bytes", "grün".encode(), b"git~1", b"con.", b"a;b&c", b"~x", b"#hash", b"!bang",
]  # fmt: skip


def listing(folder: Path) -> list[bytes]:
    """Names, kinds, permission bits, where links lead, and sums of contents; git's own folders apart."""
    prune = ["(", "-name", ".git", "-prune", ")", "-o"]
    shape = subprocess.run(
        ["find", ".", *prune, "-printf", r"%P\t%y\t%m\t%l\0"], cwd=folder, check=True, capture_output=True
    ).stdout.split(b"\0")
    sums = subprocess.run(
        ["find", ".", *prune, "-type", "f", "-exec", "sha256sum", "-z", "{}", "+"],
        cwd=folder,
        check=True,
        capture_output=True,
    ).stdout.split(b"\0")
    # A link's own bits mean nothing, and the top folder is not ours to change.
    return sorted([line for line in shape if line and line[:1] != b"\t"] + sums)


def git(folder: Path, *words: str) -> None:
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(folder)}
    who = ("-c", "user.name=x", "-c", "user.email=x@x")
    subprocess.run(["git", *who, *words], cwd=folder, env=env, check=True, capture_output=True)


class Tree:
    """A folder that grows and changes by chance."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self._root = root
        self._chance = chance

    def change(self, *kinds: str) -> None:
        chance = self._chance
        folders = [path for path in self._root.rglob("*") if path.is_dir() and not path.is_symlink()]
        inside = [self._root, *(path for path in folders if ".git" not in path.parts)]
        place = chance.choice(sorted(inside)) / os.fsdecode(chance.choice(ODD))
        is_folder = place.is_dir() and not place.is_symlink()
        if chance.random() < 0.3:
            _remove(place)
            return
        kind = chance.choice(["file", "file", "file", "folder", "link", "mode", *kinds])
        if kind == "mode" and place.exists():
            place.chmod(chance.choice([0o700, 0o755, 0o711] if place.is_dir() else [0o600, 0o644, 0o755, 0o640]))
            return
        if is_folder and kind != "file":
            return
        _remove(place)
        if kind in ("file", "mode"):
            place.write_bytes(chance.choice([b"", b"a\r\nb\n", b"\0\xff" * 50, b"$Id$\n", chance.randbytes(40)]))
            place.chmod(chance.choice([0o600, 0o644, 0o755, 0o444]))
        elif kind == "link":
            place.symlink_to(chance.choice(["plain", "/nowhere/outside", "../..", "nowhere", "."]))
        else:
            place.mkdir()
            if kind == "repository":
                git(place, "init", "--quiet")


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_was_changed_is_as_it_was_again_and_the_undo_can_be_undone(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    root = tmp_path / "work"
    root.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("not ours")
    if seed % 2:
        git(root, "init", "--quiet")
        (root / "plain").write_text("committed\r\n")
        git(root, "add", "plain")
        git(root, "commit", "-qm", "first")
        (root / ".gitattributes").write_text("* text=auto eol=crlf ident working-tree-encoding=UTF-16\n")
    tree = Tree(root, chance)
    for _ in range(60):
        tree.change("repository")
    checkpoints = Checkpoints(tmp_path / "home", root)
    before = listing(root)
    taken = checkpoints.take("s1", 1, at=1)
    assert listing(root) == before
    for _ in range(40):
        tree.change()
    shutil.rmtree(root / "plain", ignore_errors=True)
    (root / "plain").unlink(missing_ok=True)
    (root / "plain").symlink_to(outside)  # what was below it must not be written there
    after = listing(root)
    assert after != before

    undone = checkpoints.restore("s1", at=2)

    assert (undone.not_restored, undone.checkpoint) == ((), taken)
    assert listing(root) == before
    assert [path.name for path in outside.iterdir()] == ["kept"]
    redone = checkpoints.restore("s1", checkpoint=undone.redo, at=3)
    assert redone.not_restored == ()
    assert listing(root) == after
    assert [(one.turn, one.kind) for one in checkpoints.of_session("s1")] == [(1, "turn"), (1, "undo"), (1, "undo")]


def test_one_file_or_folder_is_restored_alone(tmp_path: Path) -> None:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    for name in ("src/a", "src/b", "c"):
        (root / name).write_text("old")
    checkpoints = Checkpoints(tmp_path / "home", root)
    checkpoints.take("s", 1, at=1)
    checkpoints.take("s", 2, at=1)
    for name in ("src/a", "src/b", "src/new", "c"):
        (root / name).write_text("new")

    assert checkpoints.restore("s", turn=1, paths=["src/a"], at=2).paths == ("src/a",)
    assert [(root / name).read_text() for name in ("src/a", "src/b", "c")] == ["old", "new", "new"]
    assert checkpoints.restore("s", turn=1, paths=["src/"], at=2).paths == ("src/b", "src/new")
    assert sorted(path.name for path in (root / "src").iterdir()) == ["a", "b"]
    assert (root / "c").read_text() == "new"
    assert checkpoints.restore("s", turn=1, paths=["src"], at=2).paths == ()
    with pytest.raises(CheckpointNotFound, match="no checkpoint of turn 7 of this session; turns with one: 1, 2"):
        checkpoints.restore("s", turn=7, at=2)
    with pytest.raises(CheckpointNotFound, match="there is no checkpoint of this session"):
        checkpoints.restore("another", at=2)


def test_what_was_no_part_of_it_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignored then and not now, too large then, ignored now and not then: nothing is lost."""
    monkeypatch.setattr(room, "LARGEST", 100)
    root = tmp_path / "work"
    (root / "cache").mkdir(parents=True)
    (root / "inner").mkdir()
    git(root, "init", "--quiet")
    git(root / "inner", "init", "--quiet")
    (root / "inner/.gitignore").write_text("built\n")
    (root / "inner/built").write_text("ignored by the inner one")
    (root / ".gitignore").write_text("cache\n")
    (root / "cache/x").write_text("ignored")
    (root / "large").write_bytes(b"x" * 200)
    (root / "grows").write_text("small")
    (root / "hides").write_text("shown")
    os.mkfifo(root / "pipe")
    checkpoints = Checkpoints(tmp_path / "home", root)
    taken = checkpoints.take("s", 1, at=1)
    assert (taken.left_out, taken.left_out_paths) == (2, ("large: is too large (200 bytes)", "pipe: is not a file"))
    (root / ".gitignore").write_text("hides\n")
    (root / "large").write_text("small now")
    (root / "grows").write_bytes(b"y" * 200)
    (root / "hides").write_text("changed")
    (root / "inner/built").write_text("built again")

    undone = checkpoints.restore("s", at=2)

    assert undone.paths == (".gitignore", "hides")
    assert undone.not_restored == ("grows: as it stands now it could not be brought back: it is too large (200 bytes)",)
    assert (root / "cache/x").read_text() == "ignored"
    assert (root / "large").read_text() == "small now"
    assert (root / "hides").read_text() == "shown"
    assert (root / "inner/built").read_text() == "built again"
    assert stat.S_ISFIFO((root / "pipe").lstat().st_mode)
    assert checkpoints.restore("s", checkpoint=undone.redo, at=3).paths == (".gitignore", "hides")
    assert (root / "hides").read_text() == "changed"


def test_what_a_commit_held_is_restored_after_the_commit_is_gone(tmp_path: Path) -> None:
    """The folder's own objects are used; once they are missing nothing is begun."""
    root = tmp_path / "work"
    root.mkdir()
    git(root, "init", "--quiet")
    (root / "tracked").write_text("committed")
    git(root, "add", "tracked")
    git(root, "commit", "-qm", "first")
    checkpoints = Checkpoints(tmp_path / "home", root)
    checkpoints.take("s", 1, at=1)
    (root / "tracked").write_text("changed")
    (root / "new").write_text("new")
    assert checkpoints.restore("s", at=2).paths == ("new", "tracked")
    assert (root / "tracked").read_text() == "committed"
    (root / "tracked").write_text("changed")
    shutil.rmtree(root / ".git")
    with pytest.raises(GitFailed, match="nothing was restored"):
        checkpoints.restore("s", at=2)
    assert (root / "tracked").read_text() == "changed"


def test_too_much_for_a_checkpoint_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_FILES", 3)
    for name in "abcd":
        (tmp_path / name).touch()
    with pytest.raises(GitFailed, match="it holds more than 3 files"):
        Checkpoints(tmp_path / "home", tmp_path).take("s", 1, at=1)


def test_old_ones_go_and_with_them_what_only_they_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_OF_A_SESSION", 2)
    root, home = tmp_path / "work", tmp_path / "home"
    root.mkdir()
    checkpoints = Checkpoints(home, root)
    for turn in range(1, 5):
        (root / "file").write_text(f"unlike all others {turn}")
        checkpoints.take("s", turn, at=turn)
    checkpoints.take("other", 1, at=20 * DAY)
    assert [one.turn for one in checkpoints.of_session("s")] == [3, 4]
    (root / "file").write_text("now")
    checkpoints.restore("s", turn=4, at=9)
    assert (root / "file").read_text() == "unlike all others 4"

    objects = [path for path in home.rglob("objects/??/*") if path.is_file()]
    sweep(home, 40 * DAY)
    assert checkpoints.of_session("s") == []
    assert len(checkpoints.of_session("other")) == 1
    assert len([path for path in home.rglob("objects/??/*") if path.is_file()]) < len(objects)
    (root / "file").write_text("now")
    checkpoints.restore("other", at=40 * DAY)
    assert (root / "file").read_text() == "unlike all others 4"
    checkpoints.forget("other")
    assert list((home / "checkpoints").iterdir()) == []
