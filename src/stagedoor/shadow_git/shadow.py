"""git on a git directory of ours, so that nothing in its path reads what a repository has to say about running things.

The shadow has its own settings (of the repository's only a few that are plain values), no hooks, no remotes, a copy of
the index, and the repository's objects as an alternate: new objects stay in the shadow. Whatever is written into the
repository meanwhile, git does not see it. A shadow is for one task: it stands under one guard (``Programs``) and goes
with it, also when we are killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from ..errors import LaunchError
from ..machine.names import is_beneath
from ..transports.programs import Finished, ProgramOverdue, Programs
from .repository import LARGE, SMALL, GitFailed, Repository, read_own
from .settings import Settings, last

TIMEOUT = 120.0
"""Seconds one git may take."""
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,32}")
_OWN_VALUES = (
    "core.autocrlf", "core.eol", "core.filemode", "core.ignorecase", "core.symlinks", "core.precomposeunicode",
    "core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse", "extensions.objectformat",
)  # fmt: skip
"""What git may know of the repository's settings: how files are written, and nothing that could name a program."""
_USERS_VALUES = ("core.autocrlf", "core.eol", "core.precomposeunicode")
_ALWAYS = {
    "core.repositoryformatversion": "1",
    "core.bare": "false",
    "core.logallrefupdates": "true",
    "core.fsmonitor": "false",
    "core.untrackedcache": "false",
    "core.splitindex": "false",
    "core.hookspath": os.devnull,
    "core.attributesfile": os.devnull,
    "core.quotepath": "false",
    "core.bigfilethreshold": "32m",
    "submodule.recurse": "false",
    "diff.ignoresubmodules": "all",
    "protocol.allow": "never",
    "http.followredirects": "false",  # the address that the operator allows would not be the one that answers
    "gc.auto": "0",
    "maintenance.auto": "false",
    "checkout.workers": "1",
    "advice.detachedhead": "false",
}
_ENV = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_SSH_COMMAND": "false",
    "GIT_ASKPASS": "false",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    "GIT_LITERAL_PATHSPECS": "1",
}
_REDIRECTED = re.compile(rb"returned error: 30\d")
_DROPPED = frozenset({"SSH_ASKPASS", "PAGER", "EDITOR", "VISUAL", "LESSOPEN", "LESSCLOSE"})


