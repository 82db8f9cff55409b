"""What an attacker would try: each line of the table has the risk it must be given, and is no less alarming when it is
wrapped or spelled in another way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from stagedoor import catalog
from stagedoor.permissions.paths import Ground
from stagedoor.permissions.policy import Policy
from stagedoor.permissions.protected import as_patterns
from stagedoor.permissions.risk.judge import judge, judge_command
from stagedoor.unified.events import ToolUse

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
    assert len(lines) >= 2500
    assert [line for line in lines if judge_command(line, cwd=GROUND).risk != "high"] == []


def test_nothing_that_is_done_all_day_is_high() -> None:
    lines = rows("everyday.txt")
    assert len(lines) >= 450
    assert [line for line in lines if judge_command(line, cwd=GROUND).risk == "high"] == []


def test_the_table_is_large() -> None:
    assert len(TABLE["high"]) >= 250
    assert len(ROWS) + len(WRITES) >= 900


def denied(line: str, *patterns: str) -> bool:
    policy = Policy(deny_patterns=patterns, default="allow")
    call = ToolUse(tool_use_id="x", name="shell", operation="execute", input={"command": line})
    return policy.decide(call, GROUND).action == "deny"


def test_no_program_that_runs_others_hides_a_denied_command() -> None:
    lines = rows("launched.txt")
    assert len(lines) >= 600
    assert [line for line in lines if not denied(line, "evil *")] == []


@pytest.mark.parametrize(
    "line",
    [
        f"mytool {' '.join(f'a{number}' for number in range(300))} --exec 'evil x'",
        f"mytool --exec 'evil x #{'x' * 5_000}'",
        f"mytool --exec '{'run x; ' * 40} system(\"evil x\")'",
        f"mytool <<'END'\n{'x' * 5_000}\nevil x\nEND",
    ],
    ids=["many words", "a long word", "many starts", "a long input"],
)
def test_what_is_too_much_to_look_at_is_not_let_through(line: str) -> None:
    assert denied(line, "evil *")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git-push origin", True),
        ("/usr/lib/git-core/git-push origin", True),
        ("mytool --exec git-push origin", True),
        ("git-lfs ls-files", False),
        ("man git-push", False),
        ("hg commit -m 'git push is next'", False),
        ("jj describe --message 'git push is next'", False),
        ("rspec -e 'git push works'", False),
        ("pytest -m 'git push'", False),
        ("uv run pytest -k 'git push'", False),
        ("gh pr create --title 'git push'", False),
    ],
)
def test_a_denied_command_of_git(line: str, expected: bool) -> None:
    assert denied(line, "git push *") is expected


def test_a_denied_command_is_not_seen_where_it_is_not() -> None:
    """Names in messages, patterns and lists of packages are not taken for commands."""
    named = re.compile(r"(^|[^\w.-])(sudo|wget|rm|git push)([^\w-]|$)")
    other = [line for line in rows("everyday.txt") if judge_command(line, cwd=GROUND).understood]
    own = [
        line for line in other if not named.match(line) and not re.search(r"(&&|;|\|) *(sudo|wget|rm|git push)\b", line)
    ]
    assert len(own) >= 250
    assert [line for line in own if denied(line, "sudo *", "wget *", "rm *", "git push *")] == []


@pytest.mark.parametrize("place", TABLE["places"])
@pytest.mark.parametrize("key", ["file_path", "filePath", "path", "notebook_path", "target_file", "newPath", "save_as"])
def test_a_tool_for_files(place: str, key: str) -> None:
    calls: list[dict[str, Any]] = [
        {key: place},
        {"path": "a", "edits": [{key: place}]},
        {"path": "a", "move": {"to": {key: place}}},
        {"changes": [{"path": "a", "move_path": place}]},
        {"changes": {place: {"kind": "add"}}},
        {"patch": f"*** Update File: {place}\n"},
        {"patch": f"*** Update File: a\n*** Move to: {place}\n"},
        {"patch": f"--- a/x\n+++ b/{place}\n@@ -1 +1 @@\n"},
        {"diff": f"diff --git a/x b/{place}\nrename from x\nrename to {place}\n"},
    ]
    assert [call for call in calls if judge("edit_file", "write", call, cwd=GROUND).risk != "high"] == []


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
