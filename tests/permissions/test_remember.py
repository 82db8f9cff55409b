"""A remembered answer covers what the person saw: pairs of what was allowed and what came later, and the same as a
property of any two commands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stagedoor.permissions.paths import Ground
from stagedoor.permissions.policy import Policy
from stagedoor.permissions.policy_file import format_policy, parse_policy
from stagedoor.permissions.remember import rules_for
from stagedoor.permissions.risk.judge import judge_command
from stagedoor.unified.events import Operation, PermissionRequest, ToolName

WORKSPACE = "/home/me/work"
TABLE = cast("dict[str, list[list[Any]]]", yaml.safe_load((Path(__file__).parent / "remembered.yaml").read_text()))
ROWS = [
    (kind, expected, row[0], row[1]) for key, rows in TABLE.items() for kind, expected in [key.split()] for row in rows
]
OPERATIONS: dict[str, Operation] = {"write_file": "write", "read_file": "read", "web_fetch": "network", "mcp": "other"}


def call(kind: str, given_input: Any) -> PermissionRequest:
    if kind == "shell":
        given = {"command": given_input} if isinstance(given_input, str) else given_input
        return PermissionRequest(request_id="q", tool_name="shell", operation="execute", input=given)
    native, arguments = given_input
    return PermissionRequest(
        request_id="q",
        tool_name=cast("ToolName", kind),
        operation=OPERATIONS[kind],
        native_name=native,
        input=arguments,
    )


def allows(first: PermissionRequest, later: PermissionRequest) -> bool:
    rules = rules_for(first, Ground(WORKSPACE))
    written = parse_policy(format_policy(Policy(rules=rules))).rules if rules else ()
    assert written == rules, "what is saved says the same"
    return bool(rules) and Policy(rules=rules).decide(later, Ground(WORKSPACE)).action == "allow"


@pytest.mark.parametrize(("kind", "expected", "first", "later"), ROWS)
def test_a_pair(kind: str, expected: str, first: Any, later: Any) -> None:
    assert allows(call(kind, first), call(kind, later)) == (expected == "allow")


def test_the_table_is_large() -> None:
    assert len(ROWS) >= 60


WORDS = st.sampled_from(
    [
        "git",
        "fetch",
        "origin",
        "--upload-pack=x",
        "-f",
        "npm",
        "install",
        "a",
        "b",
        "rm",
        "-rf",
        "src",
        "docs",
        "--",
        "-v",
    ]
)
LINES = st.lists(st.lists(WORDS, min_size=1, max_size=4).map(shlex.join), min_size=1, max_size=2).map(" && ".join)


@settings(max_examples=300, deadline=None)
@given(LINES, LINES, st.sampled_from(["", "cd src && ", "echo x | ", "timeout 5 "]))
def test_what_is_allowed_later_runs_the_same_programs_with_the_same_words(first: str, later: str, before: str) -> None:
    later = before + later
    if allows(call("shell", first), call("shell", later)):
        saw = {(command.text, command.cwds) for command in judge_command(first, cwd=WORKSPACE).commands}
        runs = judge_command(later, cwd=WORKSPACE).commands
        assert {(c.text, c.cwds) for c in runs if c.program not in ("cd", "timeout", "echo")} <= saw
