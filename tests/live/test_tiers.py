"""Tiers, approval modes and sandbox modes: what becomes of five actions in each, with the real CLIs.

``tiers.yaml`` beside this says what is expected; ``docs/tiers.md`` shows it and is renewed with ``STAGEDOOR_BLESS=1``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import stagedoor
from stagedoor import catalog
from stagedoor.testing import ScriptedModel, say, shell, write_file
from stagedoor.testing.script import ScriptedCall
from tools.tiers import ACTIONS, CELLS, Action, Cell, Row, broken, native_settings

BOUND = 120.0
TABLES = Path(__file__).with_name("tiers.yaml")
PAGE = Path(__file__).parents[2] / "docs" / "tiers.md"
FROM = "Try them from number"
SEEN = "seen-by-ls.txt"
MARKS: dict[Action, str] = {
    "edit": "written-by-tool.txt",
    "command": "made-by-shell",
    "outside": "made-beyond",
    "danger": ".bashrc",
}
MARK = "## The tables"
SLOW = ("opencode run", "opencode acp")
"""Drivers that start slowly, beside one of which every cell is tried."""
Tables = dict[str, dict[str, str]]


def tables() -> Tables:
    read: Tables = yaml.safe_load(TABLES.read_text())
    return read


def expected(agent: str, driver: str, cell: Cell) -> Row:
    row = tables()[f"{agent} {driver}"][cell.name].split()
    return msgspec.convert(row, Row)


class Trial:
    """One agent in a workspace of its own, whose model tries the four actions one after the other."""

    def __init__(self, rig: Any, folder: Path, elsewhere: Path, model: ScriptedModel | None) -> None:
        self.rig = rig
        self.model = model
        self.workspace, self.outside, self.home = folder / "workspace", elsewhere / "outside", elsewhere / "home"
        self.questions: list[stagedoor.PermissionRequest] = []
        self.events: list[stagedoor.Event] = []
        for place in (self.workspace, self.outside, self.home):
            place.mkdir()
        (self.workspace / SEEN).touch()
        if model is None:
            kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
            self.env = kept | {"HOME": str(self.home), "STAGEDOOR_UNDERSTUDY_HOME": str(self.home / "understudy")}
            script = folder / "script.yaml"
            script.write_text(
                yaml.safe_dump([_as_yaml(call) for call in calls(folder, elsewhere)] + [{"say": "Done."}])
            )
            self.more: dict[str, Any] = {"extra_args": ("--script", str(script))}
        else:
            self.env = model.environment(rig.agent, home=self.home, cwd=self.workspace).env
            self.more = {}

    async def run(self, cell: Cell) -> list[str]:
        more = {**self.more, **cell.options}
        if self.rig.capabilities.permissions != "none":
            more["can_use_tool"] = self._allow
        options = {"cwd": str(self.workspace), "driver": self.rig.driver, "executable": self.rig.executable}
        async with (
            asyncio.timeout(BOUND),
            stagedoor.open(self.rig.agent, **options, env=self.env, inherit_env=False, **more) as session,
        ):
            first = 0
            while first < len(ACTIONS):  # an agent may end its turn when something is refused
                async with contextlib.aclosing(session.send(f"{FROM} {first}")) as turn:
                    self.events += [event async for event in turn]
                tried = self._tried(first)
                assert tried > first, self.describe()
                first = tried
        return [self._outcome(action) for action in ACTIONS]

    async def _allow(self, request: stagedoor.PermissionRequest) -> stagedoor.Allow:
        self.questions.append(request)
        return stagedoor.Allow()

    def _tried(self, first: int) -> int:
        if self.model is None:
            return len(ACTIONS)
        route = f"{FROM} {first}"
        return first + max(
            (request.step + 1 for request in self.model.requests if request.route == route and request.calls), default=0
        )

    def _outcome(self, action: Action) -> str:
        was_asked = any(_action_of(request) == action for request in self.questions)
        if action == "harmless":
            results = [event for event in self.events if isinstance(event, stagedoor.ToolResult)]
            done = any(SEEN in result.output and result.name == "shell" for result in results)
        else:
            place = {"outside": self.outside, "danger": self.home}.get(action, self.workspace)
            done = (place / MARKS[action]).exists()
        if done:
            return "asked" if was_asked else "runs"
        return "asked, but refused" if was_asked else "refused"

    @property
    def unchanged(self) -> bool:
        return [path.name for path in self.workspace.rglob("*")] == [SEEN] and not any(self.outside.iterdir())

    def describe(self) -> str:
        header = {"agent", "sessionId", "seq", "timestamp", "turn"}
        shown = [{k: v for k, v in msgspec.to_builtins(event).items() if k not in header} for event in self.events]
        return "\n".join(["events:", *(str(event)[:400] for event in shown)])


def calls(folder: Path, elsewhere: Path) -> list[ScriptedCall]:
    return [
        write_file(str(folder / "workspace" / MARKS["edit"]), "written\n"),
        shell("ls"),
        shell(f"touch {MARKS['command']}"),
        shell(f"touch {elsewhere / 'outside' / MARKS['outside']}"),
        shell(f"touch ~/{MARKS['danger']}"),
    ]


def _as_yaml(call: ScriptedCall) -> dict[str, Any]:
    return {"call": {"tool": call.tool, "input": dict(call.input)}}


def _action_of(request: stagedoor.PermissionRequest) -> Action:
    words = f"{request.target} {request.input}"
    for action, mark in MARKS.items():
        if mark in words:
            return action
    assert request.tool_name == "shell", request
    return "harmless"


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder that no sandbox takes for part of the workspace, or for a temporary one."""
    with tempfile.TemporaryDirectory(prefix="stagedoor-tiers-", dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


@pytest.fixture
def trial(rig: Any, tmp_path: Path, elsewhere: Path) -> Iterator[Trial]:
    if rig.is_embedded:
        yield Trial(rig, tmp_path, elsewhere, None)
        return
    tries = calls(tmp_path, elsewhere)
    routes = {f"{FROM} {first}": [*tries[first:], say("Done.")] for first in range(len(tries))}
    with ScriptedModel(routes=routes) as model:
        yield Trial(rig, tmp_path, elsewhere, model)


def stand_in(rig: Any, cell: Cell) -> Cell | None:
    """For drivers that start slowly, and for no sandbox: the cell, tried for itself, in which the CLI gets the same."""
    if f"{rig.agent} {rig.driver}" not in SLOW and cell.sandbox != "fullAccess":
        return None
    asks = rig.capabilities.permissions != "none"
    settings = native_settings(rig.agent, rig.driver, cell)
    for other in CELLS[: CELLS.index(cell)]:
        differs = asks and other.approval != cell.approval == "askDangerous"  # there our own rules answer the questions
        if native_settings(rig.agent, rig.driver, other) == settings and not differs:
            return other
    return None


def behind_walls(happened: str, expectation: str) -> str:
    """What the agent's own sandbox makes of something that was allowed is a race inside the CLI: either will do."""
    either = {"asked~": ("asked", "asked, but refused"), "runs~": ("runs", "refused")}
    return expectation if happened in either.get(expectation, ()) else happened


@pytest.mark.live
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name.replace(" ", "-"))
def test_cell(rig: Any, cell: Cell, trial: Trial) -> None:
    if cell.sandbox is not None and cell.sandbox not in rig.capabilities.sandbox:
        with pytest.raises(stagedoor.NotSupported, match="sandbox"):
            stagedoor.open(rig.agent, driver=rig.driver, **cell.options)
        return
    row = expected(rig.agent, rig.driver, cell)
    if (other := stand_in(rig, cell)) is not None:
        assert row == expected(rig.agent, rig.driver, other)
        return
    happened = asyncio.run(trial.run(cell))
    if cell.tier == "dry-run" or cell.sandbox == "readOnly":
        assert trial.unchanged, trial.describe()
    assert tuple(map(behind_walls, happened, row)) == row, trial.describe()


