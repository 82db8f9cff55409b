"""What an attacker would try: each line of the table has the risk it must be given, and is no less alarming when it is
wrapped or spelled in another way."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import yaml

from stagedoor import catalog
from stagedoor.permissions.paths import Ground
from stagedoor.permissions.protected import as_patterns
from stagedoor.permissions.risk.judge import judge, judge_command

TABLE = cast("dict[str, list[str]]", yaml.safe_load((Path(__file__).parent / "attacks.yaml").read_text()))
GROUND = Ground("/home/me/work", "/home/me", as_patterns(catalog.protected()))
WRITES = [writer.format(p=place) for writer in TABLE["writers"] for place in TABLE["places"]]
ROWS = [(level, command) for level in ("high", "medium", "low") for command in TABLE[level]]


@pytest.mark.parametrize(("level", "command"), ROWS)
def test_a_line_of_the_table(level: str, command: str) -> None:
    verdict = judge_command(command, cwd=GROUND)
    assert (verdict.risk, command) == (level, command), verdict.reasons


@pytest.mark.parametrize("writer", TABLE["writers"])
def test_no_program_writes_what_runs_later_unnoticed(writer: str) -> None:
    lines = [writer.format(p=place) for place in TABLE["places"]]
    assert [line for line in lines if judge_command(line, cwd=GROUND).risk != "high"] == []


def rows(name: str) -> list[str]:
    lines = (Path(__file__).parent / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("# ")]


def test_every_line_of_the_long_list_is_high() -> None:
    lines = rows("long_list.txt")
    assert len(lines) >= 1500
    assert [line for line in lines if judge_command(line, cwd=GROUND).risk != "high"] == []


def test_nothing_that_is_done_all_day_is_high() -> None:
    lines = rows("everyday.txt")
    assert len(lines) >= 200
    assert [line for line in lines if judge_command(line, cwd=GROUND).risk == "high"] == []


def test_the_table_is_large() -> None:
    assert len(TABLE["high"]) >= 250
    assert len(ROWS) + len(WRITES) >= 900


@pytest.mark.parametrize("place", TABLE["places"])
@pytest.mark.parametrize("key", ["file_path", "filePath", "path", "notebook_path"])
def test_a_tool_for_files(place: str, key: str) -> None:
    assert judge("write_file", "write", {key: place}, cwd=GROUND).risk == "high"
    assert judge("edit_file", "write", {"patch": f"*** Update File: {place}\n"}, cwd=GROUND).risk == "high"


def test_links_are_followed_and_reasons_say_what_runs(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    (workspace / ".claude").mkdir(parents=True)
    (workspace / "link").symlink_to(".claude")
    (workspace / "up").symlink_to("..")
    (workspace / "plain").mkdir()
    ground = Ground(str(workspace), str(tmp_path), as_patterns(catalog.protected()), on_disk=True)
    for path in ("link/settings.json", "up/workspace/.claude/x", "plain/../link/x", "up/.bashrc"):
        verdict = judge_command(f"echo x > {path}", cwd=ground)
        assert (path, verdict.risk) == (path, "high")
    assert judge("write_file", "write", {"file_path": "link/settings.json"}, cwd=ground).reasons == (
        "writes link/settings.json: Claude Code runs hooks, tool servers and commands from it at the next start",
    )
    assert judge("write_file", "write", {"file_path": "plain/a"}, cwd=ground).risk == "medium"
