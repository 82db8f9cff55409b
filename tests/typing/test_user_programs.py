"""Programs that people write, as mypy and pyright see them in strict mode: good ones pass, wrong ones are refused.

A line that must be refused ends with ``# wrong``; every other line must pass, in both checkers.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))


def wrong_lines() -> set[tuple[str, int]]:
    return {
        (path.name, number)
        for path in PROGRAMS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith("# wrong")
    }


def mypy(folder: Path) -> set[tuple[str, int]]:
    command = ["-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(folder), *map(str, PROGRAMS)]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    return {(Path(match[1]).name, int(match[2])) for line in lines if (match := re.match(r"(.+?):(\d+)", line))}


def pyright(folder: Path) -> set[tuple[str, int]]:
    for path in PROGRAMS:
        shutil.copy(path, folder)
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")], "pythonVersion": "3.11"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    program = Path(sys.executable).with_name("pyright")
    command = [str(program), "--outputjson", "--project", str(folder), "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    errors = [entry for entry in json.loads(done.stdout)["generalDiagnostics"] if entry["severity"] == "error"]
    return {(Path(entry["file"]).name, entry["range"]["start"]["line"] + 1) for entry in errors}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_what_people_write(checker: object, tmp_path: Path) -> None:
    assert callable(checker)
    assert checker(tmp_path) == wrong_lines()
    assert wrong_lines(), "there must be something to refuse"
