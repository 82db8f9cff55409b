"""docs/coverage.md is whole and true: it is what the clients of the seeds reached, and every test exists.

``seeds.tsv`` holds the headings and table rows of the five seeds, in their order: seed, section, row.
"""

from __future__ import annotations

import ast
import functools
import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tools import coverage_page

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
STATES = ("done", "differs", "open", "–")


class Row(NamedTuple):
    seed: str
    section: str
    requirement: str
    state: str
    reached_by: str
    why: str


def _rows() -> list[Row]:
    found: list[Row] = []
    for seed, body in re.findall(r"^## Seed (\d+)[^\n]*\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL):
        section = ""
        for line in [line for line in body.splitlines() if line.startswith("|")][2:]:
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            section = cells[0] or section
            found.append(Row(seed, section, *cells[1:]))
    return found


ROWS = _rows()
PROOFS = sorted(set(re.findall(r"`(tests/[^`]+::[^`]+)`", PAGE)))


def test_every_section_and_row_of_the_seeds_is_listed_in_order() -> None:
    lines = (Path(__file__).with_name("seeds.tsv")).read_text(encoding="utf-8").splitlines()
    expected = [tuple((line + "\t").split("\t")[:3]) for line in lines]
    assert [(row.seed, row.section, row.requirement) for row in ROWS] == expected


def test_the_page_is_what_the_clients_reached() -> None:
    if os.environ.get("STAGEDOOR_BLESS"):
        coverage_page.PAGE.write_text(coverage_page.page(), encoding="utf-8")
    assert coverage_page.PAGE.read_text(encoding="utf-8") == coverage_page.page(), "run python -m tools.coverage_page"


@pytest.mark.parametrize("seed", sorted({row.seed for row in ROWS}))
def test_the_tables_of_a_client_name_sections_of_its_document(seed: str) -> None:
    """A section that is spelt otherwise would be left open without a word."""
    tables = coverage_page.tables_of(seed)
    assert tables.covers
    keys = {coverage_page.key_of(*place) for place in coverage_page.sections(seed)}
    assert (set(tables.covers) | set(tables.differs) | set(tables.headings)) - keys == set()
    assert set(tables.headings) & (set(tables.covers) | set(tables.differs)) == set()


def test_every_row_has_a_state_and_a_reason_where_it_is_not_simply_done() -> None:
    assert [row for row in ROWS if row.state not in STATES] == []
    assert [row for row in ROWS if row.state == "done" and "`tests/" not in row.reached_by] == []
    reason = [row for row in ROWS if row.state in ("differs", "open")]
    assert [row for row in reason if not re.sub(r"`tests/[^`]+`|·", "", row.why).strip()] == []


def test_the_counts_are_those_of_the_tables() -> None:
    states = [row.state for row in ROWS]
    summary = f"{states.count('done')} done, {states.count('differs')} done differently, {states.count('open')} open"
    assert summary in PAGE


@functools.cache
def _tests_in(path: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return frozenset(found)


@pytest.mark.parametrize("proof", PROOFS)
def test_a_named_test_exists(proof: str) -> None:
    path, _, name = proof.partition("::")
    assert (ROOT / path).is_file()
    assert name in _tests_in(path)
