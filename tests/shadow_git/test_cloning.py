"""Cloning, and work that goes from one clone to another. The oracle is git itself, and what hostile programs mark."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from msgspec.structs import replace

from stagedoor.errors import StagedoorError
from stagedoor.shadow_git.cloning import BundleTooLarge, CloneLimit, CloneTooLarge, clone, pack, unpack
from stagedoor.shadow_git.repository import GitFailed, Repository, locate
from tests.shadow_git.hostile import WHO, build, run
from tests.shadow_git.test_checkpoints import listing

MOST = 64_000_000
TRIED = (
    "hooks", "filter_smudge", "filter_process", "fsmonitor", "external_diff", "promisor_ssh", "promisor_upload_pack",
    "included", "submodule_replaced", "nested", "git_file_elsewhere", "alternates", "all_of_it",
)  # fmt: skip
"""Those that differ most for a clone; with ``STAGEDOOR_ALL_GROUNDS=1`` all."""


def _git(folder: Path, *words: str, content: str = "") -> str:
    env = {**WHO, "PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *words], cwd=folder, env=env, check=True, capture_output=True, text=True, input=content
    )
    return done.stdout


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two branches, a tag, a link, an ignored name, and what would be filtered."""
    folder = tmp_path / "source"
    folder.mkdir()
    _git(folder, "init", "--quiet", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / ".gitattributes").write_text("*.bin filter=lfs\n")
    (folder / "big.bin").write_text("version https://git-lfs.github.com/spec/v1\n")
    (folder / "link").symlink_to("a.txt")
    _git(folder, "add", ".")
    _git(folder, "commit", "--quiet", "-m", "first")
    _git(folder, "tag", "-a", "v1", "-m", "v1")
    _git(folder, "checkout", "--quiet", "-b", "feature/x")
    (folder / "a.txt").write_text("two\n")
    _git(folder, "commit", "--quiet", "-am", "second")
    _git(folder, "checkout", "--quiet", "main")
    return folder


def _clone(source: Path, ref: str, folder: Path, base: str = "") -> Repository:
    return clone(f"file://{source}", ref, folder, base=base, branch="stagedoor/12345678")


@pytest.mark.parametrize(
    ("ref", "branch", "content"),
    [
        ("", "main", "one\n"),
        ("main", "main", "one\n"),
        ("feature/x", "feature/x", "two\n"),
        ("v1", "stagedoor/12345678", "one\n"),
        ("COMMIT", "stagedoor/12345678", "two\n"),
    ],
)
def test_a_ref_is_checked_out(source: Path, tmp_path: Path, ref: str, branch: str, content: str) -> None:
    _git(source, "config", "uploadpack.allowTipSHA1InWant", "true")
    ref = _git(source, "rev-parse", "feature/x").strip() if ref == "COMMIT" else ref
    repository = _clone(source, ref, tmp_path / "new" / "clone")
    folder = repository.top
    assert (folder / "a.txt").read_text() == content
    assert (folder / "link").readlink() == Path("a.txt")
    assert repository.head().branch == branch
    assert _git(folder, "status", "--porcelain") == ""
    assert _git(folder, "remote", "get-url", "origin").strip() == f"file://{source}"
    assert _git(folder, "fsck", "--strict", "--no-dangling") == ""


@pytest.mark.parametrize(
    ("address", "ref"),
    [
        ("ext::sh -c 'touch MARK'", ""),
        ("--upload-pack=touch MARK", ""),
        ("file://SOURCE", "--upload-pack=touch MARK"),
        ("file://SOURCE", "-h"),
        ("file://SOURCE", "nowhere"),
        ("file://SOURCE", "main:refs/heads/other"),
        ("file://SOURCE", "*"),
        ("file://SOURCE", "0" * 40),
        ("file:///nowhere/at/all", "main"),
        ("fd::17", ""),
        ("git://127.0.0.1:1/x", ""),
    ],
)
def test_what_cannot_be_cloned_leaves_nothing(source: Path, tmp_path: Path, address: str, ref: str) -> None:
    mark = tmp_path / "mark"
    address, ref = (word.replace("SOURCE", str(source)).replace("MARK", str(mark)) for word in (address, ref))
    with pytest.raises(GitFailed):
        clone(address, ref, tmp_path / "clone", branch="x")
    assert not mark.exists()
    assert not (tmp_path / "clone").exists()


