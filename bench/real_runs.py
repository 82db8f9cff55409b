"""One short prompt on the real CLIs: ``stagedoor.run`` beside the raw program, warm, against the scripted model.

    python -m bench.real_runs [--runs 7] [claude codex gemini opencode]

Clock time of the whole run, from its start to its end, the best of several that alternate: a busy machine only adds.
``<`` marks what falls short. A CLI that is not installed is left out (``make clis``).
"""

from __future__ import annotations

import argparse
import asyncio
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
ANSWER = "Hello from the script."
RAW: dict[str, tuple[str, ...]] = {
    "claude": ("-p", "go", "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
    "codex": ("exec", "--json", "--skip-git-repo-check", "go"),
    "gemini": ("-p", "go", "--output-format", "stream-json", "--yolo"),
    "opencode": ("run", "--format", "json", "go"),
}
"""How each is run without us: one prompt, its events as JSON."""


class Runs(msgspec.Struct):
    raw: list[float] = []
    ours: list[float] = []
    first: list[float] = []
    """Until the first piece of the answer."""


def raw(program: str, arguments: tuple[str, ...], env: dict[str, str], cwd: Path) -> float:
    begin = time.perf_counter()
    done = subprocess.run(
        [program, *arguments], env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ANSWER not in done.stdout:
        raise SystemExit(f"{program} {' '.join(arguments)}: {done.stderr[-1000:] or done.stdout[-1000:]}")
    return time.perf_counter() - begin


async def ours(agent: str, program: str, env: dict[str, str], cwd: Path) -> tuple[float, float]:
    begin = time.perf_counter()
    first, answer = 0.0, ""
    async for event in stagedoor.run(
        agent, "go", cwd=str(cwd), executable=program, env=env, inherit_env=False, tier="autonomous"
    ):
        if isinstance(event, stagedoor.TextDelta | stagedoor.Text):
            first = first or time.perf_counter() - begin
            answer = getattr(event, "text", "")
    if not answer:
        raise SystemExit(f"{agent}: no answer through stagedoor.run")
    return time.perf_counter() - begin, first


def compare(agent: str, program: str, runs: int) -> Runs:
    taken = Runs([], [], [])
    with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder, ScriptedModel([forever(say(ANSWER))]) as model:
        repo = Path(folder) / "repo"
        repo.mkdir()
        env = model.environment(agent, cwd=repo, home=Path(folder) / "home").env
        env["PATH"] = path_with_node(agent=agent)
        for number in range(runs + 1):
            outside = raw(program, RAW[agent], env, repo)
            inside, first = asyncio.run(ours(agent, program, env, repo))
            if number:  # the first of each is cold
                taken.raw.append(outside)
                taken.ours.append(inside)
                taken.first.append(first)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agents", nargs="*", default=[*RAW])
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    print(f"one short prompt on the real CLIs, seconds (best of {options.runs}, alternating)")
    for agent in options.agents:
        program = find_cli(agent)
        if program is None:
            print(f"  {agent:9} is not installed: run `make clis`")
            continue
        taken = compare(agent, str(program), options.runs)
        ratio = min(taken.ours) / min(taken.raw)
        print(
            f"  {agent:9} raw {min(taken.raw):5.2f}   stagedoor.run {min(taken.ours):5.2f}   {ratio:4.2f} ×"
            f"   (first piece after {min(taken.first):.2f})   bound {BOUND}{' <' if ratio > BOUND else ''}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
