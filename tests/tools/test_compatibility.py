"""The compatibility page is nothing but what the live suite has recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import compatibility
from tools.compatibility import Record, page, read, write

PLAN = Record(agent="claude", driver="stream", version="2.1.197", capability="plan", outcome="yes", at=1)
FORK = Record(agent="claude", driver="stream", version="2.2.0", capability="fork", outcome="no", note="not yet", at=1)
OTHER = Record(agent="codex", driver="exec", version="0.166.0", capability="plan", outcome="failed", at=1)


def test_records_of_all_workers_are_read_and_the_newest_counts(tmp_path: Path) -> None:
    again = Record(agent="claude", driver="stream", version="2.1.197", capability="plan", outcome="failed", at=2)
    write(again, tmp_path / "gw1.jsonl")
    write(PLAN, tmp_path / "gw0.jsonl")
    write(FORK, tmp_path / "gw0.jsonl")
    assert sorted(read(tmp_path), key=lambda record: record.capability) == [FORK, again]


def test_each_agent_has_a_table_of_what_was_proven() -> None:
    whole = page([PLAN, FORK, OTHER])
    _, claude, codex, unproven = whole.split("\n## ")
    assert "| `goose` | `goose acp` |" in unproven
    assert page([PLAN, FORK], whole) == whole  # what was not tried again stays
    assert claude == (
        "claude\n\n"
        "| | stream (2.1.197) | stream (2.2.0) |\n"
        "|---|---|---|\n"
        "| fork |  | no (1) |\n"
        "| plan | yes |  |\n\n"
        "1. not yet\n"
    )
    assert codex == "codex\n\n| | exec (0.166.0) |\n|---|---|\n| plan | **failed** |\n"


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "page.md"
    monkeypatch.setattr("sys.argv", ["compatibility", str(tmp_path), str(target)])
    assert compatibility.main() == 1
    assert "no records" in capsys.readouterr().err
    write(PLAN, tmp_path / "main.jsonl")
    assert compatibility.main() == 0
    assert target.read_text() == page([PLAN])
    write(OTHER, tmp_path / "main.jsonl")
    assert compatibility.main() == 1
    assert capsys.readouterr().err == "failed: codex (exec, 0.166.0): plan\n"
