"""The command line with the real CLIs, on the scripted model: the demo, the stored sessions, the terminal."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from stagedoor import catalog
from stagedoor.cli.scripted_clis import LAST_WORDS, PROMPT, drift, try_cli
from stagedoor.stored_sessions import events_of
from stagedoor.testing import ScriptedModel, find_cli, say, scripted_agents, shell
from stagedoor.unified import events

pytestmark = pytest.mark.live
CONFTEST = Path(__file__).parent.parent / "cli" / "conftest.py"


def program(agent: str) -> str:
    path = find_cli(agent)
    if path is None:
        pytest.skip(f"{agent} is not installed")
    try:
        catalog.agent(agent)
    except ModuleNotFoundError:
        pytest.skip(f"{agent} has no driver yet")
    return str(path)


@pytest.mark.parametrize("agent", scripted_agents())
def test_a_trial_shows_no_drift_and_its_stored_session_can_be_read(agent: str, tmp_path: Path) -> None:
    trial = asyncio.run(try_cli(agent, program(agent), tmp_path))
    assert list(drift(trial)) == []
    folder, home = tmp_path / agent / "greeting", tmp_path / agent / "home"
    with ScriptedModel([]) as model:
        env = model.environment(agent, home=home, cwd=folder).env
    [stored] = catalog.agent(agent).list_stored(str(folder), env)
    stored_events = list(events_of(stored, env))
    assert isinstance(stored_events[0], events.Init)
    prompts = [event.prompt for event in stored_events if isinstance(event, events.TurnStarted)]
    assert prompts == [PROMPT]
    texts = [event.text for event in stored_events if isinstance(event, events.Text)]
    assert texts[-1] == LAST_WORDS
    used = [event for event in stored_events if isinstance(event, events.ToolUse)]
    assert [use.operation for use in used][-2:] == ["write", "execute"]
    assert "unittest" in used[-1].target
    ended = {event.tool_use_id: event.status for event in stored_events if isinstance(event, events.ToolResult)}
    assert ended == {use.tool_use_id: "success" for use in used}


def test_an_edited_command_is_what_runs(tmp_path: Path) -> None:
    """A person at a terminal changes the command of the real Claude Code in an editor."""
    spec = importlib.util.spec_from_file_location("terminal", CONFTEST)
    assert spec is not None
    assert spec.loader is not None
    terminal: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(terminal)
    claude = program("claude")
    workspace = tmp_path / "work"
    workspace.mkdir()
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\necho 'touch other' > \"$1\"\n")
    editor.chmod(0o755)
    with ScriptedModel([shell("touch made"), say("Over.")]) as model:
        env = {**model.environment("claude", home=tmp_path / "home", cwd=workspace).env, "EDITOR": str(editor)}
        env.pop("NO_COLOR")
        path = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
        words = ["run", "claude", "go", "--executable", claude, "--approval", "ask"]
        at = terminal.Terminal([*terminal.STAGEDOOR, *words], workspace, {**env, "PATH": path})
        try:
            at.until("allow?")
            assert "$ touch made" in at.text
            at.type("e")
            assert at.end() == 0, at.text
        finally:
            at.close()
    assert sorted(file.name for file in workspace.iterdir()) == ["other"]
    assert "Over." in at.screen


def test_a_chat_of_two_turns_with_a_real_cli(tmp_path: Path) -> None:
    """The real Codex at a terminal: a question in place, a second turn after the mode was changed, and undo."""
    spec = importlib.util.spec_from_file_location("terminal", CONFTEST)
    assert spec is not None
    assert spec.loader is not None
    terminal: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(terminal)
    codex = program("codex")
    workspace = tmp_path / "work"
    workspace.mkdir()
    with ScriptedModel([shell("touch made"), say("First."), shell("touch second"), say("Second.")]) as model:
        env = model.environment("codex", home=tmp_path / "home", cwd=workspace).env
        words = ["chat", "codex", "--executable", codex, "--approval", "ask"]
        at = terminal.Terminal([*terminal.STAGEDOOR, *words], workspace, env)
        try:
            at.until_display("❯")
            at.type("do the first thing\r")
            at.until_display("allow?")
            at.type("y")
            at.until_display("\nFirst.")
            at.type("/mode full auto\r")
            at.until_display("mode: Full auto")
            at.type("and the second\r")
            at.until_display("\nSecond.")
            assert sorted(file.name for file in workspace.iterdir()) == ["made", "second"]
            at.until_gone("Ctrl-C interrupts")
            mark = len(at.text)
            at.type("/undo\r")
            at.until("before turn 2", after=mark)
            assert [file.name for file in workspace.iterdir()] == ["made"]
            at.type("\x04")
            assert at.end() == 0, at.text
        finally:
            at.close()
    assert at.display.splitlines()[-1].startswith("to go on: stagedoor chat codex --resume ")


def test_json_of_a_real_cli_is_whole(tmp_path: Path) -> None:
    import subprocess

    claude = program("claude")
    with ScriptedModel([say("Hello.")]) as model:
        env = model.environment("claude", home=tmp_path / "home", cwd=tmp_path).env
        words = [sys.executable, "-m", "stagedoor.cli", "run", "claude", "hi", "--json", "--executable", claude]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    assert (lines[0]["type"], lines[-1]["type"], lines[-1]["result"]) == ("init", "done", "Hello.")


def test_two_real_clis_work_in_worktrees(tmp_path: Path) -> None:
    """``stagedoor parallel`` as a user has it: one home, both CLIs on the PATH, a repository."""
    import subprocess

    agents = ("claude", "codex")
    folders = [str(Path(program(agent)).parent) for agent in agents]
    repository = tmp_path / "repo"
    repository.mkdir()
    (repository / "a.txt").write_text("one\n")
    identity = ["-c", "user.name=T", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
    for git in (["init", "-q", "-b", "main"], ["add", "."], [*identity, "commit", "-q", "-m", "First"]):
        subprocess.run(["git", *git], cwd=repository, check=True, capture_output=True)
    script = [shell("echo two >> a.txt"), say("Appended.")]
    with ScriptedModel(script) as model:
        env: dict[str, str] = {}
        for agent in agents:
            env |= model.environment(agent, home=tmp_path / "home", cwd=repository).env
        env["PATH"] = os.pathsep.join([*folders, env["PATH"]])
        words = ["parallel", "Append two", "--agents", ",".join(agents), "--tier", "autonomous"]
        test = ["--test", "grep -q two a.txt", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "stagedoor.cli", *words, *test],
            cwd=repository, env=env, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    rows = {row["agent"]: (row["status"], row["changes"], row["tests"]) for row in lines[-1]["comparison"]}
    assert rows == {agent: ("success", {"files": 1, "insertions": 1, "deletions": 0}, "pass") for agent in agents}
    assert done.returncode == 0
    ends = [line["task"] for line in lines[:-1] if line["event"]["type"] == "done"]
    assert sorted(ends) == sorted(agents)
