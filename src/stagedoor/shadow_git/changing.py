"""What we write to a repository: commits, branches, worktrees. No hook, no filter and no signing program has a part."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from .reading import changed, take_snapshot
from .repository import GitFailed, Repository, check_ref, read_own, worktree_of
from .settings import is_true, last
from .shadow import Shadow

CHECKOUT = 1800.0
"""Seconds that writing all files of a commit may take."""
_STATES = ("MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "SQUASH_MSG", "AUTO_MERGE")
_ID_LINES = re.compile(rb"^([0-9a-f]{40}|[0-9a-f]{64})$", re.MULTILINE)
_SPARSE = ("core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse")


def stage_all(repository: Repository) -> None:
    """Put everything that has changed into the index, new files too."""
    with Shadow(repository, writing=True) as shadow:
        take_snapshot(shadow, changed(shadow, most=1 << 30).entries, largest=None)


def stage(repository: Repository, paths: Sequence[str]) -> None:
    """Put these paths, seen from the top, into the index as they are now."""
    with Shadow(repository, writing=True) as shadow:
        entries = [entry for entry in changed(shadow).entries if _is_below(entry.path, paths)]
        take_snapshot(shadow, entries, largest=None)


def unstage(repository: Repository, paths: Sequence[str]) -> None:
    """The index holds of these paths again what the last commit has."""
    with Shadow(repository, writing=True) as shadow:
        if shadow.head.commit:
            shadow.attempt("reset", "--quiet", shadow.head.commit, "--", *paths)
        else:
            shadow.git("rm", "--cached", "-r", "--quiet", "--ignore-unmatch", "--", *paths)


def discard(repository: Repository, paths: Sequence[str]) -> None:
    """Files are again as the index has them; what is not tracked is left alone."""
    with Shadow(repository, writing=True) as shadow:
        listed = shadow.git("ls-files", "-z", "--", *paths)
        if listed:
            shadow.git("checkout-index", "-f", "-u", "-z", "--stdin", content=listed, timeout=CHECKOUT)


def commit(repository: Repository, message: str, *, everything: bool = False) -> str:
    """Commit the index, or ``everything`` that has changed, to what is checked out. Empty when nothing was to be."""
    with Shadow(repository, writing=True) as shadow:
        if everything:
            take_snapshot(shadow, changed(shadow, most=1 << 30).entries, largest=None)
        head = shadow.head
        merged = read_own(repository.git_dir / "MERGE_HEAD", repository.git_dir, 4096) or b""
        others = [name.decode() for name in _ID_LINES.findall(merged)]
        tree = shadow.git("write-tree").decode().strip()
        before = head.commit and shadow.git("rev-parse", "--verify", f"{head.commit}^{{tree}}").decode().strip()
        if tree == (before or repository.empty_tree) and not others:
            return ""
        parents = [word for parent in (head.commit, *others) if parent for word in ("-p", parent)]
        env = committer(shadow)
        made = shadow.git("commit-tree", tree, *parents, "-F", "-", content=message.encode(), env=env).decode().strip()
        _move_head(shadow, made, f"commit: {message.splitlines()[0] if message else ''}", env)
        for name in _STATES:
            (repository.git_dir / name).unlink(missing_ok=True)
        return made


def create_branch(repository: Repository, name: str, commit: str) -> None:
    ref = check_ref(f"refs/heads/{name}")
    with Shadow(repository, writing=True) as shadow:
        _create_ref(shadow, ref, commit)


def delete_branch(repository: Repository, name: str) -> None:
    """The branch goes, whatever is on it; its commits stay until git clears them away."""
    ref = check_ref(f"refs/heads/{name}")
    with Shadow(repository, writing=True) as shadow:
        shadow.git("update-ref", "-d", ref)


def checkout(repository: Repository, branch: str) -> None:
    """Check out ``branch``. Refused where it would overwrite what is not committed."""
    ref = check_ref(f"refs/heads/{branch}")
    target = repository.commit_of(ref)
    if not target:
        raise GitFailed(f"there is no branch {branch!r}; create it first")
    with Shadow(repository, writing=True) as shadow:
        before = shadow.head.commit or repository.empty_tree
        shadow.git("read-tree", "-m", "-u", before, target, timeout=CHECKOUT)
    write_locked(repository.git_dir / "HEAD", f"ref: {ref}\n")


def create_worktree(repository: Repository, folder: Path, branch: str, commit: str) -> Repository:
    """A linked worktree in ``folder`` on a new branch. Whatever fails, nothing of it stays."""
    ref = check_ref(f"refs/heads/{branch}")
    top = Path(os.path.realpath(folder.parent)) / folder.name
    if top.exists() and any(top.iterdir()):
        raise GitFailed(f"{top} is there already and is not empty")
    if repository.commit_of(ref):
        raise GitFailed(f"a branch named {branch!r} already exists")
    admin = _create_admin_folder(repository, top, ref)
    try:
        top.mkdir(parents=True, exist_ok=True)
        with open(top / ".git", "xb") as file:  # noqa: PTH123
            file.write(os.fsencode(f"gitdir: {admin}\n"))
        worktree = worktree_of(repository, top)
        if worktree is None:
            raise GitFailed(f"{admin} was changed while the worktree was made")
        with Shadow(worktree, writing=True, unfinished=(top, admin)) as shadow:
            shadow.git("read-tree", "--reset", "-u", commit, timeout=CHECKOUT)
            # Last: who is killed before leaves nothing behind.
            _create_ref(shadow, ref, commit)
    except BaseException:
        shutil.rmtree(top, ignore_errors=True)
        shutil.rmtree(admin, ignore_errors=True)
        raise
    (admin / "locked").unlink(missing_ok=True)
    return worktree


def remove_worktree(repository: Repository, folder: Path) -> None:
    """Take the folder away with everything in it, and what the repository knows of it."""
    worktree = worktree_of(repository, folder)
    if worktree is None:
        raise GitFailed(f"{folder} is not a worktree of {repository.top}")
    if (worktree.git_dir / "locked").exists():
        raise GitFailed(f"the worktree {folder} is locked; run git worktree unlock {folder}")
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        try:
            shutil.rmtree(folder)
        except OSError as fault:
            raise GitFailed(f"{folder} cannot be removed: {fault.strerror}: {fault.filename}") from fault
    shutil.rmtree(worktree.git_dir, ignore_errors=True)
    with contextlib.suppress(OSError):  # others may still be in it
        worktree.git_dir.parent.rmdir()


def create_repository(folder: Path, branch: str = "main") -> Repository:
    """A new repository, made without git: no template has a part in it."""
    git_dir = Path(os.path.realpath(folder)) / ".git"
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (git_dir / name).mkdir(parents=True)
    (git_dir / "HEAD").write_text(f"ref: {check_ref(f'refs/heads/{branch}')}\n")
    settings = {"core.repositoryformatversion": ["0"], "core.filemode": ["true"], "core.bare": ["false"]}
    lines = "".join(f"\t{name.removeprefix('core.')} = {values[0]}\n" for name, values in settings.items())
    (git_dir / "config").write_text(f"[core]\n{lines}\tlogallrefupdates = true\n")
    return Repository(git_dir.parent, git_dir, git_dir, settings)


def _create_admin_folder(repository: Repository, top: Path, ref: str) -> Path:
    parent = repository.common / "worktrees"
    if parent.is_symlink():
        raise GitFailed(f"{parent} is a link to another place; nothing is written there")
    parent.mkdir(exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9._-]|^\.|\.lock$", "-", top.name)
    for number in range(1000):
        admin = parent / (f"{name}{number}" if number else name)
        try:
            admin.mkdir()
        except FileExistsError:
            continue
        (admin / "locked").write_text("initializing\n")  # so that no gc takes it away before it is whole
        (admin / "gitdir").write_bytes(os.fsencode(f"{top / '.git'}\n"))
        (admin / "commondir").write_text("../..\n")
        (admin / "HEAD").write_text(f"ref: {ref}\n")
        (admin / "logs").mkdir()
        (admin / "logs/HEAD").write_text("")
        _copy_sparse(repository, admin)
        return admin
    raise GitFailed(f"{parent} holds too many worktrees called {name}; run git worktree prune")


def _copy_sparse(repository: Repository, admin: Path) -> None:
    """The new worktree has the same part of the files checked out, as with git."""
    patterns = read_own(repository.git_dir / "info/sparse-checkout", repository.git_dir, 1 << 20)
    if not is_true(repository.settings, "core.sparsecheckout") or patterns is None:
        return
    (admin / "info").mkdir()
    (admin / "info/sparse-checkout").write_bytes(patterns)
    if is_true(repository.settings, "extensions.worktreeconfig"):
        settings = ((name.split("."), is_true(repository.settings, name)) for name in _SPARSE)
        lines = (f"[{section}]\n\t{key} = {str(on).lower()}\n" for (section, key), on in settings)
        (admin / "config.worktree").write_text("".join(lines))


def _create_ref(shadow: Shadow, ref: str, commit: str) -> None:
    """Fails when there is one already."""
    shadow.git(
        "update-ref", "-m", "branch: Created by Stagedoor", ref, commit, "0" * len(commit), env=committer(shadow)
    )


def _move_head(shadow: Shadow, commit: str, why: str, env: dict[str, str]) -> None:
    head = shadow.head
    if head.ref:
        shadow.git("update-ref", "-m", why, head.ref, commit, head.commit or "0" * len(commit), env=env)
    else:
        write_locked(shadow.repository.git_dir / "HEAD", f"{commit}\n")


def write_locked(path: Path, content: str) -> None:
    """The way git itself replaces a file: the lock is its new content."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        with open(lock, "xb") as file:  # noqa: PTH123
            file.write(os.fsencode(content))
    except FileExistsError:
        raise GitFailed(f"{lock} exists: another git is at work there; try again when it is done") from None
    lock.rename(path)


def committer(shadow: Shadow) -> dict[str, str]:
    """Who commits: as the repository or the user says, and we ourselves where neither does."""
    users, own = shadow.users_settings(), shadow.repository.settings
    name = last(own, "user.name") or last(users, "user.name")
    email = last(own, "user.email") or last(users, "user.email")
    if not re.search(r"\w", name) or not email:
        name, email = "Stagedoor", "stagedoor@localhost"
    return {
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": email,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": email,
    }


def _is_below(path: str, places: Sequence[str]) -> bool:
    return any(place in ("", ".", path) or path.startswith(f"{place.rstrip('/')}/") for place in places)
