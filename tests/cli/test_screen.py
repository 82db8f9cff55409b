"""What a terminal shows, without one: blocks of Markdown, cleaned text, the questions."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.api import Task
from stagedoor.cli.parallel import AgentRun, comparison
from stagedoor.cli.terminal.output import EventLines, ago, plain, summary, table, width, wrapped
from stagedoor.cli.terminal.questions import (
    Keyboard,
    TerminalQuestions,
    answer_agent,
    describe,
    questions_in,
    visible,
)
from stagedoor.cli.terminal.screen import MarkdownBlocks
from stagedoor.transcript import clean
from stagedoor.unified.capabilities import Capabilities
from stagedoor.unified.decisions import Allow, Deny
from stagedoor.unified.events import (
    Done,
    Error,
    Event,
    FileChange,
    Init,
    PermissionRequest,
    Text,
    TextDelta,
    ToolProgress,
    ToolResult,
    ToolUse,
    Usage,
)
from stagedoor.worktrees import Worktree

WHOLE = {
    "a paragraph is whole at its blank line": (
        ["One", " two.\n", "\nThr", "ee"],
        ["", "", "One two.\n\n", ""],
        "Three",
    ),
    "a list stays together": (["- a\n- b\n", "\n"], ["", "- a\n- b\n\n"], ""),
    "a fence keeps its blank lines": (["```py\na\n\nb\n", "```\n\nx"], ["", "```py\na\n\nb\n```\n\n"], "x"),
    "a longer fence holds a shorter one": (["````\n```\n\n````\n\n"], ["````\n```\n\n````\n\n"], ""),
    "two blocks at once": (["a\n\nb\n\nc"], ["a\n\nb\n\n"], "c"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_blocks_are_given_out_when_they_are_whole(name: str) -> None:
    pieces, given_out, rest = WHOLE[name]
    blocks = MarkdownBlocks()
    assert [blocks.feed(piece) for piece in pieces] == given_out
    assert blocks.finish() == rest


@given(st.lists(st.text("ab`~\n ", max_size=8)))
def test_no_character_is_lost_or_moved(pieces: list[str]) -> None:
    blocks = MarkdownBlocks()
    out = [blocks.feed(piece) for piece in pieces]
    assert "".join(out) + blocks.finish() == "".join(pieces)


@given(st.text())
def test_clean_text_moves_no_cursor(text: str) -> None:
    assert not set(clean(text)) & {"\x1b", "\r", "\b", "\x9b", "\x00", "\u202e"}


CLEANED = {"\x1b[31mred\x1b[0m": "red", "a\r\nb": "a\nb", "over\rwritten": "over\nwritten", "\x1b]0;title\x07x": "x"}


@pytest.mark.parametrize("text", CLEANED)
def test_cleaning(text: str) -> None:
    assert clean(text) == CLEANED[text]


def test_visible_spells_out_what_hides() -> None:
    assert visible("ls\x1b[2K\u202e\tx\n") == "ls\\x1b[2K\\u202e\tx\n"


LINES = [
    ([TextDelta(text="Hel"), TextDelta(text="lo"), Text(text="Hello")], "Hello\n"),
    ([Text(text="Whole.")], "Whole.\n"),
    (
        [
            Init(cwd="/w"),
            ToolUse(tool_use_id="1", name="edit_file", target="/w/a.py", operation="write"),
            TextDelta(text="mid"),
            FileChange(path="a.py", change="modified", diff="@@ -1 +1 @@\n-a\n+b\n"),
            ToolResult(tool_use_id="1", name="edit_file", status="success", duration_ms=1234.0),
        ],
        "mid\n    @@ -1 +1 @@\n    -a\n    +b\n✓ edit_file a.py 1.2s\n",
    ),
    (
        [
            ToolUse(tool_use_id="1", name="shell", target="make", operation="execute"),
            ToolResult(tool_use_id="1", name="shell", status="error", output="no rule\n", exit_code=2),
        ],
        "✗ shell make exit 2\n    no rule\n",
    ),
    ([Error(kind="timeout", message="too late", fatal=True)], "error (timed out): too late\n"),
    ([Error(kind="unknown", message="no reason", fatal=True)], "error: no reason\n"),
    ([Error(kind="model_not_found", message="Unknown model 'x'", fatal=True)], "error: Unknown model 'x'\n"),
]


@pytest.mark.parametrize(("stream", "lines"), LINES)
def test_lines(stream: list[object], lines: str) -> None:
    view = EventLines(plain)
    assert "".join(view.show(event) for event in stream) == lines  # type: ignore[arg-type]


QUESTIONS = [
    (
        PermissionRequest(
            request_id="1", tool_name="shell", operation="execute", target="ls\nrm x", risk="high",
            input={"command": "ls\nrm x"}, description="List", risk_reasons=["rm deletes x", "two", "three", "four"],
        ),
        "? shell · risk high · List\n    rm deletes x; two; three\n    $ ls\n    $ rm x\n",
    ),
    (
        PermissionRequest(
            request_id="1", tool_name="edit_file", operation="write", target="a.py",
            input={"file_path": "a.py", "old_string": "a", "new_string": "b\nc"},
        ),
        "? edit_file · risk medium\n    a.py\n    -a\n    +b\n    +c\n",
    ),
    (
        PermissionRequest(
            request_id="1", tool_name="edit_file", operation="write", target="a.py",
            input={"changes": [{"path": "a.py", "diff": "@@ -1 +1 @@\n-a\n+b\n"}, {"path": "b.py", "diff": "-c\n"}]},
        ),
        "? edit_file · risk medium\n    a.py\n    @@ -1 +1 @@\n    -a\n    +b\n    -c\n",
    ),
    (
        PermissionRequest(request_id="1", tool_name="mcp", native_name="add", target="add", input={"a": 1}),
        '? mcp · risk medium\n    add\n    {\n      "a": 1\n    }\n',
    ),
    (
        PermissionRequest(request_id="1", tool_name="web_fetch", operation="network", target="http://x"),
        "? web_fetch · risk medium\n    http://x\n",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "text"), QUESTIONS)
def test_a_question_shows_everything_it_is_about(request_: PermissionRequest, text: str) -> None:
    assert describe(request_, plain) == text


LONG = "".join(f"line {number}\n" for number in range(1, 31))
USE = ToolUse(tool_use_id="1", name="shell", operation="execute", native_name="Bash", target="make")
FAILED = ToolResult(tool_use_id="1", name="shell", status="error", output=LONG + "boom\n", exit_code=2)


def shown(lines: EventLines, *stream: Event) -> list[str]:
    return "".join(lines.show(event) for event in stream).splitlines()


def test_a_long_output_ends_with_its_end() -> None:
    end = [f"    {line}" for line in [*LONG.splitlines(), "boom"]]
    assert shown(EventLines(plain), USE, FAILED) == [
        "✗ shell make exit 2", "    … 19 earlier lines (--full-output shows all)", *end[-12:],
    ]  # fmt: skip
    assert shown(EventLines(plain, full_output=True), USE, FAILED) == ["✗ shell make exit 2", *end]


def test_output_is_followed_while_it_runs_and_no_line_comes_twice() -> None:
    pieces = [ToolProgress(tool_use_id="1", output=text) for text in (LONG[:10], LONG[10:100], "")]
    lines = EventLines(plain, follow=True, full_output=True)
    assert shown(lines, USE, *pieces, FAILED) == [
        "▸ shell make", *(f"    {line}" for line in [*LONG.splitlines(), "boom"]), "✗ shell make exit 2",
    ]  # fmt: skip
    other = ToolProgress(tool_use_id="1", output="something else\n")
    assert shown(EventLines(plain, follow=True), USE, other, FAILED)[:3] == [
        "▸ shell make", "    something else", "✗ shell make exit 2",
    ]  # fmt: skip


def test_summary() -> None:
    done = Done(status="success", usage=Usage(total_tokens=12345), cost_usd=0.5, duration_ms=61_500.0, tool_uses=2)
    assert summary(done) == "success · 2 tools · 12,345 tokens · $0.5000 · 61.5s"


def test_branches_stand_below_where_the_terminal_is_narrow(tmp_path: Path) -> None:
    tree = Worktree(tmp_path, tmp_path, "stagedoor/1115-083612-f978/one", "base", tmp_path)
    run = AgentRun("one", Task("understudy", "x"), tree)
    wide = comparison([run], plain, 120)
    assert wide.splitlines()[-1].endswith("  stagedoor/1115-083612-f978/one")
    narrow = comparison([run], plain, 60).splitlines()
    assert narrow[-1] == "branch: stagedoor/1115-083612-f978/one"
    assert max(map(len, narrow)) <= 60


def test_tables_know_how_wide_characters_are() -> None:
    assert table(["a", "b"], [["日本", "x"], ["é", "y"]]) == "a     b\n────  ─\n日本  x\né     y"


AGES = {0: "", 999_000: "1 s ago", 940_000: "1 min ago", -86_400_000: "1 d ago"}


@pytest.mark.parametrize("then", AGES)
def test_ages(then: int) -> None:
    assert ago(then, 1_000_000) == AGES[then]


class Typing:
    """A keyboard on which these keys are pressed."""

    def __init__(self, *keys: str) -> None:
        self._keys = list(keys)
        self.secrets = 0

    async def read_keys(self) -> str:
        return self._keys.pop(0)

    async def line(self, text: str, *, secret: bool = False) -> str | None:
        self.secrets += secret
        return self._keys.pop(0)


ANSWERABLE = {
    "questions": [
        {"question": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue"}]},
        {"question": "Which sizes?", "options": [{"label": "S"}, {"label": "M"}, {"label": "L"}], "multiSelect": True},
        {"question": "Why?"},
    ]
}
CHOSEN: dict[str, tuple[tuple[str, ...], Allow | Deny]] = {
    "all": (
        ("2", "3", "1", "9", "\r", "Because."),
        Allow(
            updated_input={
                **ANSWERABLE,
                "answers": {"Which colour?": "Blue", "Which sizes?": ["L", "S"], "Why?": "Because."},
            }
        ),
    ),
    "another": (
        ("o", "Green", "1", "\r", "So."),
        Allow(
            updated_input={
                **ANSWERABLE,
                "answers": {"Which colour?": "Green", "Which sizes?": ["S"], "Why?": "So."},
            }
        ),
    ),
    "none": (("1", "n"), Deny("the user does not want to answer")),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_questions_of_the_agent_are_answered_by_number(name: str) -> None:
    keys, decision = CHOSEN[name]
    request = PermissionRequest(request_id="1", tool_name="question", input=ANSWERABLE)
    written: list[str] = []
    assert asyncio.run(answer_agent(request, cast("Keyboard", Typing(*keys)), written.append, plain)) == decision
    assert "? Which colour?\n    1 Red\n    2 Blue\n" in "".join(written)


class AtTerminal(Typing):
    """The same, with the terminal it is at."""

    columns = 30

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def forget(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def answered(self, request_id: str) -> None: ...
    async def wait_until_shown(self, request_id: str) -> None: ...


OFFERED: dict[str, tuple[Capabilities, str, tuple[str, ...], Allow | Deny]] = {
    "an edited call": (
        Capabilities(edit_input=True, deny_message=True),
        "[y]es [n]o [e]dit",
        ("s", "e", "ls -l"),
        Allow(updated_input={"command": "ls -l"}),
    ),
    "nothing changed": (Capabilities(edit_input=True), "[y]es [n]o [e]dit", ("e", "ls", "y"), Allow()),
    "words with a no": (
        Capabilities(deny_message=True),
        "[y]es [n]o [s]ay what instead",
        ("e", "s", "", "s", "use find"),
        Deny("the user wants this instead: use find"),
    ),
    "neither": (Capabilities(), "[y]es [n]o ", ("e", "s", "n"), Deny("the user refused this call")),
}


@pytest.mark.parametrize("name", OFFERED)
def test_only_answers_with_an_effect_are_offered(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    capabilities, offer, keys, decision = OFFERED[name]
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.delenv("VISUAL", raising=False)
    typing, written = AtTerminal(*keys), list[str]()
    questions = TerminalQuestions(cast("Keyboard", typing), typing, written.append, plain, capabilities=capabilities)
    request = PermissionRequest(request_id="1", tool_name="shell", operation="execute", input={"command": "ls"})
    assert asyncio.run(questions(request)) == decision
    assert f"  allow? {offer}" in "".join(written)
    assert "".join(written).count("allow?") == len([key for key in keys if len(key) == 1])


def test_edit_opens_the_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = tmp_path / "editor"
    editor.write_text(f'#!/bin/sh\ncp "$1" {tmp_path}/seen\necho \'touch other\' > "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    typing = AtTerminal("e")
    capabilities = Capabilities(edit_input=True)
    questions = TerminalQuestions(cast("Keyboard", typing), typing, lambda text: None, plain, capabilities=capabilities)
    request = PermissionRequest(request_id="1", tool_name="shell", operation="execute", input={"command": "touch made"})
    assert asyncio.run(questions(request)) == Allow(updated_input={"command": "touch other"})
    assert (tmp_path / "seen").read_text() == "touch made"


def test_a_long_question_is_cut_only_where_an_editor_shows_the_rest() -> None:
    content = "".join(f"{number}\n" for number in range(200))
    request = PermissionRequest(request_id="1", tool_name="write_file", operation="write", input={"content": content})
    assert describe(request, plain).endswith("    +199\n")
    assert describe(request, plain, shortened=True).endswith("    +79\n    … 120 more lines: [e]dit shows all\n")


WRAPPED = [
    ("one two three", 20, "one two three"),
    ("one two three", 8, "one two\nthree"),
    ("    $ one two three", 12, "    $ one\n      two\n      three"),
    ("    + one two three", 12, "    + one\n    two\n    three"),
    ("unbreakable word", 6, "unbrea\nkable\nword"),
    ("\x1b[2m  one two\x1b[0m three", 9, "\x1b[2m  one two\x1b[0m\n  three"),
    ("漢字 漢字 漢字", 9, "漢字 漢字\n漢字"),
    ("two\nlines", 5, "two\nlines"),
    ("", 5, ""),
]


@pytest.mark.parametrize(("text", "columns", "lines"), WRAPPED)
def test_lines_break_between_words(text: str, columns: int, lines: str) -> None:
    assert wrapped(text, columns) == lines


@given(text=st.text(alphabet="ab \n\t漢$", max_size=80), columns=st.integers(4, 20))
def test_no_line_is_too_long_and_no_word_is_lost(text: str, columns: int) -> None:
    lines = wrapped(text, columns).split("\n")
    assert all(width(line) <= columns for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_a_table_fits_a_narrow_terminal() -> None:
    rows = [("claude", "2 s", ("bad", "not signed in: run it once")), ("codex", "12 s", "ready")]
    made = table(["agent", "first event", "status"], rows, columns=34)
    assert made.splitlines() == [
        "agent   first  status",
        "        event",
        "──────  ─────  ───────────────────",
        "claude  2 s    not signed in: run",
        "               it once",
        "codex   12 s   ready",
    ]


def test_a_secret_is_typed_unseen() -> None:
    questions = {"questions": [{"question": "Which key?", "isSecret": True}, {"question": "Why?"}]}
    request = PermissionRequest(request_id="1", tool_name="question", input=questions)
    typing, written = Typing("hush", "So."), list[str]()
    decision = asyncio.run(answer_agent(request, cast("Keyboard", typing), written.append, plain))
    assert decision == Allow(updated_input={**questions, "answers": {"Which key?": "hush", "Why?": "So."}})
    assert typing.secrets == 1
    assert "hush" not in "".join(written)


@pytest.mark.parametrize(("secret", "echo"), [(False, "hux\b \bsh\n"), (True, "***\b \b**\n")])
def test_a_line_is_shown_as_it_is_typed_or_as_stars(
    secret: bool, echo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    master, terminal = os.openpty()
    try:
        keyboard = Keyboard(terminal)
        keyboard.start()
        os.write(master, b"hux\x7fsh\n")
        assert asyncio.run(keyboard.line("", secret=secret)) == "hush"
        keyboard.stop()
    finally:
        os.close(master)
        os.close(terminal)
    assert capsys.readouterr().err == echo


def test_only_questions_in_the_shape_the_agents_share_are_asked_so() -> None:
    others = [{}, {"questions": 1}, {"questions": [1, {"question": 2}]}]
    assert [questions_in(PermissionRequest(request_id="1", tool_name="question", input=other)) for other in others] == [
        []
    ] * 3
    assert questions_in(PermissionRequest(request_id="1", tool_name="shell", input=ANSWERABLE)) == []
