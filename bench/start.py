"""CPU time: ``import stagedoor`` against ``import claude_agent_sdk``; ``stagedoor --help`` against bare argparse."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

RUNS = 9


def cpu(code: str) -> float:
    """Seconds of processor time of one fresh interpreter, less those of an empty one."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def median(code: str) -> float:
    cpu(code)  # the first run writes byte code
    return statistics.median(cpu(code) for _ in range(RUNS))


def main() -> int:
    empty = median("pass")
    ours, peer = median("import stagedoor") - empty, median("import claude_agent_sdk") - empty
    everything = median("import stagedoor; [getattr(stagedoor, name) for name in stagedoor.__all__]") - empty
    print(f"import stagedoor: {ours / peer:.3f} × import claude_agent_sdk (bound 0.15)")
    print(f"every public name: {everything / peer:.3f} × import claude_agent_sdk")
    helped = median("from stagedoor.cli import main; main(['--help'])")
    bare = median("import argparse; p = argparse.ArgumentParser(); p.add_argument('x'); p.format_help()")
    print(f"stagedoor --help: {helped / bare:.2f} × a bare argparse tool (bound 2)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
