"""One prompt on several agents: each in its own worktree, what became of each, and how they compare."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import cast

from ..api import Task
from ..unified import events
from ..unified.events import Event
from ..unified.options import OpenOptions
from ..worktrees import DiffStat, GitFailed, Worktree, add_worktree
from .lines import Style, one_line, plain
from .tables import Cell, table, width

OUTPUT_KEPT = 4000
HEADINGS = ["agent", "status", "changes", "tests", "tools", "tokens", "cost", "time", "branch"]


class Entry:
    """One agent in the race."""

    def __init__(self, name: str, task: Task, worktree: Worktree) -> None:
        self.name = name
        self.task = task
        self.worktree = worktree
        self.branch = worktree.branch  # empty when there was nothing to keep
        self.status = "waiting"
        self.doing = ""
        self.why = ""
        self.tokens = 0
        self.cost: float | None = None
        self.tools = 0
        self.changes: DiffStat | None = None
        self.tests = ""
        self.test_output = ""
        self._since = 0.0
        self._took: float | None = None

    @property
    def seconds(self) -> float:
        if self._took is not None:
            return self._took
        return time.monotonic() - self._since if self._since else 0.0

    @property
    def is_over(self) -> bool:
        return self._took is not None

    def see(self, event: Event) -> None:
        match event:
            case events.Init():
                self.status, self._since = "running", time.monotonic()
            case events.TextDelta() | events.Text():
                self.doing = "writing"
            case events.ThinkingDelta() | events.Thinking():
                self.doing = "thinking"
            case events.ToolUse():
                self.tools += 1
                self.doing = f"{event.name} {one_line(event.target, 50)}"
            case events.PermissionRequest():
                self.doing = f"asks: {event.tool_name} {one_line(event.target, 44)}"
            case events.UsageReport():
                self.tokens = event.session.total_tokens or event.total_tokens
                self.cost = event.session.cost_usd
            case events.Error():
                self.why = event.message
            case events.Done():
                self.tokens, self.cost = event.usage.total_tokens or self.tokens, event.cost_usd
                self.end(event.status)
            case _:
                return

    def end(self, status: str) -> None:
        """The first end counts."""
        if self._took is None:
            self._took = self.seconds
            self.status, self.doing = status, ""

    async def finish(self, prompt: str, test: str | None, limit: float) -> None:
        """Commit what was changed, then run the tests on it: what they leave behind is not the agent's work."""
        try:
            self.changes = await self.worktree.keep(f"{one_line(prompt, 60)}\n\nBy {self.name}, through Stagedoor.")
        except GitFailed as fault:
            self.why = self.why or str(fault)
        if test is not None:
            self.tests = "running"
            self.tests, self.test_output = await run_tests(test, self.worktree.cwd, limit)

    def row(self) -> list[Cell]:
        good = self.status == "success"
        passed = self.tests == "pass"
        return [
            ("tool", self.name),
            ("ok" if good else "bad", self.status),
            str(self.changes) if self.changes is not None else "–",
            ("ok" if passed else "bad", self.tests) if self.tests else "–",
            str(self.tools),
            f"{self.tokens:,}" if self.tokens else "–",
            f"${self.cost:.4f}" if self.cost is not None else "–",
            f"{self.seconds:.1f}s",
            self.branch or "–",
        ]


def comparison(entries: Sequence[Entry], style: Style, columns: int | None = None) -> str:
    """One row for each. Where the terminal is too narrow for the branches, they stand below."""
    unsaid: set[str] = set() if any(entry.tests for entry in entries) else {"tests"}

    def told(without: set[str], style: Style) -> str:
        kept = [n for n, heading in enumerate(HEADINGS) if heading not in without]
        return table([HEADINGS[n] for n in kept], [[row[n] for n in kept] for row in rows], style)

    rows = [entry.row() for entry in entries]
    if columns is None or max(map(width, told(unsaid, plain).splitlines())) <= columns:
        return told(unsaid, style)
    branches = [f"branch: {entry.branch}" for entry in entries if entry.branch]
    return "\n".join([told({"branch", *unsaid}, style), *branches])


async def enter(
    agents: Sequence[str], prompt: str, cwd: Path, options: Mapping[str, object], folder: Path
) -> list[Entry]:
    """A worktree and a task for each. ``agents`` are names, or ``name:model``; one may come more than once."""
    race = f"{datetime.now():%m%d-%H%M%S}-{secrets.token_hex(2)}"
    entries: list[Entry] = []
    seen: dict[str, int] = {}
    for agent in agents:
        known, _, model = agent.partition(":")
        bare = agent.replace(":", "-").replace("/", "-")
        seen[bare] = seen.get(bare, 0) + 1
        name = bare if seen[bare] == 1 else f"{bare}-{seen[bare]}"
        try:
            worktree = await add_worktree(cwd, folder / f"{cwd.name}-{race}" / name, f"stagedoor/{race}/{name}")
        except BaseException:
            for entry in entries:
                await entry.worktree.remove(branch=True)
            raise
        own = {**options, "cwd": str(worktree.cwd), **({"model": model} if model else {})}
        entries.append(Entry(name, Task(known, prompt, cast("OpenOptions", own), name), worktree))
    return entries


async def run_tests(command: str, cwd: Path, limit: float) -> tuple[str, str]:
    """``pass`` or what went wrong, and the end of what was printed. Everything the command started is ended."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", command, cwd=cwd, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(limit):
            out, _ = await process.communicate()
        code = process.returncode
        verdict = "pass" if code == 0 else f"fail ({code})"
        return verdict, out.decode("utf-8", "replace")[-OUTPUT_KEPT:]
    except TimeoutError:
        return f"no end in {limit:g}s", ""
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
