"""Many subscribers of one session, and of many: ours against bare ``websockets.broadcast``, byte for byte the same.

python -m bench.fanout [--subscribers 200] [--events 1000] [--runs 3]

Clients are the barest there can be (they count and checksum what they read), so that the servers are compared and not
the clients; what they read must be every event, once, in order.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

from .fanout_server import TOKEN, bodies, expected
from .stream import launcher, write_stream

AT_LEAST = 0.5
PATIENCE = 600.0
"""Seconds after which a stream is taken for lost, also on a machine that is busy with other work."""


class Server:
    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.port = port
        self._process = process

    async def order(self, *words: str) -> dict[str, object]:
        assert self._process.stdin is not None
        self._process.stdin.write((" ".join(words) + "\n").encode())
        return await self.answer()

    async def answer(self) -> dict[str, object]:
        assert self._process.stdout is not None
        reply: dict[str, object] = json.loads(await self._process.stdout.readline())
        return reply


@contextlib.asynccontextmanager
async def server(which: str, sessions: int, events: int, batch: int = 1) -> AsyncIterator[Server]:
    pipe = asyncio.subprocess.PIPE
    arguments = [which, *map(str, (sessions, events, batch))]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.fanout_server", *arguments, stdin=pipe, stdout=pipe
    )
    try:
        assert process.stdout is not None
        yield Server(process, json.loads(await process.stdout.readline())["port"])
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


class Subscriber(asyncio.Protocol):
    """Shakes hands, then counts and checksums until everything expected is there."""

    def __init__(self, path: str, length: int, port: int) -> None:
        loop = asyncio.get_running_loop()
        self.open: asyncio.Future[None] = loop.create_future()
        self.complete: asyncio.Future[int] = loop.create_future()
        self._request = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ).encode()
        self._head = b""
        self._remaining = length
        self._sum = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.open.done():
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            if not head.startswith(b"HTTP/1.1 101"):
                self.open.set_exception(RuntimeError(head.decode(errors="replace")))
                return
            self.open.set_result(None)
        self.take(data)

    def take(self, data: bytes) -> None:
        if len(data) > self._remaining:
            data = data[: self._remaining]  # the goodbye
        self._sum = zlib.crc32(data, self._sum)
        self._remaining -= len(data)
        if not self._remaining and not self.complete.done():
            self.complete.set_result(self._sum)

    def connection_lost(self, exc: Exception | None) -> None:
        for future in (self.open, self.complete):
            if not future.done():
                future.set_exception(RuntimeError(f"the server hung up, {self._remaining} bytes are missing: {exc}"))


class Stopwatch(Subscriber):
    """Reads the clock of the one who wrote, in every message that carries it."""

    STAMP = re.compile(rb'"text":"(\d{9,20})"')
    LAST = re.compile(rb'"type":"(turn_completed|result)"')

    def __init__(self, path: str, port: int) -> None:
        super().__init__(path, 1, port)
        self.delays: list[float] = []
        self._rest = b""

    def take(self, data: bytes) -> None:
        now = time.monotonic_ns()
        data = self._rest + data
        end = 0
        for stamp in self.STAMP.finditer(data):
            self.delays.append((now - int(stamp[1])) / 1000)
            end = stamp.end()
        self._rest = data[end:]
        if self.LAST.search(data) and not self.complete.done():
            self.complete.set_result(0)


async def subscribe(port: int, *subscribers: Subscriber) -> None:
    loop = asyncio.get_running_loop()
    for subscriber in subscribers:
        await loop.create_connection(lambda each=subscriber: each, "127.0.0.1", port)  # type: ignore[misc]
        await subscriber.open


async def fan_out(which: str, sessions: int, each: int, events: int, batch: int) -> float:
    """Deliveries per second; raises when a subscriber did not get every message in order."""
    async with server(which, sessions, events, batch) as served:
        streams = {f"session-{number}": expected(bodies(f"session-{number}", events)) for number in range(sessions)}
        subscribers = [
            (Subscriber(f"/ws/sessions/{name}?verdict=false", length, served.port), checksum)
            for name, (length, checksum) in streams.items()
            for _ in range(each)
        ]
        await subscribe(served.port, *(subscriber for subscriber, _ in subscribers))
        start = time.perf_counter()
        going = asyncio.create_task(served.order("go"))
        for subscriber, checksum in subscribers:
            if await asyncio.wait_for(subscriber.complete, PATIENCE) != checksum:
                raise RuntimeError("a subscriber received another stream than was sent")
        seconds = time.perf_counter() - start
        await going
        for subscriber, _ in subscribers:
            subscriber.transport.abort()
    return sessions * each * events / seconds


async def latency(which: str) -> list[float]:
    """Microseconds from the moment the program wrote a line until a subscriber has it."""
    async with server(which, 0, 1) as served:
        session = str((await served.order("agent", "once"))["session"])
        watch = Stopwatch(f"/ws/sessions/{session}", served.port)
        await subscribe(served.port, watch)
        await asyncio.wait_for(watch.complete, PATIENCE)
        watch.transport.abort()
    return sorted(watch.delays)


async def weight(sessions: int, subscribers: int) -> tuple[float, float]:
    """KiB of the server per session whose agent rests, and per subscriber who waits."""
    async with server("ours", 1, 1) as served:

        async def memory() -> int:
            return int(str((await served.order("memory"))["memory"]))

        async def rest(count: int) -> None:
            for _ in range(count):
                session = str((await served.order("agent", "keep"))["session"])
                watch = Stopwatch(f"/ws/sessions/{session}", served.port)
                await subscribe(served.port, watch)
                await asyncio.wait_for(watch.complete, PATIENCE)
                watch.transport.abort()

        await rest(4)  # what the first ones load is not theirs
        before = await memory()
        await rest(sessions)
        resting = await memory()
        waiting = [Subscriber("/ws/sessions/session-0?verdict=false", 1 << 40, served.port) for _ in range(subscribers)]
        await subscribe(served.port, *waiting)
        after = await memory()
        for idle in waiting:
            idle.complete.cancel()
            idle.transport.abort()
    return (resting - before) / sessions / 1024, (after - resting) / subscribers / 1024


def compare(subscribers: int, events: int, batch: int, runs: int) -> float:
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(runs):
        for which, stamp in rates.items():
            stamp.append(asyncio.run(fan_out(which, 1, subscribers, events, batch)))
    ours, bare = (statistics.median(rates[which]) for which in ("ours", "bare"))
    print(f"1 session × {subscribers} subscribers × {events} events, {batch} at a time, nothing lost, in order:")
    print(f"  ours {ours:,.0f} deliveries/s, bare broadcast {bare:,.0f}: {ours / bare:.2f} ×", flush=True)
    return ours / bare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscribers", type=int, default=200)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder:
        stream = Path(folder) / "stream.jsonl"
        write_stream(stream, 40)
        os.environ |= {"BENCH_STREAM": str(stream), "BENCH_PROGRAM": launcher(Path(folder))}

        worst = min(compare(options.subscribers, options.events, batch, options.runs) for batch in (1, 16))
        rate = asyncio.run(fan_out("ours", 100, 2, options.events // 10, 16))
        print(f"100 sessions × 2 subscribers × {options.events // 10} events, nothing lost, in order:")
        print(f"  {rate:,.0f} deliveries/s, {rate / 2:,.0f} events/s into the log")

        os.environ["BENCH_PACED"] = "1000"
        ours, bare = asyncio.run(latency("ours")), asyncio.run(latency("bare"))
        del os.environ["BENCH_PACED"]
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            mine, theirs = ours[int(len(ours) * share)], bare[int(len(bare) * share)]
            print(f"line to subscriber, {name}: {mine:,.0f} µs, a bare relay {theirs:,.0f}: {mine - theirs:,.0f} added")

        session, subscriber = asyncio.run(weight(20, 400))
        print(f"memory: {session:,.0f} KiB per resting session, {subscriber:,.1f} KiB per waiting subscriber")
    return 0 if worst >= AT_LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
