"""CPU time: ``import stagedoor`` against ``import claude_agent_sdk``; ``stagedoor --help`` against bare argparse."""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

RUNS = 5


def cpu(code: str) -> float:
    """Seconds of processor time of one fresh interpreter, with its own start."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def least(code: str) -> float:
    cpu(code)  # the first run writes byte code
    return min(cpu(code) for _ in range(RUNS))


def main() -> int:
    argparse.ArgumentParser(prog="python -m bench.start", description=__doc__).parse_args()
    empty = least("pass")
    ours, peer = least("import stagedoor") - empty, least("import claude_agent_sdk") - empty
    everything = least("import stagedoor; [getattr(stagedoor, name) for name in stagedoor.__all__]") - empty
    print(f"import stagedoor: {ours / peer:.3f} × import claude_agent_sdk (bound 0.15)")
    print(f"every public name: {everything / peer:.3f} × import claude_agent_sdk")
    helped = least("from stagedoor.cli import main; main(['--help'])")
    bare = least("import argparse; p = argparse.ArgumentParser(); p.add_argument('x'); p.format_help()")
    print(f"stagedoor --help: {helped / bare:.2f} × a bare argparse tool (bound 2)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
