"""Where a repository is and where it stands, read from its files: no program is started, no setting of it obeyed.

A folder's ``.git`` may be anything: an agent can write it. It is followed only to a place that names the folder as its
own, so that a replaced ``.git`` does not show somebody else's repository.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..errors import StagedoorError
from ..machine.beneath import regular_file
from .settings import BadSettings, Settings, last, parse_settings, truth

SMALL = 1 << 20
"""Bytes of a settings file, at most."""
LARGE = 1 << 29
"""Bytes of a list of references or an index, at most."""
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_EXTENSIONS = frozenset(
    {
        "noop", "noop-v1", "preciousobjects", "partialclone", "worktreeconfig", "objectformat", "compatobjectformat",
        "refstorage", "relativeworktrees",
    }
)  # fmt: skip
_BAD_IN_NAME = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|\.$|/$")


class GitFailed(StagedoorError):
    """git could not do what was needed; the sentence is mostly git's own."""


class NoRepository(GitFailed):
    """There is no repository, or no commit in it, to start from."""


class GitHead(msgspec.Struct, frozen=True):
    """``ref`` is empty where no branch is checked out, ``commit`` where there is none yet."""

    ref: str = ""
    commit: str = ""

    @property
    def branch(self) -> str:
        return self.ref.removeprefix("refs/heads/")


class Repository(msgspec.Struct, frozen=True):
    """A working tree and where git keeps what belongs to it (``git_dir``) and what it shares (``common``)."""

    top: Path
    git_dir: Path
    common: Path
    settings: Settings

    @property
    def object_format(self) -> str:
        return last(self.settings, "extensions.objectformat", "sha1").lower()

    @property
    def objects(self) -> Path:
        return self.common / "objects"

    @property
    def empty_tree(self) -> str:
        """git's name for a tree without files."""
        if self.object_format == "sha256":
            return "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
        return "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

    def head(self) -> GitHead:
        content = self._read_ref(self.git_dir / "HEAD")
        if content is None:
            raise GitFailed(f"{self.git_dir} has no readable HEAD; run git status there")
        ref = content.removeprefix("ref:").strip() if content.startswith("ref:") else ""
        if not ref:
            return GitHead(commit=_checked_id(content, self.git_dir / "HEAD"))
        return GitHead(ref=ref, commit=self.commit_of(ref))

    def commit_of(self, ref: str) -> str:
        """What a reference stands for; empty when it does not exist."""
        for _ in range(5):
            check_ref(ref)
            content = self._read_ref(self.common / ref)
            if content is None:
                return self._packed().get(ref, "")
            if not content.startswith("ref:"):
                return _checked_id(content, self.common / ref)
            ref = content.removeprefix("ref:").strip()
        return ""

    def branches(self) -> dict[str, str]:
        """Every branch and its commit."""
        found = {ref: commit for ref, commit in self._packed().items() if ref.startswith("refs/heads/")}
        top = self.common / "refs" / "heads"
        for folder, _, names in os.walk(top):
            for name in names:
                ref = str(Path(folder, name).relative_to(self.common))
                if not _BAD_IN_NAME.search(ref) and (commit := self.commit_of(ref)):
                    found[ref] = commit
        return {ref.removeprefix("refs/heads/"): commit for ref, commit in sorted(found.items())}

    def upstream(self, branch: str) -> tuple[str, str]:
        """The name people use for what ``branch`` follows, and its reference; empty when it follows nothing."""
        remote = last(self.settings, f"branch.{branch}.remote")
        merge = last(self.settings, f"branch.{branch}.merge")
        if not remote or not merge:
            return "", ""
        if remote == ".":
            return merge.removeprefix("refs/heads/"), merge
        for refspec in self.settings.get(f"remote.{remote}.fetch", ()):
            source, _, target = refspec.removeprefix("+").partition(":")
            before, star, after = source.partition("*")
            if merge == source and not star:
                return target.removeprefix("refs/remotes/"), target
            if star and merge.startswith(before) and merge.endswith(after):
                ref = target.replace("*", merge[len(before) : len(merge) - len(after)], 1)
                return ref.removeprefix("refs/remotes/"), ref
        return "", ""

    def _packed(self) -> dict[str, str]:
        content = read_own(self.common / "packed-refs", self.common, LARGE) or b""
        lines = (line.partition(" ") for line in content.decode("utf-8", "surrogateescape").split("\n"))
        return {ref: commit for commit, _, ref in lines if _ID.fullmatch(commit)}

    def _read_ref(self, path: Path) -> str | None:
        root = self.git_dir if path.is_relative_to(self.git_dir) else self.common
        content = read_own(path, root, 4096)
        return None if content is None else content.decode("utf-8", "surrogateescape").strip()


