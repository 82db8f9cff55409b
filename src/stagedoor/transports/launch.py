"""What to start, as a value. Pure: an agent's ``launch`` module builds it, ``process`` carries it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..wire.stamps import Stamped

SCRATCH = "\0scratch\0"
"""Stands for the private folder that holds ``Launch.files``; no argument or variable can contain a NUL by accident."""


class EndInput(msgspec.Struct, frozen=True):
    """Close the child's standard input and wait up to ``wait`` seconds for it to end."""

    wait: float = 2.0


class Signal(msgspec.Struct, frozen=True):
    """Signal the child (``group``: its process group too, for a launcher with a worker) and wait."""

    number: int
    wait: float = 2.0
    group: bool = False


Step = EndInput | Signal


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """What a child and all that it starts may touch; ``confinement`` makes it so or refuses to start.

    Everything can be read but ``hidden``. Written can be the ``writable`` folders (made when they are missing), a
    private temporary folder, the launch's own folders and, with ``workspace``, the working directory. What is in
    ``readonly`` cannot be written although it lies in one of these; one that is missing is made there, empty, so that
    nobody can plant it (not in the working directory). A trailing slash marks a folder.
    """

    workspace: bool
    writable: tuple[str, ...] = ()
    readonly: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One child process, whole.

    ``stdin``: ``"pipe"`` stays open for messages, ``"null"`` is empty, bytes are written and the input closed.
    ``stdout``: ``"pipe"`` is enlarged to 1 MiB; ``"socketpair"`` is for programs that exit without draining a pipe.
    ``env`` is laid over the caller's environment after the names in ``unset`` (a trailing ``*`` matches a prefix) are
    taken out. ``files`` are written into a private folder which ``SCRATCH`` in ``argv`` and ``env`` stands for.
    ``folders`` were made for the program and are ours to remove; if we are killed, they go with it.
    ``stop`` is the ladder of this program; whatever is still alive after it is killed, with every descendant.
    ``confinement``: it runs in a sandbox of ours, or not at all.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = {}
    unset: tuple[str, ...] = ()
    stdin: Literal["pipe", "null"] | bytes = "pipe"
    stdout: Literal["pipe", "socketpair"] = "pipe"
    files: Mapping[str, bytes] = {}
    folders: tuple[str, ...] = ()
    stop: tuple[Step, ...] = (EndInput(),)
    confinement: Confinement | None = None


class Exited(Stamped, frozen=True):
    """The child ended. ``code`` is negative for a signal. What it last wrote on standard error is kept."""

    code: int
    stderr: str = ""
    guard_was_killed: bool = False
    """Not its own end: what guards it was killed, and so everything it ran was ended."""


def loss_of_guard(batch: Sequence[tuple[bytes, Any]]) -> int | None:
    """Where ``batch`` says that the program has lost its guard: among the last, which no message of its own caused."""
    for at in range(len(batch) - 1, -1, -1):
        message, event = batch[at]
        if message:
            return None
        if type(event) is Exited:
            return at if event.guard_was_killed else None
    return None


class Stalled(Stamped, frozen=True):
    """Neither a byte of output nor a tick of processor time for ``seconds``."""

    seconds: float
