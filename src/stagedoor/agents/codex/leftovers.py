"""Empty folders that Codex leaves behind when a sandboxed command is killed.

While a command runs, the sandbox needs something to mount its read-only covers on, so Codex makes ``.git``, ``.codex``,
``.agents`` and ``.aws`` in every writable root that lacks them. It takes them away when the command ends by itself, but
not when it is killed, which is what every interrupt does. An empty ``/tmp/.git`` then makes ``/tmp`` look like a
repository to everything below it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from .config import CodexConfig, SandboxMode

COVERED = (".git", ".codex", ".agents", ".aws")


class Leftovers:
    """Remembers which of the folders were not there before; ``sweep`` takes away those that are there now and empty."""

    def __init__(self, config: CodexConfig, cwd: str, environ: Mapping[str, str]) -> None:
        unsandboxed = (
            config.dangerously_bypass_approvals_and_sandbox or config.sandbox is SandboxMode.DANGER_FULL_ACCESS
        )
        roots = [] if unsandboxed else [cwd, *config.add_dirs, "/tmp", environ.get("TMPDIR") or "/tmp"]
        places = dict.fromkeys(Path(root) / name for root in roots for name in COVERED)
        self._absent = [place for place in places if not place.exists()]

    def sweep(self) -> None:
        for place in self._absent:
            with contextlib.suppress(OSError):  # not there, or not empty, and then not Codex's
                place.rmdir()
