"""docs/cli.md names every command and flag there is, and none there is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stagedoor.cli import COMMANDS
from stagedoor.cli.completion import VERBS, flags_of

DOCS = (Path(__file__).parent.parent.parent / "docs" / "cli.md").read_text()


def examples() -> list[list[str]]:
    blocks = re.findall(r"^```\n(.*?)^```", DOCS, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [
        re.split(r"\s#|[<>|]| -- ", line)[0].split()
        for line in lines
        if line.startswith(("stagedoor ", "$ stagedoor "))
    ]


@pytest.mark.parametrize("words", examples(), ids=" ".join)
def test_every_example_can_be_typed(words: list[str]) -> None:
    command = words[1]
    if command == "COMMAND":
        return
    assert command in COMMANDS
    if command in VERBS and len(words) > 2 and not words[2].startswith("-"):
        assert words[2] in VERBS[command]
    assert {word for word in words if word.startswith("--")} <= set(flags_of(command)), words


def test_every_command_has_its_row() -> None:
    assert all(re.search(rf"^\| \[?`{command}`", DOCS, re.MULTILINE) for command in COMMANDS)


def test_every_flag_of_run_is_documented() -> None:
    documented = set(re.findall(r"--[a-z][a-z-]+", DOCS))
    assert set(flags_of("run")) - {"--help"} <= documented
    flags = {flag for command in COMMANDS for flag in flags_of(command)}
    assert documented - flags - {"--force"} == set()
