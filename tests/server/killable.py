"""``stagedoor serve`` again and again, for a test that kills it.

    python killable.py ARGUMENT…        (the arguments of stagedoor serve)

For each line on standard input a process is forked off in which the command runs; what has to be imported has been, so
that a start costs next to nothing. Says ``pid N``, then what the command says, and ``over STATUS`` when it has ended.
"""

from __future__ import annotations

import importlib
import os
import sys

from stagedoor.cli import serve

NEEDED = ("catalog", "drivers.understudy", "server.app", "server.listening", "server.running", "service.config")


def _run(arguments: list[str]) -> None:
    """Never returns."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    status = 70
    try:
        status = serve.main(arguments)
        sys.stdout.flush()
    finally:
        os._exit(status)


def main(arguments: list[str]) -> None:
    for name in NEEDED:
        importlib.import_module(f"stagedoor.{name}")
    for _ in sys.stdin:
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            _run(arguments)
        _write_line(f"pid {pid}")
        _, status = os.waitpid(pid, 0)
        _write_line(f"over {os.waitstatus_to_exitcode(status)}")


def _write_line(line: str) -> None:
    """In one piece, and on a line of its own: whoever was killed may have written half of one."""
    os.write(1, f"\n{line}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1:])
