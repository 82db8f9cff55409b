"""The rules of the house that no linter knows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "stagedoor"
FILES = sorted(SOURCE.rglob("*.py"))
LIMIT = 700
AGENTS = ("claude", "codex", "gemini", "opencode")
FORBIDDEN_WORDS = re.compile(r"(^|_)(handlers?|managers?|processors?|helpers?|utils?|base|common|impl|info)(_|$)")
# Where an agent's name may stand: its own rooms, the catalog, the scripted model and what installs the CLIs.
MAY_NAME = (
    "agents/",
    "unified/",
    "drivers/",
    "catalog.py",
    "testing/",
    "cli/model.py",
    "dialects/",
    "permissions/",
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_outgrows_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LIMIT


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_are_named_for_what_they_hold(path: Path) -> None:
    assert not FORBIDDEN_WORDS.search(path.stem)


def test_the_shared_core_names_no_agent() -> None:
    named = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in FILES
        if not str(path.relative_to(SOURCE)).startswith(MAY_NAME)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(
            rf"\b({'|'.join(AGENTS)})\b",
            re.sub(r'""".*|#.*|>>>.*|\.\.\. .*|stagedoor [a-z]+ .*', "", line),
            re.IGNORECASE,
        )
    ]
    assert named == []


def test_import_stagedoor_is_light() -> None:
    heavy = (
        "pydantic",
        "mcp",
        "httpx",
        "websockets",
        "starlette",
        "uvicorn",
        "rich",
        "yaml",
        "sqlite3",
        "asyncio",
        "h11",
    )
    code = f"import sys, stagedoor; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_can_be_imported() -> None:
    code = "import stagedoor; [getattr(stagedoor, name) for name in stagedoor.__all__]; print(len(stagedoor.__all__))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 40


def _tracked_with(pattern: re.Pattern[bytes]) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    return [name for name in names if pattern.search(name.encode() + b"\n" + (ROOT / name).read_bytes())]


def test_no_tracked_file_names_this_machine_or_a_registry() -> None:
    pattern = re.compile(rb"registry\.npmjs|pypi\.org|files\.pythonhosted|\"resolved\": *\"http")
    assert [name for name in _tracked_with(pattern) if name != "tests/test_house.py"] == []


def test_no_trace_of_the_old_name() -> None:
    """Others own it. It is spelled in two halves here, so that this file passes too."""
    assert _tracked_with(re.compile(b"pod" + b"ium", re.IGNORECASE)) == []
