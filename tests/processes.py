"""Who runs on this machine, asked without any code of ours: what a test believes must not come from what it tests.

From ``/proc`` where there is one, else from ``ps`` and ``lsof``: a question about a missing ``/proc`` would always be
answered with "nobody".
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HAS_PROC = Path("/proc/self/stat").exists()
_SETSID = "import os, sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])"
SETSID = "setsid" if shutil.which("setsid") else shlex.join([sys.executable, "-c", _SETSID])
"""What a shell writes before a command that runs in a process session of its own. A Mac has no program for it."""


def is_running(pid: int) -> bool:
    """And not merely waiting to be collected."""
    return _fields(pid)[0] not in ("", "Z")


def parent_of(pid: int) -> int:
    return int(_fields(pid)[1] or 0)


def own_children() -> dict[int, str]:
    """Those of this process that run: pid → when it was started. Costs next to nothing where there are none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # collects nobody
    except ChildProcessError:
        return {}
    return {pid: start for pid, (parent, start) in _everybody().items() if parent == os.getpid()}


def end_with_all_below(family: dict[int, str], patience: float = 60.0) -> None:
    """Kill those (pid → when it was started) and their descendants, until none of those that were seen runs."""
    seen, deadline = dict(family), time.monotonic() + patience
    while time.monotonic() < deadline:
        running = _everybody()
        seen = {pid: start for pid, start in seen.items() if running.get(pid, (0, ""))[1] == start}
        while below := {pid: start for pid, (parent, start) in running.items() if parent in seen and pid not in seen}:
            seen |= below
        if not seen:
            return
        for pid in seen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def command_lines() -> dict[int, str]:
    """Of all that run: pid → the words of its command, with spaces between them."""
    if not HAS_PROC:
        rows = [line.split(None, 2) for line in _ps("-A", "-ww", "-o", "pid=", "-o", "stat=", "-o", "command=")]
        return {int(pid): line for pid, state, line in (row for row in rows if len(row) == 3) if state[0] != "Z"}
    lines = {pid: _read(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace") for pid in _pids()}
    return {pid: line for pid, line in lines.items() if line and is_running(pid)}


def with_environment(entry: str) -> list[int]:
    """Who has ``NAME=value`` in its environment. A Mac does not show that of Apple's own programs."""
    if not HAS_PROC:
        rows = [line.split(None, 1) for line in _ps("-A", "-E", "-ww", "-o", "pid=", "-o", "command=")]
        return [int(row[0]) for row in rows if len(row) == 2 and f" {entry} " in f" {row[1]} "]
    return [pid for pid in _pids() if entry.encode() in _read(pid, "environ").split(b"\0")]


def open_descriptors(pid: int) -> int:
    if HAS_PROC:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    listing = subprocess.run(["lsof", "-p", str(pid), "-F", "f"], capture_output=True, text=True, check=False)
    return sum(line[:1] == "f" and line[1:].isdigit() for line in listing.stdout.splitlines())


def _everybody() -> dict[int, tuple[int, str]]:
    """Who runs: pid → its parent, and when it was started."""
    if not HAS_PROC:
        rows = [line.split(None, 3) for line in _ps("-A", "-o", "pid=", "-o", "ppid=", "-o", "stat=", "-o", "lstart=")]
        return {int(row[0]): (int(row[1]), row[3]) for row in rows if len(row) == 4 and row[2][0] != "Z"}
    stats = {pid: _read(pid, "stat").rpartition(b")")[2].split() for pid in _pids()}
    return {pid: (int(row[1]), row[19].decode()) for pid, row in stats.items() if len(row) > 19 and row[0] != b"Z"}


def _fields(pid: int) -> tuple[str, str]:
    """State and parent; both empty when there is no such process."""
    if HAS_PROC:
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        return (fields[0].decode(), fields[1].decode()) if len(fields) > 1 else ("", "")
    words = " ".join(_ps("-o", "stat=", "-o", "ppid=", "-p", str(pid))).split()
    return (words[0][0], words[1]) if len(words) == 2 else ("", "")


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _ps(*words: str) -> list[str]:
    return subprocess.run(["ps", *words], capture_output=True, text=True, check=False).stdout.splitlines()
