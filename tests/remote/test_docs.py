"""The page about the client: its examples run, its table is the code's. ``STAGEDOOR_BLESS=1`` writes the table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stagedoor.remote.client import ACCEPTED
from stagedoor.remote.problems import FAULTS, TEMPORARY
from stagedoor.server.problems import KINDS, REFUSALS, UNEXPECTED
from stagedoor.understudy.demo import DEMO_FILES

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def faults() -> str:
    rows = [f"| `{slug}` | `{fault.__name__}` |" for slug, fault in sorted(FAULTS.items())]
    return "\n".join(["| problem | raised |", "|---|---|", *rows])


def test_the_table_is_the_codes() -> None:
    text = PAGE.read_text()
    page = re.sub(
        r"<!-- faults -->\n.*?<!-- /faults -->", f"<!-- faults -->\n{faults()}\n<!-- /faults -->", text, flags=re.DOTALL
    )
    if os.environ.get("STAGEDOOR_BLESS"):
        PAGE.write_text(page)
    assert page == text or os.environ.get("STAGEDOOR_BLESS")


def test_every_problem_of_the_server_is_the_exception_it_was_made_of() -> None:
    made_of: dict[str, set[type[Exception]]] = {slug: set() for slug in REFUSALS} | {UNEXPECTED.slug: set()}
    for fault, kind in KINDS.items():
        made_of.setdefault(kind.slug, set()).add(fault)
    assert set(FAULTS) == set(made_of)
    assert {slug: FAULTS[slug] for slug, classes in made_of.items() if classes and FAULTS[slug] not in classes} == {}
    assert set(FAULTS) >= TEMPORARY


def test_every_option_is_named() -> None:
    text = PAGE.read_text()
    assert [name for name in sorted(ACCEPTED) if f"`{name}" not in text] == []


@pytest.mark.parametrize("code", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(code: str, server: Any, tmp_path: Path) -> None:
    for name, content in DEMO_FILES.items():
        (server.workspace / name).write_text(content)
    env = os.environ | {"STAGEDOOR_URL": server.url, "STAGEDOOR_TOKEN": server.token}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
