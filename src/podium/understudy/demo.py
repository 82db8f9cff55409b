"""What the understudy does when nobody gave it a script: a short scene that looks at the workspace first."""

from __future__ import annotations

import shlex
import sys

from podium.testing.script import (
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
)

from .workspace import Workspace

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


def demo(workspace: Workspace) -> Script:
    if MISTAKE in (workspace.before("greeting.py") or ""):
        return _repair()
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


def _tour(workspace: Workspace) -> Script:
    files = workspace.find("**", ".").splitlines()
    name = workspace.root.name or "the workspace"
    count = f"{len(files)} file{'' if len(files) == 1 else 's'}" if files else "no files yet"
    steps: list[dict[str, str]] = [{"text": "Look around", "status": "in_progress"}, {"text": "Report"}]
    closing = "That is all I do without a script. Give me one with --script, or as a fenced `podium` block."
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
