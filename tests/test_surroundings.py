"""The suite notices what a test leaves outside its temporary folder, or running, and blames nobody else for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.dealing import deal

LEAKS = """
import tempfile
from pathlib import Path

def test_tidy(tmp_path):
    (tmp_path / "file").touch()
    with tempfile.TemporaryDirectory(): pass

def test_leaks():
    Path("relative").touch()
    Path("~/.leak").expanduser().touch()
    Path(tempfile.mkdtemp(prefix="leak-"))

def test_tidies_up():
    Path("relative").unlink()

def test_is_cut_off():
    tempfile.mkdtemp(prefix="excused-")
    assert not "cut off"
"""


LEAVES = """
import gc, subprocess, sys

def start():
    child = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"],
                             stdout=subprocess.PIPE)
    assert child.stdout.readline()
    return child

def alone():
    gc.collect()  # what others hold and have forgotten comes to light now
    from tests.processes import own_children
    return own_children() == {}

kept = []

def test_leaves():
    kept.append(start())

def test_after_one_that_leaves():
    assert alone()

def test_fails():
    child = start()
    circle = [child]
    circle.append(circle)
    assert child.poll() == 0

def test_after_one_that_fails():
    assert alone()

def test_tidy():
    with start() as child:
        child.kill()
"""


def test_what_a_test_leaves_behind_fails_the_run(tmp_path: Path) -> None:
    ran = run_inner(tmp_path, "test_leaks.py", LEAKS)
    found = re.findall(r"^E +.*/(home|tmp|cwd)/(\S+?), first seen after ([\w.:]+)$", ran.stdout, re.MULTILINE)
    assert [(place, name.split("-")[0], test) for place, name, test in found] == [
        ("home", ".leak", "test_leaks.py::test_leaks"),
        ("tmp", "leak", "test_leaks.py::test_leaks"),
    ], ran.stdout
    assert ran.returncode == 1


def test_what_a_test_leaves_running_fails_no_other(tmp_path: Path) -> None:
    ran = run_inner(tmp_path, "test_leaves.py", LEAVES)
    assert re.findall(r"^(FAILED|ERROR) test_leaves.py::(\w+)", ran.stdout, re.MULTILINE) == [
        ("FAILED", "test_fails"),
        ("ERROR", "test_leaves"),
    ], ran.stdout
    assert "processes were left running, and have been ended" in ran.stdout


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_the_tests_are_dealt_out_fairly(workers: int) -> None:
    costs = {**{f"slow{n}": 8.0 for n in range(9)}, **{f"page{n}": 3.0 for n in range(7)}}
    items = [*(f"quick{n}" for n in range(101)), *costs]
    dealt = deal(
        items, workers,
        group=lambda item: "page" if item.startswith("page") else item, seconds=lambda item: costs.get(item, 0),
    )  # fmt: skip
    assert sorted(dealt) == sorted(items)
    where = [dealt.index(f"page{n}") for n in range(7)]
    assert where == list(range(where[0], where[0] + 7))
    ends = [sum((len(items) + before) // workers for before in range(part)) for part in range(workers + 1)]
    parts = [dealt[start:end] for start, end in pairwise(ends)]
    loads = [sum(costs.get(item, 0) for item in part) for part in parts]
    assert max(loads) - min(loads) <= 21
    for part in parts:
        assert [item for item in part if item in costs] == part[: sum(item in costs for item in part)]


def run_inner(folder: Path, name: str, code: str) -> subprocess.CompletedProcess[str]:
    """These tests, with this suite's conftest.py, which waits for nothing."""
    own = Path(__file__).with_name("conftest.py").read_text()
    (folder / "conftest.py").write_text(f"{own}\nimport tests.leftovers\nPATIENCE = tests.leftovers.PATIENCE = 0.0\n")
    (folder / name).write_text(code)
    folders = (f"--rootdir={folder}", f"--basetemp={folder / 'inner'}")
    argv = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *folders, name]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}  # it is no worker
    env["PYTHONPATH"] = str(Path(__file__).parents[1])
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=240)