# ------------------------------------------------------------------------------------------- the tables and the page


def offered(agent: str, driver: str) -> list[Cell]:
    sandboxes = catalog.agent(agent).drivers[driver].capabilities.sandbox
    return [cell for cell in CELLS if cell.sandbox is None or cell.sandbox in sandboxes]


def drivers() -> list[tuple[str, str]]:
    return [(name, driver) for name in catalog.names() for driver in catalog.agent(name).drivers]


def test_the_tables_are_complete() -> None:
    complete = {f"{agent} {driver}": [cell.name for cell in offered(agent, driver)] for agent, driver in drivers()}
    assert {name: list(rows) for name, rows in tables().items()} == complete


@pytest.mark.parametrize(("agent", "driver"), drivers(), ids=lambda name: name)
def test_the_tables_keep_what_the_modes_promise(agent: str, driver: str) -> None:
    capabilities = catalog.agent(agent).drivers[driver].capabilities
    rows = [(cell, expected(agent, driver, cell)) for cell in offered(agent, driver)]
    assert [line for cell, row in rows for line in broken(cell, row, capabilities)] == []


def table(agent: str, driver: str) -> Iterator[str]:
    yield f"### {catalog.agent(agent).title}: `{driver}`\n"
    yield f"| you ask for | what the CLI gets | {' | '.join(ACTIONS)} |"
    yield f"|---|---|{'---|' * len(ACTIONS)}"
    for cell in offered(agent, driver):
        kind, _, name = cell.name.partition(" ")
        row = " | ".join(expected(agent, driver, cell))
        yield f"| {kind} `{name}` | {native_settings(agent, driver, cell)} | {row} |"
    missing = [f"`{cell.sandbox}`" for cell in CELLS if cell not in offered(agent, driver)]
    if missing:
        yield f"\nSandbox {', '.join(missing)}: `NotSupported`."
    yield ""


def test_the_page_shows_the_tables() -> None:
    shown = "\n".join(line for agent, driver in drivers() for line in table(agent, driver))
    head, mark, _ = PAGE.read_text().partition(MARK)
    if os.environ.get("STAGEDOOR_BLESS") == "1":
        PAGE.write_text(f"{head}{MARK}\n\n{shown}")
    assert mark, f"{PAGE.name} has lost its line {MARK!r}"
    assert PAGE.read_text() == f"{head}{MARK}\n\n{shown}"
