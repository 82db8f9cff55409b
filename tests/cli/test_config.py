"""``stagedoor config`` as people type it."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import CommandLine

GOOD = "server:\n  port: 8000\nagents:\n  codex:\n    env: {OPENAI_API_KEY: sk-secret}\n"
BAD = "server:\n  prot: 8000\n"


@pytest.fixture
def file(stagedoor: CommandLine) -> Path:
    path = stagedoor.home / ".config" / "stagedoor" / "config.yaml"
    path.parent.mkdir(parents=True)
    return path


def editor(stagedoor: CommandLine, *texts: str) -> dict[str, str]:
    """An editor that writes these, one after the other; keeps what it opened."""
    folder = stagedoor.home / "editor"
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_text(text)
    program = folder / "edit"
    program.write_text(
        f'#!/bin/sh\ncd {folder}\nn=$(ls given.* 2>/dev/null | wc -l)\ncp "$1" given.$n\n'
        f'[ -f $n.txt ] && cp $n.txt "$1"\nexit 0\n'
    )
    program.chmod(0o755)
    return {"EDITOR": str(program)}


def opened_text(stagedoor: CommandLine, number: int) -> str:
    return (stagedoor.home / "editor" / f"given.{number}").read_text()


def test_show_tells_where_each_value_comes_from_and_no_secret(stagedoor: CommandLine, file: Path) -> None:
    file.write_text(GOOD)
    shown = stagedoor.run("config", "show", env={"STAGEDOOR_SERVER__HOST": "0.0.0.0"})
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["server.host", "0.0.0.0", "STAGEDOOR_SERVER__HOST"] in lines
    assert ["server.port", "8000", str(file), "line", "2"] in lines
    assert ["sessions.sleep_after", "15m", "default"] in lines
    assert ["agents.codex.env", "{OPENAI_API_KEY:", "(hidden)}", str(file), "line", "5"] in lines
    rows = [json.loads(line) for line in stagedoor.run("config", "show", "--json").stdout.splitlines()]
    assert {"key": "server.port", "value": 8000, "from": f"{file} line 2"} in rows
    assert {"key": "agents.codex.env", "value": {"OPENAI_API_KEY": "(hidden)"}, "from": f"{file} line 5"} in rows
    assert "sk-secret" not in shown.stdout + str(rows)


def test_check_and_path(stagedoor: CommandLine, file: Path) -> None:
    missing = stagedoor.run("config", "path")
    assert (missing.stdout, missing.returncode) == (f"{file}\n", 0)
    assert "does not exist yet: stagedoor config edit creates it" in missing.stderr
    file.write_text(GOOD)
    fine = stagedoor.run("config", "check")
    assert (fine.stdout, fine.stderr, fine.returncode) == (f"{file}: 2 values set, no mistakes\n", "", 0)
    file.write_text(BAD)
    wrong = stagedoor.run("config", "check")
    assert (wrong.stdout, wrong.returncode) == ("", 2)
    assert wrong.stderr == f"{file}: unknown key 'server.prot' on line 2; did you mean 'server.port'?\n"
    nowhere = stagedoor.run("config", "check", "--config", "no.yaml")
    assert (nowhere.stderr, nowhere.returncode) == (
        "no.yaml: file not found; create it with stagedoor config edit\n",
        2,
    )


def test_edit_begins_with_a_template_and_keeps_what_is_right(stagedoor: CommandLine, file: Path) -> None:
    file.parent.rmdir()
    edited = stagedoor.run("config", "edit", env=editor(stagedoor, GOOD))
    assert (edited.stdout, edited.stderr, edited.returncode) == (f"{file}: saved\n", "", 0)
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (GOOD, 0o600)
    assert "#   port: 16180 " in opened_text(stagedoor, 0)
    again = stagedoor.run("config", "edit", env={"EDITOR": "true"})
    assert (again.stdout, again.returncode) == (f"{file}: unchanged\n", 0)
    assert [path.name for path in file.parent.iterdir()] == ["config.yaml"]


def test_edit_keeps_nothing_that_is_wrong(stagedoor: CommandLine, file: Path) -> None:
    file.write_text(GOOD)
    edited = stagedoor.run("config", "edit", env=editor(stagedoor, BAD))
    assert (edited.returncode, file.read_text()) == (2, GOOD)
    assert edited.stderr.splitlines() == [
        f"{file}: unknown key 'server.prot' on line 2; did you mean 'server.port'?",
        f"stagedoor config: {file} was not changed",
    ]
    for name, complaint in (
        ("false", "the editor failed with exit code 1"),
        ("no-such-editor", "cannot start the editor"),
    ):
        failed = stagedoor.run("config", "edit", env={"EDITOR": name})
        assert (complaint in failed.stderr, failed.returncode, file.read_text()) == (True, 2, GOOD)


def test_at_a_terminal_a_mistake_can_be_fixed(stagedoor: CommandLine, file: Path) -> None:
    terminal = stagedoor.terminal("config", "edit", env=editor(stagedoor, BAD, GOOD))
    terminal.until("did you mean 'server.port'?")
    terminal.until("edit again? [Y/n]")
    terminal.type("\n")
    terminal.until("saved")
    assert (terminal.end(), file.read_text(), opened_text(stagedoor, 1)) == (0, GOOD, BAD)
