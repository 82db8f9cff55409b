"""Where a path lies: in the workspace, beside it, in the system, among secrets, among files that run later.

By its text; where the caller says that the disk is this machine's (``on_disk``), by where its links lead, too.
"""

from __future__ import annotations

import glob
import itertools
import os
import posixpath
import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from ..machine.names import short_name
from .protected import Patterns, Protections, protections
from .shell.words import HOLE

Place = Literal["harmless", "workspace", "temp", "unknown", "outside", "system", "device", "protected", "secret"]
# The worst last: a path that may lie in several places is judged by the worst of them.
ORDER: tuple[Place, ...] = (
    "harmless", "workspace", "temp", "unknown", "outside", "system", "device", "protected", "secret",
)  # fmt: skip


class Ground(msgspec.Struct, frozen=True):
    """What is known of the machine: the workspace, the home folder when the caller says it, and the files that are
    protected beside those that always are."""

    workspace: str
    home: str | None = None
    protected: Patterns = ()
    on_disk: bool = False
    """The paths are those of this machine: links are followed, patterns looked up."""


Folder = str | Ground
"""The workspace, by its path alone or with everything that is known of it."""


def as_ground(folder: Folder, home: str | None = None) -> Ground:
    return folder if isinstance(folder, Ground) else Ground(folder, home)


class Spot(msgspec.Struct, frozen=True):
    """Where one path lies; ``broad`` when it is a whole workspace, home, disk or a folder above; ``why`` it is
    protected."""

    place: Place
    path: str
    broad: bool = False
    why: str = ""
    region: Place = "workspace"
    """Where a protected path lies: reading it is no worse than reading its neighbours."""