def _work(folder: Path) -> None:
    """Commits on two branches, and all sorts of what is not committed."""
    (folder / "b.txt").write_text("committed\n")
    _git(folder, "add", "b.txt")
    _git(folder, "commit", "--quiet", "-m", "work")
    _git(folder, "branch", "aside")
    _git(folder, "checkout", "--quiet", "-b", "mine")
    (folder / "a.txt").write_text("changed\n")
    (folder / "link").unlink()
    (folder / "new folder").mkdir()
    (folder / "new folder" / "ünï\ncode").write_bytes(b"\0\xff")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "noise.log").write_text("ignored\n")


@pytest.mark.parametrize("what", ["history", "files"])
def test_a_clone_has_a_limit(source: Path, tmp_path: Path, what: str) -> None:
    """Its history alone may be too large, or its files, which take little room as long as they are packed."""
    random = hashlib.shake_256(b"stagedoor").digest(400_000)
    (source / "large").write_bytes(random if what == "history" else bytes(3_000_000))
    _git(source, "add", "large")
    _git(source, "commit", "-qm", "large")
    if what == "history":
        _git(source, "rm", "-q", "large")
        _git(source, "commit", "-qm", "gone")
    most = 300_000 if what == "history" else 2_000_000
    folder = tmp_path / "clones" / "one"
    with pytest.raises(CloneTooLarge, match=f"more than {most / 1_000_000:g} MB, .*workspaces.clone_megabytes"):
        clone(f"file://{source}", "main", folder, branch="x", limit=CloneLimit(size=most))
    assert not folder.exists()
    clone(f"file://{source}", "main", folder, branch="x", limit=CloneLimit(size=5_000_000))


@pytest.mark.parametrize(
    ("what", "limit"),
    [
        ("many files", CloneLimit(files=100)),
        ("long names", CloneLimit(files=100)),
        ("trees that hold each other", CloneLimit(files=500_000)),
    ],
)
def test_a_clone_has_a_limit_of_files(source: Path, tmp_path: Path, what: str, limit: CloneLimit) -> None:
    """Also where git could not even count them: ten levels of ten names make ten thousand million files."""
    if what == "trees that hold each other":
        tree = _git(source, "hash-object", "-w", "a.txt").strip()
        for level in range(10):
            kind = "040000 tree" if level else "100644 blob"
            rows = "".join(f"{kind} {tree}\t{name}\n" for name in range(10))
            tree = _git(source, "mktree", content=rows).strip()
        commit = _git(source, "commit-tree", tree, "-m", "large", "-p", "HEAD").strip()
        _git(source, "update-ref", "refs/heads/main", commit)
    else:
        letters = "x" * 220 if what == "long names" else "x"
        for number in range(120):
            (source / f"{letters}{number}").touch()
        _git(source, "add", ".")
        _git(source, "commit", "-qm", "large")
    folder = tmp_path / "clones" / "one"
    with pytest.raises(CloneTooLarge, match=f"more than {limit.files:,} files and folders, .*workspaces.clone_files"):
        clone(f"file://{source}", "main", folder, branch="x", limit=limit)
    assert not folder.exists()


def test_work_that_has_too_many_files_is_not_put_into_a_clone(source: Path, tmp_path: Path) -> None:
    first = _clone(source, "main", tmp_path / "first")
    base = first.head().commit
    for number in range(120):
        (first.top / f"x{number}").touch()
    state = pack(_located(first.top), base, most=MOST)
    second = _clone(source, "main", tmp_path / "second")
    with pytest.raises(CloneTooLarge, match="what was done there has more than 100 files"):
        unpack(second, state, limit=CloneLimit(files=100))
    assert not (second.top / "x1").exists()
    unpack(second, state, limit=CloneLimit(files=1000))
    assert (second.top / "x119").exists()


def test_work_goes_to_another_clone(source: Path, tmp_path: Path) -> None:
    first = _clone(source, "main", tmp_path / "first")
    base = first.head().commit
    _work(first.top)
    state = pack(_located(first.top), base, most=MOST)
    (source / "later.txt").write_text("the branch went on\n")
    _git(source, "add", ".")
    _git(source, "commit", "--quiet", "-m", "later")
    second = _clone(source, "main", tmp_path / "second", base)
    unpack(second, state)
    (first.top / "noise.log").unlink()
    assert listing(second.top) == listing(first.top)
    for words in (("status", "--porcelain"), ("branch", "--list"), ("log", "--format=%H %s"), ("rev-parse", "aside")):
        assert _git(second.top, *words) == _git(first.top, *words), words
    assert _git(second.top, "fsck", "--strict", "--no-dangling") == ""
    assert replace(pack(_located(second.top), base, most=MOST), bundle=b"") == replace(state, bundle=b"")


