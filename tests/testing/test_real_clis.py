"""The real CLIs against the scripted model: what the script says is what they do."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stagedoor.testing import (
    Reply,
    ScriptedModel,
    ToolOutcome,
    cut,
    delete_file,
    edit_file,
    http_error,
    plan,
    read_file,
    say,
    shell,
    structured,
    task,
    think,
    write_file,
)
from tests.processes import with_environment

pytestmark = pytest.mark.live
PATIENCE = 240
WITHOUT_US = ("claude", "codex", "gemini", "opencode")
"""Those that print a protocol without a host beside them. The others are driven over ACP: tests/live/contract."""


class Runner:
    """Runs one CLI in one workspace with one home."""

    def __init__(self, agent: str, program: Path, folder: Path) -> None:
        self.agent, self.program, self.folder = agent, program, folder
        self.model: str | None = None
        self.cwd, self.home = folder / "repo", folder / "home"
        self.cwd.mkdir()
        (self.cwd / "README.md").write_text("A small repository.\n")
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-C", str(self.cwd)]
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", "Begin"], check=True)

    def __call__(self, model: ScriptedModel, prompt: str, *more: str, resume: str = "") -> tuple[int, str]:
        """The exit code and everything printed. Output goes to a file: some of them do not wait for a full pipe."""
        made = model.environment(self.agent, home=self.home, cwd=self.cwd, model=self.model)
        printed = self.folder / "out.jsonl"
        argv = [str(self.program), *self._arguments(prompt, resume, more)]
        with printed.open("wb") as out, (self.folder / "err.txt").open("wb") as err:
            process = subprocess.Popen(
                argv,
                cwd=self.cwd,
                env=made.env,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            try:
                process.communicate(prompt.encode() if self.agent == "opencode" else b"", timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                raise
        return process.returncode, printed.read_text(encoding="utf-8", errors="replace")

    def _arguments(self, prompt: str, resume: str, more: tuple[str, ...]) -> list[str]:
        match self.agent:
            case "claude":
                flags = ["-p", "--verbose", "--output-format", "stream-json", "--permission-mode", "bypassPermissions"]
                return [*flags, *(["--resume", resume] if resume else []), *more, "--", prompt]
            case "codex":
                trust = f'projects={{"{self.cwd}"={{trust_level="untrusted"}}}}'
                flags = ["exec", "--json", "-s", "workspace-write", "-C", str(self.cwd), "-c", trust]
                return [*flags, *more, *(["resume", resume] if resume else []), "--", prompt]
            case "gemini":
                flags = [f"--prompt={prompt}", "--output-format", "stream-json", "--approval-mode", "yolo"]
                return [*flags, *([f"--resume={resume}"] if resume else []), *more]
            case _:
                return ["run", "--format", "json", *(["-s", resume] if resume else []), *more]

    def session(self, printed: str) -> str:
        name = {"claude": "session_id", "codex": "thread_id", "gemini": "session_id", "opencode": "sessionID"}[
            self.agent
        ]
        return next(line[name] for line in lines(printed) if name in line)

    def processes(self) -> list[int]:
        """What still runs with our home in its environment, whoever its parent is now."""
        return with_environment(f"HOME={self.home.resolve()}")


def lines(printed: str) -> list[Any]:
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


@pytest.fixture(params=WITHOUT_US)
def run(request: pytest.FixtureRequest, tmp_path: Path, cli: Callable[[str], Path]) -> Iterator[Runner]:
    agent = str(request.param)
    runner = Runner(agent, cli(agent), tmp_path)
    yield runner
    deadline = time.monotonic() + 240
    while (left := runner.processes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert left == []


Start = Callable[..., ScriptedModel]


def test_a_turn_with_every_part(run: Runner, scripted_model: Start):
    """One start of the program: each of them takes a second of work, or several."""
    steps = [{"text": "Look", "status": "in_progress"}, {"text": "Change"}]
    ended = [{"text": "Look", "status": "completed"}, {"text": "Change", "status": "completed"}]
    below = [[shell("echo sub-agent-was-here > sub.txt")], say("The answer is 42.")]

    def last(outcomes: Sequence[ToolOutcome]) -> Reply:
        in_order = [outcome.output.count("zulu") for outcome in outcomes] == [0, 1, 0]
        return [think("A greeting is wanted."), say(f"Hello from the script, in order: {in_order}.", chunks=4)]

    model = scripted_model(
        [
            [say("Running it."), shell("echo from-the-shell > out.txt; cat out.txt")],
            [shell("echo oops >&2; exit 3")],
            [write_file("made.txt", "one\ntwo\n"), write_file("gone.txt", "x\n")],
            [read_file("made.txt")],
            [edit_file("made.txt", "two", "2")],
            [delete_file("gone.txt")],
            [plan(steps)],
            [plan(ended)],
            [task("Dig for the answer.", below)],
            [shell("echo xylem"), shell("echo zulu"), shell("echo quartz")],
            last,
        ]
    )
    code, printed = run(model, "Do it all, please.")
    if run.agent == "gemini":
        printed = "".join(line["content"] for line in lines(printed) if line.get("role") == "assistant")
    assert (code, "Hello from the script, in order: True." in printed) == (0, True)
    model.assert_consumed()
    main = [request for request in model.requests if not request.side]
    assert (main[0].prompt, bool(main[0].tools)) == ("Do it all, please.", True)
    assert [request.unavailable for request in main if request.unavailable] == []
    outcomes = [outcome for request in main for outcome in request.outcomes]
    ran, failed = [outcome for outcome in outcomes if outcome.tool == "shell"][:2]
    assert ("from-the-shell" in ran.output, ran.error) == (True, False)
    assert "oops" in failed.output
    assert failed.error or run.agent == "opencode"  # which tells its model nothing of the exit code
    [read] = [outcome for outcome in outcomes if outcome.tool == "read_file"]
    assert "two" in read.output
    planned = [outcome.error for outcome in outcomes if outcome.tool == "plan"]
    assert (len(planned) >= 2, any(planned)) == (True, False)  # some have a call for each item
    [delegated] = [outcome for outcome in outcomes if "The answer is 42." in outcome.output]
    assert not delegated.error
    files = {path.name: path.read_text() for path in run.cwd.glob("*.txt")}
    assert files == {"out.txt": "from-the-shell\n", "made.txt": "one\n2\n", "sub.txt": "sub-agent-was-here\n"}


def test_two_turns_in_two_processes(run: Runner, scripted_model: Start):
    model = scripted_model([[shell("echo one")], say("First done."), [shell("echo two")], say("Second done.")])
    code, printed = run(model, "The first thing, please.")
    assert code == 0
    code, _ = run(model, "The second thing, please.", resume=run.session(printed))
    assert code == 0
    main = [request for request in model.requests if not request.side]
    assert [request.step for request in main] == [0, 1, 2, 3]
    assert [request.prompt for request in main][1:3] == ["The first thing, please.", "The second thing, please."]
    model.assert_consumed()


def test_a_wrong_key(run: Runner, scripted_model: Start):
    model = scripted_model([http_error(401)])
    code, printed = run(model, "Hello, please.")
    assert code != 0
    assert "Invalid API key" in printed or "401" in printed
    model.assert_consumed()


def test_a_rate_limit_that_passes(run: Runner, scripted_model: Start):
    model = scripted_model([[http_error(429, retry_after=1, times=1), say("Recovered.")]])
    code, printed = run(model, "Hello, please.")
    assert (code, "Recovered." in printed) == (0, True)
    assert [request.attempt for request in model.requests if not request.side] == [1, 2]


def test_a_connection_cut(run: Runner, scripted_model: Start):
    model = scripted_model([[say("Half of a "), cut(times=1), say("whole.")]])
    code, printed = run(model, "Hello, please.")
    assert (code == 0) == ("whole." in printed)
    if run.agent != "claude":  # which tries again only when the cut comes before it has read anything
        assert code == 0 or run.agent == "gemini"


@pytest.mark.parametrize("run", ["claude", "codex"], indirect=True)
def test_structured_output(run: Runner, scripted_model: Start):
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    schema["additionalProperties"] = False
    path = run.folder / "schema.json"
    path.write_text(json.dumps(schema))
    flags = {"claude": ["--json-schema", json.dumps(schema)], "codex": ["--output-schema", str(path)]}[run.agent]
    model = scripted_model([structured({"answer": "42"})])
    code, printed = run(model, "Answer, please.", *flags)
    assert code == 0
    last = lines(printed)[-1 if run.agent == "claude" else -2]
    answer = last["structured_output"] if run.agent == "claude" else json.loads(last["item"]["text"])
    assert answer == {"answer": "42"}
    model.assert_consumed()


@pytest.mark.parametrize("run", ["codex"], indirect=True)
@pytest.mark.parametrize(("name", "tool"), [("gpt-6.1-sol", "exec"), ("an-unknown-model", "exec_command")])
def test_the_tool_worlds_of_codex(run: Runner, scripted_model: Start, name: str, tool: str):
    run.model = name
    script = [
        [shell("echo from-the-shell")],
        [write_file("made.txt", "one\ntwo\n")],
        [edit_file("made.txt", "two", "2")],
        [task("Dig for the answer.", [say("The answer is 42.")])],
        say("Done."),
    ]
    model = scripted_model(script)
    assert run(model, "Do it all, please.")[0] == 0
    assert (run.cwd / "made.txt").read_text() == "one\n2\n"
    assert model.requests[0].calls == (tool,)
    outputs = "".join(one.output for request in model.requests for one in request.outcomes)
    assert "from-the-shell" in outputs
    assert "The answer is 42." in outputs
    model.assert_consumed()
