"""Pushing: the one thing of git's that speaks to others, so it goes only where the operator has said it may.

The address is read from the repository as data. What reaches it is the user's own (ssh, credential helpers, the
settings in the user's home); of the repository's settings none has a part, and no hook.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from urllib.parse import quote

from ..machine.names import is_beneath
from .repository import GitFailed, Repository, check_ref
from .settings import last
from .shadow import Shadow

PUSH = 600.0
"""Seconds."""
_SCHEME = re.compile(r"(https|ssh|file)://[^\s\x00-\x1f]+")
_SHORT = re.compile(r"[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[^\s\x00-\x1f:]+")
"""``git@host:path``"""


def address_of(repository: Repository, remote: str, branch: str) -> str:
    """Where ``remote`` (empty: the branch's own, else ``origin``) is."""
    settings = repository.settings
    name = remote or last(settings, f"branch.{branch}.pushremote") or last(settings, f"branch.{branch}.remote")
    name = name if name and name != "." else "origin"
    address = last(settings, f"remote.{name}.pushurl") or last(settings, f"remote.{name}.url")
    if not address:
        raise GitFailed(f"the repository has no remote {name!r}; add it with git remote add {name} ADDRESS")
    return address


def is_allowed(address: str, allowed: Sequence[str]) -> bool:
    """Whether ``address`` is one of ``allowed``, or is below one that ends with ``/`` or ``:``."""
    plain = _SCHEME.fullmatch(address) or _SHORT.fullmatch(address)
    if plain is None or ".." in re.split(r"[/:]", address) or "%" in address:
        return False
    return any(address == one or (one[-1:] in ("/", ":") and address.startswith(one)) for one in allowed)


_GITHUB, _GITLAB = "compare/{branch}?expand=1", "-/merge_requests/new?merge_request%5Bsource_branch%5D={branch}"
_FORGES = {
    "github.com": _GITHUB, "gitlab.com": _GITLAB, "bitbucket.org": "pull-requests/new?source={branch}",
    "codeberg.org": "compare/{branch}", "gitea.com": "compare/{branch}",
}  # fmt: skip
_OWN_FORGES = {"github": _GITHUB, "gitlab": _GITLAB}
"""How the names of a company's own begin. Anybody can have such a name: the operator must have named it."""
_PLACE = re.compile(
    r"(?:(?:https|ssh)://(?:[^@/\s]*@)?([A-Za-z0-9.-]+)(?::\d+)?/|(?:[^@/\s]+@)([A-Za-z0-9.-]+):/?)([\w./~-]+)"
)


def shown_address(address: str) -> str:
    """``address`` without a name or password in it: others may read it."""
    return re.sub(r"^(https?://)[^@/\s]*@", r"\1", address)


def pull_request_link(address: str, branch: str, *, allowed: bool = False) -> str:
    """Where a pull request of ``branch`` is opened, for the forges whose pages we know; else empty.

    ``allowed``: the operator has named the address; then it may be a forge of their own.
    """
    match = _PLACE.fullmatch(address)
    if match is None or not branch:
        return ""
    host, path = (match[1] or match[2]).lower(), match[3].removesuffix("/").removesuffix(".git").strip("/")
    page = _FORGES.get(host) or (_OWN_FORGES.get(host.partition(".")[0]) if allowed else None)
    if page is None or "/" not in path or ".." in path.split("/"):
        return ""
    return f"https://{host}/{path}/{page.format(branch=quote(branch, safe=''))}"


def push(repository: Repository, address: str, branch: str) -> str:
    """Push ``branch``, never by force, and return its commit. The caller has asked ``is_allowed``."""
    ref = check_ref(f"refs/heads/{branch}")
    commit = repository.commit_of(ref)
    if not commit:
        raise GitFailed(f"there is no branch {branch!r}")
    with Shadow(repository) as shadow:
        env = connecting(repository, address)
        words = ("push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no")
        shadow.git(*words, "--", address, f"{commit}:{ref}", timeout=PUSH, env=env)
    return commit


def connecting(repository: Repository, address: str) -> dict[str, str]:
    """The environment in which git reaches ``address``, and nothing by another protocol."""
    return {
        "GIT_ALLOW_PROTOCOL": address.partition("://")[0] if "://" in address else "ssh",
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
        "GIT_CONFIG_GLOBAL": os.path.expanduser("~/.gitconfig"),  # noqa: PTH111
        "GIT_CONFIG_NOSYSTEM": "0",
        "PATH": os.pathsep.join(_outside(repository)),
    }


def _outside(repository: Repository) -> list[str]:
    """The entries of ``PATH`` that do not lie in the repository: ssh and the credential helpers are found there."""
    entries = [entry for entry in os.environ.get("PATH", os.defpath).split(os.pathsep) if entry.startswith("/")]
    return [
        entry for entry in entries if not any(is_beneath(entry, own) for own in (repository.top, repository.common))
    ]
