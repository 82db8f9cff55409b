"""Pushing: the one thing of git's that speaks to others, so it goes only where the operator has said it may.

The address is read from the repository as data. What reaches it is the user's own (ssh, credential helpers, the
settings in the user's home); of the repository's settings none has a part, and no hook.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

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


def push(repository: Repository, address: str, branch: str) -> str:
    """Push ``branch``, never by force, and return its commit. The caller has asked ``is_allowed``."""
    ref = check_ref(f"refs/heads/{branch}")
    commit = repository.commit_of(ref)
    if not commit:
        raise GitFailed(f"there is no branch {branch!r}")
    scheme = address.partition("://")[0] if "://" in address else "ssh"
    with Shadow(repository) as shadow:
        env = {
            "GIT_ALLOW_PROTOCOL": scheme,
            "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
            "GIT_CONFIG_GLOBAL": os.path.expanduser("~/.gitconfig"),  # noqa: PTH111
            "GIT_CONFIG_NOSYSTEM": "0",
            "PATH": os.pathsep.join(_outside(repository)),
        }
        words = ("push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no")
        shadow.git(*words, "--", address, f"{commit}:{ref}", timeout=PUSH, env=env)
    return commit


def _outside(repository: Repository) -> list[str]:
    """The entries of ``PATH`` that do not lie in the repository: ssh and the credential helpers are found there."""
    entries = [entry for entry in os.environ.get("PATH", os.defpath).split(os.pathsep) if entry.startswith("/")]
    return [
        entry for entry in entries if not any(is_beneath(entry, own) for own in (repository.top, repository.common))
    ]
