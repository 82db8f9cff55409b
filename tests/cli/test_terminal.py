"""``stagedoor run`` at a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stagedoor.cli.terminal.questions import rule_text
from tests.processes import is_running

ASK_TWICE = '- shell: echo first >> log\n- shell: echo first >> log\n- say: "Over, **done**."\n'


def log(stagedoor: Any) -> str:
    path: Path = stagedoor.workspace / "log"
    return path.read_text() if path.exists() else ""


def test_it_streams_markdown_tools_and_diffs_and_ends_with_a_summary(stagedoor: Any) -> None:
    script = (
        '- [{think: "Hm."}, {say: "# Plan\\n\\n- one\\n"}, {write_file: {path: n.txt, content: "one\\n"}}]\n'
        "- shell: echo out; exit 3\n- say: It is `done`.\n"
    )
    terminal = stagedoor.terminal("run", "understudy", "--tier", "autonomous", script)
    assert terminal.end() == 0
    shown = [line.strip() for line in terminal.screen.splitlines() if line.strip()]
    assert shown[0] == "· Hm."
    assert "• one" in shown
    assert "+one" in shown
    assert any(line.startswith("✓ write_file n.txt") for line in shown)
    assert any(line.startswith("✗ shell echo out; exit 3") and line.endswith("exit 3") for line in shown)
    assert shown[-2] == "It is done."
    assert shown[-1].startswith("success · 2 tools · ")
    assert "understudy · " in terminal.text  # the status line, while it ran
    assert "\x1b[32m+one" in terminal.raw


ANSWERS = {
    "yes, yes": ("y", "y", "first\nfirst\n"),
    "yes, no": ("y", "n", "first\n"),
    "no, yes": ("n", "y", "first\n"),
    "something else first": ("x", "n", ""),
    "always": ("a", "", "first\nfirst\n"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_one_key_answers(stagedoor: Any, name: str) -> None:
    first, second, content = ANSWERS[name]
    terminal = stagedoor.terminal("run", "understudy", "--approval", "ask", ASK_TWICE)
    terminal.until("allow?")
    assert "$ echo first >> log" in terminal.text
    length = len(terminal.text)
    terminal.type(first)
    for key in second:
        terminal.until("allow?", after=length)
        length = len(terminal.text)
        terminal.type(key)
    if name == "something else first":
        terminal.until("allow?", after=length)
        terminal.type("n")
    assert terminal.end() == 0
    assert log(stagedoor) == content
    assert "\nOver, done.\n" in terminal.screen


def test_keys_typed_before_the_question_are_no_answer(stagedoor: Any) -> None:
    script = "- [{say: wait}, {stall: 1}]\n- shell: touch made\n- say: Over.\n"
    terminal = stagedoor.terminal("run", "understudy", "--approval", "ask", script)
    terminal.until("understudy · ")
    terminal.type("yyy")
    terminal.until("allow?")
    terminal.type("n")
    assert terminal.end() == 0
    assert not (stagedoor.workspace / "made").exists()


def test_what_has_no_effect_is_not_offered(stagedoor: Any) -> None:
    """This agent takes no changed call, and no words with a no."""
    terminal = stagedoor.terminal("run", "understudy", "--approval", "ask", "- shell: rm log\n- say: Over.\n")
    terminal.until("allow?")
    assert "allow? [y]es [n]o [a]lways in this session " in terminal.text
    length = len(terminal.text)
    terminal.type("e")
    terminal.until("allow?", after=length)
    terminal.type("n")
    assert terminal.end() == 0
    assert "[e]dit" not in terminal.text
    assert "⊘ shell rm log" in terminal.screen


def test_the_audit_log_says_that_a_person_decided(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("run", "understudy", "--approval", "ask", "- shell: touch made\n- say: Over.\n")
    terminal.until("allow?")
    terminal.type("y")
    assert terminal.end() == 0
    assert "allowed by" not in terminal.text  # the answer stands behind the question already
    [line] = stagedoor.run("audit", "show", "--json").stdout.splitlines()
    assert json.loads(line)["entry"]["by"] == "person"


def test_ctrl_c_interrupts_the_turn(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("run", "understudy", "--tier", "autonomous", "- shell: touch begun; sleep 300\n")
    terminal.until_shown(r"touch begun; sleep 300 \d")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert terminal.screen.splitlines()[-1].startswith("interrupted · ")
    assert terminal.echoes()


def test_ctrl_c_ends_a_question(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("run", "understudy", "--approval", "ask", "- shell: touch made\n")
    terminal.until("allow?")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert not (stagedoor.workspace / "made").exists()


def test_ctrl_c_twice_kills_an_agent_that_does_not_listen(stagedoor: Any, eventually: Any) -> None:
    # The shell ignores what the agent sends it, and stands in a session of its own.
    command = "trap '' INT TERM HUP; echo $$ > pid; while :; do sleep 1; done"
    terminal = stagedoor.terminal("run", "understudy", "--tier", "autonomous", f'- shell: "{command}"\n')
    terminal.until("trap")
    eventually(
        lambda: (stagedoor.workspace / "pid").exists() and (stagedoor.workspace / "pid").read_text().endswith("\n")
    )
    terminal.type("\x03")
    terminal.until("interrupting")  # two signals that come at once may be delivered as one
    terminal.type("\x03")
    assert terminal.end() == 130
    pid = int((stagedoor.workspace / "pid").read_text())
    eventually(lambda: not is_running(pid))
    assert terminal.echoes()


def test_a_question_shows_what_a_command_hides(stagedoor: Any) -> None:
    script = '- shell: "echo \\e[2K\\e[1Gharmless"\n- say: Over.\n'
    terminal = stagedoor.terminal("run", "understudy", "--approval", "ask", script)
    terminal.until("allow?")
    assert "$ echo \\x1b[2K\\x1b[1Gharmless" in terminal.text
    terminal.type("n")
    assert terminal.end() == 0


def test_the_question_is_asked_when_the_prompt_comes_from_a_file(stagedoor: Any, tmp_path: Path) -> None:
    task = tmp_path / "task.yaml"
    task.write_text("- shell: touch made\n- say: Over.\n")
    terminal = stagedoor.shell(f"{stagedoor.command} run understudy --approval ask - < {task}")
    terminal.until("allow?")
    terminal.type("y")
    assert terminal.end() == 0
    assert (stagedoor.workspace / "made").exists()


def test_always_is_written_to_a_policy(stagedoor: Any) -> None:
    words = ("run", "understudy", "--approval", "ask", "--remember-in", "mine.yaml", ASK_TWICE)
    terminal = stagedoor.terminal(*words)
    terminal.until("allow?")
    assert "[y]es [n]o [a]lways " in terminal.text
    asked = terminal.text[terminal.text.index("always: ") : terminal.text.index("allow?")]
    shown = [f"always: {rule}" for rule in " ".join(asked.split()).split("always: ")[1:]]
    shown = [rule.strip() for rule in shown]
    terminal.type("a")
    assert terminal.end() == 0
    rules = yaml.safe_load((stagedoor.workspace / "mine.yaml").read_text())["rules"]
    folder = stagedoor.workspace
    assert shown == [
        f"always: allow · tool shell · command echo first >> log · folder {folder} · risk low, medium",
        f"always: allow · tool shell · operation write · path {folder}/log · risk low, medium",
    ]
    assert sorted(f"always: {rule_text(rule)}" for rule in rules) == sorted(shown)
    again = stagedoor.run("run", "understudy", "--approval", "ask", "--policy", "mine.yaml", ASK_TWICE)
    assert again.returncode == 0
    assert log(stagedoor) == "first\n" * 4


def test_what_cannot_be_remembered_is_not_offered(stagedoor: Any) -> None:
    script = '- shell: "touch $(echo made)"\n- say: Over.\n'
    terminal = stagedoor.terminal("run", "understudy", "--approval", "ask", script)
    terminal.until("allow?")
    assert "cannot be remembered" in terminal.text
    assert "[y]es [n]o " in terminal.text
    assert "[a]lways" not in terminal.text
    length = len(terminal.text)
    terminal.type("a")
    terminal.until("allow?", after=length)
    terminal.type("n")
    assert terminal.end() == 0
    assert not (stagedoor.workspace / "made").exists()


def test_the_demo_asks_too(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("demo")
    for _ in range(2):
        length = len(terminal.text)
        terminal.until("allow?", after=length)
        terminal.type("y")
    assert terminal.end() == 0
    assert "Repaired, and the tests pass." in terminal.screen