_HARMLESS = re.compile(r"^/dev/(null|zero|full|random|urandom|tty|std(in|out|err)|fd/\d+)$")
_SYSTEM = (
    "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/boot", "/sys", "/proc", "/dev", "/var", "/opt",
    "/run", "/srv", "/snap", "/System", "/Library", "/Applications", "/private/etc", "/private/var", "/root",
    "/nix", "/mnt", "/media", "/Volumes",
)  # fmt: skip
_TEMP = ("/tmp", "/var/tmp", "/private/tmp", "/var/folders", "/private/var/folders", "/dev/shm")
_HOMES = re.compile(r"^(/root|/home/[^/]+|/Users/[^/]+|/var/root)(?=/|$)", re.IGNORECASE)
_WHERE_SECRETS_ARE = (
    "~/.ssh/**", "~/.gnupg/**", "~/.aws/**", "~/.azure/**", "~/.kube/**", "~/.netrc", "~/.pgpass", "~/.npmrc",
    "~/.pypirc", "~/.git-credentials", "~/.docker/config.json", "~/.config/gh/**", "~/.config/gcloud/**",
    "~/.config/op/**", "~/.config/hub/**", "~/.config/rclone/**", "~/.password-store/**", "~/.*_history",
    "~/.vault-token", "~/.terraform.d/**", "~/library/keychains/**", "~/.local/share/keyrings/**",
    "~/.local/state/stagedoor/**", "~/.mozilla/**", "~/.config/google-chrome/**", "~/.config/chromium/**",
    "~/.cargo/credentials", "~/.cargo/credentials.toml", "~/.config/doctl/**", "~/.config/heroku/**", "~/.oci/**",
    "~/.config/sops/**", "~/.config/age/**", "~/.boto", "~/.s3cfg", "~/.config/git/credentials",
    ".ssh/**", ".gnupg/**", ".aws/credentials", ".kube/config", ".git-credentials",
    ".env", ".env.*", ".envrc", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_rsa.*", "id_dsa.*", "id_ecdsa.*",
    "id_ed25519.*", "*.pem", "*.p12", "*.pfx", "*.keystore", "*.jks", "*.kdbx", "*.ppk", "*.key", ".netrc", "_netrc",
    ".pgpass", ".htpasswd", "credentials", ".credentials", "credentials.json", ".credentials.json", "credentials.toml",
    "credentials.yaml", "credentials.yml", "credentials.csv", "oauth_creds.json", "auth.json", "service-account*.json",
    "service_account*.json", "secret.json", "secret.toml", "secret.yaml", "secret.yml", "secret.env", "secret.txt",
    "secrets.json", "secrets.toml", "secrets.yaml", "secrets.yml", "secrets.env", "secrets.txt", "master.key",
    "~/.config/github-copilot/**", "~/.kimi/credentials/**", "~/.subversion/auth/**", "~/.m2/settings*.xml",
    "~/.gradle/gradle.properties", "~/.nuget/**/nuget.config", "~/.config/nuget/**", "~/.config/hcloud/**",
    "~/.config/fly/**",
    "~/.fly/**", "~/.netlify/**", "~/.config/netlify/**", "~/.wrangler/**", "~/.config/.wrangler/**",
    "~/.databrickscfg",
    "~/.snowflake/**", "~/.snowsql/**", "~/.my.cnf", "~/.mylogin.cnf", "~/.huggingface/**",
    "~/.cache/huggingface/token",
    "~/.cache/huggingface/stored_tokens", "~/.kaggle/**", "~/.openai/**", "~/.anthropic/**", "~/.config/anthropic/**",
    "~/.config/openai/**", "~/.vnc/**", "~/.rdp/**", "~/.purple/**", "~/.thunderbird/**", "~/.config/bravesoftware/**",
    "~/.config/microsoft-edge/**", "~/.config/vivaldi/**", "~/.config/opera/**", "~/library/application support/**",
    "~/.config/slack/**", "~/.config/discord/**", "~/.config/signal/**", "~/.bitcoin/**", "~/.ethereum/**",
    "~/.electrum/**",
    "~/.config/solana/**", "~/.monero/**", "~/.tsh/**", "~/.step/**", "~/.rancher/**", "~/.argocd/**",
    "~/.config/argocd/**",
    "~/.config/helm/**", "~/.circleci/**", "~/.travis/**", "~/.ansible/**", "~/.config/containers/auth.json",
    "~/.boto*",
    "~/.config/goose/**", "~/.config/glab-cli/**", "~/.config/tea/**", "~/.config/linode-cli", "~/.config/scw/**",
    "~/.config/pulumi/**", "~/.pulumi/**", "~/.config/configstore/**", "~/.local/share/kwalletd/**",
    "~/.config/kwalletrc",
    "vault_pass*", ".vault_pass*", ".vault-password*", "*.tfstate", "*.tfstate.backup", "*.tfvars",
    "terraform.tfvars.json",
    "credentials.yml.enc", "wp-config.php", "id_ed25519_sk*", "id_ecdsa_sk*", "*.ovpn", "kubeconfig", "*.kubeconfig",
    "logins.json", "key3.db", "key4.db", "cookies.sqlite", "wallet.dat", "*.keychain", "*.keychain-db", ".dockercfg",
    ".dockerconfigjson", "htpasswd", "*.jwk", "*.asc.key", "gcp-key*.json", "*-credentials.json", "*_credentials.json",
    "client_secret*.json", ".secrets", ".secrets.*", "secrets.tfvars", "token.json", "tokens.json", ".token",
    "api_key", "api_key.txt",
    ".api_key*", "apikey.txt", "passwords.txt", "passwords.csv", "passwd.txt", "/etc/rancher/**",
    "/var/lib/rancher/**", "/etc/openvpn/**",
    "/etc/wireguard/**", "/etc/networkmanager/system-connections/**", "/etc/docker/key.json", "/var/lib/cloud/**",
    "/etc/ipsec.secrets", "/etc/ppp/*-secrets", "/etc/exim*/passwd*", "/etc/postfix/sasl_passwd*",
    "/etc/mysql/debian.cnf",
    "/etc/shadow*", "/etc/gshadow*", "/etc/sudoers", "/etc/sudoers.d/**", "/etc/ssl/private/**",
    "/etc/ssh/ssh_host*", "/private/etc/sudoers", "/private/etc/master.passwd", "/etc/master.passwd",
    "/proc/*/environ", "/proc/*/mem", "/proc/*/maps", "/proc/*/task/*/environ", "/run/secrets/**",
    "/var/run/secrets/**", "/var/lib/docker/**", "/var/lib/kubelet/**", "/var/run/docker.sock", "/run/docker.sock",
    "/run/podman/**", "/run/user/*/podman/**", "/run/containerd/**", "/run/user/*/docker.sock", "/var/run/podman/**",
    "/var/run/containerd/**", "/etc/kubernetes/**", "/etc/krb5.keytab",
)  # fmt: skip
_SECRETS = Protections((pattern, "credentials") for pattern in _WHERE_SECRETS_ARE)
_NO_SECRET = re.compile(r"(^|/)(\.env\.(example|sample|template|dist|defaults?)|[^/]*\.pub(\.key)?)$")
_WILD = re.compile(r"[*?\[]|[@+!]\(")
_MOST_MATCHES = 256


def resolve(path: str, cwd: str | None, home: str | None = None, *, normal: bool = True) -> str | None:
    """The absolute form, ``~`` standing for any home folder; ``None`` when it cannot be known. Not ``normal``: with its
    ``..`` as they are, which mean something else behind a link."""
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
    if not normal:
        return path
    if not path.startswith("/"):
        return posixpath.normpath(path)
    return short_name("/" + posixpath.normpath(path).lstrip("/"))


def real_paths(path: str, ground: Ground) -> tuple[str, ...]:
    """An absolute path, and where its links lead if that is another: a rule about one is a rule about the other."""
    if not ground.on_disk or not path.startswith("/") or HOLE in path or "\0" in path:
        return (path,)
    return tuple(dict.fromkeys((path, short_name(os.path.realpath(path)))))


def inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def locate(path: str, cwds: Iterable[str | None], ground: Ground) -> Spot:
    """The worst place a path may lie in."""
    spots = [spot for cwd in cwds for spot in _spots(path, cwd, ground)] or [Spot("unknown", path)]
    worst = max(spots, key=lambda spot: ORDER.index(spot.place))
    regions: list[Place] = [_region_of(spot) for spot in spots]
    region = max(regions, key=lambda place: ORDER.index(place))
    return Spot(worst.place, worst.path, any(spot.broad for spot in spots), worst.why, region)


def _region_of(spot: Spot) -> Place:
    return spot.region if spot.place == "protected" else spot.place


def _spots(path: str, cwd: str | None, ground: Ground) -> list[Spot]:
    spots = [_locate(path, cwd, ground)]
    if not ground.on_disk or HOLE in path or "\0" in path or len(path) > 4096:
        return spots
    if (whole := resolve(path, cwd, ground.home, normal=False)) is None or not whole.startswith("/"):
        return spots
    real_workspace = os.path.realpath(ground.workspace)
    home = None if ground.home is None else os.path.realpath(ground.home)
    real_ground = msgspec.structs.replace(ground, workspace=real_workspace, home=home)
    for named in _matches(whole):
        real = short_name(os.path.realpath(named))
        if real != spots[0].path:
            spots.append(_locate(real, None, real_ground))
    return spots


def _matches(path: str) -> list[str]:
    """What a pattern stands for on this disk at this moment."""
    if not _WILD.search(path):
        return [path]
    try:
        return list(itertools.islice(glob.iglob(path), _MOST_MATCHES))  # noqa: PTH207 - as the shell does
    except (OSError, re.error, RecursionError):
        return []


def _locate(path: str, cwd: str | None, ground: Ground) -> Spot:
    if HOLE in path:
        return _partly_known(path, cwd, ground)
    full = resolve(path, cwd, ground.home)
    workspace = resolve(ground.workspace, "/", ground.home) or "/"
    if full is None:
        spot = _by_name("./" + posixpath.normpath(path).lower(), path, ground)
        return spot or Spot("unknown", path, broad=_without_globs(path) in ("", ".", ".."))
    stem = _without_globs(full)
    broad = _is_broad(stem, workspace, ground.home)
    region = _region(full, workspace, ground.home)
    place, why = _place(full, workspace, ground)
    return Spot(place, full, broad, why, region)


def _partly_known(path: str, cwd: str | None, ground: Ground) -> Spot:
    known, _, _ = path.partition(HOLE)
    folder = known.rpartition("/")[0] + "/" if "/" in known else ""
    full = path if path.startswith(HOLE) else resolve(path, cwd, ground.home) or path
    workspace = resolve(ground.workspace, "/", ground.home) or "/"
    spot = _by_name(_seen_from(full, workspace, ground), path, ground)
    if spot is not None:
        return spot
    if folder.startswith(("/", "~")):
        spot = _locate(folder, cwd, ground)
        if spot.place not in ("workspace", "temp", "harmless"):
            return Spot(spot.place, path, spot.broad, spot.why)
    return Spot("unknown", path, broad=known in ("", "/", "~", "./", "../"))


def _seen_from(full: str, workspace: str, ground: Ground) -> str:
    """A path in the form patterns are held against: ``./…`` in the workspace, ``~/…`` in a home, else absolute."""
    lower = full.lower()
    if workspace != "/" and inside(full, workspace):
        return "./" + lower[len(workspace) + 1 :]
    if ground.home is not None and inside(full, ground.home):
        return "~" + lower[len(ground.home) :]
    return _HOMES.sub("~", lower)


def _by_name(path: str, text: str, ground: Ground) -> Spot | None:
    wild = HOLE in path or _WILD.search(path) is not None
    rules = protections(ground.protected)
    if not _NO_SECRET.search(path) and (_SECRETS.possible(path) if wild else _SECRETS.why(path)):
        return Spot("secret", text)
    why = rules.possible(path) if wild else rules.why(path)
    return Spot("protected", text, why=why, region="unknown") if why else None


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


def _place(full: str, workspace: str, ground: Ground) -> tuple[Place, str]:
    if _HARMLESS.match(full):
        return "harmless", ""
    if full.startswith(("/dev/tcp/", "/dev/udp/")):
        return "device", ""
    if inside(full, "/dev") and not inside(full, "/dev/shm"):
        return "device", ""
    if (named := _by_name(_seen_from(full, workspace, ground), full, ground)) is not None:
        return named.place, named.why
    return _region(full, workspace, ground.home), ""


def _region(full: str, workspace: str, home: str | None) -> Place:
    if inside(full, workspace) and workspace != "/":
        return "workspace"
    if home is not None and inside(full, home):
        return "outside"  # before the temporary folders: a home of its own may lie in one of them
    if any(inside(full, folder) for folder in _TEMP):
        return "temp"
    if full.startswith("~") or _HOMES.match(full):
        return "outside"
    if any(inside(full, folder) for folder in _SYSTEM) or full == "/" or re.match(r"^[a-z]:/windows", full.lower()):
        return "system"
    return "workspace" if workspace == "/" else "outside"
