"""What must not grow: histories against a bare read, streams whose record is missing, memory, events through the log.

    python -m bench.growth [--sessions 500] [--most-events 1000000]

Processor time, not the clock. ``<`` marks what falls short.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .log import on_a_log, open_log

if TYPE_CHECKING:
    from stagedoor.service.journal import Journal
    from stagedoor.unified.events import Event

NOW = "2026-11-16T00:00:00.000Z"
EVENTS = (10_000, 100_000, 1_000_000)
LINES = (1_000, 5_000, 20_000)
CALLS = (1, 10, 100)


def mark(value: float, bound: float) -> str:
    return f"   bound {bound:g}" + (" <" if value > bound else "")


def processor(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


# -- Codex: sessions on disk


def build_rollouts(home: Path, count: int) -> list[Path]:
    """Recordings of a megabyte, as Codex writes them."""
    folder = home / "sessions" / "2026" / "11" / "16"
    folder.mkdir(parents=True)
    chance = random.Random(1)
    block = "".join(chance.choice('abcdefghij klmnop\n"\\éö') for _ in range(4000))

    def line(kind: str, **payload: object) -> str:
        return json.dumps({"timestamp": NOW, "type": kind, "payload": payload}, separators=(",", ":"))

    usage = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10}
    turn = [
        line("response_item", type="function_call", name="shell", arguments=json.dumps({"command": block[:300]})),
        line("response_item", type="function_call_output", call_id="c", output=block[:3000]),
        line("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": block[:500]}]),
        line("event_msg", type="agent_message", message=block[:500]),
        line("event_msg", type="token_count", info={"total_token_usage": usage}),
    ]
    body = "\n".join(turn * (1_000_000 // sum(map(len, turn)))) + "\n"
    paths: list[Path] = []
    for number in range(count):
        name = f"0199{number:04x}-0000-7000-8000-00000000{number:04x}"
        meta = {"id": name, "timestamp": NOW, "cwd": "/work", "source": "cli", "base_instructions": {"text": block * 5}}
        prompt = line("event_msg", type="user_message", message=block[:200])
        head = [line("session_meta", **meta), line("turn_context", model="m"), prompt]
        path = folder / f"rollout-2026-11-16T00-00-00-{name}.jsonl"
        path.write_text("\n".join(head) + "\n" + body, "utf-8")
        paths.append(path)
    return paths


def codex_history(count: int) -> None:
    from stagedoor.agents.codex import history

    with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder:
        paths = build_rollouts(Path(folder), count)

        def bare() -> None:
            for path in paths:
                path.read_bytes()

        def ours() -> None:
            history.list_sessions("/work", home=folder)

        bare()
        reads, firsts, repeats = list[float](), list[float](), list[float]()
        for _ in range(3):  # by turns, so that a busy moment meets both
            reads.append(processor(bare))
            history._REMEMBERED.clear()
            firsts.append(processor(ours))
            repeats.append(processor(ours))
        read, first, again = min(reads), min(firsts), min(repeats)
    print(f"Codex history, {count} sessions of 1 MB: × a bare read of them")
    print(f"  the first time {first / read:5.1f}{mark(first / read, 5)}\n  again          {again / read:5.1f}")


# -- Gemini: a call whose record stays away


def gemini_lines() -> None:
    from stagedoor.agents.gemini.protocol import StreamProtocol
    from stagedoor.agents.gemini.store import DetailedProtocol, SessionFile

    text = b'{"type":"message","role":"assistant","content":"some words of an answer","delta":true}'
    result = b'{"type":"tool_result","tool_id":"missing","status":"success"}'
    costs: list[float] = []
    with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder:
        for count in LINES:
            path = Path(folder) / f"{count}.jsonl"
            with path.open("w") as file:
                protocol = DetailedProtocol(StreamProtocol(), SessionFile(lambda path=path: path))  # type: ignore[misc]
                protocol.receive(result)
                start = time.process_time()
                for number in range(count):
                    if number % 10 == 0:
                        file.write(json.dumps({"id": f"m{number}", "type": "gemini", "content": "x"}) + "\n")
                        file.flush()
                    protocol.receive(text)
                costs.append((time.process_time() - start) / count * 1e6)
    shown = "".join(f"{cost:8.1f}" for cost in costs)
    print(f"Gemini stream-json, a record missing, µs per line at {LINES}:{shown}", end="")
    print(mark(costs[-1] / costs[0], 1.5) + " × between the ends")


def gemini_waits() -> None:
    """How long the stream of ``gemini --acp`` is held up for the records of calls that never come."""
    from stagedoor.agents.acp.updates import SessionUpdate, ToolCallUpdate
    from stagedoor.agents.gemini.acp import detailed
    from stagedoor.agents.gemini.store import SessionFile

    async def held_up(calls: int, path: Path) -> float:
        file = SessionFile(lambda: path)

        async def received() -> AsyncIterator[tuple[bytes, SessionUpdate]]:
            for number in range(calls):
                yield b"{}", SessionUpdate("s", ToolCallUpdate(f"call-{number}", status="completed"))

        begin = time.perf_counter()
        async for _ in detailed(received(), file.tool_details):
            pass
        return time.perf_counter() - begin

    with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder:
        path = Path(folder) / "session.jsonl"
        path.write_text("")
        # The best of five: a busy machine holds everybody up, and that is not what is measured here.
        waits = [min(asyncio.run(held_up(calls, path)) for _ in range(5)) for calls in CALLS]
    shown = "".join(f"{wait:8.2f}" for wait in waits)
    print(f"Gemini acp, records missing, seconds that its stream waits at {CALLS} calls:{shown}{mark(waits[-1], 0.1)}")


# -- OpenCode: memory

MEMORY = """
import json, sys
from bench.memory import resident
from stagedoor.agents.opencode import ServeProtocol
from stagedoor.drivers.opencode.serve_dictionary import ServeDictionary
protocol, dictionary = ServeProtocol(), ServeDictionary()
def feed(kind, **properties):
    raw = json.dumps({"type": kind, "properties": {"sessionID": "s", **properties}}).encode()
    for native in protocol.receive(raw):
        dictionary.translate(native)
