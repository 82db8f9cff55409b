"""docs/coverage.md: what the clients of the seeds reached, read from their tests.

python -m tools.coverage_page     # writes the page

Each document has a client program, ``tests/seeds/client_00N.py``, and a module ``tests/seeds/test_00N.py`` that runs it
and says what it reached, in three tables of plain text:

``COVERS``
    section → the tests of the module that reached it, by name.
``DIFFERS``
    section → why it is done in another way; the test that shows it stands in ``COVERS`` too, where there is one.
``HEADINGS``
    section → why there is nothing to build.

A row of a table in the document is ``"section | row"``. What stands in none of them is open.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "coverage.md"
SEEDS = ROOT / "tests" / "seeds"
DOCUMENT = re.compile(r"^(## Seed (\d+)[^\n]*\n)(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
INTRODUCTION = """\
# Coverage

Stagedoor was asked for by five documents (“seeds”): 000, 001 and 002 describe programs for Dart and Go, 003 a
TypeScript library, 004 two protocols as they were in February 2026. Here every section and every row of every table of
theirs is listed in their order, with the test that reached it. What the real CLIs do today was measured; where a seed
and a CLI disagree, both are understood on the way in, and only what the CLI takes is sent.

- **done**: as asked. **differs**: done in another way, and why. **open**: not built yet. **–**: nothing to build (a
  heading, a title, links).
- {summary}.
- `tests/seeds` has one client program per document, written from that document alone; its tests run it against the
  library and the server, with the embedded agent and with the real CLIs. A row is done only because that client reached
  it.
- This page is generated from those tests: `python -m tools.coverage_page`; `tests/seeds/test_coverage.py` holds it.

"""
HEADER = "\n| section | asked | state | reached by | why it differs |\n|---|---|---|---|---|\n"


class Tables(NamedTuple):
    """What a test module says of its document."""

    covers: dict[str, str]
    differs: dict[str, str]
    headings: dict[str, str]


def page() -> str:
    bodies = [title + _table(seed) for title, seed, _ in DOCUMENT.findall(PAGE.read_text(encoding="utf-8"))]
    tables = "".join(body.rstrip("\n") + "\n\n" for body in bodies).rstrip("\n") + "\n"
    return INTRODUCTION.format(summary=_summary(tables)) + tables


def sections(seed: str) -> list[tuple[str, str]]:
    """The headings and rows of tables of a document, in its order."""
    lines = (SEEDS / "seeds.tsv").read_text(encoding="utf-8").splitlines()
    cells = [(line + "\t").split("\t") for line in lines]
    return [(section, row) for document, section, row, *_ in cells if document == seed]


def key_of(section: str, row: str) -> str:
    return f"{section} | {row}" if row else section


def tables_of(seed: str) -> Tables:
    """The three tables of a module, read without running it."""
    tree = ast.parse((SEEDS / f"test_{seed}.py").read_text(encoding="utf-8"))
    values: dict[str, dict[str, str]] = {}
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict() as value) if name.isupper():
                values[name] = ast.literal_eval(value)
            case _:
                continue
    return Tables(*(values.get(name, {}) for name in ("COVERS", "DIFFERS", "HEADINGS")))


def _table(seed: str) -> str:
    tables = tables_of(seed)
    rows: list[str] = []
    before = ""
    for section, row in sections(seed):
        key = key_of(section, row)
        tests = " ".join(f"`{_place(seed, name)}`" for name in tables.covers.get(key, "").split())
        if key in tables.headings:
            state, why = "–", tables.headings[key]
        elif key in tables.differs:
            state, why = "differs", tables.differs[key]
        else:
            state, why = ("done", "") if tests else ("open", "no client reached it")
        shown = "" if row and section == before else section
        rows.append(f"| {shown} | {row} | {state} | {tests} | {why} |".replace("|  |", "| |"))
        before = section
    return HEADER + "\n".join(rows) + "\n"


def _place(seed: str, name: str) -> str:
    """A test of this client, or of another one's: ``001::test_…``."""
    client, _, test = name.rpartition("::")
    return f"tests/seeds/test_{client or seed}.py::{test}"


def _summary(tables: str) -> str:
    states = [_state(line) for line in tables.splitlines()]
    return f"{states.count('done')} done, {states.count('differs')} done differently, {states.count('open')} open"


def _state(line: str) -> str:
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
    return cells[3] if len(cells) == 7 else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
