"""The recipes of docs/tour.md run as they stand, and its pictures are those of today."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stagedoor.testing.clis import find_cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"^## (\d+)\. ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
# What each program must print, so that a recipe cannot quietly do nothing.
PRINTS: dict[str, list[str]] = {
    "1": [r"→ write_file \S*notes\.txt \(risk ", r"\+hello", "success: 2 tools"],
    "2": [
        r"\? rm -rf / \(risk high\)",
        "deny by callback. Not on this machine",
        "shell: denied",
        "write_file: success",
    ],
    "3": ["success: Hello.", "interrupted:", "success: Where were we?"],
    "4": ["one: success", "two: success", "three failed: authentication_failed", "three: error"],
    "5": ["understudy .* does not support output_schema"],
    "6": [
        "allow by policy",
        "deny by policy A person pushes",
        "the log of 2 decisions is complete",
        "nothing is pushed",
    ],
    "7": ['board .*"type":"action"', 'chat  .*"type":"ToolEnd"'],
    "8": ["both tests pass"],
    "9": ["Hello.", "→ execute: ", "stopped: end_turn"],
    "10": ["understudy: .*signed in: True", "us-[0-9a-f]+ "],
}
NEEDS_A_CLI = ("5", "8")


def run(code: str, folder: Path, clis: str) -> str:
    """The program's output. Its home is a folder of its own, and no CLI of this machine is found but in ``clis``."""
    (folder / "work").mkdir()
    (folder / "home").mkdir()
    env = {
        "PATH": os.environ["PATH"] if clis else f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "STAGEDOOR_UNDERSTUDY_HOME": str(folder / "understudy"),
        "STAGEDOOR_STATE_HOME": str(folder / "state"),
        "LANG": "C.UTF-8",
        **({"STAGEDOOR_CLIS": clis} if clis else {}),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder / "work",
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def program(number: str) -> str:
    (body,) = [body for found, _, body in RECIPES if found == number]
    (code,) = re.findall(r"```python\n(.*?)```", body, re.DOTALL)
    return code


def test_there_are_ten_and_each_is_known() -> None:
    assert [number for number, _, _ in RECIPES] == list(PRINTS)


@pytest.mark.parametrize("number", [number for number in PRINTS if number not in NEEDS_A_CLI])
def test_recipe(number: str, tmp_path: Path) -> None:
    output = run(program(number), tmp_path, "")
    assert [line for line in PRINTS[number] if not re.search(line, output)] == [], output


@pytest.mark.live
@pytest.mark.parametrize("number", NEEDS_A_CLI)
def test_recipe_with_a_real_cli(number: str, tmp_path: Path) -> None:
    found = find_cli("claude")
    if found is None:
        pytest.skip("claude is not installed: run `make clis`")
    output = run(program(number), tmp_path, str(found.parent))
    expected = [*PRINTS[number], *(["success {'bugs': 3}"] if number == "5" else [])]
    assert [line for line in expected if not re.search(line, output)] == [], output


def test_the_links_of_the_pages_lead_somewhere() -> None:
    pages = [*(ROOT / "docs").glob("*.md")]
    lost = [
        f"{page.name}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not link.startswith("http") and not (page.parent / link).exists()
    ]
    assert lost == []


def test_the_contents_of_the_tour_lead_to_its_recipes() -> None:
    anchors = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^## (.+)$", PAGE, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors
