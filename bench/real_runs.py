"""One short prompt on the real CLIs: ``stagedoor.run`` beside the raw program, warm, against the scripted model.

    python -m bench.real_runs [--runs 4] [claude codex gemini opencode]

The whole run, from its start to its end, the best of several that alternate (a busy machine only adds): by the clock,
and as processor time of all processes, which a busy machine changes little. ``<`` marks what falls short. A CLI that
is not installed is left out (``make clis``).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

import stagedoor
from stagedoor.testing import ScriptedModel, find_cli, forever, say
from stagedoor.testing.clis import path_with_node

BOUND = 1.15
ANSWER = "Hello"
"""One word: some CLIs print an answer in pieces."""
RAW: dict[str, tuple[str, ...]] = {
    "claude": ("-p", "go", "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
    "codex": ("exec", "--json", "--skip-git-repo-check", "go"),
    "gemini": ("-p", "go", "--output-format", "stream-json", "--yolo"),
    "opencode": ("run", "--format", "json", "go"),
}
"""How each is run without us: one prompt, its events as JSON."""


class Run(msgspec.Struct, frozen=True):
    seconds: float
    cpu: float


class Meter:
    """From its making on: the clock, and the processor time of this process and of those that it has waited for."""

    def __init__(self) -> None:
        self._begin, self._cpu = time.perf_counter(), _cpu()

    def read(self) -> Run:
        return Run(time.perf_counter() - self._begin, _cpu() - self._cpu)


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def raw(program: str, arguments: tuple[str, ...], env: dict[str, str], cwd: Path) -> Run:
    meter = Meter()
    done = subprocess.run(
        [program, *arguments], env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ANSWER not in done.stdout:
        raise SystemExit(f"{program} {' '.join(arguments)}: {done.stderr[-1000:] or done.stdout[-1000:]}")
    return meter.read()


async def ours(agent: str, program: str, env: dict[str, str], cwd: Path) -> Run:
    meter, answer = Meter(), ""
    async for event in stagedoor.run(
        agent, "go", cwd=str(cwd), executable=program, env=env, inherit_env=False, tier="autonomous"
    ):
        if isinstance(event, stagedoor.TextDelta | stagedoor.Text):
            answer += event.text
    if not answer:
        raise SystemExit(f"{agent}: no answer through stagedoor.run")
    return meter.read()


def compare(agent: str, program: str, runs: int) -> tuple[list[Run], list[Run]]:
    outside: list[Run] = []
    inside: list[Run] = []
    with (
        ScriptedModel([forever(say(ANSWER))]) as model,
        tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder,
    ):
        repo = Path(folder) / "repo"
        repo.mkdir()
        env = model.environment(agent, cwd=repo, home=Path(folder) / "home").env
        env["PATH"] = path_with_node(agent=agent)
        for _ in range(runs + 1):
            outside.append(raw(program, RAW[agent], env, repo))
            inside.append(asyncio.run(ours(agent, program, env, repo)))
    return outside[1:], inside[1:]  # the first of each is cold


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agents", nargs="*", default=[*RAW])
    parser.add_argument("--runs", type=int, default=4)
    options = parser.parse_args()
    print(f"one short prompt on the real CLIs, seconds (best of {options.runs}, alternating)")
    for agent in options.agents:
        program = find_cli(agent)
        if program is None:
            print(f"  {agent:9} is not installed: run `make clis`")
            continue
        outside, inside = compare(agent, str(program), options.runs)
        theirs, mine = min(run.seconds for run in outside), min(run.seconds for run in inside)
        cpu = min(run.cpu for run in inside) / min(run.cpu for run in outside)
        print(
            f"  {agent:9} raw {theirs:5.2f}   ours {mine:5.2f}   {mine / theirs:4.2f} ×"
            f"{'' if mine / theirs <= BOUND else f'   bound {BOUND} <'}   processor time {cpu:4.2f} ×"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
