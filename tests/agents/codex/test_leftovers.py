"""Empty folders that a killed sandbox leaves behind."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stagedoor.agents.codex import leftovers
from stagedoor.agents.codex.config import CodexSessionConfig, SandboxMode
from stagedoor.agents.codex.leftovers import COVERED, MADE, Leftovers
from stagedoor.transports.launch import Confinement
from tests.leftovers import MOUNT_POINTS

FOUND = b"existing\n"


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    folder = tmp_path / "tmp" / f"codex-bwrap-synthetic-mount-targets-{os.geteuid()}"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    (tmp_path / "work").mkdir()
    return folder


@pytest.fixture
def dead() -> int:
    """The number of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def mark(registry: Path, place: Path, pid: int, words: bytes) -> None:
    place.mkdir(parents=True, exist_ok=True)
    marks = registry / leftovers._mark_of(place)
    marks.mkdir(exist_ok=True)
    (marks / str(pid)).write_bytes(words)


def session(tmp_path: Path, config: CodexSessionConfig | None = None) -> Leftovers:
    return Leftovers(config or CodexSessionConfig(), str(tmp_path / "work"), {"TMPDIR": str(tmp_path / "tmp")})


def test_the_marks_are_called_as_codex_calls_them() -> None:
    """Read in the registry of Codex 0.166.0 after its sandbox was killed."""
    places = {name: leftovers._mark_of(Path("/tmp", name)) for name in COVERED}
    assert places == {
        ".git": "9dddf21f25fb79fe",
        ".codex": "063cebc15e007869",
        ".agents": "e8fbc9723b2ea7d0",
        ".aws": "d40bdb1f454c404f",
    }


@pytest.mark.parametrize("when", ["at its end", "by the next session"])
def test_only_what_a_dead_sandbox_made_and_is_empty_goes(tmp_path: Path, registry: Path, dead: int, when: str) -> None:
    work = tmp_path / "work"
    found = None if when == "by the next session" else session(tmp_path)
    mark(registry, work / ".git", dead, MADE)
    mark(registry, work / ".agents", dead, MADE)
    (work / ".agents" / "kept").touch()
    mark(registry, work / ".codex", dead, FOUND)
    (work / ".aws").mkdir()  # nobody left a mark
    mark(registry, tmp_path / "tmp" / ".aws", dead, MADE)
    found.sweep() if found is not None else session(tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in [*work.rglob("*"), *(tmp_path / "tmp").glob(".*")]) == [
        "work/.agents",
        "work/.agents/kept",
        "work/.aws",
        "work/.codex",
    ]
    (work / ".git").mkdir()  # somebody's own, later
    session(tmp_path)
    assert (work / ".git").exists()


def test_what_another_sandbox_stands_on_stays(tmp_path: Path, registry: Path, dead: int) -> None:
    place = tmp_path / "work" / ".git"
    mark(registry, place, dead, MADE)
    mark(registry, place, os.getpid(), FOUND)
    session(tmp_path).sweep()
    assert place.exists()


def test_while_a_sandbox_holds_the_registry_everything_stays(tmp_path: Path, registry: Path, dead: int) -> None:
    place = tmp_path / "work" / ".git"
    mark(registry, place, dead, MADE)
    with (registry / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        session(tmp_path).sweep()
        assert place.exists()
    session(tmp_path)
    assert not place.exists()


@pytest.mark.parametrize(
    "config",
    [
        CodexSessionConfig(sandbox_mode=SandboxMode.DANGER_FULL_ACCESS),
        CodexSessionConfig(dangerously_bypass_approvals_and_sandbox=True),
    ],
)
def test_without_a_sandbox_nothing_is_touched(
    tmp_path: Path, registry: Path, dead: int, config: CodexSessionConfig
) -> None:
    for name in COVERED:
        mark(registry, tmp_path / "work" / name, dead, MADE)
    session(tmp_path, config).sweep()
    assert {path.name for path in (tmp_path / "work").iterdir()} == set(COVERED)


def test_in_a_sandbox_of_ours_what_was_not_there_and_is_empty_goes(tmp_path: Path) -> None:
    """The registry is inside, in a temporary folder of its own."""
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    found = session(tmp_path, CodexSessionConfig(confinement=Confinement(workspace=True)))
    (work / ".codex").mkdir()
    (work / ".aws" / "kept").mkdir(parents=True)
    found.sweep()
    assert {path.name for path in work.iterdir()} == {".git", ".aws"}


def test_the_tests_clear_away_the_same_folders() -> None:
    assert MOUNT_POINTS == COVERED
