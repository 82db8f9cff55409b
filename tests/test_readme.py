"""The README tells the truth: its examples run, its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stagedoor import catalog
from stagedoor.testing import find_cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
EXAMPLES = [code for code in PYTHON if "def test_" not in code]


@pytest.mark.parametrize("code", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(code: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("something to look at\n")
    env = os.environ | {"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    if "can_use_tool" in code:
        assert "(risk " in done.stdout, "the example about questions asks nothing"


@pytest.mark.live
def test_the_example_of_a_test_passes(tmp_path: Path) -> None:
    (code,) = [code for code in PYTHON if "def test_" in code]
    (tmp_path / "test_example.py").write_text(code)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path / 'own'}",
        str(tmp_path),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if find_cli("claude"):
        assert "1 passed" in done.stdout


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []


def test_the_index_lists_every_page_of_the_docs_and_the_readme_leads_a_newcomer() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert linked == {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    headings = re.findall(r"^## (.+)$", README, re.MULTILINE)
    assert headings[:4] == ["See it", "Use it", "Build on it", "Test it"]
    assert "demo --real" in "\n".join(README.splitlines()[:25])  # what somebody sees without scrolling


def test_every_target_the_readme_names_is_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    text = README + (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"(?:`|^    )make ([a-z]+)", text, re.MULTILINE))
    assert {target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)} == set()


def test_the_table_of_agents_is_that_of_the_catalog() -> None:
    rows = [line.replace("`", "").split("|") for line in README.splitlines() if line.startswith("| `")]
    table = {row[1].strip(): (row[3].strip(), row[4].strip().split(", ")) for row in rows}
    expected = {}
    for name in catalog.BUILT_IN:
        agent = catalog.agent(name)
        proven = agent.versions
        span = "" if proven is None else " – ".join(dict.fromkeys((proven.oldest, proven.newest)))
        expected[name] = (span, list(agent.drivers))
    assert table == expected
