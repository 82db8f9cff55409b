"""200 concurrent sessions on this machine: every one must get every event, in order.

python -m bench.many [--sessions 200] [--events 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from .stream import launcher, write_stream


async def run_session(program: str) -> int:
    from stagedoor.agents.claude import ClaudeClient, ClaudeResult

    count = 0
    async with await ClaudeClient("/", executable=program, env=dict(os.environ)).create_session("go") as session:
        async for event in session.events:
            count += 1
            if isinstance(event, ClaudeResult):
                break
    return count


async def many(program: str, sessions: int) -> list[int]:
    return await asyncio.gather(*(run_session(program) for _ in range(sessions)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--events", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder:
        stream = Path(folder) / "stream.jsonl"
        write_stream(stream, options.events)
        os.environ["BENCH_STREAM"] = str(stream)
        start = time.perf_counter()
        counts = asyncio.run(many(launcher(Path(folder)), options.sessions))
        seconds = time.perf_counter() - start
    lost = sum(options.events - count for count in counts)
    rate = options.sessions * options.events / seconds
    print(f"{options.sessions} sessions at once × {options.events} events: {lost} lost, {rate:,.0f} events/s in all")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
