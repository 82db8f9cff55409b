"""The suite notices what a test leaves outside its temporary folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

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
"""


def test_what_a_test_leaves_behind_fails_the_run(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "conftest.py").write_text((tmp_path / "conftest.py").read_text() + "\nPATIENCE = 0.0\n")
    (tmp_path / "test_leaks.py").write_text(LEAKS)
    folders = (f"--rootdir={tmp_path}", f"--basetemp={tmp_path / 'inner'}")
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *folders, "test_leaks.py"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}  # it is no worker
    ran = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=240)
    found = re.findall(r"^E +.*/(home|tmp|cwd)/(\S+?), first seen after ([\w.:]+)$", ran.stdout, re.MULTILINE)
    assert [(place, name.split("-")[0], test) for place, name, test in found] == [
        ("home", ".leak", "test_leaks.py::test_leaks"),
        ("tmp", "leak", "test_leaks.py::test_leaks"),
    ], ran.stdout
    assert ran.returncode == 1