feed("server.connected")
feed("session.status", status={"type": "busy"})
spent = {"input": 1, "output": 1, "reasoning": 0, "cache": {"read": 0, "write": 0}}
for number in range(int(sys.argv[1]) // 26):
    message = f"msg_{number:026}"
    where = {"messageID": message, "sessionID": "s"}
    info = {"id": message, "sessionID": "s", "role": "assistant", "time": {"created": 1}, "modelID": "m",
            "providerID": "p", "mode": "build", "agent": "build", "cost": 0, "tokens": spent}
    feed("message.updated", info=info)
    part = {"id": f"prt_{number:025}a", **where, "type": "text", "text": "", "time": {"start": 1}}
    feed("message.part.updated", part=part, time=1)
    for piece in range(20):
        feed("message.part.delta", messageID=message, partID=part["id"], field="text", delta="word ")
    feed("message.part.updated", part=part | {"text": "word " * 20, "time": {"start": 1, "end": 2}}, time=1)
    tool = {"id": f"prt_{number:025}b", **where, "type": "tool", "callID": f"c{number}", "tool": "bash"}
    for state in ({"status": "running"}, {"status": "completed", "output": "words " * 150, "title": "ls"}):
        state = state | {"input": {"command": "ls"}, "metadata": {}, "time": {"start": 1, "end": 2}}
        feed("message.part.updated", part=tool | {"state": state}, time=1)
    feed("message.updated", info=info | {"time": {"created": 1, "completed": 2}, "finish": "tool-calls"})
print(resident() // 1024)
"""


def opencode_memory(most: int) -> None:
    sizes = [count for count in EVENTS if count <= most]
    used = [
        int(subprocess.run([sys.executable, "-c", MEMORY, str(count)], check=True, capture_output=True).stdout) / 1024
        for count in sizes
    ]
    shown = "".join(f"{size:7.0f}" for size in used)
    print(f"OpenCode serve, MB at {sizes} events:{shown}{mark(used[-1] / used[0], 1.25)} × between the ends")


# -- the log: events of a session that somebody follows


def mixed_batches(count: int, batch: int) -> list[list[Event]]:
    """Pieces of text, and a call with its result in every ten."""
    from stagedoor.unified.events import TextDelta, ToolResult, ToolUse, stamp

    def event(number: int) -> Event:
        call = f"t{number // 10}"
        match number % 10:
            case 8:
                made: Event = ToolUse(tool_use_id=call, name="shell", input={"command": "ls -la"}, target="ls -la")
            case 9:
                made = ToolResult(tool_use_id=call, name="shell", status="success", output="a line\n" * 70)
            case _:
                made = TextDelta(text="some words of an answer, as they come ", message_id="m1")
        return stamp(made, "understudy", "session 0", 0, 1_794_739_860_546, 1)

    return [[event(first + each) for each in range(batch)] for first in range(0, count, batch)]


def through_the_log(count: int = 32_000) -> None:
    for batch in (4, 16, 64):
        batches = mixed_batches(count, batch)

        async def work(journal: Journal, batches: list[list[Any]] = batches) -> float:
            session_log = await open_log(journal, "session 0")

            async def follow() -> None:
                async for records in journal.follow("session 0", 0):
                    if records[-1].seq >= count:
                        return

            start = time.process_time()
            async with asyncio.TaskGroup() as group:
                group.create_task(follow())
                for events in batches:
                    await session_log.store(events)
            return time.process_time() - start

        with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder:
            cost = on_a_log(Path(folder) / "log.db", work) / count * 1e6
        print(f"events through the log to a follower, {batch:2} at once: {cost:5.1f} µs each{mark(cost, 10)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--most-events", type=int, default=EVENTS[-1])
    options = parser.parse_args()
    codex_history(options.sessions)
    gemini_lines()
    gemini_waits()
    opencode_memory(options.most_events)
    through_the_log()
    return 0


if __name__ == "__main__":
    sys.exit(main())
