"""Where a path lies, judged by its text alone: in the workspace, beside it, in the system, among secrets."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from .shell.words import HOLE

Place = Literal["harmless", "workspace", "temp", "unknown", "outside", "system", "device", "protected", "secret"]
# The worst last: a path that may lie in several places is judged by the worst of them.
ORDER: tuple[Place, ...] = (
    "harmless", "workspace", "temp", "unknown", "outside", "system", "device", "protected", "secret",
)  # fmt: skip


class Ground(msgspec.Struct, frozen=True):
    """What is known of the machine: the workspace, and the home folder when the caller says it."""

    workspace: str
    home: str | None = None


class Spot(msgspec.Struct, frozen=True):
    """Where one path lies; ``broad`` when it is a whole workspace, home, disk or a folder above."""

    place: Place
    path: str
    broad: bool = False


_HARMLESS = re.compile(r"^/dev/(null|zero|full|random|urandom|tty|std(in|out|err)|fd/\d+)$")
_SYSTEM = (
    "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/boot", "/sys", "/proc", "/dev", "/var", "/opt",
    "/run", "/srv", "/snap", "/System", "/Library", "/Applications", "/private/etc", "/private/var", "/root",
    "/nix", "/mnt", "/media", "/Volumes",
)  # fmt: skip
_TEMP = ("/tmp", "/var/tmp", "/private/tmp", "/var/folders", "/private/var/folders", "/dev/shm")
_HOMES = re.compile(r"^(/root|/home/[^/]+|/Users/[^/]+|/var/root)(?=/|$)")
_SECRET_HOME = re.compile(
    r"^~/(\.ssh|\.gnupg|\.aws|\.azure|\.kube|\.netrc|\.pgpass|\.npmrc|\.pypirc|\.git-credentials|\.docker/config\.json"
    r"|\.config/(gh|gcloud|op|hub|rclone)|\.password-store|\.\w+_history|\.vault-token|\.terraform\.d"
    r"|library/keychains|\.local/(share/keyrings|state/stagedoor)|\.mozilla|\.cargo/credentials(\.toml)?)(/|$)",
)
_SECRET_NAME = re.compile(
    r"(^|/)(\.env(\.(?!(example|sample|template|dist|defaults?)$)[^/]*)?|\.envrc|id_(rsa|dsa|ecdsa|ed25519)(\.(?!pub$).*)?"
    r"|[^/]*\.(pem|p12|pfx|keystore|jks|kdbx|ppk)|[^/]*(?<!\.pub)\.key|\.netrc|_netrc|\.pgpass|\.htpasswd|\.git-credentials"
    r"|\.?credentials(\.(json|toml|ya?ml|csv))?|oauth_creds\.json|auth\.json|service[-_]account[^/]*\.json"
    r"|secrets?\.(json|toml|ya?ml|env|txt)|master\.key)$",
)
_SECRET_SYSTEM = re.compile(
    r"^/(private/)?etc/(shadow|gshadow|sudoers|sudoers\.d|ssl/private|ssh/ssh_host)|^/proc/[^/]+/(environ|mem|maps)"
    r"|^/run/secrets|^/var/run/secrets|^/var/lib/(docker|kubelet)|^/var/run/docker\.sock|^/run/docker\.sock"
)
_GIT_INSIDE = re.compile(r"(^|/)\.git(/|$)")


def resolve(path: str, cwd: str | None, home: str | None = None) -> str | None:
    """The absolute form, ``~`` standing for any home folder; ``None`` when it cannot be known."""
    path = path.replace("\\", "/") if re.match(r"^[A-Za-z]:\\", path) else path
    path = path.removeprefix("file://")
    if path.startswith("~") and home is not None and (path == "~" or path.startswith("~/")):
        path = home + path[1:]
    if path.startswith("~"):
        return posixpath.normpath("~" + path[1:]) if path[1:2] in ("", "/") else posixpath.normpath("/home/" + path[1:])
    if not path.startswith("/"):
        if cwd is None:
            return None
        path = f"{cwd}/{path}"
    return "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else posixpath.normpath(path)


def inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def locate(path: str, cwds: Iterable[str | None], ground: Ground) -> Spot:
    """The worst place a path may lie in."""
    spots = [_locate(path, cwd, ground) for cwd in cwds] or [Spot("unknown", path)]
    worst = max(spots, key=lambda spot: ORDER.index(spot.place))
    return Spot(worst.place, worst.path, broad=any(spot.broad for spot in spots))


def _locate(path: str, cwd: str | None, ground: Ground) -> Spot:
    if HOLE in path:
        known, _, _ = path.partition(HOLE)
        folder = known.rpartition("/")[0] + "/" if "/" in known else ""
        if folder.startswith(("/", "~")):
            spot = _locate(folder, cwd, ground)
            if spot.place not in ("workspace", "temp", "harmless"):
                return Spot(spot.place, path, broad=spot.broad)
        if _SECRET_NAME.search(path.replace(HOLE, "").lower()):
            return Spot("secret", path)
        return Spot("unknown", path, broad=known in ("", "/", "~", "./", "../"))
    full = resolve(path, cwd, ground.home)
    workspace = resolve(ground.workspace, "/", ground.home) or "/"
    if full is None:
        return Spot("unknown", path, broad=_without_globs(path) in ("", ".", ".."))
    stem = _without_globs(full)
    broad = _is_broad(stem, workspace, ground.home)
    return Spot(_place(full, workspace, ground.home), full, broad=broad)


def _without_globs(path: str) -> str:
    """A path without the last parts that stand for everything: ``/etc/*`` is ``/etc``."""
    parts = path.split("/")
    while len(parts) > 1 and re.fullmatch(r"[.*?]*[*?][.*?]*|\.?\[[^/]*\]\*?", parts[-1]):
        parts.pop()
    if len(parts) == 1 and re.fullmatch(r"[.*?]*[*?][.*?]*", parts[0]):
        return ""
    return "/".join(parts) or "/"


def _is_broad(path: str, workspace: str, home: str | None) -> bool:
    if path in ("/", "~", "", home) or inside(workspace, path):
        return True
    if _HOMES.sub("", path) == "" or path in ("/home", "/Users"):
        return True
    return path.count("/") == 1 and path.startswith("/")


def _place(full: str, workspace: str, home: str | None) -> Place:
    if _HARMLESS.match(full):
        return "harmless"
    if full.startswith(("/dev/tcp/", "/dev/udp/")):
        return "device"
    if inside(full, "/dev") and not inside(full, "/dev/shm"):
        return "device"
    lower = full.lower()
    at_home = _HOMES.sub("~", lower) if home is None or not inside(full, home) else "~" + lower[len(home) :]
    if _SECRET_HOME.match(at_home) or _SECRET_NAME.search(lower) or _SECRET_SYSTEM.match(lower):
        return "secret"
    in_workspace = inside(full, workspace) and workspace != "/"
    if _GIT_INSIDE.search(lower[len(workspace) :] if in_workspace else lower):
        return "protected"
    if in_workspace:
        return "workspace"
    if home is not None and inside(full, home):
        return "outside"  # before the temporary folders: a home of its own may lie in one of them
    if any(inside(full, folder) for folder in _TEMP):
        return "temp"
    if full.startswith("~") or _HOMES.match(full):
        return "outside"
    if any(inside(full, folder) for folder in _SYSTEM) or full == "/" or re.match(r"^[A-Za-z]:/windows", lower):
        return "system"
    return "workspace" if workspace == "/" else "outside"
