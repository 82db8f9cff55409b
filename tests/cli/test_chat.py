"""``stagedoor chat`` at a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SAY = '- say: "Hello, **you**."\n'
NEW_LINE = "\x1b\r"


def typed(script: str) -> str:
    """A script of several lines, as it is typed: the last Enter sends it."""
    return NEW_LINE.join(script.rstrip("\n").split("\n")) + "\r"


def log(stagedoor: Any) -> str:
    path: Path = stagedoor.workspace / "log"
    return path.read_text() if path.exists() else ""


def test_many_turns_with_a_question_in_place_and_a_way_back(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("chat", "understudy", "--approval", "ask")
    terminal.until_display("❯")
    terminal.type(typed(SAY))
    terminal.until_display("Hello, you.")
    terminal.type(typed('- shell: echo first >> log\n- say: "Written."\n'))
    terminal.until_display("allow?")
    assert "$ echo first >> log" in terminal.display
    terminal.type("y")
    terminal.until_display("\nWritten.")
    terminal.until_display("+first")
    terminal.until_turn_ended(120)
    terminal.type("\x04")
    assert terminal.end() == 0
    assert log(stagedoor) == "first\n"
    assert "allow? [y]es [n]o [a]lways in this session yes\n" in terminal.display
    last = terminal.display.splitlines()[-1]
    assert last.startswith("to go on: stagedoor chat understudy --resume ")
    assert terminal.echoes()
    again = stagedoor.terminal("chat", "understudy", "--resume", last.split()[-1])
    again.until_display("❯")
    again.type(typed('- say: "Back again."\n'))
    again.until_display("\nBack again.")
    again.type("\x04")
    assert again.end() == 0
    assert again.display.splitlines()[-1] == last


def test_a_line_typed_while_a_turn_runs_waits_for_its_end(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("chat", "understudy", "--tier", "autonomous")
    terminal.until_display("❯")
    terminal.type(typed('- shell: while ! test -e go; do sleep 0.1; done\n- say: "One."\n'))
    terminal.until_display("while ! test -e go")
    terminal.type(typed('- say: "Two."\n'))
    terminal.until_display('waits: - say: "Two."')
    (stagedoor.workspace / "go").touch()
    terminal.until_display("\nTwo.\n")
    terminal.type("\x04")
    assert terminal.end() == 0
    shown = terminal.display
    assert shown.index("\nOne.") < shown.index('\n❯ - say: "Two."') < shown.index("\nTwo.")
    assert "waits:" not in shown


def test_ctrl_c_ends_the_turn_and_gives_back_what_waited(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("chat", "understudy", "--tier", "autonomous")
    terminal.until_display("❯")
    terminal.type("- shell: touch begun; sleep 300\r")
    terminal.until_display("touch begun; sleep 300 ")
    terminal.type('- say: "Later."\r')
    terminal.until_display("waits: ")
    terminal.type("\x03")
    terminal.until_display('\n❯ - say: "Later."')  # in the editor again, and not sent
    terminal.until_display("interrupted · ")
    terminal.type("\r")
    terminal.until_display("\nLater.")
    terminal.type("\x04")
    assert terminal.end() == 0


def test_what_is_sent_after_ctrl_c_follows_the_stopped_turn(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("chat", "understudy", "--tier", "autonomous")
    terminal.until_display("❯")
    terminal.type("- shell: touch begun; sleep 300\r")
    terminal.until_display("touch begun; sleep 300 ")
    terminal.type("\x03" + typed(SAY))  # read at once: the line is sent while the turn still ends
    terminal.until_display("Hello, you.")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert terminal.display.index("interrupted · ") < terminal.display.index('\n❯ - say: "Hello')


def test_ctrl_c_ends_a_question(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("chat", "understudy", "--approval", "ask")
    terminal.until_display("❯")
    terminal.type("- shell: touch made\r")
    terminal.until_display("allow?")
    terminal.type("\x03")
    terminal.until_display("interrupted")
    terminal.type(typed(SAY))
    terminal.until_display("Hello, you.")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert not (stagedoor.workspace / "made").exists()


def test_ctrl_c_clears_the_line_where_nothing_runs(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("chat", "understudy")
    terminal.until_display("❯")
    terminal.type("never mind")
    terminal.until_display("❯ never mind")
    terminal.type("\x03")
    terminal.type("/quit\r")
    assert terminal.end() == 0
    assert "never mind" not in terminal.display


def test_what_is_typed_survives_a_question(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("chat", "understudy", "--approval", "ask")
    terminal.until_display("❯")
    terminal.type(typed("- shell: while ! test -e go; do sleep 0.1; done\n- shell: touch made\n- say: Over.\n"))
    terminal.until_display("allow?")
    terminal.type("y")
    terminal.until_shown(r"test -e go; do sleep 0\.1; done \d")
    terminal.type("half a thought")
    terminal.until_display("❯ half a thought")
    (stagedoor.workspace / "go").touch()
    terminal.until_display("touch made")
    terminal.until("allow?", after=terminal.text.index("half a thought"))
    terminal.type("n")
    terminal.until_display("\nOver.")
    terminal.until_display("❯ half a thought")
    terminal.type(", whole\r")
    terminal.until_display("❯ half a thought, whole")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert not (stagedoor.workspace / "made").exists()


COMMANDS = {
    "/mode": "mode: Accept edits",
    "/mode ask": "mode: Ask",
    "/mode accept edits": "mode: Accept edits",
    "/mode full auto": "mode: Full auto",
    "/mode nonsense": "unknown mode 'nonsense'. Available: read-only, ask, accept-edits, full-auto",
    "/model": "model: the default",
    "/model other": "model: other · the agent checks the name with your next message",
    "/diff": "no changes",
    "/help": "Alt-Enter, Ctrl-J",
    "/agents": "understudy",
    "/hepl": "unknown command /hepl: did you mean /help?",
    "/nonsense": "unknown command /nonsense: /help shows the commands; //… is sent to the agent as it is",
}


def test_commands(stagedoor: Any) -> None:
    stagedoor.repository()
    (stagedoor.workspace / "a.txt").write_text("changed before the chat\n")
    (stagedoor.workspace / "new.txt").write_text("new before the chat\n")
    terminal = stagedoor.terminal("chat", "understudy")
    terminal.until_display("❯")
    for command, answer in COMMANDS.items():
        length = len(terminal.text)
        terminal.type(f"{command}\r")
        terminal.until(answer, after=length)
    terminal.type("/quit\r")
    assert terminal.end() == 0


def test_a_changed_mode_holds_from_the_next_message_on(stagedoor: Any) -> None:
    stagedoor.repository()
    (stagedoor.workspace / "a.txt").write_text("changed before the chat\n")
    terminal = stagedoor.terminal("chat", "understudy", "--approval", "ask")
    terminal.until_display("❯")
    terminal.type(typed(SAY))
    terminal.until_display("Hello, you.")
    terminal.until_turn_ended(120)
    terminal.type("/model nonsense\r")
    terminal.until_display("unknown model 'nonsense'. Available: understudy")
    terminal.type("/mode full-auto\r")
    terminal.until_display("mode: Full auto")
    terminal.type(typed('- shell: echo first >> log\n- say: "Done without a question."\n'))
    terminal.until_display("\nDone without a question.")
    terminal.type("/diff\r")
    terminal.until_display("1 file changed · +1 −0")
    assert log(stagedoor) == "first\n"
    terminal.until_turn_ended(240)
    terminal.type("/undo\r")
    terminal.until_display("restored 1 file as before turn 2")
    terminal.type("/diff\r")
    terminal.until_display("no changes")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert "allow?" not in terminal.text
    assert log(stagedoor) == ""


def test_an_unknown_model_is_said_once_and_another_can_be_chosen(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("chat", "understudy")
    terminal.until_display("❯")
    terminal.type("/model nonsense\r" + typed(SAY))
    terminal.until_display("/model NAME chooses another model; ↑ brings your message back")
    assert terminal.display.count("unknown model 'nonsense'. Available: understudy") == 1
    terminal.type("/model understudy\r")
    terminal.until_display("model: understudy")
    terminal.type(typed(SAY))
    terminal.until_display("\nHello, you.")
    terminal.type("\x04")
    assert terminal.end() == 0


def test_files_and_commands_are_completed(stagedoor: Any) -> None:
    (stagedoor.workspace / "docs").mkdir()
    (stagedoor.workspace / "docs" / "journey.md").touch()
    terminal = stagedoor.terminal("chat", "understudy")
    terminal.until_display("❯")
    terminal.type("look at @jour")
    terminal.until_display("@docs/journey.md")
    terminal.type("\t")
    terminal.until_display("❯ look at @docs/journey.md")
    terminal.type("\x15/mod")
    terminal.until_display("show the model, or change it")
    terminal.type("\x15" + typed(SAY))
    terminal.until_display("Hello, you.")
    terminal.until_turn_ended(120)
    terminal.type("/dem")
    terminal.until_display("Play the demo")  # a command of the agent's own
    terminal.type("\x15\x04")
    assert terminal.end() == 0


def test_lines_of_earlier_chats_come_back(stagedoor: Any) -> None:
    for keys in ("/mode\r", "\x1b[A\r"):
        terminal = stagedoor.terminal("chat", "understudy")
        terminal.until_display("❯")
        terminal.type(keys)
        terminal.until_display("mode: Accept edits")
        terminal.type("\x04")
        assert terminal.end() == 0
    [history] = stagedoor.home.rglob("chat_history")
    assert history.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("words", [("chat", "understudy"), ("run", "understudy")])
def test_without_a_terminal_it_says_what_to_do(stagedoor: Any, words: tuple[str, ...]) -> None:
    ended = stagedoor.run(*words)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "terminal; use stagedoor run AGENT PROMPT" in ended.stderr or "required: prompt" in ended.stderr


def test_run_without_a_prompt_starts_a_chat(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("run", "understudy")
    terminal.until_display("❯")
    terminal.type(typed(SAY))
    terminal.until_display("Hello, you.")
    terminal.type("\x04")
    assert terminal.end() == 0