def locate(cwd: Path) -> Repository | None:
    """The repository around ``cwd``, if it is in one. Raises ``GitFailed`` for one that is not to be read."""
    try:
        start = cwd.resolve(strict=True)
        device = start.stat().st_dev
    except OSError as fault:
        raise FileNotFoundError(f"{cwd} no longer exists") from fault
    for folder in (start, *start.parents):
        try:
            if folder.stat().st_dev != device:
                return None
            mode = (folder / ".git").lstat().st_mode
        except OSError:
            continue
        found: Repository | None
        if stat.S_ISREG(mode):
            found = _behind_file(folder)
        elif stat.S_ISLNK(mode):
            found = _behind_link(folder)
        else:
            found = _opened(folder, folder / ".git") if _is_git_dir(folder / ".git") else None
        if found is not None:
            return None if start.is_relative_to(found.git_dir) else found
    return None


def _behind_file(top: Path) -> Repository:
    """``.git`` says where: in a linked worktree, a submodule, or a repository with its git directory apart."""
    own = top / ".git"
    words = (read_own(own, top, 8192) or b"").decode("utf-8", "surrogateescape")
    if not words.startswith("gitdir: "):
        raise GitFailed(f"{own} is not a file of git's; run git status there")
    target = Path(os.path.realpath(top / words.removeprefix("gitdir: ").rstrip("\n")))
    if not (target / "commondir").exists():
        return _with_own_folder(top, target)
    common = _common_of(target)
    back = (read_own(target / "gitdir", target, 8192) or b"").decode("utf-8", "surrogateescape").strip()
    if target.parent != common / "worktrees" or os.path.realpath(target / back) != str(own):
        raise GitFailed(
            f"{own} leads to {target}, which does not name this folder as its worktree; run git worktree repair there"
        )
    return _opened(top, target, common)


def _common_of(admin: Path) -> Path:
    words = (read_own(admin / "commondir", admin, 8192) or b"").decode("utf-8", "surrogateescape").strip()
    return Path(os.path.realpath(admin / words))


def _behind_link(top: Path) -> Repository | None:
    target = Path(os.path.realpath(top / ".git"))
    return _with_own_folder(top, target) if target.is_dir() else None


def _with_own_folder(top: Path, target: Path) -> Repository:
    found = _opened(top, target)
    folder = last(found.settings, "core.worktree")
    if not target.is_relative_to(top) and (not folder or os.path.realpath(target / folder) != str(top)):
        raise GitFailed(
            f"{top / '.git'} leads to {target}, which does not name this folder as its own; if it is yours, run "
            f"git config core.worktree {top}"
        )
    return found


def _opened(top: Path, git_dir: Path, common: Path | None = None) -> Repository:
    if common is None:
        common = git_dir
        if (git_dir / "commondir").exists():
            raise GitFailed(f"{git_dir} shares the repository of another folder, which does not know of it")
    if not _is_git_dir(git_dir, common):
        raise GitFailed(f"{top} is not a git repository that can be read; run git status there")
    settings = read_settings(common, git_dir)
    extensions = {
        name.removeprefix("extensions."): values[-1]
        for name, values in settings.items()
        if name.startswith("extensions.")
    }
    if last(settings, "core.repositoryformatversion", "0") not in ("0", "1"):
        raise GitFailed(f"{top} is a git repository of a format that Stagedoor does not know")
    if unknown := sorted(set(extensions) - _EXTENSIONS):
        raise GitFailed(f"{top} uses the git extension {unknown[0]!r}, which Stagedoor does not know")
    if extensions.get("objectformat", "sha1").lower() not in ("sha1", "sha256"):
        raise GitFailed(f"{top} uses the object format {extensions['objectformat']!r}, which Stagedoor does not know")
    if extensions.get("refstorage", "files").lower() != "files":
        raise GitFailed(
            f"{top} keeps its references as {extensions['refstorage']!r}, which Stagedoor does not read; "
            "run git refs migrate --ref-format=files there"
        )
    return Repository(top, git_dir, common, settings)


