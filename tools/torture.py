"""How much outlives an agent that starts daemons as fast as it can? ``python -m tools.torture --daemons 1000``

Each daemon forks twice and leaves its process session, so that nothing but the machine itself is above it. Half of them
end by themselves after a moment; the others would sleep for ten minutes. Then the agent is stopped, and whoever still
sleeps is counted and ended, by its pid.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from stagedoor.transports.guard.processes import CHOSEN_BY
from stagedoor.transports.guard.strategies import TREES
from stagedoor.transports.launch import Launch
from stagedoor.transports.process import ChildProcess

KINDS = {
    "keeps its environment": (True, 0.0),
    "clears its environment": (False, 0.0),
    "clears its environment, its parent lives for 50 ms": (False, 0.05),
    "clears its environment, its parent lives for half a second": (False, 0.5),
}
"""Name → whether it keeps its environment, and how long the process between the agent and it lives."""

AGENT = """
import os, sys, time
count, keeps, delay, name = int(sys.argv[1]), sys.argv[2] == "True", float(sys.argv[3]), sys.argv[4]
for number in range(count):
    between = os.fork()
    if between == 0:
        os.setsid()
        if os.fork() == 0:
            seconds = f"0.{number % 7 + 1}" if number % 2 else "600"
            os.execve("/bin/sleep", [name, seconds], dict(os.environ) if keeps else {"PATH": "/usr/bin:/bin"})
        if delay:
            time.sleep(delay)
        os._exit(0)
    if not delay:
        os.waitpid(between, 0)
if delay:
    for _ in range(count):
        os.wait()
print("started", flush=True)
sys.stdin.read()
"""


class Outcome(NamedTuple):
    running: int
    """How many daemons ran when the agent was stopped."""
    survivors: int


def sleepers(name: str) -> list[int]:
    """Who was started with ``name`` as an argument, by a look at the whole machine that no guard takes part in."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=", "-o", "args="], capture_output=True, text=True, check=True)
    return [int(line.split()[0]) for line in listing.stdout.splitlines() if line.split()[1:2] == [name]]


def torture(strategy: str, kind: str, count: int) -> Outcome:
    keeps, delay = KINDS[kind]
    name = f"torture-{random.randrange(1 << 48):x}"
    before = os.environ.get(CHOSEN_BY)
    os.environ[CHOSEN_BY] = strategy
    try:
        running = asyncio.run(_run((sys.executable, "-c", AGENT, str(count), str(keeps), str(delay), name), name))
    finally:
        os.environ.pop(CHOSEN_BY, None) if before is None else os.environ.update({CHOSEN_BY: before})
    survivors = sleepers(name)
    for pid in survivors:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return Outcome(running, len(survivors))


async def _run(argv: tuple[str, ...], name: str) -> int:
    async with await ChildProcess.start(Launch(argv=argv, cwd="/", stop=())) as process:
        async for _ in process.batches():
            break
        return len(sleepers(name))
    raise AssertionError(process.stderr_tail)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--daemons", type=int, default=1000)
    parser.add_argument("--strategy", choices=[*TREES], action="append")
    options = parser.parse_args()
    print("| a daemon that … | strategy | started | running at the stop | left running | seconds |")
    print("|---|---|---:|---:|---:|---:|")
    for kind in KINDS:
        for strategy in options.strategy or TREES:
            began = time.monotonic()
            running, survivors = torture(strategy, kind, options.daemons)
            seconds = time.monotonic() - began
            print(
                f"| {kind} | `{strategy}` | {options.daemons} | {running} | {survivors} | {seconds:.0f} |", flush=True
            )


if __name__ == "__main__":
    main()
