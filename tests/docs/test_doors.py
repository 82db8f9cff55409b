"""The complete examples of the pages about doors run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "output"),
    [
        (
            "tools.md",
            "success a small bird\n"
            "may it call book with {'title': 'Emma', 'copies': 2}\n"
            'success {"booked":"Emma","copies":2}\n',
        ),
        ("mcp.md", "idle "),
    ],
)
def test_the_example_runs(page: str, output: str, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    file = tmp_path / "example.py"
    file.write_text(code)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    env = {
        **os.environ, "HOME": str(tmp_path / "home"), "STAGEDOOR_HOME": str(tmp_path / "state"),
        "STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "understudy"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(file)], cwd=workspace, env=env, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert output in done.stdout
