"""Where a session's files are: in a folder of one machine, or in a repository that any machine can bring."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from stagedoor.errors import BadRequest
from stagedoor.shadow_git.pushing import is_allowed
from stagedoor.shadow_git.repository import GitFailed, check_ref

HOST = "host:"
GIT = "git:"
CLONES = "clone:"
"""How the labels begin that say from where a machine clones."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PATH = re.compile(r"(?:[a-z]+://[^/]*/|[^/@]+@[^/:]+:)(.*)", re.DOTALL)
"""Where the path of an address begins: an ``@`` before it is part of the name of a person."""
_LOGIN = re.compile(r"https://[^/]*@")


class GitPlace(msgspec.Struct, frozen=True):
    """``ref``: a branch, a tag or a commit; empty: what the repository's HEAD names."""

    address: str
    ref: str = ""


def git_place(place: str) -> GitPlace | None:
    """``place`` if it is a repository. Raises ``BadRequest`` for one that cannot be."""
    if not place.startswith(GIT):
        return None
    address, ref = place.removeprefix(GIT), ""
    if (path := _PATH.fullmatch(address)) is not None and "@" in path[1]:
        address, _, ref = address.rpartition("@")
    if _LOGIN.match(address):
        raise BadRequest(
            "the address of a git place must not hold a name or a password: everybody who sees the session could read "
            "it; leave it out and let the machine's own credential helper answer"
        )
    if not is_allowed(address, (address,)) or address.startswith("-"):
        raise BadRequest(
            f"{place!r} is no git place; write git:ADDRESS@REF with an address like https://host/path, "
            "ssh://host/path, git@host:path or file:///path"
        )
    try:
        check_ref(f"refs/heads/{ref or 'main'}")
    except GitFailed as fault:
        raise BadRequest(f"{ref!r} is no branch, tag or commit; write git:ADDRESS@REF") from fault
    if ref.startswith("-"):
        raise BadRequest(f"{ref!r} is no branch, tag or commit; write git:ADDRESS@REF")
    return GitPlace(address, ref)


def lacking(session_id: str, needs: Sequence[str], machine: str, labels: Iterable[str]) -> str:
    """Why ``machine``, which has ``labels``, cannot go on with a session."""
    missing = ", ".join(sorted(set(needs) - set(labels)))
    return (
        f"session {session_id} needs a machine with the labels {', '.join(needs)}, and {machine} does not have "
        f"{missing} any more; start it with them again (--label)"
    )


def labels_of(needs: tuple[str, ...], place: str, agent: str) -> tuple[str, ...]:
    """All that a machine must have for a session. Raises ``BadRequest`` for a place that is none."""
    named = [] if not place or git_place(place) is not None else [_host(place)]
    return tuple(dict.fromkeys((*needs, *named, *([f"agent:{agent}"] if agent else []))))


def _host(place: str) -> str:
    if place.startswith(HOST) and _NAME.fullmatch(place.removeprefix(HOST)):
        return place
    raise BadRequest(
        f"{place!r} is no place; write host:NAME with the name of a machine (stagedoor workers), or git:ADDRESS@REF"
    )


def clone_labels(addresses: Iterable[str]) -> tuple[str, ...]:
    """What a machine that may clone from these says of itself."""
    return tuple(f"{CLONES}{one}" for one in addresses)


def clone_label(place: GitPlace, labels: Sequence[str]) -> str:
    """The one of ``labels`` by which a machine may clone ``place``; empty when it may not."""
    for label in labels:
        if label.startswith(CLONES) and is_allowed(place.address, (label.removeprefix(CLONES),)):
            return label
    return ""
