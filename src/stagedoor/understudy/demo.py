"""What the understudy plays without a script: a short demo that looks at the workspace first."""

from __future__ import annotations

import re
import shlex
import sys

from stagedoor.testing.script import (
    Case,
    Script,
    When,
    edit_file,
    find_files,
    plan,
    read_file,
    say,
    search_content,
    shell,
    stop,
    think,
    write_file,
)

from .workspace import WorkspaceFiles

DEMO_FILES: dict[str, str] = {
    "greeting.py": '''"""Greets people."""


def greet(name: str) -> str:
    return f"Hello, {nam}!"
''',
    "test_greeting.py": """import unittest

from greeting import greet


class GreetingTest(unittest.TestCase):
    def test_greets_by_name(self):
        self.assertEqual(greet("Ada"), "Hello, Ada!")


if __name__ == "__main__":
    unittest.main()
""",
}
"""A little repository with a mistake in it: in such a workspace the demo finds the mistake, repairs it and tests."""

MISTAKE, REPAIR = 'f"Hello, {nam}!"', 'f"Hello, {name}!"'
PACE = 0.02


NOTE = "hello-from-stagedoor.md"
SHOW = re.compile(r"\bshow me\b|\bwhat (can you|you can) do\b|\btry something\b|\bsay hello\b", re.IGNORECASE)
"""Who asks like this wants to see edits and questions, and may have one file more for it."""


def demo(workspace: WorkspaceFiles, prompt: str = "") -> Script:
    if MISTAKE in (workspace.before("greeting.py") or ""):
        return _repair()
    if SHOW.search(prompt):
        return _show(workspace)
    return _tour(workspace)


def _repair() -> Script:
    tests = f"{shlex.quote(sys.executable)} -B -m unittest -q"
    todo = ["Read the code", "Repair the greeting", "Run the tests"]

    def at(done: int) -> list[dict[str, str]]:
        states = ["completed"] * done + ["in_progress"] + ["pending"] * len(todo)
        return [{"text": text, "status": status} for text, status in zip(todo, states, strict=False)]

    return [
        [
            think("A small Python project with a test. Let me see what the code does before I touch it."),
            say("I will look at the greeting, repair it, and run the tests.\n", pause=PACE),
            plan(at(0)),
            read_file("greeting.py"),
        ],
        [
            say("`nam` is not defined: the parameter is called `name`.\n", pause=PACE),
            plan(at(1)),
            edit_file("greeting.py", MISTAKE, REPAIR),
        ],
        When(
            (
                Case([say("Then I leave it as it is.", pause=PACE), stop("end")], error=True),
                Case([plan(at(2)), shell(tests)]),
            )
        ),
        When(
            (
                Case([say("The edit is made; I did not run the tests.", pause=PACE)], contains="Not done"),
                Case([say("The tests still fail; have a look at their output.", pause=PACE)], error=True),
                Case([plan(at(3)), say("Repaired, and the tests pass.", pause=PACE)]),
            )
        ),
    ]


def _show(workspace: WorkspaceFiles) -> Script:
    """Plans, writes one note (or changes the one it wrote before), runs one command; whatever is refused is left."""
    files = workspace.find("**", ".").splitlines()
    before = workspace.before(NOTE)
    todo = ["Look around", f"Write {NOTE}", "Count its words"]

    def at(done: int) -> list[dict[str, str]]:
        states = ["completed"] * done + ["in_progress"] + ["pending"] * len(todo)
        return [{"text": text, "status": status} for text, status in zip(todo, states, strict=False)]

    if before is None:
        lines = [
            "# Hello from Stagedoor",
            "",
            f"I found {len(files)} file{'' if len(files) == 1 else 's'} in {workspace.root.name}.",
            "You said yes once.",
        ]
        call = write_file(NOTE, "\n".join(lines) + "\n")
    elif "You said yes once." in before:
        call = edit_file(NOTE, "You said yes once.", "You said yes more than once.")
    else:
        call = write_file(NOTE, before.rstrip("\n") + "\nAnd again.\n")
    return [
        [
            think("Somebody wants to see how this goes. I look first, then write one small file, then run a command."),
            say(
                "Hello! I am the **understudy**: I play a script, but the tools are real. First I look around.\n",
                pause=PACE,
            ),
            plan(at(0)),
            find_files("*"),
        ],
        [
            say(
                f"Now I write a note, `{NOTE}`. How much I must ask is what you chose when you started me.\n",
                pause=PACE,
            ),
            plan(at(1)),
            call,
        ],
        When(
            (
                Case([say("Then I leave it. Nothing was written.", pause=PACE), stop("end")], error=True),
                Case([plan(at(2)), shell(f"wc -w {NOTE}")]),
            )
        ),
        When(
            (
                Case(
                    [say(f"The note is written, the command not run. Delete `{NOTE}` if you like.", pause=PACE)],
                    error=True,
                ),
                Case(
                    [
                        plan(at(3)),
                        say(
                            f"Done: one file, one command, and you decided. Delete `{NOTE}` whenever you like, and "
                            "then ask an agent that can think.",
                            pause=PACE,
                        ),
                    ]
                ),
            )
        ),
    ]


def _tour(workspace: WorkspaceFiles) -> Script:
    files = workspace.find("**", ".").splitlines()
    name = workspace.root.name or "the workspace"
    count = f"{len(files)} file{'' if len(files) == 1 else 's'}" if files else "no files yet"
    steps: list[dict[str, str]] = [{"text": "Look around", "status": "in_progress"}, {"text": "Report"}]
    closing = (
        "That is all I do without a script. Say “show me what you can do”, and I write a file and run a command; "
        "or give me a script as the prompt, as `- say: Hello`, or in a fenced `stagedoor` block."
    )
    return [
        [
            think(f"I am in {name}. Let me look around before I say anything."),
            say(f"Hello! I am the understudy, and this is {name} with {count}.\n", pause=PACE),
            plan(steps),
            find_files("*"),
            *([search_content("TODO|FIXME")] if files else []),
        ],
        [
            plan([{**step, "status": "completed"} for step in steps]),
            say(closing, pause=PACE),
        ],
    ]
