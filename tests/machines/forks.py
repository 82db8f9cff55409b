"""Commands of ``stagedoor`` in processes that are forked off: all is imported already, so a start costs little.

    python forks.py

Reads one JSON object per line: ``{"argv": […], "env": {…}, "cwd": "…", "out": "…", "err": "…"}``; answers each with the
pid of a process in which that command runs. When its input ends, so do all that it has started.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys

from stagedoor.cli import main as command

NEEDED = (
    "catalog", "drivers.understudy", "server.app", "server.listening", "server.running", "service.config",
    "service.postgres", "cli.serve", "cli.worker",
)  # fmt: skip


def _run(order: dict[str, object]) -> None:
    """Never returns."""
    status = 70
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, order["out"], None), (2, order["err"], None)):
            opened = os.open(str(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND if flags is None else flags, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        os.chdir(str(order["cwd"]))
        os.environ.clear()
        os.environ.update(order["env"])  # type: ignore[call-overload]
        status = command([*order["argv"]])  # type: ignore[misc]
        sys.stdout.flush()
    finally:
        os._exit(status)


def main() -> None:
    for name in NEEDED:
        importlib.import_module(f"stagedoor.{name}")
    importlib.import_module("asyncpg")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to collect them
    started: list[int] = []
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            _run(json.loads(line))
        started.append(pid)
        os.write(1, f"{pid}\n".encode())
    for pid in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
