"""git on the shadow says what plain git says, in every kind of repository; what it cannot read, it says so."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stagedoor.service.workspaces import git as service_git
from stagedoor.shadow_git import changing
from stagedoor.shadow_git.reading import changed
from stagedoor.shadow_git.repository import GitFailed, locate
from stagedoor.shadow_git.settings import BadSettings, parse_settings
from stagedoor.shadow_git.shadow import Shadow
from stagedoor.worktrees import add_worktree
from tests.shadow_git.hostile import build_base, run


def commit_all(folder: Path) -> None:
    run(folder, "add", "-A")
    run(folder, "commit", "-q", "-m", "more")


def sha256(work: Path) -> Path:
    shutil.rmtree(work / ".git")
    run(work, "init", "-q", "-b", "main", "--object-format=sha256", "--template=")
    commit_all(work)
    (work / "a.txt").write_text("again\n")
    return work


def split_index(work: Path) -> Path:
    run(work, "update-index", "--split-index")
    (work / "d.txt").write_text("again\n")
    return work


def old_index(work: Path) -> Path:
    run(work, "update-index", "--index-version", "4")
    return work


def sparse(work: Path) -> Path:
    run(work, "stash", "-q", "-u")
    run(work, "sparse-checkout", "set", "--cone", "--sparse-index", "sub")
    (work / "sub" / "e.txt").write_text("again\n")
    return work


def shallow(work: Path) -> Path:
    commit_all(work)
    clone = work.parent / "clone"
    run(work.parent, "clone", "-q", "--depth=1", f"file://{work}", str(clone))
    (clone / "a.txt").write_text("again\n")
    return clone


def detached(work: Path) -> Path:
    run(work, "stash", "-q")
    run(work, "checkout", "-q", "--detach")
    (work / "a.txt").write_text("again\n")
    return work


def unborn(work: Path) -> Path:
    shutil.rmtree(work / ".git")
    run(work, "init", "-q", "-b", "trunk", "--template=")
    return work


def linked(work: Path) -> Path:
    run(work, "worktree", "add", "-q", "-b", "linked", str(work.parent / "linked"))
    (work.parent / "linked" / "a.txt").write_text("again\n")
    return work.parent / "linked"


def submodule(work: Path) -> Path:
    build_base(work.parent / "module")
    run(work, "submodule", "--quiet", "add", str(work.parent / "module"), "s")
    commit_all(work)
    (work / "s" / "a.txt").write_text("changed inside\n")
    (work / "a.txt").write_text("again\n")
    return work


def inside_submodule(work: Path) -> Path:
    return submodule(work) / "s"


def conflict(work: Path) -> Path:
    commit_all(work)
    for branch, text in (("main", "ours\n"), ("other", "theirs\n")):
        run(work, "checkout", "-q", branch)
        (work / "d.txt").write_text(text)
        run(work, "commit", "-q", "-am", branch)
    run(work, "merge", "-q", "main", check=False)
    return work


def odd_names(work: Path) -> Path:
    for name in (b"line\nbreak", b"not utf8 \xff", b'"quoted"', b"-dash", b":(glob)x", "ünï".encode()):
        (work / os.fsdecode(name)).write_text("x\n")
    run(work, "mv", "d.txt", "moved.txt")
    return work


def kinds_of_files(work: Path) -> Path:
    (work / "a.txt").unlink()
    (work / "a.txt").symlink_to("b.txt")
    (work / "d.txt").chmod(0o755)
    os.mkfifo(work / "pipe")
    return work


def line_ends(work: Path) -> Path:
    run(work, "config", "core.autocrlf", "true")
    (work / ".git" / "info").mkdir(exist_ok=True)
    (work / ".git" / "info" / "attributes").write_text("d.txt -text\n")
    (work / "sub" / "e.txt").write_bytes(b"e\r\n")
    (work / "d.txt").write_bytes(b"d.txt\r\n")
    return work


def ignored(work: Path) -> Path:
    (work / ".git" / "info").mkdir(exist_ok=True)
    (work / ".git" / "info" / "exclude").write_text("*.log\n")
    (work / "x.log").write_text("x")
    return work


def packed(work: Path) -> Path:
    run(work, "gc", "-q")
    run(work, "pack-refs", "--all")
    return work


def others_alternates(work: Path) -> Path:
    clone = work.parent / "clone"
    run(work.parent, "clone", "-q", "--shared", str(work), str(clone))
    (clone / "a.txt").write_text("again\n")
    return clone


def foreign_owner(work: Path) -> Path:
    if os.geteuid():
        pytest.skip("only root can give a repository to somebody else")
    for folder, _, names in os.walk(work):
        for name in (".", *names):
            os.chown(Path(folder) / name, 12345, 12345, follow_symlinks=False)
    return work


KINDS: tuple[Callable[[Path], Path], ...] = (
    sha256, split_index, old_index, sparse, shallow, detached, unborn, linked, submodule, inside_submodule, conflict,
    odd_names, kinds_of_files, line_ends, ignored, packed, others_alternates, foreign_owner,
)  # fmt: skip


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pattern") / "base"
    build_base(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_it_says_what_plain_git_says(kind: Callable[[Path], Path], pattern: Path, tmp_path: Path) -> None:
    shutil.copytree(pattern, tmp_path / "work", symlinks=True)
    work = kind(tmp_path / "work")
    safe = ("-c", f"safe.directory={work}")
    words = ("status", "--porcelain=v1", "-z", "-uall", "--no-renames", "--ignore-submodules=all")
    plain = {os.fsdecode(line)[3:] for line in run(work, *safe, *words).split(b"\0") if line}
    repository = locate(work)
    assert repository is not None
    with Shadow(repository) as shadow:
        assert {entry.path for entry in changed(shadow).entries} == plain
        folder = shadow.folder
    assert not folder.exists()
    status = asyncio.run(service_git.status(work))
    head = run(work, *safe, "rev-parse", "-q", "--verify", "HEAD", check=False).decode().strip()
    assert (status.commit, status.branch) == (head, run(work, *safe, "branch", "--show-current").decode().strip())
    if kind is conflict:
        return
    # Our whole change, laid on a fresh copy of the commit, gives the same files.
    before = changing.commit(repository, "all of it", everything=True)
    assert before == run(work, *safe, "rev-parse", "HEAD").decode().strip()
    assert run(work, *safe, "status", "--porcelain", "--ignore-submodules=all").decode().split() in ([], ["??", "pipe"])
    assert b"dangling" not in run(work, *safe, "fsck", "--no-dangling")
    tree = asyncio.run(add_worktree(work, tmp_path / "trees" / "one", "stagedoor/one"))
    assert run(tree.folder, *safe, "-c", f"safe.directory={tree.folder}", "status", "--porcelain") == b""
    (tree.folder / "made.txt").write_text("made\n")
    assert asyncio.run(tree.keep("kept")).files == 1
    assert run(work, *safe, "log", "-1", "--format=%s", "stagedoor/one") == b"kept\n"
    asyncio.run(tree.remove(branch=True))
    assert b"stagedoor" not in run(work, *safe, "branch", "-a") + run(work, *safe, "worktree", "list")


def test_ahead_and_behind_of_what_a_branch_follows(pattern: Path, tmp_path: Path) -> None:
    run(tmp_path, "clone", "-q", str(pattern), "work")
    work = tmp_path / "work"
    (work / "ours.txt").write_text("x")
    commit_all(work)
    status = asyncio.run(service_git.status(work))
    assert (status.branch, status.upstream, status.ahead, status.behind) == ("main", "origin/main", 1, 0)
    run(work, "reset", "-q", "--hard", "HEAD~2")
    status = asyncio.run(service_git.status(work))
    assert (status.ahead, status.behind) == (0, 1)


def test_what_the_user_ignores_everywhere_is_ignored(
    pattern: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(pattern, tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine").write_text("*.swp\n")
    (tmp_path / ".gitconfig").write_text("[core]\n\texcludesFile = ~/mine\n[user]\n\tname = Ada\n\temail = ada@x\n")
    (tmp_path / "work" / "x.swp").write_text("x")
    repository = locate(tmp_path / "work")
    assert repository is not None
    changing.commit(repository, "mine", everything=True)
    assert run(tmp_path / "work", "log", "-1", "--format=%an %ae").decode() == "Ada ada@x\n"
    assert b"x.swp" not in run(tmp_path / "work", "ls-files")


def _reftable(work: Path) -> None:
    (work / ".git" / "config").write_text(
        "[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefStorage = reftable\n"
    )


def _unknown_extension(work: Path) -> None:
    (work / ".git" / "config").write_text("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tnewThing = 1\n")


def _no_settings(work: Path) -> None:
    (work / ".git" / "config").write_text("[core\n")


def _strange_head(work: Path) -> None:
    (work / ".git" / "HEAD").write_text("ref: refs/../../../../etc/passwd\n")


def _somebody_elses(work: Path) -> None:
    shutil.move(work / ".git", work.parent / "theirs")
    (work / ".git").symlink_to(work.parent / "theirs")


def _forged_worktree(work: Path) -> None:
    """An admin folder made in the workspace, which claims to belong to a repository elsewhere."""
    shutil.move(work / ".git", work.parent / "theirs")
    (work / "admin").mkdir()
    (work / "admin" / "commondir").write_text(f"{work.parent}/theirs\n")
    (work / "admin" / "gitdir").write_text(f"{work}/.git\n")
    (work / "admin" / "HEAD").write_text("ref: refs/heads/main\n")
    (work / ".git").write_text(f"gitdir: {work}/admin\n")


def _head(work: Path) -> str:
    repository = locate(work)
    assert repository is not None
    return repository.head().commit


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_reftable, "keeps its references as 'reftable'"),
        (_unknown_extension, "uses the git extension 'newthing'"),
        (_no_settings, "is not a configuration file of git's"),
        (_strange_head, "is not a reference of git's"),
        (_somebody_elses, "does not name this folder as its own"),
        (_forged_worktree, "does not name this folder as its worktree"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(
    spoil: Callable[[Path], None], sentence: str, pattern: Path, tmp_path: Path
) -> None:
    shutil.copytree(pattern, tmp_path / "work")
    spoil(tmp_path / "work")
    with pytest.raises(GitFailed, match=sentence):
        _head(tmp_path / "work")


@pytest.mark.parametrize("place", ["folder/.gitignore", ".gitattributes", ".git/objects/info/alternates"])
def test_a_named_pipe_that_git_would_wait_for_is_told(place: str, pattern: Path, tmp_path: Path) -> None:
    shutil.copytree(pattern, tmp_path / "work")
    pipe = tmp_path / "work" / place
    pipe.parent.mkdir(exist_ok=True)
    (pipe.parent / "seen").write_text("so that git looks into the folder\n")
    os.mkfifo(pipe)
    repository = locate(tmp_path / "work")
    assert repository is not None
    sentence = f"{re.escape(str(pipe))} is a named pipe, for which git waits: remove it"
    with Shadow(repository) as shadow, pytest.raises(GitFailed, match=sentence):
        shadow.git("status", "--porcelain", "--untracked-files=all")


def test_without_git_the_error_says_so(pattern: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere:.")
    repository = locate(pattern)
    assert repository is not None
    with pytest.raises(GitFailed, match="git is not installed; install it"):
        Shadow(repository)


def test_stage_unstage_discard_and_checkout(pattern: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    shutil.copytree(pattern, work)
    repository = locate(work)
    assert repository is not None

    def letters() -> dict[str, str]:
        lines = run(work, "status", "--porcelain", "-uall").decode().splitlines()
        return {line[3:]: line[:2] for line in lines}

    assert letters() == {"a.txt": " M", "b.txt": "M ", "c.txt": " D", "new.txt": "??"}
    changing.stage(repository, ["a.txt", "new.txt"])
    changing.unstage(repository, ["b.txt"])
    changing.discard(repository, ["c.txt"])
    assert letters() == {"a.txt": "M ", "b.txt": " M", "new.txt": "A "}
    with pytest.raises(GitFailed, match="no branch 'nowhere'"):
        changing.checkout(repository, "nowhere")
    made = changing.commit(repository, "some of it")
    assert run(work, "log", "-1", "--format=%H %s").decode() == f"{made} some of it\n"
    assert b"some of it" in run(work, "reflog", "-1")
    assert letters() == {"b.txt": " M"}
    changing.discard(repository, ["."])
    changing.checkout(repository, "other")
    assert run(work, "branch", "--show-current") == b"other\n"
    assert letters() == {}
    assert not (work / "new.txt").exists()
    assert changing.commit(repository, "nothing", everything=True) == ""
    (work / "a.txt").write_text("in the way\n")
    with pytest.raises(GitFailed, match=r"a\.txt"):
        changing.checkout(repository, "main")
    assert (work / "a.txt").read_text() == "in the way\n"


SETTINGS = b"""\
alone = 1
; a comment
[core]
\tbare = false # the rest
\teditor = "a \\"b\\" # c" d ; e
\tflag
\tlong = one \\
two
[Remote "Ori gin.x\\"y"]
\tURL = x\\ty
[a.Sub] key=1
[core] bare = TRUE
"""


def test_settings_are_read_as_git_reads_them(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(SETTINGS)
    listed = run(tmp_path, "config", "--file", "config", "--list", "-z").decode().split("\0")
    expected: dict[str, list[str]] = {}
    for entry in filter(None, listed):
        name, _, value = entry.partition("\n")
        expected.setdefault(name, []).append(value if _ else "true")
    assert parse_settings(SETTINGS) == expected
    for bad in (b"[core\n", b'[a]\n\tb = "x\n', b"[a]\n\tb = \\q\n", b"[a]\n\t1 = x\n"):
        with pytest.raises(BadSettings):
            parse_settings(bad)
        (tmp_path / "config").write_bytes(bad)
        with pytest.raises(subprocess.CalledProcessError):
            run(tmp_path, "config", "--file", "config", "--list")
