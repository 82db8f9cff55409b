"""Empty folders that a killed sandbox leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagedoor.agents.codex.config import CodexSessionConfig, SandboxMode
from stagedoor.agents.codex.sessions import COVERED, Leftovers
from tests.leftovers import MOUNT_POINTS


def test_only_what_was_not_there_and_is_empty_goes(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    leftovers = Leftovers(CodexSessionConfig(), str(tmp_path), {"TMPDIR": str(tmp_path / "tmp")})
    for name in (".codex", ".agents", "tmp/.aws"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".agents" / "kept").touch()
    leftovers.sweep()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        ".agents",
        ".agents/kept",
        ".git",
        "tmp",
    ]


@pytest.mark.parametrize(
    "config",
    [
        CodexSessionConfig(sandbox_mode=SandboxMode.DANGER_FULL_ACCESS),
        CodexSessionConfig(dangerously_bypass_approvals_and_sandbox=True),
    ],
)
def test_without_a_sandbox_nothing_is_touched(tmp_path: Path, config: CodexSessionConfig) -> None:
    leftovers = Leftovers(config, str(tmp_path), {})
    for name in COVERED:
        (tmp_path / name).mkdir()
    leftovers.sweep()
    assert {path.name for path in tmp_path.iterdir()} == set(COVERED)


def test_the_tests_clear_away_the_same_folders() -> None:
    assert MOUNT_POINTS == COVERED
