"""``make bench``: all of them, one after the other. Each has an end, also on a machine that is busy with other work.

    python -m bench [--minutes 20] [start stream …]

A part that takes longer than ``--minutes`` is interrupted as a person would do it, so that it ends what it started.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys

ALL = (
    "start",
    "stream",
    "unified",
    "drivers",
    "real_runs",
    "many",
    "history_claude",
    "log",
    "postgres",
    "big_log",
    "growth",
    "fanout",
    "page",
)
TO_END = 60.0
"""Seconds for what was interrupted to end its own children."""


def measure(part: str, seconds: float) -> int:
    process = subprocess.Popen([sys.executable, "-m", f"bench.{part}"])
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        print(f"{part}: not measured whole: it did not end within {seconds / 60:g} minutes. Try it alone:", flush=True)
        print(f"  python -m bench.{part} --help", flush=True)
        return 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"one of {', '.join(ALL)}; all without it")
    parser.add_argument("--minutes", type=float, default=20, help="the most that one part may take (20)")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in ALL]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(ALL)}")
    worst = 0
    for part in options.parts or ALL:
        print(f"\n== bench.{part}", flush=True)
        worst = max(worst, abs(measure(part, options.minutes * 60)))  # below zero: a signal ended it
    return worst


if __name__ == "__main__":
    sys.exit(main())
