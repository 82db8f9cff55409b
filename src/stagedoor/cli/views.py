"""How a race is shown while it runs: a live table, a line per step, or JSON."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from .. import catalog
from ..api import Task
from ..dialects import DIALECTS, Projection, encode
from ..parallel import Tagged
from ..unified import events
from .asking import Asking
from .keyboard import find_keyboard
from .lines import Lines, plain, style_for
from .performance import abilities
from .race import Entry

if TYPE_CHECKING:
    from rich.table import Table

TICK = 0.125


class View(Protocol):
    """What a race is shown through."""

    @property
    def show(self) -> Callable[[Entry, Tagged], None]: ...
    def with_questions(self, entry: Entry) -> Task: ...
    def living(self) -> AbstractAsyncContextManager[None]: ...
    def close(self) -> None: ...


class Printed:
    """A view that only prints, through which nobody can be asked."""

    def __init__(self, show: Callable[[Entry, Tagged], None]) -> None:
        self.show = show

    @asynccontextmanager
    async def living(self) -> AsyncGenerator[None]:
        yield

    def with_questions(self, entry: Entry) -> Task:
        return entry.task

    def close(self) -> None:
        return


def print_events(dialect: str) -> Callable[[Entry, Tagged], None]:
    """One JSON object per line."""
    projections: dict[int, Projection] = {}

    def show(entry: Entry, one: Tagged) -> None:
        projection = projections.setdefault(one.number, DIALECTS[dialect]())
        for line in encode(projection, one.event):
            _print({"number": one.number, "task": entry.name, "event": msgspec.Raw(line)})

    return show


def print_comparison(entries: Sequence[Entry]) -> None:
    rows = [
        {
            "task": entry.name,
            "agent": entry.task.agent,
            "status": entry.status,
            "error": entry.why,
            "branch": entry.branch or None,
            "base": entry.worktree.base,
            "changes": entry.changes,
            "tests": entry.tests or None,
            "toolUses": entry.tools,
            "totalTokens": entry.tokens,
            "costUsd": entry.cost,
            "durationMs": round(entry.seconds * 1000),
        }
        for entry in entries
    ]
    _print({"comparison": rows})


def _print(line: dict[str, Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


def print_lines(entries: Sequence[Entry]) -> Callable[[Entry, Tagged], None]:
    """A line for each thing that happened, with the agent's name before it."""
    lines = {entry.name: Lines(plain, thinking=False) for entry in entries}
    width = max(len(entry.name) for entry in entries)

    def show(entry: Entry, one: Tagged) -> None:
        event = one.event
        if isinstance(event, events.TextDelta | events.FileChange):
            return  # whole texts are enough, and diffs can be had from the branch
        text = event.status if isinstance(event, events.Done) else lines[entry.name].show(event).strip("\n")
        for line in text.splitlines():
            print(f"{entry.name:{width}} │ {line}", flush=True)

    return show


class LiveTable:
    """A table that is painted over as things happen. Questions are asked one at a time, with the table put away."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        from rich.console import Console

        self._entries = entries
        self._console = Console(highlight=False)
        self._live: Any = None
        self._style = style_for(sys.stdout)
        self._keyboard = find_keyboard()
        self._turn = asyncio.Lock()

    def with_questions(self, entry: Entry) -> Task:
        if self._keyboard is None:
            return entry.task
        options = dict(entry.task.options)
        able = abilities(catalog.agent(entry.task.agent), options)
        if able is None:
            return entry.task
        asking = Asking(self._keyboard, self, self._write, self._style, able=able, who=entry.name, turn=self._turn)
        return replace(entry.task, options={**options, "can_use_tool": asking})

    @asynccontextmanager
    async def living(self) -> AsyncGenerator[None]:
        async def tick() -> None:
            while True:
                if self._live is not None:
                    self._live.update(self._table(), refresh=True)
                await asyncio.sleep(TICK)

        if self._keyboard is not None:
            self._keyboard.start()
        self.resume()
        ticking = asyncio.create_task(tick())
        try:
            yield
        finally:
            ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticking
            self.close()

    def show(self, entry: Entry, one: Tagged) -> None:
        return

    async def shown(self, request_id: str) -> None:
        return

    def answered(self, request_id: str) -> None:
        return

    def pause(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def resume(self) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(self._table(), console=self._console, auto_refresh=False, transient=True)
            self._live.start(refresh=True)

    def close(self) -> None:
        self.pause()
        if self._keyboard is not None:
            self._keyboard.stop()

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def _table(self) -> Table:
        from rich.table import Table

        made = Table(box=None, pad_edge=False, header_style="bold", expand=False)
        for heading in ("agent", "status", "time", "tokens", "cost", "doing"):
            made.add_column(heading, no_wrap=True, overflow="ellipsis")
        for entry in self._entries:
            style = {"success": "green", "running": "cyan", "waiting": "dim"}.get(entry.status, "red")
            doing = "runs the tests" if entry.tests == "running" else str(entry.changes or "") or entry.doing
            cost = f"${entry.cost:.4f}" if entry.cost is not None else ""
            tokens = f"{entry.tokens:,}" if entry.tokens else ""
            made.add_row(entry.name, f"[{style}]{entry.status}[/]", f"{entry.seconds:.0f}s", tokens, cost, doing)
        return made