def read_settings(common: Path, git_dir: Path) -> dict[str, list[str]]:
    """What the repository's own files say, as data."""
    files = [(common / "config", common)]
    found: dict[str, list[str]] = {}
    for path, root in files:
        content = read_own(path, root, SMALL)
        if content is None:
            continue
        try:
            parsed = parse_settings(content)
        except BadSettings as fault:
            raise GitFailed(f"{path} is not a configuration file of git's: {fault}") from fault
        for name, values in parsed.items():
            found.setdefault(name, []).extend(values)
        if path.name == "config" and truth(last(parsed, "extensions.worktreeconfig", "false")):
            files.append((git_dir / "config.worktree", git_dir))
    return found


def read_own(path: Path, root: Path, most: int) -> bytes | None:
    """A regular file below ``root``, not through links; ``None`` when there is none. ``GitFailed`` when too large."""
    if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(root)):
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    file = regular_file(descriptor)
    if file is None:
        return None
    with file:
        size = os.fstat(descriptor).st_size
        if size > most:
            raise GitFailed(f"{path} is too large to be read ({size} bytes)")
        return file.read(most)


def worktree_of(repository: Repository, folder: Path) -> Repository | None:
    """The linked worktree of ``repository`` in ``folder``, by the repository's word: the folder's may be forged."""
    place = Path(os.path.realpath(folder.parent)) / folder.name
    for top, admin in _linked(repository):
        if top == place:
            return Repository(top, admin, repository.common, read_settings(repository.common, admin))
    return None


def checked_out(repository: Repository) -> dict[str, Path]:
    """Each branch that stands in a working tree of ``repository``, and that tree: those that name it as theirs."""
    places = [top for top, _ in _linked(repository)]
    if repository.common.name == ".git":
        places.insert(0, repository.common.parent)
    found: dict[str, Path] = {}
    for place in places:
        try:
            there = locate(place)
            branch = there.head().branch if there is not None and there.top == place else ""
        except (GitFailed, OSError):
            continue
        if there is not None and there.common == repository.common and branch:
            found[branch] = place
    return found


def _linked(repository: Repository) -> Iterator[tuple[Path, Path]]:
    """The folder of each linked worktree, by the repository's word, and what it keeps of it."""
    for admin in _admin_folders(repository):
        words = (read_own(admin / "gitdir", repository.common, 8192) or b"").decode("utf-8", "surrogateescape").strip()
        top = Path(os.path.normpath(admin / words)).parent
        yield Path(os.path.realpath(top.parent)) / top.name, admin


def _admin_folders(repository: Repository) -> Iterator[Path]:
    folder = repository.common / "worktrees"
    if folder.is_symlink() or not folder.is_dir():
        return
    for admin in sorted(folder.iterdir()):
        if not admin.is_symlink() and admin.is_dir():
            yield admin


def check_ref(ref: str) -> str:
    """``ref`` if git could have made it; a name that leads elsewhere is refused."""
    if not ref.startswith("refs/") or _BAD_IN_NAME.search(ref):
        raise GitFailed(f"{ref!r} is not a reference of git's")
    return ref


def _is_git_dir(git_dir: Path, common: Path | None = None) -> bool:
    common = common or git_dir
    return (common / "objects").is_dir() and (common / "refs").is_dir() and (git_dir / "HEAD").is_file()


def _checked_id(content: str, path: Path) -> str:
    if not _ID.fullmatch(content):
        raise GitFailed(f"{path} does not name a commit; run git status there")
    return content
