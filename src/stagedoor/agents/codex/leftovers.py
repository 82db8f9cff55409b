"""Empty folders that Codex's sandbox leaves behind when a command is killed.

While a command runs, the sandbox needs something to mount its read-only covers on, so Codex makes ``.git``,
``.codex``, ``.agents`` and ``.aws`` in every writable root that lacks them, ``/tmp`` included. It removes them when the
command ends by itself, but not when it is killed, which is what every interrupt does. An empty ``/tmp/.git`` then makes
``/tmp`` look like a repository to everything below it.

Other sandboxes may stand on the same folders: a folder that is removed under one of them breaks the command that
starts there (``bwrap: Can't mount …``). So we take part in what Codex itself does about that: in one registry for each
temporary folder every sandbox leaves a mark under its process id, and whoever looks holds the registry's lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from .config import CodexSessionConfig, SandboxMode

COVERED = (".git", ".codex", ".agents", ".aws")
"""The folders that Codex's sandbox covers in every writable root."""
REGISTRY = "codex-bwrap-synthetic-mount-targets-{user}"
MADE = b"synthetic\n"
"""The mark of a sandbox that made the folder. One that found it says something else."""
ATTEMPTS, PAUSE = 20, 0.001
"""How often and how soon we look again whether the lock is free: Codex holds it for microseconds."""


class Leftovers:
    """Those of one session, and of sessions before it that were killed with everything they ran in."""

    def __init__(self, config: CodexSessionConfig, cwd: str, environ: Mapping[str, str]) -> None:
        unsandboxed = (
            config.dangerously_bypass_approvals_and_sandbox or config.sandbox_mode is SandboxMode.DANGER_FULL_ACCESS
        )
        temporary = os.path.realpath(environ.get("TMPDIR") or "/tmp")
        roots = [] if unsandboxed else [cwd, *config.add_dirs]
        self._registry = Path(temporary, REGISTRY.format(user=os.geteuid()))
        self._places: list[Path] = []
        self._absent: list[Path] = []
        if config.confinement is not None:  # its temporary folders and its registry are its own; it is alone in there
            self._absent = [place for place in _covered(roots) if not place.exists()]
        elif not unsandboxed:
            self._places = _covered([*roots, "/tmp", temporary])
            self.sweep()

    def sweep(self) -> None:
        """Remove what a sandbox made and nobody uses now. Where that is not certain, everything stays."""
        for place in self._absent:
            _remove_empty(place)
        if not self._places:
            return
        with contextlib.suppress(OSError), _locked(self._registry):
            for place in self._places:
                marks = self._registry / _mark_of(place)
                if _is_abandoned(marks):
                    _remove_empty(place)
                    shutil.rmtree(marks, ignore_errors=True)


def _covered(roots: Sequence[str]) -> list[Path]:
    folders = dict.fromkeys(form for root in roots for form in (root, os.path.realpath(root)))
    return [Path(folder, name) for folder in folders for name in COVERED]


def _remove_empty(place: Path) -> None:
    with contextlib.suppress(OSError):  # missing, or not empty, and then not Codex's
        place.rmdir()


@contextlib.contextmanager
def _locked(registry: Path) -> Generator[None]:
    """Raises ``OSError`` where there is no registry of ours, or somebody holds it for long."""
    descriptor = os.open(registry / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(f"{registry} belongs to somebody else")
        for attempt in range(ATTEMPTS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt + 1 == ATTEMPTS:
                    raise
                time.sleep(PAUSE)
        yield
    finally:
        os.close(descriptor)  # which lets go of the lock, too


def _mark_of(place: Path) -> str:
    """How Codex calls the folder with the marks of ``place``: FNV-1a."""
    number = 0xCBF29CE484222325
    for byte in os.fsencode(place):
        number = ((number ^ byte) * 0x100000001B3) % 2**64
    return f"{number:016x}"


def _is_abandoned(marks: Path) -> bool:
    """Some sandbox made the folder, and no process that left a mark is there any more."""
    try:
        found = list(marks.iterdir())
    except OSError:
        return False
    if any(not mark.name.isdecimal() or _runs(int(mark.name)) for mark in found):
        return False
    return any(mark.read_bytes() == MADE for mark in found)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
