"""Capture fresh transcripts from an installed CLI: ``make record AGENT=codex``.

    python -m tools.record [AGENT …] [--into FOLDER]

Each scene is played by the real CLI on the scripted model, over every driver of the agent that is a child process, and
written as a two-way log (``{"dir", "t", "line"}``, one JSON object a line) under ``<agent>-<version>/``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Literal

from stagedoor import api, catalog
from stagedoor.errors import StagedoorError
from stagedoor.testing.clis import find_cli
from stagedoor.testing.environment import scripted_agents
from stagedoor.testing.model import ScriptedModel
from stagedoor.testing.script import Reply, edit_file, http_error, read_file, say, shell, think, write_file
from stagedoor.transports.executables import read_version
from stagedoor.transports.tap import record_lines
from stagedoor.unified.decisions import Allow, Decision, Deny
from stagedoor.unified.events import PermissionRequest

SCENES: dict[str, Sequence[Reply]] = {
    "text": [[say("Hello from the scripted model.")]],
    "thinking": [[think("Let me think."), say("Thought about it.")]],
    "shell": [[say("Running it."), shell("echo out; echo err >&2")], [say("Done.")]],
    "shell-fails": [[shell("echo before; exit 3")], [say("It failed.")]],
    "write-edit": [
        [write_file("made.txt", "line one\nline two\n")],
        [read_file("made.txt")],
        [edit_file("made.txt", "line two", "LINE 2")],
        [say("Written and edited.")],
    ],
    "parallel": [[shell("echo one"), shell("echo two")], [say("Both done.")]],
    "denied": [[shell("touch forbidden")], [say("I was not allowed.")]],
    "api-401": [[http_error(401)]],
}
PLACE = "/workspace"
"""What stands in a recording where the scratch folder was."""


class Recorder:
    """Writes what is overheard, with the scratch folder's name taken out."""

    def __init__(self, out: IO[str], scratch: str) -> None:
        self._out = out
        self._scratch = scratch
        self._since = time.monotonic()

    def __call__(self, direction: Literal["in", "out"], line: bytes) -> None:
        text = line.decode("utf-8", "replace").replace(self._scratch, PLACE)
        row = {"dir": direction, "t": round(time.monotonic() - self._since, 3), "line": text}
        self._out.write(json.dumps(row, ensure_ascii=False) + "\n")


def decide(request: PermissionRequest) -> Decision:
    return Deny("not allowed in this recording") if "forbidden" in request.target else Allow()


async def record(agent: str, driver: str, scene: str, path: Path, executable: str) -> None:
    """Play one scene and write what went over the wire."""
    path.parent.mkdir(parents=True, exist_ok=True)
    capable = catalog.agent(agent).drivers[driver].capabilities
    asks: dict[str, Any] = {"tier": "autonomous"}
    if capable.permissions != "none":
        asks = {"approval": "ask", "can_use_tool": decide}
    with tempfile.TemporaryDirectory(prefix="stagedoor-record-") as scratch:
        workspace = Path(scratch) / "workspace"
        workspace.mkdir()
        async with ScriptedModel(SCENES[scene]) as model:
            environment = model.environment(agent, home=Path(scratch) / "home", cwd=workspace)
            with path.open("w", encoding="utf-8") as out, record_lines(Recorder(out, scratch)):
                stream = api.run(
                    agent, f"Scene {scene}.", cwd=str(workspace), driver=driver, executable=executable,
                    env=environment.env, inherit_env=False, model=environment.model, timeout=120.0, **asks,
                )  # fmt: skip
                async for _ in stream:
                    pass


async def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.record", description=__doc__)
    parser.add_argument("agents", nargs="*", help=f"of {', '.join(scripted_agents())}; without any, all")
    parser.add_argument("--into", type=Path, default=Path("tests/transcripts"), help="where the transcripts go")
    options = parser.parse_args(argv)
    unknown = [agent for agent in options.agents if agent not in scripted_agents()]
    if unknown:
        parser.error(f"unknown agent {unknown[0]!r}: choose from {', '.join(scripted_agents())}")
    failures = 0
    for agent in options.agents or scripted_agents():
        executable = find_cli(agent)
        if executable is None:
            print(f"{agent}: not installed: run make clis", file=sys.stderr)
            failures += 1
            continue
        version = ".".join(map(str, await read_version(str(executable))))
        for driver in catalog.agent(agent).drivers:
            for scene in SCENES:
                path = options.into / f"{agent}-{version}" / f"recorded-{driver}-{scene}.jsonl"
                try:
                    await record(agent, driver, scene, path, str(executable))
                    print(f"{path}: {len(path.read_bytes().splitlines())} lines")
                except StagedoorError as error:
                    failures += 1
                    print(f"{path}: {error}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
