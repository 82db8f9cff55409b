"""What we ourselves want to know of processes: by the same strategy as our guards."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Protocol

from ...errors import LaunchError
from . import guard, linux
from .ps_table import PLACES
from .strategies import LINUX, PORTABLE, TREES

CHOSEN_BY = "STAGEDOOR_GUARD"
"""Names the strategy in place of the one that fits this machine."""
SCRIPT = str(Path(guard.__file__))
MARK_BYTES = 12


def strategy() -> str:
    named = os.environ.get(CHOSEN_BY, "")
    if named and named not in TREES:
        raise LaunchError(f"{CHOSEN_BY}={named!r}: choose {' or '.join(TREES)}, or leave it out")
    if named == LINUX and sys.platform != "linux":
        raise LaunchError(f"{CHOSEN_BY}=linux works on Linux only; leave it out on {sys.platform}")
    chosen = named or (LINUX if sys.platform == "linux" else PORTABLE)
    if chosen == PORTABLE and sys.platform != "darwin" and not any(os.access(place, os.X_OK) for place in PLACES):
        raise LaunchError("no program is started where nobody can see what it leaves running: install ps (procps)")
    return chosen


def new_mark() -> str:
    """By which a guard recognizes what its agent has started, where it needs that."""
    return os.urandom(MARK_BYTES).hex()


def children(pid: int) -> list[int]:
    """The direct children of ``pid``."""
    return _ways().children(pid)


def descendants(pid: int) -> list[int]:
    """Every process under ``pid``, parents before their children."""
    return _ways().descendants(pid)


def started_at(pid: int) -> int:
    """When the process started; 0 when there is none. With its pid it is unique."""
    return _ways().started_at(pid)


def processor_ticks(pid: int) -> int:
    """Processor time used so far by the tree under ``pid``, in a unit of its own."""
    return _ways().processor_ticks(pid)


def has_in_environment(pid: int, entry: bytes) -> bool:
    """Whether the process was started with ``entry`` (``NAME=value``) in its environment, as far as it can be seen."""
    return _ways().has_in_environment(pid, entry)


def sandboxed(root: int, agent: int, entries: tuple[bytes, ...]) -> dict[int, int]:
    """Who below ``root`` was started with one of ``entries`` in its environment, in a process namespace that is not
    ``agent``'s: pid → when it started. Only Linux has such namespaces, and only its guard adopts orphans."""
    return linux.sandboxed(root, agent, entries) if strategy() == LINUX else {}


def variable_above(name: str) -> str:
    """The variable of the nearest program above this one that was started with it; empty where none shows it."""
    return os.fsdecode(_ways().variable_above(os.getppid(), os.fsencode(name)))


def end_session(leader: int, leader_started: int, mark: str) -> None:
    """Kill what is left of ``leader`` and its process session: nobody else watches it any more."""
    _ways().end_session(leader, leader_started, mark)


class _Ways(Protocol):
    """Both modules have this shape."""

    def children(self, pid: int) -> list[int]: ...
    def descendants(self, pid: int) -> list[int]: ...
    def started_at(self, pid: int) -> int: ...
    def processor_ticks(self, pid: int) -> int: ...
    def has_in_environment(self, pid: int, entry: bytes) -> bool: ...
    def variable_above(self, pid: int, name: bytes) -> bytes: ...
    def end_session(self, leader: int, leader_started: int, mark: str) -> None: ...


def _ways() -> _Ways:
    if strategy() == LINUX:
        return linux
    from . import portable  # what it needs is not needed on Linux

    return portable
