"""The unified layer: added latency per event beside a bare pipe read, and what one event costs as streams grow.

python -m bench.unified [--paced 1000] [--largest 1000000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .stream import HERE, compare, launcher, write_stream

STAMP = re.compile(rb'"text":"(\d+)"')


async def ours(program: str) -> list[int]:
    import stagedoor

    late: list[int] = []
    stream = stagedoor.run(
        "claude", "go", cwd=os.environ["HOME"], executable=program, env=dict(os.environ), inherit_env=False,
        tier="autonomous",
    )  # fmt: skip
    async for event in stream:
        if isinstance(event, stagedoor.TextDelta):
            late.append(time.monotonic_ns() - int(event.text))
    return late


async def bare(program: str) -> list[int]:
    pipe = subprocess.PIPE
    process = subprocess.Popen([program], stdin=pipe, stdout=pipe)  # noqa: ASYNC220 (the bare limit has no loop)
    assert process.stdin
    assert process.stdout
    process.stdin.write(b'{"type":"user","message":{"role":"user","content":"go"}}\n')
    process.stdin.close()
    late: list[int] = []
    while chunk := os.read(process.stdout.fileno(), 2**16):
        now = time.monotonic_ns()
        late += [now - int(stamp) for stamp in STAMP.findall(chunk)]
    process.wait()
    return late


WAYS = {"bare": bare, "unified": ours}


def latency(paced: int) -> None:
    with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder:
        stream = Path(folder) / "stream.jsonl"
        write_stream(stream, 100)
        env = {name: value for name, value in os.environ.items() if not name.startswith("CLAUDE")}
        env |= {"BENCH_STREAM": str(stream), "BENCH_PACED": str(paced), "HOME": folder, "ANTHROPIC_API_KEY": "none"}
        program = launcher(Path(folder))
        found: dict[str, list[int]] = {}
        for way in WAYS:
            argv = [sys.executable, "-m", "bench.unified", "--measure", way, "--program", program]
            done = subprocess.run(argv, env=env, cwd=HERE.parent, capture_output=True, text=True, check=True)
            found[way] = json.loads(done.stdout.splitlines()[-1])
    print(f"from the child's write to the reader, {paced} events 2 ms apart:")
    for way, late in found.items():
        cuts = statistics.quantiles(late, n=100)
        print(f"  {way:8} p50 {cuts[49] / 1000:6.0f} µs   p99 {cuts[98] / 1000:6.0f} µs")
    added = statistics.median(found["unified"]) - statistics.median(found["bare"])
    print(f"  added by Stagedoor: {added / 1000:.0f} µs per event (median)")


def flatness(largest: int) -> None:
    """Processor time, because a short stream is over before its reader has begun to wait."""
    print("processor time of one event as the stream grows (child process → unified, typed and encoded):")
    start_up = compare(20, 3, ["encoded"])["encoded"]["cpu"]
    first = 0.0
    for size in [size for size in (10**3, 10**4, 10**5, 10**6) if size <= largest]:
        found = compare(size, 3 if size < 10**5 else 1, ["encoded"])["encoded"]
        cost = (found["cpu"] - start_up) / size * 1e6
        first = first or cost
        growth = f"{cost / first:4.2f} × the first"
        print(f"  {size:>9,} events: {cost:6.2f} µs each, {growth}; peak {found['rss_mb']:.0f} MB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paced", type=int, default=1000)
    parser.add_argument("--largest", type=int, default=10**6)
    parser.add_argument("--measure", choices=WAYS)
    parser.add_argument("--program", default="")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(asyncio.run(WAYS[options.measure](options.program))))
        return 0
    latency(options.paced)
    flatness(options.largest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
