"""What a confined child sees of the file system, as one list: the means that carry it out are all given the same."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from ...errors import LaunchError
from ...machine.names import is_beneath
from ..launch import Launch

Access = Literal["write", "read", "hide"]
EMPTY = {".json": b"{}\n", ".jsonc": b"{}\n"}
"""What an empty file holds, where no bytes at all would be a mistake in it."""
SOCKETS = Path("/proc/net/unix")
RUN_FOLDERS_NEEDED = ("/run/current-system", "/run/wrappers", "/run/opengl-driver")
"""Where a system (NixOS) keeps its programs."""


class Mount(msgspec.Struct, frozen=True):
    """``path`` is real: no part of it is a link. ``source``: what is seen there, if not what is there."""

    path: str
    access: Access
    source: str = ""

    @property
    def is_folder(self) -> bool:
        return os.path.isdir(self.source or self.path)  # noqa: PTH112 (asked of every mount of every start)


def mounts_of(launch: Launch, env: Mapping[str, str], *, temp: str, scratch: str, argv: Iterable[str]) -> list[Mount]:
    """Parents before what lies in them, on top of a root that is read-only as a whole.

    ``temp`` becomes the child's ``/tmp``. Nothing else of ``/tmp`` is seen but what the command line, the environment
    or the confinement name, and of ``/run`` nothing: the sockets there lead to programs that are not confined.
    """
    confinement = launch.confinement
    assert confinement is not None
    cwd = os.path.realpath(launch.cwd)
    own = tuple(_make_folder(folder) for folder in confinement.writable)
    ours = tuple(os.path.realpath(folder) for folder in (*launch.folders, scratch) if folder)
    _refuse_too_wide(
        (*own, *((cwd,) if confinement.workspace else ())), os.path.realpath(env.get("HOME") or Path.home())
    )
    access: dict[str, Access] = {cwd: "write" if confinement.workspace else "read"}
    access.update(dict.fromkeys((*own, *ours), "write"))
    git = _git_folders(cwd) if confinement.workspace else []
    access.update(dict.fromkeys(git, "write"))
    for folder in git:
        access.update(dict.fromkeys(_git_settings(folder), "read"))
    for path in confinement.readonly:
        if real := _protect(path, own):
            access[real] = "read"
    if not confinement.workspace and not any(cwd == folder for folder in own):
        access[cwd] = "read"
    for path in (*confinement.hidden, *_sockets(cwd)):
        real = os.path.realpath(Path(path).expanduser())
        if os.path.lexists(real) and real != cwd and real not in own:
            access[real] = "hide"
    for path in _anchors(access):
        access.setdefault(path, "write")
    mounts = {path: Mount(path, kind) for path, kind in access.items()}
    mounts |= {place: Mount(place, "read") for place in _needed(access, argv, env) if place not in mounts}
    mounts["/tmp"] = Mount("/tmp", "write", temp)
    if os.path.isdir("/run") and not os.path.islink("/run"):  # noqa: PTH112, PTH114
        mounts.setdefault("/run", Mount("/run", "hide"))
    return sorted(mounts.values(), key=lambda mount: (mount.path.count("/") if mount.path != "/" else 0, mount.path))


def _make_folder(folder: str) -> str:
    path = Path(folder).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise LaunchError(f"cannot make {path}, which the agent must be able to write: {error.strerror}") from error
    return os.path.realpath(path)


def _refuse_too_wide(folders: Iterable[str], home: str) -> None:
    for folder in folders:
        if is_beneath(home, folder):
            raise LaunchError(
                f"{folder} would be writable as a whole, with your home in it, and that is no confinement: "
                "choose a folder inside it"
            )


def _protect(path: str, own: tuple[str, ...]) -> str:
    """The real path of what shall not change; made empty if it is missing from a folder of the agent's own."""
    place = Path(path).expanduser()
    parent = os.path.realpath(place.parent)
    if os.path.lexists(place):
        return os.path.realpath(place)
    if parent not in own:
        return ""
    real = Path(parent) / place.name
    try:
        if path.endswith("/"):
            real.mkdir(mode=0o700)
        else:
            with open(real, "xb", opener=_private) as file:
                file.write(EMPTY.get(real.suffix, b""))
    except FileExistsError:
        pass
    except OSError as error:
        raise LaunchError(f"cannot protect {real} from the agent: {error.strerror}") from error
    return str(real)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _git_folders(cwd: str) -> list[str]:
    """The git folder in ``cwd``; of a worktree its repository's, if that one knows the worktree too.

    The file ``.git`` may have been written by anybody: it alone must not make a folder elsewhere writable.
    """
    dot_git = Path(cwd) / ".git"
    if dot_git.is_dir() and not dot_git.is_symlink():
        return [str(dot_git)]
    try:
        folder = Path(dot_git.read_text().removeprefix("gitdir:").strip())
        folder = Path(os.path.realpath(dot_git.parent / folder))
        if folder.parent.name != "worktrees" or os.path.realpath((folder / "gitdir").read_text().strip()) != str(
            dot_git
        ):
            return []
        common = folder.parent.parent
        return [str(common)] if (common / "objects").is_dir() and (common / "HEAD").is_file() else []
    except (OSError, ValueError):
        return []


def _git_settings(folder: str) -> list[str]:
    """What git runs, or reads to know what to run."""
    place = Path(folder)
    hooks = place / "hooks"
    if not os.path.lexists(hooks):
        hooks.mkdir(exist_ok=True)
    candidates = [hooks, place / "config", place / "config.worktree", place / "info" / "attributes"]
    if (place / "modules").is_dir():
        candidates += [found for name in ("hooks", "config") for found in (place / "modules").glob(f"*/{name}")]
    return [str(place) for place in candidates if os.path.lexists(place) and not place.is_symlink()]


def _sockets(cwd: str) -> list[str]:
    """The sockets others listen on now, outside the folders that are not seen anyway: each is a way out."""
    try:
        lines = SOCKETS.read_text("utf-8", "replace").splitlines()[1:]
    except OSError:
        return []
    places = {words[7] for line in lines if len(words := line.split(None, 7)) == 8 and words[7].startswith("/")}
    return [
        place for place in sorted(places) if not place.startswith((f"{cwd}/", "/run/", "/tmp/")) and _is_socket(place)
    ]


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116
    except OSError:
        return False


def _anchors(access: Mapping[str, Access]) -> list[str]:
    """The folders between a writable one and what is not writable in it. Each becomes a mount of its own: a plain
    folder could be renamed with all that is mounted below, and another put in its place."""
    found: list[str] = []
    for path, kind in access.items():
        if kind == "write":
            continue
        between: list[str] = []
        for parent in map(str, Path(path).parents):
            if parent in access:
                found += between if access[parent] == "write" else []
                break
            between.append(parent)
    return found


_IN_TMP = re.compile(r"/tmp/[^/\s:;,\"'=\\\0]+")


def _needed(access: Mapping[str, Access], argv: Iterable[str], env: Mapping[str, str]) -> set[str]:
    """What must be seen although its folder is not: whatever the child was told of, to the folder directly in /tmp."""
    words = [*argv, *map(os.path.realpath, list(argv)[:1]), *env.values(), *access]
    found = {place for word in words for place in _IN_TMP.findall(word)}
    resolver = os.path.realpath("/etc/resolv.conf")
    found |= {resolver} if resolver.startswith("/run/") else set()
    found |= {place for place in RUN_FOLDERS_NEEDED}
    return {place for place in found if os.path.exists(place) and not os.path.islink(place)}  # noqa: PTH110, PTH114