def test_work_without_any_change_is_packed_too(source: Path, tmp_path: Path) -> None:
    first = _clone(source, "", tmp_path / "first")
    base = first.head().commit
    state = pack(first, base, most=MOST)
    second = _clone(source, "", tmp_path / "second", base)
    unpack(second, state)
    assert listing(second.top) == listing(first.top)
    assert len(state.bundle) < 1000


@pytest.mark.parametrize("way", ["info/alternates", "pack", "0a", "0b/x"])
def test_objects_of_another_repository_are_not_kept(source: Path, tmp_path: Path, way: str) -> None:
    """Whoever works in the clone names a commit that is only in a repository that it may not read."""
    private = tmp_path / "private"
    _git(tmp_path, "clone", "--quiet", str(source), str(private))
    first = _clone(source, "main", tmp_path / "first")
    place = first.objects / way
    place.parent.mkdir(exist_ok=True)
    if way == "info/alternates":
        place.write_text(f"{private}/.git/objects\n")
    else:
        if place.is_dir():
            shutil.rmtree(place)
        place.symlink_to(private / ".git/objects/pack")
    with pytest.raises(GitFailed, match="leads to objects of another repository"):
        pack(first, first.head().commit, most=MOST)


class _Redirects(SimpleHTTPRequestHandler):
    """Below ``/allowed`` is nothing but the way to what is elsewhere."""

    def do_GET(self) -> None:
        if self.path.startswith("/allowed/"):
            self.send_response(302)
            self.send_header("Location", self.path.replace("/allowed/", "/", 1))
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None: ...


def test_an_address_that_leads_to_another_is_not_followed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    _git(source, "update-server-info")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Redirects, directory=tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            with pytest.raises(GitFailed, match="leads to another one, which is not followed"):
                clone(f"{address}/allowed/source/.git", "main", tmp_path / "first", branch="x")
            clone(f"{address}/source/.git", "main", tmp_path / "second", branch="x")
        finally:
            server.shutdown()
            thread.join()
    assert not (tmp_path / "first").exists()
    assert (tmp_path / "second/a.txt").read_text() == "one\n"


def test_work_that_is_too_large_is_refused_whole(source: Path, tmp_path: Path) -> None:
    first = _clone(source, "", tmp_path / "first")
    (first.top / "large").write_bytes(os.urandom(300_000))
    with pytest.raises(BundleTooLarge, match="larger than"):
        pack(first, first.head().commit, most=200_000)


@pytest.mark.parametrize("base", ["main", "--upload-pack=x", "+refs/heads/*:refs/heads/*", "0" * 39])
def test_a_base_that_is_no_commit_is_refused(source: Path, tmp_path: Path, base: str) -> None:
    with pytest.raises(GitFailed, match="is not a commit"):
        _clone(source, "main", tmp_path / "first", base)
    assert not (tmp_path / "first").exists()


def test_a_base_that_is_gone_is_named(source: Path, tmp_path: Path) -> None:
    first = _clone(source, "main", tmp_path / "first")
    (first.top / "a.txt").write_text("x")
    _git(first.top, "commit", "--quiet", "-am", "never pushed")
    with pytest.raises(GitFailed, match="no longer has the commit"):
        _clone(source, "main", tmp_path / "second", _located(first.top).head().commit)
    assert not (tmp_path / "second").exists()


def test_no_repository_makes_anything_run_when_it_is_cloned_or_packed(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    works = build(tmp_path, marks, *(() if os.environ.get("STAGEDOOR_ALL_GROUNDS") else TRIED))
    cloned = packed = 0
    for work in works:
        target = tmp_path / "clones" / work.parent.name
        try:
            clone(f"file://{work}", "", target, branch="x")
            cloned += 1
        except StagedoorError:
            assert not target.exists()
        try:
            repository = locate(work)
            if repository is not None and (commit := repository.head().commit):
                unpacked = pack(repository, commit, most=MOST)
                assert unpacked.work
                packed += 1
        except StagedoorError:
            continue
    assert sorted(path.name for path in marks.glob("*")) == []
    assert cloned > len(works) / 2
    assert packed > len(works) / 2


def _located(folder: Path) -> Repository:
    found = locate(folder)
    assert found is not None
    return found


def test_the_corpus_is_used_as_it_is(tmp_path: Path) -> None:
    """A hook that git would run does run when git itself commits there: the test above could fail."""
    marks = tmp_path / "marks"
    (work,) = build(tmp_path, marks, "hooks")
    run(work, "commit", "--allow-empty", "-m", "x", check=False)
    assert list(marks.glob("*"))
