"""Scripts written as YAML say what scripts written in Python say, and mistakes are named with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagedoor.testing import (
    Case,
    ScriptError,
    When,
    call,
    context_overflow,
    cut,
    delete_file,
    edit_file,
    empty,
    endless,
    find_files,
    forever,
    half_emoji,
    http_error,
    load_script,
    mcp,
    native,
    plan,
    question,
    read_file,
    say,
    search_content,
    shell,
    stall,
    stop,
    stream_error,
    structured,
    task,
    think,
    usage,
    web_fetch,
    web_search,
    write_file,
)
from stagedoor.testing.yaml_script import LoadedScript

PARTS = [
    ("say: Hello there", say("Hello there")),
    ("say: {text: abc, chunks: 3, pause: 0.5}", say("abc", chunks=3, pause=0.5)),
    ("say: [a, b]", say(["a", "b"])),
    ("say: Yes", say("Yes")),
    ("say: 42", say("42")),
    ("think: Hm", think("Hm")),
    ("shell: ls -la", shell("ls -la")),
    ("shell: {command: ls, escalate: 'May I?', background: true}", shell("ls", escalate="May I?", background=True)),
    ("read_file: a.txt", read_file("a.txt")),
    ("write_file: {path: a, content: x}", write_file("a", "x")),
    ("edit_file: {path: a, old: x, new: y}", edit_file("a", "x", "y")),
    ("delete_file: a", delete_file("a")),
    ("search_content: {pattern: x, path: src}", search_content("x", "src")),
    ("find_files: '*.py'", find_files("*.py")),
    ("web_fetch: http://localhost", web_fetch("http://localhost")),
    ("web_search: news", web_search("news")),
    ("plan: [A, {text: B, status: completed}]", plan([{"text": "A"}, {"text": "B", "status": "completed"}])),
    ("question: {text: 'Which?', options: [a, b]}", question("Which?", ["a", "b"])),
    ("call: {tool: frob, input: {x: 1}}", call("frob", x=1)),
    ("native: {tool: Bash, input: {command: ls}}", native("Bash", command="ls")),
    ("mcp: {server: s, tool: add, arguments: {a: 1}}", mcp("s", "add", a=1)),
    ("task: {prompt: Dig, script: [{shell: ls}, {say: Dug}]}", task("Dig", [shell("ls"), say("Dug")])),
    ("structured: {answer: 42}", structured({"answer": 42})),
    ("stop: max_tokens", stop("max_tokens")),
    ("usage: {input: 5, output: 2, cached: 1}", usage(input=5, output=2, cached=1)),
    ("http_error: 401", http_error(401)),
    ("http_error: {status: 429, retry_after: 1, times: 2}", http_error(429, retry_after=1, times=2)),
    ("stream_error: {kind: overloaded, message: No}", stream_error("overloaded", "No")),
    ("stream_error", stream_error()),
    ("context_overflow", context_overflow()),
    ("cut", cut()),
    ("cut: {partway: true, times: 1}", cut(partway=True, times=1)),
    ("stall: 2", stall(2)),
    ("stall", stall()),
    ("endless: on", endless("on")),
    ("empty", empty()),
    ("half_emoji", half_emoji()),
]


@pytest.mark.parametrize(("text", "part"), PARTS, ids=[text.split(":")[0] for text, _ in PARTS])
def test_parts(text, part):
    assert load_script(f"- {text}\n") == LoadedScript((part,))


def test_a_whole_script(tmp_path: Path):
    text = """
script:
  - - think: Let me run the tests.
    - shell: pytest -q
  - when:
      - contains: passed
        reply: {say: All green.}
      - matches: \\d+ failed
        error: true
        reply: [{say: Red.}, {shell: git diff}]
      - reply: {say: Hm.}
  - forever:
      say: Yes.
routes:
  the sub job:
    - say: Here.
"""
    cases = (
        Case(say("All green."), contains="passed"),
        Case((say("Red."), shell("git diff")), matches="\\d+ failed", error=True),
        Case(say("Hm.")),
    )
    expected = LoadedScript(
        ((think("Let me run the tests."), shell("pytest -q")), When(cases), forever(say("Yes."))),
        {"the sub job": (say("Here."),)},
    )
    path = tmp_path / "script.yaml"
    path.write_text(text)
    assert load_script(text) == load_script(path) == load_script(str(path)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "<script>: the script is empty"),
        ("just words\n", "<script>:1: expected a list of replies, or a mapping"),
        ("- say: a\n- shout: b\n", "<script>:2: unknown part 'shout': choose from call, context_overflow"),
        ("- hello\n", "<script>:1: 'hello' is not a part: to send it as text, write `say: …`"),
        ("- say: a\n- say: b\n  shell: c\n", "<script>:2: a part has one key, this has say, shell"),
        ("- say: [\n", "<script>:2: expected the node content"),
        ("- shell: [a]\n", "<script>:1: Expected `str`, got `array`"),
        ("- http_error: many\n", "<script>:1: Expected `int`, got `str`"),
        ("- plan: [{status: pending}]\n", "<script>:1: 'text' is missing"),
        ("- shell: {cmd: ls}\n", "<script>:1: unknown key cmd: choose from command, escalate, background"),
        ("- write_file: a\n", "<script>:1: write_file missing 1 required positional argument: 'content'"),
        ("- half_emoji: x\n", "<script>:1: half_emoji takes no argument"),
        ("- stop: tired\n", "<script>:1: Invalid enum value 'tired'"),
        ("- when:\n  - contains: x\n", "<script>:2: this case has no `reply`"),
        (
            "- when:\n  - has: x\n    reply: empty\n",
            "<script>:2: unknown key has: choose from contains, matches",
        ),
        ("- mcp: {server: s}\n", "<script>:1: mcp needs tool"),
        ("- task: {script: []}\n", "<script>:1: task missing 1 required positional argument: 'prompt'"),
        ("replies: []\n", "<script>:1: unknown key replies: choose from script, routes"),
        ("script: {say: a}\n", "<script>:1: expected a list of replies"),
    ],
)
def test_mistakes_are_named_with_their_lines(text, message):
    with pytest.raises(ScriptError) as caught:
        load_script(text)
    assert str(caught.value).startswith(message)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ScriptError, match=r"nowhere\.yaml: No such file"):
        load_script(tmp_path / "nowhere.yaml")
