"""The page's modules without a browser: their unit tests in Node, and what the type checker reads."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from stagedoor.server.page import files
from tools.event_types import FILE, event_types
from tools.page import ROOT, find_node, run_unit_tests

WIDTH = 120
ENDINGS = (".js", ".ts", ".css", ".html", ".json", ".jsonc", ".svg", ".webmanifest")
WRITTEN = [
    path
    for folder in ("src/stagedoor/web", "tests/web/unit", "tools/web")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in ENDINGS and "node_modules" not in path.parts
]


def test_the_unit_tests_in_node() -> None:
    node = find_node()
    if node is None and os.environ.get("CI") != "true":
        pytest.skip("Node.js not found: run `make clis`")
    assert node is not None, "Node.js not found, and under CI=true the unit tests of the page must run"
    done = run_unit_tests(node)
    print(done.stdout, done.stderr)
    counts = {name: int(count) for name, count in re.findall(r"^ℹ (\w+) (\d+)$", done.stdout, re.MULTILINE)}
    assert done.returncode == 0
    assert counts["pass"] == counts["tests"] > 400


def test_the_types_of_events_are_those_of_the_vocabulary() -> None:
    if "STAGEDOOR_BLESS" in os.environ:
        FILE.write_text(event_types())
    assert FILE.read_text() == event_types(), "run `make bless`"


def test_what_only_the_type_checker_reads_is_not_served() -> None:
    assert {path.rpartition(".")[2] for path in files()} <= {"/", "js", "css", "svg", "png", "webmanifest"}


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_lines_can_be_read(path: Path) -> None:
    assert [line for line in path.read_text().splitlines() if len(line) > WIDTH] == []