class Shadow:
    """Use as ``with Shadow(repository) as shadow``. Blocks: call it in a thread.

    ``writing``: references and objects go to the repository itself, and so does the index. ``more_objects``: folders in
    which objects are found too. ``unfinished``: what is being made, and goes too if we are killed. ``settings``: ours,
    above all others.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        writing: bool = False,
        more_objects: tuple[Path, ...] = (),
        unfinished: tuple[Path, ...] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.repository = repository
        self._settings = dict(settings or {})
        self.head = repository.head()
        self._program = _find_git(repository)
        self.folder = Path(tempfile.gettempdir()) / f"stagedoor-git-{secrets.token_hex(8)}"
        self._env = _environment(self.folder, repository.top)
        self._programs = Programs([str(self.folder), *map(str, unfinished)])
        try:
            self.folder.mkdir(mode=0o700)
            self._fill(more_objects)
            if writing:
                self._open_for_writing()
        except BaseException:
            self.close()
            raise

    def git(
        self,
        *words: str,
        content: bytes = b"",
        most: int | None = None,
        timeout: float = TIMEOUT,
        env: Mapping[str, str] | None = None,
        why_stop: Callable[[], str] | None = None,
    ) -> bytes:
        """git's answer. Raises ``GitFailed`` with what it says on standard error."""
        done = self.attempt(*words, content=content, most=most, timeout=timeout, env=env, why_stop=why_stop)
        if done.code and not done.cut:
            raise GitFailed(f"git {words[0]}: {_complaint(done)}{self._advice(done)}")
        return done.out

    def _advice(self, done: Finished) -> str:
        if _REDIRECTED.search(done.complaint):
            return "; the address leads to another one, which is not followed: name that one instead, if it is allowed"
        settings = self.repository.settings
        partial = any(name == "extensions.partialclone" or name.endswith(".promisor") for name in settings)
        if not partial or b"unable to read" not in done.complaint:
            return ""
        return "; this is a partial clone, from which Stagedoor fetches nothing: run git checkout there yourself first"

    def attempt(
        self,
        *words: str,
        content: bytes = b"",
        most: int | None = None,
        timeout: float = TIMEOUT,
        env: Mapping[str, str] | None = None,
        why_stop: Callable[[], str] | None = None,
    ) -> Finished:
        """Like ``git``, with its exit code."""
        argv = (self._program, "--no-pager", *words)
        where = str(self.repository.top)
        try:
            return self._programs.run(
                argv,
                cwd=where,
                env={**self._env, **(env or {})},
                timeout=timeout,
                content=content,
                most=most,
                why_slow=lambda: _waits_for(self.repository),
                why_stop=why_stop,
            )
        except ProgramOverdue as fault:
            raise GitFailed(f"git {words[0]} was not done in {timeout:g} seconds in {where} and was ended") from fault
        except LaunchError as fault:
            raise GitFailed(f"git {words[0]}: {fault}") from fault

    def keep_objects(self, folder: Path) -> None:
        """New objects go to ``folder``, and stay when the shadow goes."""
        folder.mkdir(parents=True, exist_ok=True)
        self._env["GIT_OBJECT_DIRECTORY"] = str(folder)
        self._env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(self.repository.objects, always=True)

    def users_settings(self) -> Settings:
        return _users_settings(self._program, self._env, self._programs, self.folder)

    def close(self) -> None:
        # First the folder: between two programs none writes to it, and until we take leave of it the guard removes it
        # if we are killed. Then again, because one may have run that is ended only now.
        shutil.rmtree(self.folder, ignore_errors=True)
        self._programs.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Shadow:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fill(self, more_objects: tuple[Path, ...]) -> None:
        repository, folder = self.repository, self.folder
        for name in ("refs/heads", "objects/info", "info"):
            (folder / name).mkdir(parents=True)
        settings = _settings_of(repository.settings, _OWN_VALUES)
        (folder / "HEAD").write_text(f"{self.head.commit or 'ref: refs/heads/unborn'}\n")
        stores = (repository.objects, *more_objects)
        (folder / "objects/info/alternates").write_bytes(b"".join(os.fsencode(f"{_quoted(one)}\n") for one in stores))
        _copy(repository.git_dir / "index", repository.git_dir, folder / "index", LARGE)
        for path in repository.git_dir.glob("sharedindex.*"):
            _copy(path, repository.git_dir, folder / path.name, LARGE)
        _copy(repository.git_dir / "info/sparse-checkout", repository.git_dir, folder / "info/sparse-checkout", SMALL)
        for name in ("info/exclude", "info/attributes", "shallow"):
            _copy(repository.common / name, repository.common, folder / name, SMALL)
        # Until then with nothing in it: what git now lists is the user's and the machine's alone.
        (folder / "config").write_text("[core]\n\trepositoryformatversion = 1\n\tbare = false\n")
        users = self.users_settings()
        ignored = last(users, "core.excludesfile") or _default_excludes()
        settings = {
            **_settings_of(users, _USERS_VALUES),
            **settings,
            "core.excludesfile": str(Path(ignored).expanduser()),
        }
        (folder / "config").write_bytes(os.fsencode(_written({**_ALWAYS, **settings, **self._settings})))

    def _open_for_writing(self) -> None:
        """References, their logs and the objects are the repository's own; locks are git's as ever."""
        repository, folder = self.repository, self.folder
        for part in ("refs", "refs/heads", "objects", "logs", "logs/refs"):
            if os.path.realpath(repository.common / part) != str(repository.common / part):
                raise GitFailed(f"{repository.common / part} is a link to another place; nothing is written there")
        index = repository.git_dir / "index"
        if index.is_symlink() or (index.exists() and not index.is_file()):
            raise GitFailed(f"{index} is not a file; nothing is written there")
        if self.head.ref:
            (folder / "HEAD").write_bytes(os.fsencode(f"ref: {self.head.ref}\n"))
        (folder / "refs/heads").rmdir()
        (folder / "refs").rmdir()
        (folder / "refs").symlink_to(repository.common / "refs")
        (folder / "packed-refs").symlink_to(repository.common / "packed-refs")
        (folder / "logs").mkdir()
        (repository.common / "logs/refs").mkdir(parents=True, exist_ok=True)
        (folder / "logs/refs").symlink_to(repository.common / "logs/refs")
        own_log = repository.git_dir / "logs/HEAD"
        if own_log.is_file() and not own_log.is_symlink() and not own_log.parent.is_symlink():
            (folder / "logs/HEAD").symlink_to(own_log)
        self._env["GIT_OBJECT_DIRECTORY"] = str(repository.objects)
        self._env["GIT_INDEX_FILE"] = str(index)


