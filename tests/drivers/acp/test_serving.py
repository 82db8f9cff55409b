"""Files and terminals that we serve, under the same rules as questions: an agent written with the official package."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import stagedoor
from stagedoor import AcpAgent, Allow, Deny
from stagedoor.agents.acp.events import FileServed, TerminalServed
from stagedoor.agents.acp.requests import CreateTerminal, EnvVariable, ReadTextFile, WriteTextFile
from stagedoor.drivers.acp.dictionary import AcpDictionary
from stagedoor.drivers.acp.serving import ServedCalls
from stagedoor.permissions.audit import read_log
from stagedoor.permissions.policy import Policy
from stagedoor.permissions.rules import Rule
from stagedoor.unified.decisions import Decision
from stagedoor.unified.events import Event, PermissionRequest
from stagedoor.unified.options import Options

BOUND = 120.0
EXAMPLE = Path(__file__).parents[2] / "agents" / "acp" / "example_agent.py"
AGENT = AcpAgent(
    command=[sys.executable, str(EXAMPLE)],
    name="example",
    modes={"dry-run": "ask", "supervised": "ask", "autonomous": "code"},
)


def run(prompts: list[str], **options: Any) -> list[Event]:
    async def main() -> list[Event]:
        events: list[Event] = []
        async with asyncio.timeout(BOUND), stagedoor.open(AGENT, **options) as session:
            for prompt in prompts:
                events += [event async for event in session.send(prompt)]
        return events

    return asyncio.run(main())


def calls(events: list[Event]) -> list[tuple[Any, ...]]:
    told: list[tuple[Any, ...]] = []
    for event in events:
        match event:
            case stagedoor.ToolUse():
                told.append(("use", event.name, event.target))
            case stagedoor.ToolResult():
                told.append(("result", event.name, event.status, event.exit_code, event.output))
            case PermissionRequest():
                told.append(("question", event.tool_name, event.target))
            case _:
                pass
    return told


def answers(*decisions: Decision) -> Callable[[PermissionRequest], Decision]:
    rest = iter(decisions)
    return lambda request: next(rest)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    for folder in (workspace, outside):
        folder.mkdir()
    return workspace, outside


def test_supervised(places: tuple[Path, Path], tmp_path: Path) -> None:
    """An edit of the workspace is free; what runs later, what lies outside, and commands are asked about."""
    workspace, outside = places
    (workspace / "link").symlink_to(outside)
    prompts = [
        f"write {workspace}/a.txt",
        f"write {workspace}/.github/workflows/ci.yml",
        f"write {workspace}/link/b.txt",
        "terminal echo out; exit 3",
        "terminal echo no",
    ]
    decide = answers(Allow(), Deny("not there"), Allow(), Deny("no"))
    audit = tmp_path / "audit.jsonl"
    events = run(prompts, cwd=workspace, can_use_tool=decide, audit=str(audit), watch_files=False)
    workflow, behind = f"{workspace}/.github/workflows/ci.yml", f"{outside}/b.txt"
    assert calls(events) == [
        ("use", "write_file", f"{workspace}/a.txt"),
        ("result", "write_file", "success", None, ""),
        ("use", "write_file", workflow),
        ("question", "write_file", workflow),
        ("result", "write_file", "success", None, ""),
        ("use", "write_file", f"{workspace}/link/b.txt"),
        ("question", "write_file", behind),
        ("result", "write_file", "denied", None, "not there"),
        ("use", "shell", "/bin/sh -c 'echo out; exit 3'"),
        ("question", "shell", "/bin/sh -c 'echo out; exit 3'"),
        ("result", "shell", "error", 3, "out\n"),
        ("use", "shell", "/bin/sh -c 'echo no'"),
        ("question", "shell", "/bin/sh -c 'echo no'"),
        ("result", "shell", "denied", None, "no"),
    ]
    assert (workspace / "a.txt").read_text() == "written\n"
    assert list(outside.iterdir()) == []
    decided = [record.entry.decision for record in read_log(audit)]
    assert sorted(decided) == ["allow", "allow", "allow", "deny", "deny"]


def test_dry_run_changes_nothing(places: tuple[Path, Path]) -> None:
    workspace, _ = places
    (workspace / "a.txt").write_text("before\n")
    prompts = [f"read {workspace}/a.txt", f"write {workspace}/a.txt", "terminal echo out > b.txt"]
    events = run(prompts, cwd=workspace, tier="dry-run")
    assert next(event.text for event in events if isinstance(event, stagedoor.Text)) == "before\n"
    assert [call[2] for call in calls(events) if call[0] == "result"] == ["success", "denied", "denied"]
    assert [path.name for path in workspace.iterdir()] == ["a.txt"]
    assert (workspace / "a.txt").read_text() == "before\n"


def test_autonomous_asks_nobody(places: tuple[Path, Path]) -> None:
    workspace, outside = places
    events = run([f"write {outside}/a.txt", "terminal echo out"], cwd=workspace, tier="autonomous")
    assert [call[:3] for call in calls(events)] == [
        ("use", "write_file", f"{outside}/a.txt"),
        ("result", "write_file", "success"),
        ("use", "shell", "/bin/sh -c 'echo out'"),
        ("result", "shell", "success"),
    ]
    assert (outside / "a.txt").read_text() == "written\n"


def test_no_piece_of_content_vanishes(places: tuple[Path, Path]) -> None:
    workspace, _ = places
    events = run(["updates"], cwd=workspace)
    notices = [(event.code, event.message) for event in events if isinstance(event, stagedoor.Notice)]
    assert ("attachment", "the agent sent an image: image/png, 1 byte") in notices
    assert ("attachment", "the agent sent a link: file:///n") in notices
    assert ("plan", "# Plan") in notices


def request(tool: Any, operation: Any, **arguments: Any) -> PermissionRequest:
    target = arguments.get("command") or arguments.get("file_path", "")
    return PermissionRequest(request_id="1", tool_name=tool, operation=operation, target=target, input=arguments)


TERMINAL = CreateTerminal("s", "bash", ["-lc", "make test"])
COMMAND = request("shell", "execute", command="make test")
EDIT = request("edit_file", "write", path="old.txt", old_string="two", new_string="2")
EDITS = request("edit_file", "write", path="old.txt", edits=[
    {"old_string": "two", "new_string": "2"}, {"old_string": "one", "new_string": "1"},
])  # fmt: skip
DIFF = request("edit_file", "write", path="old.txt", diff="--- a/old.txt\n+++ b/old.txt\n@@ -2 +2 @@\n-two\n+2\n")
APPENDED = request("write_file", "write", path="old.txt", mode="append", content="x")
SAME_SHELL, OTHER_SHELL = EnvVariable("SHELL", "/bin/bash"), EnvVariable("SHELL", "/tmp/bash")


@pytest.mark.parametrize(
    ("granted", "question", "again"),
    [
        (COMMAND, TERMINAL, False),
        (COMMAND, CreateTerminal("s", "make test"), False),
        (COMMAND, CreateTerminal("s", "make", ["test"], env=[EnvVariable("NO_COLOR", "1")]), False),
        (COMMAND, CreateTerminal("s", "make", ["test"], env=[EnvVariable("LD_PRELOAD", "x.so")]), True),
        (COMMAND, CreateTerminal("s", "make", ["test"], env=[EnvVariable("TERM", "../../x")]), True),
        (COMMAND, CreateTerminal("s", "make", ["test", "install"]), True),
        (COMMAND, CreateTerminal("another", "make", ["test"]), True),
        (COMMAND, CreateTerminal("s", "{cwd}/bash", ["-c", "make test"]), True),
        (COMMAND, CreateTerminal("s", "./bash", ["-c", "make test"]), True),
        (COMMAND, CreateTerminal("s", "bash", ["--rcfile", "x", "-ic", "make test"]), True),
        (request("shell", "execute", command='rm "a / b"'), CreateTerminal("s", "rm", ['"a', "/", 'b"']), True),
        (request("shell", "execute", command="make test", cwd="part"), TERMINAL, True),
        (request("shell", "execute", command="make test", cwd="."), TERMINAL, False),
        (request("shell", "execute", command="make test", sandbox=True), TERMINAL, True),
        (request("shell", "execute", command="make test", script="ls"), TERMINAL, True),
        (request("shell", "execute", description="make test"), TERMINAL, True),
        (COMMAND, CreateTerminal("s", "make", ["test"], cwd="/"), True),
        (COMMAND, CreateTerminal("s", "/bin/bash", ["-c", "cd '{cwd}' && make test"], env=[SAME_SHELL]), False),
        (COMMAND, CreateTerminal("s", "/bin/bash", ["-c", "cd '{cwd}' && make test"], env=[OTHER_SHELL]), True),
        (COMMAND, CreateTerminal("s", "/bin/bash", ["-c", "cd '{cwd}/..' && make test"]), True),
        (COMMAND, CreateTerminal("s", "/bin/bash", ["-c", "cd '{cwd}' && cd '{cwd}' && make test"]), True),
        (COMMAND, CreateTerminal("s", "/bin/bash", ["-c", "cd '{cwd}' && make test; rm -rf ~"]), True),
        (request("edit_file", "write", file_path="a.txt"), WriteTextFile("s", "{cwd}/a.txt", "x"), True),
        (request("edit_file", "write", file_path="a.txt"), WriteTextFile("s", "{cwd}/b.txt", "x"), True),
        (request("read_file", "read", file_path="a.txt"), WriteTextFile("s", "{cwd}/a.txt", "x"), True),
        (request("other", "write", file_path="a.txt"), WriteTextFile("s", "{cwd}/a.txt", "x"), True),
        (request("write_file", "write", file_path="a.txt", content="x"), WriteTextFile("s", "{cwd}/a.txt", "x"), False),
        (request("write_file", "write", file_path="a.txt", content="x"), WriteTextFile("s", "{cwd}/a.txt", "y"), True),
        (request("write_file", "write", file_path="a.txt", content="x"), WriteTextFile("t", "{cwd}/a.txt", "x"), True),
        (EDIT, WriteTextFile("s", "{cwd}/old.txt", "one\n2\nthree\n"), False),
        (EDIT, WriteTextFile("s", "{cwd}/old.txt", "one\n2\nthree\nfour\n"), True),
        (EDITS, WriteTextFile("s", "{cwd}/old.txt", "1\n2\nthree\n"), False),
        (EDITS, WriteTextFile("s", "{cwd}/old.txt", "1\n2\n3\n"), True),
        (DIFF, WriteTextFile("s", "{cwd}/old.txt", "one\n2\nthree\n"), False),
        (DIFF, WriteTextFile("s", "{cwd}/old.txt", "one\n2\nthree\nfour\n"), True),
        (
            request("edit_file", "write", path="old.txt", code_edit="…\n2\n…"),
            WriteTextFile("s", "{cwd}/old.txt", "2"),
            True,
        ),
        (APPENDED, WriteTextFile("s", "{cwd}/old.txt", "one\ntwo\nthree\nx"), False),
        (APPENDED, WriteTextFile("s", "{cwd}/old.txt", "x"), True),
    ],
)
def test_what_was_allowed_is_served_once_without_a_second_question(
    tmp_path: Path, granted: PermissionRequest, question: Any, again: bool
) -> None:
    asked: list[PermissionRequest] = []

    async def ask(request: PermissionRequest) -> Decision:
        asked.append(request)
        return Deny("no")

    (tmp_path / "old.txt").write_text("one\ntwo\nthree\n")
    if isinstance(question, WriteTextFile):
        question = replace(question, path=question.path.format(cwd=tmp_path.resolve()))
    else:
        words = [word.format(cwd=tmp_path) for word in question.args or ()]
        question = replace(question, command=question.command.format(cwd=tmp_path), args=words or None)
    served = ServedCalls(Options(cwd=str(tmp_path)), ask, lambda question: "", edits=False, free=False)
    served.grant(granted, "s")
    assert asyncio.run(served.authorize(question)) == ("no" if again else "")
    assert len(asked) == int(again)
    assert asyncio.run(served.authorize(question)) == "no"


TWICE = "def user():\n    pass\n\ndef admin():\n    pass\n"
ALL = TWICE.replace("pass", "go()")
FIRST = TWICE.replace("pass", "go()", 1)
PLACED = "@@ -4,2 +4,3 @@\n def admin():\n+    go()\n     pass\n"
PASS = {"old_string": "pass", "new_string": "go()"}
USER = {"old_string": "def user():\n    pass", "new_string": "def user():\n    go()"}
HEAD = "--- a/f.py\n+++ b/f.py\n"


@pytest.mark.parametrize(
    ("before", "shown", "after", "is_shown"),
    [
        (TWICE, {"diff": PLACED}, TWICE.replace("admin():\n", "admin():\n    go()\n"), True),
        (TWICE, {"diff": PLACED}, TWICE.replace("user():\n", "user():\n    go()\n"), False),
        (TWICE, {"diff": PLACED.replace("-4", "-1")}, TWICE.replace("admin():\n", "admin():\n    go()\n"), False),
        (TWICE, {"diff": PLACED + HEAD + PLACED}, TWICE.replace("admin():\n", "admin():\n    go()\n"), False),
        (TWICE, {"diff": HEAD}, TWICE, False),
        (None, {"diff": "Index: f.py\n====\n" + HEAD + "@@ -0,0 +1,2 @@\n+one\n+two\n"}, "one\ntwo\n", True),
        ("a\nb\nc\n", {"diff": "@@ -1 +1 @@\n-a\n+A\n@@ -3 +3 @@\n-c\n+C\n"}, "A\nb\nC\n", True),
        ("a", {"diff": "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n"}, "b\n", True),
        ("a", {"diff": "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n"}, "b", False),
        ("a\n", {"diff": "@@ -1 +1,2 @@\n-a\n+#\n\\ No newline at end of file\n+b\n"}, "#b\n", False),
        ("x\n# \u2028go()\n", {"diff": "@@ -1 +1 @@\n-x\n+y\n"}, "y\n# \ngo()\n", False),
        ("x\n# \x0cgo()\n", {"diff": "@@ -1 +1 @@\n-x\n+y\n"}, "y\n# \ngo()\n", False),
        ("x\n# \x0cgo()\n", {"diff": "@@ -1 +1 @@\n-x\n+y\n"}, "y\n# \x0cgo()\n", True),
        ("x\r\ny\r\n", {"diff": "@@ -1 +1 @@\n-x\r\n+z\r\n"}, "z\ny\n", False),
        (TWICE, {**PASS, "replace_all": False}, ALL, False),
        (TWICE, {**PASS, "replace_all": True}, ALL, True),
        (TWICE, {**PASS, "replace_all": True}, FIRST, False),
        (TWICE, {**PASS, "replace_all": "true"}, ALL, False),
        (TWICE, PASS, ALL, False),
        (TWICE, PASS, FIRST, False),
        (TWICE, {**USER, "replace_all": False}, FIRST, True),
        (TWICE, {"edits": [{**PASS, "replace_all": True}]}, ALL, True),
        (TWICE, {"edits": [{**USER, "line": 4}]}, FIRST, False),
        (TWICE, {"edits": [{**USER, "old_str": "x"}]}, FIRST, False),
        (TWICE, {"edits": []}, FIRST, False),
        (TWICE, {"old_string": "", "new_string": "x"}, "x", False),
        ("aaa", {"old_string": "aa", "new_string": "b"}, "ba", False),
        (TWICE, {}, "other", False),
        (TWICE, {"description": "a typo: teh -> the"}, "other", False),
        (TWICE, {"mode": "append", "instruction": "add a comment"}, "other", False),
        (TWICE, {"changes": {"a": "b"}}, "other", False),
        (TWICE, {"text": "other", **USER}, "other", False),
        (TWICE, {"text": "other", **USER}, FIRST, False),
        (TWICE, {"content": FIRST, **USER}, FIRST, True),
        (TWICE, {"content": "x", "file_text": "y"}, "x", False),
        (TWICE, {"content": "x", "insert_line": 0}, "x", False),
        (TWICE, {"content": "x", "mode": "prepend"}, "x", False),
        (TWICE, {"content": "x", "mode": "overwrite", "filename": "f.py"}, "x", True),
        (TWICE, {"content": "x", "moved_to": "g.py"}, "x", False),
    ],
)
def test_a_text_is_written_unasked_only_where_the_call_showed_all_of_it(
    tmp_path: Path, before: str | None, shown: dict[str, Any], after: str, is_shown: bool
) -> None:
    async def ask(request: PermissionRequest) -> Decision:
        return Deny("no")

    file = tmp_path.resolve() / "f.py"
    if before is not None:
        file.write_bytes(before.encode())
    served = ServedCalls(Options(cwd=str(tmp_path)), ask, lambda _: "", edits=False, free=False)
    served.grant(request("edit_file", "write", path="f.py", **shown), "s")
    assert asyncio.run(served.authorize(WriteTextFile("s", str(file), after))) == ("" if is_shown else "no")


@pytest.mark.parametrize(
    ("approval", "free"),
    [(None, ["inside.txt", "outside.txt"]), ("autoEdit", ["inside.txt", "outside.txt"]), ("ask", ["inside.txt"])],
)
def test_what_may_be_read_without_a_question(tmp_path: Path, approval: Any, free: list[str]) -> None:
    """Credentials never, and where everything is asked about nothing outside the workspace."""
    workspace = tmp_path / "work"
    workspace.mkdir()
    files = [workspace / "inside.txt", tmp_path / "outside.txt", workspace / ".env", tmp_path / ".ssh" / "id_rsa"]

    async def ask(request: PermissionRequest) -> Decision:
        return Deny("no")

    async def main() -> list[str]:
        options = Options(cwd=str(workspace), approval=approval)
        served = ServedCalls(options, ask, lambda _: "", edits=False, free=False)
        return [file.name for file in files if not await served.authorize(ReadTextFile("s", str(file)))]

    assert asyncio.run(main()) == free


def test_a_file_is_read_once_before_the_write_that_was_allowed(tmp_path: Path) -> None:
    """A file that nobody may read without a question, and one that the policy lets nobody read."""
    asked: list[str] = []

    async def ask(request: PermissionRequest) -> Decision:
        asked.append(f"{request.operation} {Path(request.target).name}")
        return Deny("no")

    async def main(policy: Policy | None) -> list[str]:
        turn = 1
        served = ServedCalls(
            Options(cwd=str(tmp_path), policy=policy), ask, lambda _: "", edits=False, free=False, turn_of=lambda: turn
        )
        path = str(tmp_path.resolve() / ".env")
        edit = request("edit_file", "write", file_path=path, old_string="", new_string="x")
        served.grant(edit, "s")
        read, write = ReadTextFile("s", path), WriteTextFile("s", path, "x")
        done = [await served.authorize(one) for one in (read, read, write, read)]
        served.grant(edit, "s")
        turn = 2
        return [*done, await served.authorize(write)]

    assert asyncio.run(main(None)) == ["", "no", "", "no", "no"]
    assert asked == ["read .env", "read .env", "write .env"]
    secret = Rule(action="deny", tool=("read_file",), path=("**/.env",))
    assert asyncio.run(main(Policy(rules=(secret,)))) == ["no", "no", "", "no", "no"]


def test_an_agent_that_lies_gets_what_was_shown_once(tmp_path: Path) -> None:
    """It asks about one thing and does another, does it twice, after the turn, in the next, in a session of its own."""
    (tmp_path / "sh").write_text("#!/bin/sh\necho mine >> ran\n")
    (tmp_path / "sh").chmod(0o755)
    command = [sys.executable, "-S", str(Path(__file__).with_name("odd_agent.py")), "asks"]
    agent = AcpAgent(command=command, name="liar", modes={"supervised": "ask"})
    served: list[str] = []

    def decide(request: PermissionRequest) -> Decision:
        if not request.native_name.startswith(("fs/", "terminal/")):
            return Allow()
        served.append(request.target.removeprefix(str(tmp_path)))
        return Deny("no")

    async def main() -> list[str]:
        texts: list[str] = []
        async with asyncio.timeout(BOUND), stagedoor.open(agent, cwd=tmp_path, can_use_tool=decide) as session:
            for prompt in ("liar", "liar_again"):
                events = [event async for event in session.send(prompt)]
                texts += [event.text for event in events if isinstance(event, stagedoor.Text)]
        return texts

    yes = '{"outcome": "selected", "optionId": "yes"}'
    told = [yes, "no", "no", "yes", "no", "no", "yes", "yes", "no", yes]
    assert asyncio.run(main()) == ["\n".join(told), "no"]
    assert served == [
        "/bin/sh -c 'echo b >> ran'",
        "/sh -c 'echo a >> ran'",
        "/bin/sh -c 'echo a >> ran'",
        "/.envrc",
        "/.envrc",
        "/bin/sh -c 'echo c >> ran'",
    ]
    assert (tmp_path / "ran").read_text() == "a\n"
    assert not (tmp_path / "late").exists()


@pytest.mark.parametrize(
    ("served", "status"),
    [
        (FileServed(ReadTextFile("s", "/none", request_id=1), "Resource not found", failed=True), "error"),
        (FileServed(ReadTextFile("s", "/secret", request_id=1), "no"), "denied"),
        (TerminalServed(CreateTerminal("s", "none", request_id=1), refusal="no such program", failed=True), "error"),
        (FileServed(ReadTextFile("s", "/there", request_id=1)), "success"),
    ],
)
def test_what_could_not_be_done_was_not_denied(served: Any, status: str) -> None:
    dictionary = AcpDictionary()
    assert dictionary.translate(served) == []  # of an agent that shows its own calls
    dictionary = AcpDictionary()
    dictionary.serves = True
    *_, result = dictionary.translate(served)
    assert isinstance(result, stagedoor.ToolResult)
    assert result.status == status
