"""How much memory this process has: from ``/proc`` where there is one, else from ``ps`` and the kernel's own count."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")


def resident() -> int:
    """In bytes, now."""
    if STATUS.exists():
        return _field("VmRSS")
    shown = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=True)
    return int(shown.stdout) * 1024


def peak() -> int:
    """In bytes, at most so far. Without ``/proc`` it may be that of whoever started this process: ``ru_maxrss`` is
    inherited."""
    if STATUS.exists():
        return _field("VmHWM")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _field(name: str) -> int:
    lines = STATUS.read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) * 1024
