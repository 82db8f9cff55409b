"""``stagedoor demo``: an agent at work in a scratch repository. No key, no CLI, seconds. ``--real``: real CLIs too."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .. import api, catalog
from ..transports.guard import descendants
from ..unified import events
from ..unified.decisions import Allow, Decision
from ..unified.events import PermissionRequest
from .keyboard import find_keyboard
from .lines import style_for
from .outputs import Written, plain_lines
from .parsing import Parser
from .tables import table

PROMPT = "The greeting is broken. Repair it and run the tests."


class Tally:
    """What one agent did, for the closing table."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.version = ""
        self.count = 0
        self.tools = 0
        self.asked = 0
        self.first: float | None = None
        self.total = 0.0
        self.status = ""
        self.left = 0
        self._since = time.perf_counter()

    def see(self, event: events.Event) -> None:
        self.count += 1
        if self.first is None:
            self.first = time.perf_counter() - self._since
        match event:
            case events.Init():
                self.version = event.agent_version
            case events.ToolUse():
                self.tools += 1
            case events.PermissionRequest():
                self.asked += 1
            case events.Done():
                self.status = event.status
                self.total = time.perf_counter() - self._since
            case _:
                pass

    def row(self) -> tuple[str, ...]:
        first = f"{self.first:.2f}s" if self.first is not None else "–"
        cells = (self.agent, self.version, self.status, self.count, self.tools, self.asked, first)
        return (*map(str, cells), f"{self.total:.2f}s", str(self.left))


HEADINGS = ("agent", "version", "status", "events", "tools", "asked", "first event", "total", "left over")


def scratch_repository(folder: Path) -> None:
    """A little git repository with a mistake in it."""
    from ..understudy.demo import DEMO_FILES

    for name, content in DEMO_FILES.items():
        (folder / name).write_text(content)
    who = ["-c", "user.name=Stagedoor", "-c", "user.email=stagedoor@localhost", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "A greeting"]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


async def _allow(request: PermissionRequest) -> Decision:
    return Allow()


async def perform(folder: Path, home: Path, *, ask: bool) -> Tally:
    from .performance import on_terminal, stream, with_questions

    tally = Tally("understudy")
    keyboard = find_keyboard() if ask else None
    output = on_terminal(tally.agent, thinking=True) if sys.stdout.isatty() else Written(plain_lines())
    options: dict[str, Any] = {"cwd": str(folder), "approval": "ask", "env": {"STAGEDOOR_UNDERSTUDY_HOME": str(home)}}
    if keyboard is not None:
        options = with_questions(catalog.agent(tally.agent), options, keyboard, output, sys.stdout)
        keyboard.start()
    else:
        options["can_use_tool"] = _allow

    def restore() -> None:
        if keyboard is not None:
            keyboard.stop()

    try:
        await stream(api.open(tally.agent, **options), PROMPT, output, restore, also=tally.see)
    finally:
        restore()
    tally.left = len(descendants(os.getpid()))
    return tally


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor demo",
        description="Watch an agent repair a scratch repository: it plans, asks before it edits and runs, and tests.",
        examples=(
            "stagedoor demo",
            "stagedoor demo --real",
            "stagedoor demo --real --agents claude,codex --no-install",
        ),
    )
    parser.add_argument("--real", action="store_true", help="the real CLIs too, on a scripted model, side by side")
    parser.add_argument("--agents", default="", help="with --real: only these, by commas")
    parser.add_argument("--no-install", action="store_true", help="with --real: only what is installed already")
    parser.add_argument("--yes", action="store_true", help="answer every question with yes, at a terminal too")
    options = parser.parse_args(argv)
    style = style_for(sys.stdout)
    print(f"{style('strong', 'stagedoor demo')}: {PROMPT}\n")
    with tempfile.TemporaryDirectory(prefix="stagedoor-demo-") as scratch:
        folder, home = Path(scratch) / "greeting", Path(scratch) / "home"
        folder.mkdir()
        scratch_repository(folder)
        ask = sys.stdout.isatty() and sys.stdin.isatty() and not options.yes
        tallies = [asyncio.run(perform(folder, home, ask=ask))]
    if options.real:
        from .demo_real import perform_real

        chosen = [name for name in options.agents.split(",") if name]
        tallies += asyncio.run(perform_real(chosen, fetch=not options.no_install))
    print(f"\n{table(HEADINGS, [tally.row() for tally in tallies], style)}")
    return 0 if all(tally.status == "success" and not tally.left for tally in tallies) else 1
