"""``make bench``: all of them, one after the other."""

from __future__ import annotations

import subprocess
import sys

ALL = (
    "bench.start",
    "bench.stream",
    "bench.unified",
    "bench.drivers",
    "bench.real_runs",
    "bench.many",
    "bench.history_claude",
    "bench.log",
    "bench.postgres",
    "bench.big_log",
    "bench.growth",
    "bench.fanout",
    "bench.page",
)


def main() -> int:
    worst = 0
    for module in ALL:
        print(f"\n== {module}", flush=True)
        worst = max(worst, subprocess.run([sys.executable, "-m", module], check=False).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
