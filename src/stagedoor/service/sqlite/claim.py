"""One server per log: whoever holds the lock on the file beside it may write."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from stagedoor.errors import StoreBroken


class Claim:
    """Taken at once or not at all. The lock goes with the process, however it ends; the file stays and is reused."""

    def __init__(self, log: Path) -> None:
        path = log.with_name(log.name + ".lock")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise StoreBroken(
                f"the log {log} is in use by another Stagedoor server (process {holder}); "
                "speak to that one (stagedoor rpc --url), stop it, or give this one another home "
                "with STAGEDOOR_HOME"
            ) from fault
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1
