"""Tiers, approval modes and sandbox modes: what becomes of five actions in each, and what each CLI gets for it.

The embedded agent is tried here, and ``tiers.yaml`` says what is expected; the real CLIs are tried by the permission
contract (``docs/contract.json``). ``docs/tiers.md`` shows both and is renewed with ``STAGEDOOR_BLESS=1``.
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
from stagedoor.testing import shell, write_file
from stagedoor.testing.contract.deeds import Deed
from stagedoor.testing.script import ScriptedCall
from tools.contract import RESULTS, load
from tools.tiers import ACTIONS, CELLS, Action, Cell, Row, broken, native_settings

BOUND = 300.0
TABLES = Path(__file__).with_name("tiers.yaml")
CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "docs" / "tiers.md"
EMBEDDED = "understudy"
SEEN = "seen-by-ls.txt"
MARKS: dict[Action, str] = {
    "edit": "written-by-tool.txt",
    "command": "made-by-shell",
    "outside": "made-beyond",
    "danger": ".bashrc",
}
MARK = "## The tables"
Tables = dict[str, dict[str, str]]


SAME: dict[Action, Deed] = {
    "edit": "write",
    "harmless": "harmless",
    "command": "command",
    "outside": "outside",
    "danger": "danger",
}
"""The action → what the contract calls it."""


def tables() -> Tables:
    """What was seen, of the newest version of each CLI and of the embedded agent."""
    seen: Tables = {}
    for result in load(CHECKOUT / RESULTS):  # the newest version comes last
        rows = {row.stance: row.outcomes for row in result.rows if row.outcomes}
        names = [cell.name for cell in CELLS if cell.name in rows]
        seen[f"{result.agent} {result.driver}"] = {
            name: " ".join(WORDS.get(rows[name][SAME[action]], rows[name][SAME[action]]) for action in ACTIONS)
            for name in names
        }
    embedded: Tables = yaml.safe_load(TABLES.read_text())
    return {**seen, **embedded}


WORDS = {"withheld": "refused", "stopped": "asked~"}


def expected(agent: str, driver: str, cell: Cell) -> Row:
    row = tables()[f"{agent} {driver}"][cell.name].split()
    return msgspec.convert(row, Row)


class Trial:
    """One agent in a workspace of its own, whose model tries the four actions one after the other."""

    def __init__(self, folder: Path, elsewhere: Path) -> None:
        self.workspace, self.outside, self.home = folder / "workspace", elsewhere / "outside", elsewhere / "home"
        self.questions: list[stagedoor.PermissionRequest] = []
        self.events: list[stagedoor.Event] = []
        for place in (self.workspace, self.outside, self.home):
            place.mkdir()
        (self.workspace / SEEN).touch()
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.env = kept | {"HOME": str(self.home), "STAGEDOOR_UNDERSTUDY_HOME": str(self.home / "understudy")}
        script = folder / "script.yaml"
        script.write_text(yaml.safe_dump([_as_yaml(call) for call in calls(folder, elsewhere)] + [{"say": "Done."}]))
        self.more: dict[str, Any] = {"extra_args": ("--script", str(script))}

    async def run(self, cell: Cell) -> list[str]:
        more = {**self.more, **cell.options, "can_use_tool": self._allow}
        options = {"cwd": str(self.workspace), "env": self.env, "inherit_env": False}
        async with (
            asyncio.timeout(BOUND),
            stagedoor.open(EMBEDDED, **options, **more) as session,
            contextlib.aclosing(session.send("Try them")) as turn,
        ):
            self.events += [event async for event in turn]
        return [self._outcome(action) for action in ACTIONS]

    async def _allow(self, request: stagedoor.PermissionRequest) -> stagedoor.Allow:
        self.questions.append(request)
        return stagedoor.Allow()

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


@pytest.mark.live
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name.replace(" ", "-"))
def test_cell_of_the_embedded_agent(cell: Cell, tmp_path: Path, elsewhere: Path) -> None:
    if cell not in offered(EMBEDDED, "acp"):
        with pytest.raises(stagedoor.NotSupported, match="sandbox"):
            stagedoor.open(EMBEDDED, **cell.options)
        return
    trial = Trial(tmp_path, elsewhere)
    happened = asyncio.run(trial.run(cell))
    if cell.tier == "dry-run" or cell.sandbox == "readOnly":
        assert trial.unchanged, trial.describe()
    assert tuple(happened) == expected(EMBEDDED, "acp", cell), trial.describe()


# ------------------------------------------------------------------------------------------- the tables and the page


def offered(agent: str, driver: str) -> list[Cell]:
    sandboxes = catalog.agent(agent).drivers[driver].capabilities.sandbox
    return [cell for cell in CELLS if cell.sandbox is None or cell.sandbox in sandboxes]


def drivers() -> list[tuple[str, str]]:
    return [(name, driver) for name in catalog.names() for driver in catalog.agent(name).drivers]


def test_the_tables_are_complete() -> None:
    complete = {f"{agent} {driver}": [cell.name for cell in offered(agent, driver)] for agent, driver in drivers()}
    assert {name: list(rows) for name, rows in tables().items()} == complete


def test_the_table_of_the_embedded_agent_keeps_what_the_modes_promise() -> None:
    capabilities = catalog.agent(EMBEDDED).drivers["acp"].capabilities
    rows = [(cell, expected(EMBEDDED, "acp", cell)) for cell in offered(EMBEDDED, "acp")]
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
