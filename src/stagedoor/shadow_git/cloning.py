"""A repository brought from an address that the operator allows, and the work in it kept as one value.

git fetches with the user's own ssh and credential helpers; nothing else of the user's has a part, and of the
repository nothing at all: no hook, no filter, no submodule. What was done since (commits, what is not committed, new
files that are not ignored) is packed as a bundle on top of the commit it began from, and can be put into another clone.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

import msgspec

from .changing import CHECKOUT, committer, create_repository, write_locked
from .pushing import connecting
from .reading import changed, take_snapshot
from .repository import GitFailed, GitHead, Repository, check_ref, locate
from .shadow import Shadow

FETCH = 1800.0
"""Seconds."""
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LISTED = 1 << 20
_LONG_NAME = 200
"""Bytes."""
_EPOCH = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
"""What is not committed has no time: the same files make the same commit."""
_QUIETLY = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance")


class BundleTooLarge(GitFailed):
    """The work is larger than what is kept."""


class WorkState(msgspec.Struct, frozen=True, kw_only=True):
    """What was done in a clone. ``work`` is a commit with the files as they are, on top of what is checked out."""

    base: str
    head: GitHead
    branches: dict[str, str]
    work: str
    bundle: bytes
    left_out: tuple[str, ...] = ()
    """New files that were too large."""


class CloneTooLarge(GitFailed):
    """The repository is larger than this machine takes."""


class CloneLimit(msgspec.Struct, frozen=True, kw_only=True):
    """What a clone may have, its history and its files together; 0: any. ``files``: with their folders."""

    size: int = 0
    """Bytes."""
    files: int = 0


NO_LIMIT = CloneLimit()


def clone(
    address: str, ref: str, folder: Path, *, base: str = "", branch: str, limit: CloneLimit = NO_LIMIT
) -> Repository:
    """``ref`` of the repository at ``address`` (a branch, a tag or a commit; empty: what its HEAD names) in ``folder``,
    which must not be there yet. Whatever fails, nothing of it stays. The caller has asked ``is_allowed``.

    ``base``: the commit that is checked out, if not the newest one. ``branch``: the name to work on where ``ref`` is
    no branch. Raises ``CloneTooLarge`` for one that has more than ``limit``.
    """
    if base and not _COMMIT.fullmatch(base):
        raise GitFailed(f"{base!r} is not a commit")
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise GitFailed(f"{folder} is there already") from None
    try:
        return _cloned(address, ref, folder, base, branch, limit)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _cloned(address: str, ref: str, folder: Path, base: str, branch: str, limit: CloneLimit) -> Repository:
    too_large = partial(_too_large, address, folder, limit)
    with _refused_if(too_large):
        return _brought(address, ref, folder, base, branch, limit, too_large)


@contextlib.contextmanager
def _refused_if(too_large: Callable[[], str]) -> Generator[None]:
    """Also where git stopped because of it."""
    try:
        yield
    except CloneTooLarge:
        raise
    except GitFailed as fault:
        if why := too_large():
            raise CloneTooLarge(why) from fault
        raise
    if why := too_large():
        raise CloneTooLarge(why)


def _too_large(address: str, folder: Path, limit: CloneLimit) -> str:
    """Why it is, as far as it is there."""
    if limit == NO_LIMIT:
        return ""
    size = count = 0
    for place, folders, names in os.walk(folder):
        count += len(folders) + len(names)
        for name in names:
            with contextlib.suppress(OSError):  # git renames and removes its own
                size += os.lstat(f"{place}/{name}").st_size
        if limit.files and count > limit.files:
            return _too_many(address, limit)
        if limit.size and size > limit.size:
            words = f"{limit.size / 1_000_000:g} MB, which is the limit of this machine (workspaces.clone_megabytes)"
            return f"{address} has, with its history and its files, more than {words}"
    return ""


def _too_many(address: str, limit: CloneLimit) -> str:
    words = f"{limit.files:,} files and folders, which is the limit of this machine (workspaces.clone_files)"
    return f"{address} has more than {words}"


def _check_out(shadow: Shadow, commit: str, address: str, limit: CloneLimit, too_large: Callable[[], str]) -> None:
    """git reads all names into memory before it writes a file, and a few kilobytes of trees that hold each other can
    name billions: they are counted first. Names that are long on average count as too many."""
    if limit.files:
        most = limit.files * _LONG_NAME
        listed = shadow.attempt("ls-tree", "-r", "-t", "-z", "--name-only", commit, most=most, timeout=CHECKOUT)
        if listed.cut or listed.out.count(b"\0") > limit.files:
            raise CloneTooLarge(_too_many(address, limit))
    shadow.git("read-tree", "--reset", "-u", commit, timeout=CHECKOUT, why_stop=too_large)


def _brought(
    address: str,
    ref: str,
    folder: Path,
    base: str,
    branch: str,
    limit: CloneLimit,
    too_large: Callable[[], str],
) -> Repository:
    repository = create_repository(folder, "unborn")
    with Shadow(repository, writing=True, unfinished=(folder,)) as shadow:
        env = {**connecting(repository, address), **committer(shadow)}
        source, fetched_as = _find(shadow, env, address, ref)
        name = source.removeprefix("refs/heads/") if source.startswith("refs/heads/") else branch
        shadow.git("fetch", *_QUIETLY, "--", address, f"+{source}:{fetched_as}", timeout=FETCH, env=env,
                   why_stop=too_large)  # fmt: skip
        commit = base or _commit_of(shadow, fetched_as)
        if not _has(shadow, commit):
            done = shadow.attempt("fetch", *_QUIETLY, "--", address, commit, timeout=FETCH, env=env, why_stop=too_large)
            if done.code or not _has(shadow, commit):
                raise GitFailed(f"{address} no longer has the commit {commit[:12]}, from which the work began")
        shadow.git("update-ref", check_ref(f"refs/heads/{name}"), commit, env=env)
        _check_out(shadow, commit, address, limit, too_large)
    write_locked(repository.git_dir / "HEAD", f"ref: refs/heads/{name}\n")
    _add_remote(repository, address, name if fetched_as.startswith("refs/remotes/") else "")
    found = locate(folder)
    assert found is not None
    return found


def _find(shadow: Shadow, env: dict[str, str], address: str, ref: str) -> tuple[str, str]:
    """What is fetched, and the reference it is fetched to."""
    if _COMMIT.fullmatch(ref):
        return ref, "refs/stagedoor/begin"
    if ref:
        check_ref(f"refs/heads/{ref}")
    wanted_names = [f"refs/heads/{ref}", f"refs/tags/{ref}"] if ref else ["HEAD"]
    out = shadow.git(
        "ls-remote", "--quiet", "--symref", "--", address, *wanted_names, most=_LISTED, timeout=FETCH, env=env
    ).decode("utf-8", "surrogateescape")
    rows = [line.partition("\t") for line in out.splitlines()]
    if not ref:
        heads = [value.removeprefix("ref: ") for value, _, name in rows if name == "HEAD" and value.startswith("ref: ")]
        wanted_names = [check_ref(name) for name in heads[:1]] or wanted_names
    listed = {name for _, _, name in rows}
    for name in wanted_names:
        if name in listed or not ref:
            if not name.startswith("refs/heads/"):
                return name, "refs/stagedoor/begin"
            return name, f"refs/remotes/origin/{name.removeprefix('refs/heads/')}"
    raise GitFailed(f"{address} has no branch and no tag {ref!r}; name another one, or a whole commit id")


def _commit_of(shadow: Shadow, ref: str) -> str:
    return shadow.git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").decode().strip()


def _has(shadow: Shadow, commit: str) -> bool:
    return shadow.attempt("cat-file", "-e", f"{commit}^{{commit}}").code == 0


def _add_remote(repository: Repository, address: str, branch: str) -> None:
    """As ``git clone`` leaves it: whoever works there can fetch and push, where they may."""
    lines = [
        '[remote "origin"]',
        f"\turl = {_quoted(address)}",
        "\tfetch = +refs/heads/*:refs/remotes/origin/*",
    ]
    if branch:
        lines += [f"[branch {_quoted(branch)}]", "\tremote = origin", f"\tmerge = {_quoted(f'refs/heads/{branch}')}"]
    with (repository.git_dir / "config").open("ab") as file:
        file.write(os.fsencode("\n".join(lines) + "\n"))


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def pack(repository: Repository, base: str, *, most: int) -> WorkState:
    """What was done since ``base``. Raises ``BundleTooLarge`` above ``most`` bytes. Nothing there is changed."""
    if not _COMMIT.fullmatch(base):
        raise GitFailed(f"{base!r} is not a commit")
    _check_objects(repository.objects)
    with Shadow(repository) as shadow:
        snapshot = take_snapshot(shadow, changed(shadow, most=1 << 30).entries)
        head, branches = shadow.head, repository.branches()
        tree = shadow.git("write-tree").decode().strip()
        parent = ("-p", head.commit) if head.commit else ()
        env = {**committer(shadow), **_EPOCH}
        work = shadow.git("commit-tree", tree, *parent, "-m", "What was not committed", env=env).decode().strip()
        tips = {f"refs/stagedoor/tips/{number}": commit for number, commit in enumerate(sorted({*branches.values()}))}
        tips["refs/stagedoor/work"] = work
        lines = "".join(f"create {ref} {commit}\n" for ref, commit in tips.items())
        shadow.git("update-ref", "--stdin", content=lines.encode(), env=env)
        done = shadow.attempt("bundle", "create", "--quiet", "-", *tips, "--not", base, most=most + 1, timeout=FETCH)
        if done.cut or len(done.out) > most:
            raise BundleTooLarge(f"what was done there is larger than {most // 1_000_000} MB")
        if done.code:
            raise GitFailed(f"git bundle: {done.complaint.decode('utf-8', 'replace').strip()}")
        return WorkState(
            base=base, head=head, branches=branches, work=work, bundle=done.out, left_out=snapshot.left_out
        )


def _check_objects(folder: Path) -> None:
    """Raises ``GitFailed`` for objects that lie elsewhere. No clone of ours has any: whoever works there would get
    them with the work, out of repositories that perhaps only we can read."""
    borrowed = [folder / "info" / "alternates", folder / "info" / "http-alternates"]
    found = [path for path in borrowed if os.path.lexists(path)]
    for place, folders, files in os.walk(folder):
        found += [path for name in (*folders, *files) if (path := Path(place, name)).is_symlink()]
    if found or os.path.realpath(folder) != str(folder):
        raise GitFailed(
            f"{(found or [folder])[0]} leads to objects of another repository, which are not kept with the work; run "
            "git repack -a -d there and remove it"
        )


def unpack(repository: Repository, state: WorkState, *, limit: CloneLimit = NO_LIMIT) -> None:
    """Put work that was packed elsewhere into a clone that stands at the same ``base``. Raises ``CloneTooLarge`` when
    it has more than ``limit`` then."""
    address = "what was done there"
    too_large = partial(_too_large, address, repository.top, limit)
    with _refused_if(too_large):
        _unpack(repository, state, address, limit, too_large)


def _unpack(
    repository: Repository, state: WorkState, address: str, limit: CloneLimit, too_large: Callable[[], str]
) -> None:
    ids = (state.work, *state.branches.values(), *([state.head.commit] if state.head.commit else []))
    if not all(_COMMIT.fullmatch(one) for one in ids):
        raise GitFailed("the work that was kept does not name its commits")
    refs = {check_ref(f"refs/heads/{name}"): commit for name, commit in state.branches.items()}
    with Shadow(repository, writing=True) as shadow:
        path = shadow.folder / "work.bundle"
        path.write_bytes(state.bundle)
        shadow.git("bundle", "unbundle", str(path), timeout=FETCH)
        env = committer(shadow)
        lines = "".join(f"update {ref} {commit}\n" for ref, commit in refs.items())
        shadow.git("update-ref", "--stdin", content=os.fsencode(lines), env=env)
        _check_out(shadow, state.work, address, limit, too_large)
        head = f"ref: {check_ref(state.head.ref)}" if state.head.ref else state.head.commit
        write_locked(repository.git_dir / "HEAD", f"{head}\n")
        shadow.git("read-tree", *([state.head.commit] if state.head.commit else ["--empty"]))