def _find_git(repository: Repository) -> str:
    """The git program: by an absolute entry of ``PATH``, and none that lies in one of the repository's own folders."""
    main = repository.common.parent if repository.common.name == ".git" else repository.common
    entries = [entry for entry in os.environ.get("PATH", os.defpath).split(os.pathsep) if entry.startswith("/")]
    outside = [entry for entry in entries if not any(is_beneath(entry, own) for own in (repository.top, main))]
    program = shutil.which("git", path=os.pathsep.join(outside))
    if program is None:
        raise GitFailed("git is not installed; install it and try again")
    return program


_READ_BY_GIT = frozenset({".gitignore", ".gitattributes", ".gitmodules", ".mailmap"})


def _waits_for(repository: Repository) -> str:
    """A named pipe that git opens: it would wait until somebody writes to it, which nobody does.

    Looked for only when git is slow: it costs a walk over the whole folder.
    """
    for root, everything in ((repository.top, False), (repository.common, True)):
        for folder, _, names in os.walk(root):
            for name in names:
                if everything or name in _READ_BY_GIT:
                    path = Path(folder, name)
                    with contextlib.suppress(OSError):
                        if stat.S_ISFIFO(path.stat().st_mode):
                            return f"{path} is a named pipe, for which git waits: remove it"
    return ""


def _environment(folder: Path, top: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") and name not in _DROPPED}
    return {**own, **_ENV, "GIT_DIR": str(folder), "GIT_WORK_TREE": str(top)}


def _settings_of(settings: Settings, names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name in names if _PLAIN.fullmatch(value := last(settings, name))}


def _written(settings: Mapping[str, str]) -> str:
    lines: list[str] = []
    for name, value in settings.items():
        section, _, key = name.partition(".")
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'[{section}]\n\t{key} = "{escaped}"\n')
    return "".join(lines)


def _quoted(path: Path, *, always: bool = False) -> str:
    text = str(path)
    if not always and not any(sign in text for sign in '"\\\n') and not text.startswith("#"):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _copy(source: Path, root: Path, target: Path, most: int) -> None:
    """With its time of change: by it git knows which files may have changed in the same moment."""
    try:
        mark = source.lstat()
    except OSError:
        return
    content = read_own(source, root, most)
    if content is not None:
        target.write_bytes(content)
        os.utime(target, ns=(mark.st_atime_ns, mark.st_mtime_ns))


def _complaint(done: Finished) -> str:
    return done.complaint.decode("utf-8", "replace").strip() or f"exit code {done.code}"


def _default_excludes() -> str:
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return f"{folder}/git/ignore"


_USERS: dict[tuple[object, ...], Settings] = {}
_USERS_LOCK = threading.Lock()


def _users_settings(program: str, env: Mapping[str, str], programs: Programs, folder: Path) -> Settings:
    """What the user and the machine have set: theirs to say, of which we use the name, and how files are written."""
    places = [
        os.path.expanduser("~/.gitconfig"),  # noqa: PTH111
        f"{Path(_default_excludes()).expanduser().parent}/config",
        "/etc/gitconfig",
    ]
    marks: list[object] = [program]
    for place in places:
        with contextlib.suppress(OSError):
            mark = os.stat(place)  # noqa: PTH116
            marks += [place, mark.st_mtime_ns, mark.st_size, mark.st_ino]
    key = tuple(marks)
    with _USERS_LOCK:
        if key in _USERS:
            return _USERS[key]
    own = {name: value for name, value in env.items() if name not in ("GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL")}
    done = programs.run(
        [program, "config", "--list", "--includes", "-z"], cwd=str(folder), env=own, timeout=TIMEOUT, most=SMALL
    )
    if done.code:
        raise GitFailed(f"git config: {_complaint(done)}")
    found: dict[str, list[str]] = {}
    for entry in done.out.decode("utf-8", "surrogateescape").split("\0"):
        name, _, value = entry.partition("\n")
        found.setdefault(name, []).append(value)
    with _USERS_LOCK:
        _USERS.clear()
        _USERS[key] = found
    return found
