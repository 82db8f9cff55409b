"""``stagedoor demo``: an agent at work in a scratch repository. No key, no CLI, seconds. ``--real``: real CLIs too."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .. import api, catalog
from ..errors import StagedoorError
from ..shadow_git.changing import commit, create_repository
from ..transports.guard.processes import descendants
from ..unified import events
from ..unified.decisions import Allow, Decision
from ..unified.events import PermissionRequest
from . import EXIT_USAGE
from .command import Parser, report
from .run import screen_output, show_turn, with_questions
from .terminal.output import PrintedOutput, plain_lines, style_for, table
from .terminal.questions import find_keyboard

PROMPT = "The greeting is broken. Repair it and run the tests."


class DemoRow:
    """What one agent did: a row of the closing table."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.version = ""
        self.events = 0
        self.tools = 0
        self.questions = 0
        self.first: float | None = None
        self.total = 0.0
        self.status = ""
        self.leftovers = 0
        self._since = time.perf_counter()

    def see(self, event: events.Event) -> None:
        self.events += 1
        if self.first is None:
            self.first = time.perf_counter() - self._since
        match event:
            case events.Init():
                self.version = event.agent_version
            case events.ToolUse():
                self.tools += 1
            case events.PermissionRequest():
                self.questions += 1
            case events.Done():
                self.status = event.status
                self.total = time.perf_counter() - self._since
            case _:
                pass

    def cells(self) -> tuple[str, ...]:
        first = f"{self.first:.2f}s" if self.first is not None else "–"
        cells = (self.agent, self.version, self.status, self.events, self.tools, self.questions, first)
        return (*map(str, cells), f"{self.total:.2f}s", str(self.leftovers))


HEADINGS = ("agent", "version", "status", "events", "tools", "questions", "first event", "total", "left running")


def scratch_repository(folder: Path) -> None:
    """A small git repository with a bug in it."""
    from ..understudy.demo import DEMO_FILES

    for name, content in DEMO_FILES.items():
        (folder / name).write_text(content)
    commit(create_repository(folder), "A greeting", everything=True)


async def _allow(request: PermissionRequest) -> Decision:
    return Allow()


async def run_demo(folder: Path, home: Path, *, ask: bool) -> DemoRow:
    row = DemoRow("understudy")
    keyboard = find_keyboard() if ask else None
    output = screen_output(row.agent, thinking=True) if sys.stdout.isatty() else PrintedOutput(plain_lines())
    options: dict[str, Any] = {"cwd": str(folder), "approval": "ask", "env": {"STAGEDOOR_UNDERSTUDY_HOME": str(home)}}
    if keyboard is not None:
        options = with_questions(catalog.agent(row.agent), options, keyboard, output, sys.stdout)
        keyboard.start()
    else:
        options["can_use_tool"] = _allow

    def restore() -> None:
        if keyboard is not None:
            keyboard.stop()

    try:
        await show_turn(api.open(row.agent, **options), PROMPT, output, restore, observe=row.see)
    finally:
        restore()
    row.leftovers = len(descendants(os.getpid()))
    return row


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor demo",
        description="Watch an agent fix a bug in a scratch repository: it plans, asks, edits and runs the tests.",
        examples=(
            "stagedoor demo",
            "stagedoor demo --real",
            "stagedoor demo --real --agents claude,codex --no-install",
        ),
    )
    parser.add_argument("--real", action="store_true", help="also run the real CLIs, on a scripted model, side by side")
    parser.add_argument("--agents", default="", help="with --real: only these, separated by commas")
    parser.add_argument("--no-install", action="store_true", help="with --real: install nothing, use what is there")
    parser.add_argument("--yes", action="store_true", help="answer every question with yes, also at a terminal")
    arguments = parser.parse_args(argv)
    style = style_for(sys.stdout)
    names: list[str] = []
    if arguments.real:
        from .scripted_clis import chosen_clis

        try:
            names = chosen_clis(arguments.agents)
        except StagedoorError as fault:
            report("demo", fault)
            return EXIT_USAGE
    print(f"{style('strong', 'stagedoor demo')}: {PROMPT}\n")
    with tempfile.TemporaryDirectory(prefix="stagedoor-demo-") as scratch:
        folder, home = Path(scratch) / "greeting", Path(scratch) / "home"
        folder.mkdir()
        scratch_repository(folder)
        ask = sys.stdout.isatty() and sys.stdin.isatty() and not arguments.yes
        rows = [asyncio.run(run_demo(folder, home, ask=ask))]
    if arguments.real:
        from .scripted_clis import find_or_install, run_real_demo

        programs = find_or_install(names, install=not arguments.no_install, ask=ask)
        rows += asyncio.run(run_real_demo(names, programs))
    print(f"\n{table(HEADINGS, [row.cells() for row in rows], style)}")
    return 0 if all(row.status == "success" and not row.leftovers for row in rows) else 1
