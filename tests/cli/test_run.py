"""``stagedoor run`` in a pipe."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from stagedoor.cli.command import as_flags

HELLO = "- say: Hello there.\n"


def test_plain_lines_on_stdout_and_the_summary_on_stderr(stagedoor: Any) -> None:
    script = '- [{think: "Hm."}, {say: "I write."}, {write_file: {path: n.txt, content: "one\\n"}}]\n- say: Done.\n'
    done = stagedoor.run("run", "understudy", "-", stdin=script)
    assert re.sub(r" \d\.\ds", "", done.stdout).splitlines() == [
        "· Hm.",
        "I write.",
        "    --- /dev/null",
        "    +++ b/n.txt",
        "    @@ -0,0 +1 @@",
        "    +one",
        "✓ write_file n.txt",
        "Done.",
    ]
    assert done.stderr.startswith("success · 1 tool · ")
    assert done.returncode == 0
    assert (stagedoor.workspace / "n.txt").read_text() == "one\n"


def test_quiet_prints_the_answer_alone(stagedoor: Any) -> None:
    done = stagedoor.run("run", "understudy", "--quiet", HELLO)
    assert (done.stdout, done.stderr, done.returncode) == ("Hello there.\n", "", 0)


def test_another_program_in_the_place_of_the_understudy(stagedoor: Any, tmp_path: Path) -> None:
    program = tmp_path / "other"
    program.write_text(f'#!/bin/sh\ntouch {tmp_path}/started\nexec {sys.executable} -P -m stagedoor.understudy "$@"\n')
    program.chmod(0o755)
    done = stagedoor.run("run", "understudy", "--quiet", "--executable", str(program), HELLO)
    assert (done.stdout, done.stderr, done.returncode) == ("Hello there.\n", "", 0)
    assert (tmp_path / "started").exists()
    missing = stagedoor.run("run", "understudy", "--executable", str(tmp_path / "nothing"), HELLO)
    assert missing.returncode != 0
    assert "is not an executable program" in missing.stderr


def test_questions_are_denied_where_nobody_can_be_asked(stagedoor: Any) -> None:
    done = stagedoor.run("run", "understudy", "--approval", "ask", "- shell: touch made\n- say: Over.\n")
    assert "⊘ shell touch made" in done.stdout
    assert not (stagedoor.workspace / "made").exists()


@pytest.mark.parametrize("dialect", ["stagedoor", "ues", "lifecycle", "board", "notify", "chat"])
def test_json_speaks_every_dialect(stagedoor: Any, dialect: str) -> None:
    done = stagedoor.run("run", "understudy", "--json", "--dialect", dialect, HELLO)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) >= 2, done
    assert all(isinstance(line, dict) for line in lines)
    assert (done.stderr, done.returncode) == ("", 0)


def test_json_is_the_whole_stream(stagedoor: Any) -> None:
    done = stagedoor.run("run", "understudy", "--json", HELLO)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["type"] for event in events]
    assert (kinds[0], kinds[-2:]) == ("init", ["turn_completed", "done"])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


USAGE = {
    "no such agent": (["run", "clade", "x"], "did you mean 'claude'?"),
    "empty prompt": (["run", "understudy", " "], "the prompt is empty"),
    "no such folder": (["run", "understudy", "x", "--cwd", "nowhere"], "directory 'nowhere' not found"),
    "dialect without json": (["run", "understudy", "x", "--dialect", "ues"], "--dialect needs --json"),
    "not supported": (["run", "understudy", "x", "--max-turns", "3"], "does not support --max-turns"),
    "no such driver": (["run", "understudy", "x", "--driver", "telepathy"], "has no driver 'telepathy'"),
    "bad schema": (["run", "understudy", "x", "--output-schema", "{nonsense"], "not valid JSON"),
    "bad env": (["run", "understudy", "x", "--env", "NAME"], "must be NAME=VALUE"),
    "bad seconds": (["run", "understudy", "x", "--permission-timeout", "soon"], "is not a number of seconds"),
    "no such tier": (["run", "understudy", "x", "--tier", "wild"], " (see stagedoor run --help)"),
    "no such flag": (["run", "understudy", "x", "--modle", "m"], "--modle m: did you mean --mode or --model?"),
    "a flag as a value": (["run", "understudy", "x", "--extra-arg", "--fast"], "joined to it: --extra-arg=--value"),
    "no such time": (["run", "understudy", "x", "--timeout", "-4"], "--timeout -4.0: give a number above 0"),
    "a copy of nothing": (["run", "understudy", "x", "--fork"], "name it with --resume"),
    "no policy": (["run", "understudy", "x", "--policy", "none.yaml"], "policy file none.yaml not found"),
}


def test_a_prompt_needs_no_quotes(stagedoor: Any) -> None:
    done = stagedoor.run("run", "understudy", "-", "say:", "Hello,", "you.", "--quiet")
    assert (done.stdout, done.returncode) == ("Hello, you.\n", 0)


SENTENCES = {
    "use tier='dry-run' with confine='read-only'": "use --tier dry-run with --confine read-only",
    "fork=True copies a session: name it with resume=": "--fork copies a session: name it with --resume",
    "raise timeout=, or leave max_turns out": "raise --timeout, or leave --max-turns out",
    "timeout=-4.0: give a number": "--timeout -4.0: give a number",
    "extra_args=('-c', 'x=1') asks for them": "extra_args=('-c', 'x=1') asks for them",
    "MODE=x, can_use_tool= and other_words stay": "MODE=x, can_use_tool= and other_words stay",
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_errors_name_flags(sentence: str) -> None:
    assert as_flags(sentence) == SENTENCES[sentence]


def test_what_the_demo_has_installed_is_found(stagedoor: Any) -> None:
    """Behind what is on the PATH: here nothing has that name."""
    env = {"STAGEDOOR_STATE_HOME": str(stagedoor.home / "state")}
    program = stagedoor.home / "state" / "clis" / "node_modules" / ".bin" / "qwen"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 1.2.3\n")
    program.chmod(0o755)
    done = stagedoor.run("agents", "qwen", "--json", env=env)
    assert json.loads(done.stdout)["executable"] == str(program)


@pytest.mark.parametrize("name", USAGE)
def test_mistakes_are_one_line_and_exit_code_2(stagedoor: Any, name: str) -> None:
    words, message = USAGE[name]
    done = stagedoor.run(*words)
    assert message in done.stderr
    assert (done.stdout, len(done.stderr.splitlines()), done.returncode) == ("", 1, 2)


OUTCOMES = {
    "the agent failed": ("- http_error: 500\n", [], 1),
    "not signed in": ("- http_error: 401\n", [], 4),
    "time is up": ("- stall\n", ["--timeout", "1"], 5),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_exit_codes(stagedoor: Any, name: str) -> None:
    script, flags, code = OUTCOMES[name]
    done = stagedoor.run("run", "understudy", *flags, script)
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr


def test_a_resumed_session_goes_on(stagedoor: Any) -> None:
    stagedoor.run("run", "understudy", HELLO)
    listed = json.loads(stagedoor.run("sessions", "--json").stdout.splitlines()[0])
    done = stagedoor.run("run", "understudy", "--resume", listed["sessionId"], "--json", "- say: Again.\n")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["resumed"] is True
    assert events[-1]["result"] == "Again."


def test_a_policy_decides_before_anybody_is_asked(stagedoor: Any) -> None:
    (stagedoor.workspace / "p.yaml").write_text(
        "rules:\n  - {action: allow, command: touch *}\n  - {action: deny, command: rm *}\n"
    )
    script = "- shell: touch made\n- shell: rm made\n- say: Over.\n"
    done = stagedoor.run("run", "understudy", "--approval", "ask", "--policy", "p.yaml", script)
    assert "✓ shell touch made" in done.stdout
    assert "⊘ shell rm made" in done.stdout
    assert (stagedoor.workspace / "made").exists()


def test_a_reader_that_leaves_ends_us_quietly(stagedoor: Any) -> None:
    import subprocess
    import sys

    script = "- endless\n"
    command = f"{sys.executable} -m stagedoor.cli run understudy --json '{script}' | head -n 3"
    done = subprocess.run(
        ["bash", "-c", command], cwd=stagedoor.workspace, env=stagedoor.env, capture_output=True, text=True, timeout=240
    )
    assert len(done.stdout.splitlines()) == 3
    assert "Traceback" not in done.stderr
