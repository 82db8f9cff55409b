"""A stream of Claude Code events from a child process to typed events: ours, the official SDK's, and the bare limit.

python -m bench.stream [--events 30000] [--runs 5] [--kind deltas|mixed]

Two kinds of stream: short deltas with a block, a call and a result now and then; and mixed lines of about 950 bytes,
of which a tenth each are results of a tool (6.7 kB), messages of two blocks, and lines of status.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from bench.memory import peak

if TYPE_CHECKING:
    from stagedoor.unified.events import Event

HERE = Path(__file__).parent
SESSION = "3e35f0c2-8a39-4f5e-9d7a-4b8a2f1c0d11"


def write_stream(path: Path, count: int, kind: str = "deltas") -> None:
    """What a long turn with partial messages looks like."""
    ids = {"session_id": SESSION, "uuid": "11111111-2222-4333-8444-555555555555"}
    init = {
        "type": "system", "subtype": "init", "cwd": "/repo", "tools": ["Bash", "Edit"], "mcp_servers": [],
        "model": "claude-opus-4-8", "permissionMode": "default", "apiKeySource": "ANTHROPIC_API_KEY",
        "claude_code_version": "2.1.197", **ids,
    }  # fmt: skip
    delta = {
        "type": "stream_event", "parent_tool_use_id": None, **ids,
        "event": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "some words "}},
    }  # fmt: skip

    def message(content: list[dict[str, object]], role: str, number: int) -> dict[str, object]:
        usage = {"input_tokens": 10, "cache_read_input_tokens": 900, "output_tokens": 1}
        body = {"id": f"msg_{number}", "type": "message", "role": role, "model": "claude-opus-4-8", "content": content}
        kind = {"type": role, "parent_tool_use_id": None, **ids}
        return {**kind, "message": body | ({"stop_reason": None, "usage": usage} if role == "assistant" else {})}

    lines = [init]
    number = 0
    while kind == "mixed" and len(lines) < count - 1:
        number += 1
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": "ls -la src"}}
        output = "a line of the output\n" * 160
        # As the API orders them: the kind of a block is not its first member.
        result = {"tool_use_id": f"toolu_{number}", "type": "tool_result", "content": output, "is_error": False}
        report = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}
        lines += [delta] * 5
        lines.append({"type": "system", "subtype": "status", "status": "requesting", **ids})
        lines.append(message([{"type": "text", "text": "some words " * 14}, call], "assistant", number))
        lines.append({**message([result], "user", number), "tool_use_result": report})
        lines += [delta] * 2
    while kind == "deltas" and len(lines) < count - 1:
        number += 1
        lines += [delta] * 14
        lines.append(message([{"type": "text", "text": "some words " * 14}], "assistant", number))
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": "ls -la src"}}
        lines.append(message([call], "assistant", number))
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "line\n" * 40, "is_error": False}
        lines.append(message([result], "user", number))
    lines = lines[: count - 1]
    lines.append(
        {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "duration_ms": 10,
            "duration_api_ms": 5,
            "num_turns": 2,
            "result": "done",
            "total_cost_usd": 0.5,
            "usage": {"input_tokens": 1, "output_tokens": 2},
            "permission_denials": [],
            "terminal_reason": "completed",
            **ids,
        }
    )
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def launcher(folder: Path) -> str:
    """The fake as a program of its own."""
    program = folder / "claude"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {HERE / "fake_claude.py"} "$@"\n')
    program.chmod(0o755)
    return str(program)


class Clock:
    """Runs from the first event to the last: starting a program is measured elsewhere."""

    def __init__(self) -> None:
        self.count = 0
        self.start = self.start_cpu = 0.0
        self.seconds = self.cpu = 0.0

    def tick(self) -> None:
        self.count += 1
        if self.count == 1:
            self.start, self.start_cpu = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        self.seconds, self.cpu = time.perf_counter() - self.start, time.process_time() - self.start_cpu


async def native(program: str, clock: Clock) -> None:
    from stagedoor.agents.claude import ClaudeClient, ClaudeResult

    async with await ClaudeClient("/", executable=program, env=dict(os.environ)).create_session("go") as session:
        async for event in session.events:
            clock.tick()
            if isinstance(event, ClaudeResult):
                break
        clock.stop()


async def unified(program: str, clock: Clock, encode: Callable[[Event], object] = lambda event: None) -> None:
    import stagedoor

    stream = stagedoor.run(
        "claude", "go", cwd=str(Path(program).parent), executable=program, env=dict(os.environ), inherit_env=False,
        tier="autonomous",
    )  # fmt: skip
    async for event in stream:
        encode(event)
        clock.tick()
        if isinstance(event, stagedoor.TurnCompleted):
            clock.stop()


async def encoded(program: str, clock: Clock) -> None:
    from stagedoor.unified.events import encode

    await unified(program, clock, encode)


async def sdk(program: str, clock: Clock) -> None:
    from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

    options = ClaudeAgentOptions(cli_path=program, include_partial_messages=True)
    async for message in query(prompt="go", options=options):
        clock.tick()
        if isinstance(message, ResultMessage):
            clock.stop()


async def bare(program: str, clock: Clock) -> None:
    import msgspec

    pipe = subprocess.PIPE
    process = subprocess.Popen([program], stdin=pipe, stdout=pipe)  # noqa: ASYNC220 (the bare limit has no loop)
    assert process.stdin
    assert process.stdout
    process.stdin.write(b'{"type":"user","message":{"role":"user","content":"go"}}\n')
    process.stdin.close()
    decode, rest = msgspec.json.Decoder().decode, b""
    while chunk := os.read(process.stdout.fileno(), 2**18):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            decode(line)
            clock.tick()
    clock.stop()
    process.wait()


WAYS = {"bare": bare, "native": native, "unified": unified, "encoded": encoded, "sdk": sdk}


MODULES = {
    "bare": ("msgspec",),
    "native": ("stagedoor.agents.claude",),
    "unified": ("stagedoor.api", "stagedoor.drivers.claude.agent", "stagedoor.permissions.risk.judge"),
    "encoded": ("stagedoor.api", "stagedoor.drivers.claude.agent", "stagedoor.permissions.risk.judge"),
    "sdk": ("claude_agent_sdk",),
}


def measure(way: str, program: str) -> None:
    """In a process of its own, so that its peak memory is its own. Imports are measured elsewhere."""
    for module in MODULES[way]:
        import_module(module)
    clock = Clock()
    start = time.process_time()
    asyncio.run(WAYS[way](program, clock))
    cpu = time.process_time() - start
    found = {"seconds": clock.seconds, "stream_cpu": clock.cpu, "cpu": cpu, "rss": peak() // 1024}
    print(json.dumps({"events": clock.count, **found}))


def compare(events: int, runs: int, ways: list[str], kind: str = "deltas") -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder:
        stream = Path(folder) / "stream.jsonl"
        write_stream(stream, events, kind)
        program = launcher(Path(folder))
        env = {name: value for name, value in os.environ.items() if not name.startswith("CLAUDE")}
        env |= {"BENCH_STREAM": str(stream), "HOME": folder, "ANTHROPIC_API_KEY": "none"}
        taken: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for _ in range(runs):
            for way in ways:
                argv = [sys.executable, "-m", "bench.stream", "--measure", way, "--program", program]
                done = subprocess.run(argv, env=env, cwd=HERE.parent, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise SystemExit(f"{way}: {done.stderr[-2000:]}")
                taken[way].append(json.loads(done.stdout.splitlines()[-1]))
    return {
        way: {
            "per_second": events / statistics.median(run["seconds"] for run in runs_of),
            "rss_mb": statistics.median(run["rss"] for run in runs_of) / 1024,
            "events": runs_of[0]["events"],
            "cpu": min(run["cpu"] for run in runs_of),
            "stream_cpu": min(run["stream_cpu"] for run in runs_of),
        }
        for way, runs_of in taken.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=30_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--kind", choices=WANTED, help="one kind of stream only")
    parser.add_argument("--measure", choices=WAYS)
    parser.add_argument("--program", default="")
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.program)
        return 0
    for kind in [options.kind] if options.kind else WANTED:
        report(kind, compare(options.events, options.runs, list(WAYS), kind), options)
    return 0


WANTED = {
    "deltas": {"unified": (4.0, 0.35)},
    "mixed": {"unified": (3.0, 0.45), "native": (6.0, 0.0)},
}
"""What is to be reached: times the SDK, and the share of the bare limit."""


def report(kind: str, found: dict[str, dict[str, float]], options: argparse.Namespace) -> None:
    print(f"{options.events} lines of a Claude Code stream ({kind}), child process → typed: processor time per line,")
    print(f"the best of {options.runs} runs by turns (and lines a second by the clock, their median)")
    for way, row in found.items():
        of_sdk, of_bare = (found[peer]["stream_cpu"] / row["stream_cpu"] for peer in ("sdk", "bare"))
        times, share = WANTED[kind].get(way, (0.0, 0.0))
        bound = f"   wanted {times:g} × sdk" + (f", {share:g} × bare" if share else "")
        short = f"{bound} <" if of_sdk < times or of_bare < share else ""
        cost = row["stream_cpu"] / options.events * 1e6
        print(
            f"  {way:8} {cost:>6.2f} µs   {of_sdk:>5.1f} × sdk   {of_bare:>5.2f} × bare"
            f"   {row['per_second']:>9,.0f}/s   peak {row['rss_mb']:.0f} MB{short}"
        )


if __name__ == "__main__":
    sys.exit(main())
