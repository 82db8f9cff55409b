"""Tools that an agent never asks about, in a session as it is opened: the caller's policy stands on the tier's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.drivers.codex.withholding import OWN_TOOLS as CODEX
from stagedoor.drivers.gemini.tools import OWN_TOOLS as GEMINI
from stagedoor.drivers.policing import without_denied_tools
from stagedoor.drivers.qwen.tools import OWN_TOOLS as QWEN
from stagedoor.permissions.policy import Policy
from stagedoor.permissions.rules import Rule

TABLES = {"codex": CODEX, "gemini": GEMINI, "qwen": QWEN}
READING = {
    "codex": {"view_image"},
    "gemini": {"read_file", "read_many_files", "grep_search", "search_file_content", "glob", "list_directory"},
    "qwen": {"read_file", "grep_search", "glob", "list_directory"},
}
COMMANDS = Rule(action="allow", command=("ls *",))
DOCUMENTS = Rule(action="allow", path=("docs/**",))


@pytest.mark.parametrize("agent", TABLES)
@pytest.mark.parametrize(
    ("options", "withheld"),
    [
        ({"policy": Policy(default="deny")}, True),
        ({"policy": Policy(default="deny"), "tier": "dry-run"}, True),
        ({"policy": Policy(default="deny"), "approval": "autoEdit"}, True),
        ({"policy": Policy(default="deny", rules=(COMMANDS,))}, True),
        ({"policy": Policy(rules=(Rule(action="deny", operation=("read",)),))}, True),
        ({"policy": Policy(default="deny", rules=(DOCUMENTS,))}, False),
        ({"policy": Policy(default="deny", auto_approve=("read_file", "search_content", "find_files"))}, False),
        ({"policy": Policy(default="ask")}, False),
        ({"policy": Policy()}, False),
        ({}, False),
    ],
)
def test_reading_that_a_policy_denies_is_not_there(
    agent: str, options: dict[str, Any], withheld: bool, tmp_path: Path
) -> None:
    session = stagedoor.open(agent, cwd=tmp_path, **options)
    effective = session._engine._options
    denied = set(without_denied_tools(effective, TABLES[agent], agent).disallowed_tools)
    assert denied & READING[agent] == (READING[agent] if withheld else set())
