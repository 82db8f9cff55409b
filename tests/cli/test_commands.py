"""Every other command, run for real."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stagedoor.cli import COMMANDS, doctor
from stagedoor.cli.completion import flags_of
from stagedoor.cli.state import count_unrecognized, unrecognized_counts
from stagedoor.unified.options import Options

TALK = '- [{think: "Hm."}, {say: "I write."}, {write_file: {path: n.txt, content: "one\\n"}}]\n- say: Done.\n'


# ------------------------------------------------------------------------------------------------ the command itself


def test_help_lists_every_command_and_loads_nothing_heavy(stagedoor: Any) -> None:
    done = stagedoor.run("--help")
    assert done.returncode == 0
    assert all(re.search(rf"^  {name} ", done.stdout, re.MULTILINE) for name in COMMANDS)
    heavy = ("rich", "yaml", "asyncio", "argparse", "msgspec", "ssl", "sqlite3")
    code = "import sys; from stagedoor.cli import main; main(['--help'])"
    code += f"; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(stagedoor: Any, command: str) -> None:
    done = stagedoor.run(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: stagedoor {command}")
    examples = done.stdout.partition("\nexamples:\n")[2].partition("\n\n")[0]
    assert re.search(rf"^  .*stagedoor {command}\b", examples, re.MULTILINE), done.stdout


def test_an_unknown_command_is_answered_with_the_nearest(stagedoor: Any) -> None:
    done = stagedoor.run("rnu")
    assert (done.returncode, done.stderr) == (2, "stagedoor: unknown command 'rnu': did you mean 'run'?\n")


def test_every_option_of_a_session_is_a_flag() -> None:
    functions = {"can_use_tool", "tools"}  # a command line cannot carry a function
    other_names = {
        "images": "image", "extra_args": "extra-arg", "mcp_servers": "mcp-server", "inherit_env": "no-inherit-env",
        "watch_files": "no-watch-files", "protected": "protect",
    }  # fmt: skip
    flags = {
        f"--{other_names.get(name, name.replace('_', '-'))}"
        for name in Options.__struct_fields__
        if name not in functions
    }
    assert flags <= set(flags_of("run"))


# -------------------------------------------------------------------------------------------------- agents and doctor


def test_agents_in_a_table_and_as_json(stagedoor: Any) -> None:
    done = stagedoor.run("agents")
    assert done.returncode == 0
    assert re.search(r"^understudy +\d+\.\d+\.\d+ +yes +acp ", done.stdout, re.MULTILINE)
    lines = [json.loads(line) for line in stagedoor.run("agents", "--json").stdout.splitlines()]
    [understudy] = [line for line in lines if line["agent"] == "understudy"]
    assert understudy["installed"] is True


def test_one_agent_with_everything_it_can_do(stagedoor: Any) -> None:
    done = stagedoor.run("agents", "understudy").stdout
    assert re.search(r"^streaming +✓", done, re.MULTILINE)
    assert re.search(r"^edited input +–", done, re.MULTILINE)
    assert "the protocol has no way to change a call's input" in done


def test_a_missing_agent_is_named_with_the_command_that_installs_it(stagedoor: Any) -> None:
    done = stagedoor.run("doctor", "claude", env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 3
    assert "is not installed" in done.stdout
    assert "    npm install -g " in done.stdout


def test_doctor_says_how_agents_are_guarded_and_what_is_not_on_the_path(
    stagedoor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"": "found in the process table" if sys.platform != "linux" else "guarded by the kernel (linux)",
            "portable": "found in the process table (portable, as STAGEDOOR_GUARD says)",
            "luck": "STAGEDOOR_GUARD='luck': choose linux or portable"}  # fmt: skip
    for word, line in rows.items():
        monkeypatch.setenv("STAGEDOOR_GUARD", word)
        assert line in doctor._guard()[1]
    for name in ("claude", "node"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr("stagedoor.transports.executables.INSTALLED_BY", {str(tmp_path): "Homebrew", "/no/such": "x"})
    assert list(doctor._off_the_path({"PATH": f"/usr/bin:{tmp_path}"})) == []
    [(mark, text)] = doctor._off_the_path({"PATH": "/usr/bin:/bin"})
    assert (mark, text.splitlines()[0]) == (
        "note", f"node, claude found in {tmp_path} (Homebrew), which is not on the PATH",
    )  # fmt: skip


def test_doctor_is_content_here_and_knows_what_was_not_recognized(
    stagedoor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = stagedoor.home / "state"
    monkeypatch.setenv("STAGEDOOR_STATE_HOME", str(state))
    count_unrecognized("understudy", "9.9.9", 2)
    count_unrecognized("understudy", "9.9.9", 1)
    assert unrecognized_counts() == {"understudy": {"9.9.9": 3}}
    done = stagedoor.run("doctor", "understudy", env={"STAGEDOOR_STATE_HOME": str(state)})
    assert done.returncode == 0
    assert "not recognized: 3 messages of version 9.9.9" in done.stdout


# ------------------------------------------------------------------------------------------------------------ sessions


def test_sessions_are_listed_searched_shown_and_exported(stagedoor: Any) -> None:
    assert stagedoor.run("sessions").stderr == "no sessions in this directory\n"
    stagedoor.run("run", "understudy", TALK)
    stagedoor.run("run", "understudy", "- say: Something else.\n")
    listed = [json.loads(line) for line in stagedoor.run("sessions", "--json").stdout.splitlines()]
    assert len(listed) == 2
    assert [one["agent"] for one in listed] == ["understudy", "understudy"]
    done = stagedoor.run("sessions").stdout
    assert all(one["sessionId"] in done for one in listed)
    assert len(stagedoor.run("sessions", "--search", "ELSE", "--json").stdout.splitlines()) == 1
    assert len(stagedoor.run("sessions", "--limit", "1", "--json").stdout.splitlines()) == 1
    assert (
        stagedoor.run("sessions", "--agent", "understudy", "--search", "nowhere").stderr
        == "no matching sessions in this directory\n"
    )

    older = listed[1]["sessionId"]
    shown = stagedoor.run("sessions", "show", older[:10])
    assert shown.returncode == 0, shown
    lines = shown.stdout.splitlines()
    assert lines[0] == f"understudy {older}"
    assert lines[2].startswith("❯ - [{think")
    assert lines[-4:] == ["· Hm.", "I write.", "✓ write_file n.txt", "Done."]

    text = stagedoor.run("sessions", "export", older).stdout
    assert "## Prompt\n\n> - [{think" in text
    assert "**write_file** (success)\n\n```\nn.txt\n```" in text
    events = [
        json.loads(line) for line in stagedoor.run("sessions", "export", older, "--format", "json").stdout.splitlines()
    ]
    assert [event["type"] for event in events] == [
        "init", "turn_started", "thinking", "text", "tool_use", "tool_result", "text",
    ]  # fmt: skip
    done = stagedoor.run("sessions", "export", older, "--format", "json", "--dialect", "board").stdout
    kinds = [json.loads(line)["type"] for line in done.splitlines()]
    assert kinds == ["log", "log", "plan", "log", "action", "toolResult", "log"]


def test_a_session_is_resumed_by_the_beginning_of_its_id(stagedoor: Any) -> None:
    stagedoor.run("run", "understudy", "- say: One.\n")
    done = stagedoor.run("sessions", "resume", "last", "--quiet", "-", "say:", "Two words.")
    assert (done.stdout, done.returncode) == ("Two words.\n", 0)
    for words in ((), ("",)):
        nothing = stagedoor.run("sessions", "resume", "last", *words)
        assert (nothing.stdout, nothing.returncode) == ("", 2)
        assert "prompt" in nothing.stderr
    assert len(stagedoor.run("sessions", "--json").stdout.splitlines()) == 1


def test_a_session_is_found_by_either_whole_id_from_anywhere(stagedoor: Any) -> None:
    output = stagedoor.run("run", "understudy", "--json", "- say: A needle.\n").stdout
    ours, theirs = (json.loads(output.splitlines()[0])[name] for name in ("sessionId", "nativeSessionId"))
    other = stagedoor.home / "other"
    other.mkdir()
    for session in (ours, theirs):
        assert "A needle." in stagedoor.run("sessions", "show", session, "-C", str(other)).stdout
    done = stagedoor.run("sessions", "resume", ours, "--quiet", "- say: Two.\n")
    assert (done.stdout, done.returncode) == ("Two.\n", 0)


def test_what_was_said_and_run_is_searched(stagedoor: Any) -> None:
    needle = "x" * 80 + " needle"
    stagedoor.run("run", "understudy", f"- shell: echo {needle}\n- say: I ran it.\n", "--tier", "autonomous")
    for words, count in (("NEEDLE", 1), ("i ran it", 1), ("haystack", 0)):
        assert len(stagedoor.run("sessions", "--search", words, "--json").stdout.splitlines()) == count


def test_a_session_that_is_not_there_is_said_in_one_line(stagedoor: Any) -> None:
    done = stagedoor.run("sessions", "show", "abcdef")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "session 'abcdef' not found in this directory" in done.stderr


# ---------------------------------------------------------------------------------------------------- policy and audit


def test_policy_explain_says_which_rule_decided(stagedoor: Any) -> None:
    policy = stagedoor.workspace / "p.yaml"
    policy.write_text("rules:\n  - {action: deny, name: no pushing, command: git push *}\n")
    done = stagedoor.run("policy", "explain", "--policy", "p.yaml", "--", "git", "push", "--force")
    assert done.returncode == 0
    assert "deny: rule “no pushing” denies `git push --force`" in done.stdout
    read = json.loads(stagedoor.run("policy", "explain", "--json", "--tier", "dry-run", "--", "rm -rf build").stdout)
    assert (read["action"], read["command"]) == ("deny", "rm -rf build")


def test_policy_simulate_over_stored_and_recorded_sessions(stagedoor: Any) -> None:
    script = "- shell: touch made\n- shell: ls\n- say: Over.\n"
    recorded = stagedoor.run("run", "understudy", "--tier", "autonomous", "--json", script).stdout
    (stagedoor.workspace / "events.jsonl").write_text(recorded)
    (stagedoor.workspace / "p.yaml").write_text("default: allow\nrules:\n  - {action: deny, command: touch *}\n")
    for source in ([], ["events.jsonl"]):
        done = stagedoor.run("policy", "simulate", "--policy", "p.yaml", *source)
        assert done.returncode == 0, done
        assert (
            "2 calls of 1 sessions: 1 allowed, 0 asked about, 1 denied; 1 with another decision than before"
            in done.stdout
        )
        assert re.search(r"^deny +ran +shell +touch made", done.stdout, re.MULTILINE)


def test_policy_check_names_the_line(stagedoor: Any) -> None:
    (stagedoor.workspace / "good.yaml").write_text("rules:\n  - {action: allow, tool: shell}\n")
    (stagedoor.workspace / "bad.yaml").write_text("rules:\n  - {action: alow}\n")
    done = stagedoor.run("policy", "check", "good.yaml", "bad.yaml")
    assert done.returncode == 2
    assert done.stdout == "good.yaml: 1 rules, no mistakes\n"
    assert "on line 2" in done.stderr


def test_every_decision_is_recorded_and_a_changed_line_is_found(stagedoor: Any) -> None:
    stagedoor.run("run", "understudy", "--approval", "ask", "- shell: touch made\n- say: Over.\n")
    log = stagedoor.home / ".local" / "state" / "stagedoor" / "audit.jsonl"
    assert stagedoor.run("audit", "verify").stdout == f"{log}: 1 decisions, complete and unchanged\n"
    done = stagedoor.run("audit", "show", "--decision", "deny").stdout
    assert re.search(r"understudy +deny +shell +\w+ +rule “unattended” +touch made", done), done
    log.write_text(log.read_text().replace("touch made", "touch mode"))
    checked = stagedoor.run("audit", "verify")
    assert (checked.returncode, checked.stderr) == (1, f"{log}: line 1: the line was changed\n")


def test_the_audit_is_written_and_read_in_the_home_that_is_set(stagedoor: Any, tmp_path: Path) -> None:
    home = {"STAGEDOOR_HOME": str(tmp_path / "elsewhere")}
    stagedoor.run("run", "understudy", "--approval", "ask", "- shell: touch made\n- say: Over.\n", env=home)
    told = f"{tmp_path / 'elsewhere' / 'audit.jsonl'}: 1 decisions, complete and unchanged\n"
    assert stagedoor.run("audit", "verify", env=home).stdout == told
    assert "does not exist yet" in stagedoor.run("audit", "verify").stdout


FILES_THAT_ARE_NOT_THERE = {
    "audit verify": (["audit", "verify", "none.jsonl"], 1, "stagedoor audit: log none.jsonl not found\n"),
    "policy simulate": (
        ["policy", "simulate", "none.jsonl"],
        2,
        "stagedoor policy: cannot read none.jsonl: No such file or directory\n",
    ),
    "policy check": (["policy", "check", "none.yaml"], 2, "policy file none.yaml not found\n"),
}


@pytest.mark.parametrize("name", FILES_THAT_ARE_NOT_THERE)
def test_a_file_that_is_not_there_is_said_in_one_line(stagedoor: Any, name: str) -> None:
    words, code, message = FILES_THAT_ARE_NOT_THERE[name]
    done = stagedoor.run(*words)
    assert (done.returncode, done.stderr, done.stdout) == (code, message, "")


def test_recording_can_be_switched_off(stagedoor: Any) -> None:
    stagedoor.run("run", "understudy", "--audit", "-", "--approval", "ask", "- shell: ls\n- say: Over.\n")
    assert "the log does not exist yet" in stagedoor.run("audit", "verify").stdout


# ------------------------------------------------------------------------------------------------------------ parallel


def test_parallel_compares_and_keeps_the_branches(stagedoor: Any) -> None:
    stagedoor.repository()
    script = '- write_file: {path: new.txt, content: "one\\ntwo\\n"}\n- say: Done.\n'
    done = stagedoor.run(
        "parallel", script, "--agents", "understudy,understudy", "--test", "test -f new.txt && echo yes"
    )
    assert done.returncode == 0, done
    rows = re.findall(r"^(understudy\S*) +success +1 file \+2 −0 +pass .* (stagedoor/\S+)$", done.stdout, re.MULTILINE)
    assert [name for name, _ in rows] == ["understudy", "understudy-2"]
    for _, branch in rows:
        shown = subprocess.run(
            ["git", "show", f"{branch}:new.txt"], cwd=stagedoor.workspace, capture_output=True, text=True, check=True
        )
        assert shown.stdout == "one\ntwo\n"
    worktrees = subprocess.run(["git", "worktree", "list"], cwd=stagedoor.workspace, capture_output=True, text=True)
    assert len(worktrees.stdout.splitlines()) == 1
    assert not (stagedoor.workspace / "new.txt").exists()
    assert list((stagedoor.home / ".cache" / "stagedoor" / "worktrees").iterdir()) == []


def test_parallel_says_who_failed(stagedoor: Any) -> None:
    stagedoor.repository()
    done = stagedoor.run(
        "parallel", "- http_error: 500\n", "--agents", "understudy", "--test", "echo broken; exit 3", "--json",
        "--dialect", "lifecycle",
    )  # fmt: skip
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [lines[0]["event"]["type"], lines[-2]["event"]["type"]] == ["sessionStarted", "sessionEnded"]
    [row] = lines[-1]["comparison"]
    none = {"files": 0, "insertions": 0, "deletions": 0}
    assert (row["status"], row["tests"], row["changes"], row["branch"]) == ("error", "fail (3)", none, None)


def test_parallel_needs_a_repository(stagedoor: Any) -> None:
    done = stagedoor.run("parallel", "x", "--agents", "understudy")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "is not in a git repository; git init and commit first" in done.stderr


def test_parallel_keeps_no_branch_without_work(stagedoor: Any) -> None:
    stagedoor.repository()
    done = stagedoor.run("parallel", "- say: Nothing to do.\n", "--agents", "understudy")
    assert re.search(r"^understudy +success +no changes .* –$", done.stdout, re.MULTILINE), done
    left = subprocess.run(["git", "branch"], cwd=stagedoor.workspace, capture_output=True, text=True, check=True)
    assert left.stdout == "* main\n"


def test_parallel_at_a_terminal_asks_and_is_interrupted(stagedoor: Any) -> None:
    stagedoor.repository()
    script = "- shell: echo new > b.txt\n- shell: sleep 300\n"
    terminal = stagedoor.terminal("parallel", script, "--agents", "understudy", "--approval", "ask")
    terminal.until("allow?")
    assert "understudy asks:" in terminal.text
    terminal.type("y")
    length = len(terminal.text)
    terminal.until("allow?", after=length)
    terminal.type("y")
    terminal.until("shell sleep 300", after=terminal.text.rindex("allow?"))
    terminal.type("\x03")
    assert terminal.end() == 130
    assert re.search(r"^understudy +interrupted +1 file \+1 −0 ", terminal.screen, re.MULTILINE), terminal.screen
    assert terminal.echoes()


def test_ctrl_c_ends_the_tests_of_parallel_and_keeps_the_work(stagedoor: Any) -> None:
    stagedoor.repository()
    script = '- write_file: {path: new.txt, content: "one\\n"}\n- say: Done.\n'
    words = ("--agents", "understudy", "--tier", "autonomous", "--test", "sleep 300")
    terminal = stagedoor.terminal("parallel", script, *words)
    terminal.until("running the tests")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert re.search(r"^understudy +success +1 file \+1 −0 +interrupted", terminal.screen, re.MULTILINE), (
        terminal.screen
    )


# ---------------------------------------------------------------------------------------------- completion and demo


def test_completion_for_bash(stagedoor: Any, tmp_path: Path) -> None:
    script = tmp_path / "stagedoor.bash"
    script.write_text(stagedoor.run("completion", "bash").stdout)

    def complete(*words: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in words)
        code = f". {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _stagedoor; echo ${{COMPREPLY[*]}}"
        done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert complete("stagedoor", "do") == ["doctor"]
    assert complete("stagedoor", "run", "under") == ["understudy"]
    assert complete("stagedoor", "run", "understudy", "--tier", "") == ["dry-run", "supervised", "autonomous"]
    assert complete("stagedoor", "run", "understudy", "--max-b") == ["--max-budget-usd"]
    assert complete("stagedoor", "policy", "s") == ["simulate"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_completion_for_fish(stagedoor: Any, tmp_path: Path) -> None:
    script = tmp_path / "stagedoor.fish"
    script.write_text(stagedoor.run("completion", "fish").stdout)

    def complete(line: str) -> list[str]:
        argv = ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"]
        done = subprocess.run(
            argv, cwd=stagedoor.workspace, env=stagedoor.env, capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        return [offer.partition("\t")[0] for offer in done.stdout.splitlines()]

    assert complete("stagedoor ") == [*sorted(COMMANDS)]
    assert complete("stagedoor --v") == ["--version"]
    assert complete("stagedoor run under") == ["understudy"]
    assert complete("stagedoor run understudy --tier ") == ["autonomous", "dry-run", "supervised"]
    assert complete("stagedoor run understudy --max-b") == ["--max-budget-usd"]
    assert complete("stagedoor policy s") == ["simulate"]
    assert complete("stagedoor sessions show ") == []  # the verb stands already


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_completion_for_zsh(stagedoor: Any, tmp_path: Path) -> None:
    script = tmp_path / "stagedoor.zsh"
    script.write_text(stagedoor.run("completion", "zsh").stdout)
    shell = stagedoor.shell("zsh -f -i")
    shell.type(f"source {script}; PS1='rea''dy> '\n")
    shell.until("ready> ")
    for typed, becomes in (
        ("do", "stagedoor doctor "),
        ("run under", "stagedoor run understudy "),
        ("run understudy --max-b", "stagedoor run understudy --max-budget-usd "),
        ("policy s", "stagedoor policy simulate "),
        ("run understudy --tier ", "autonomous  dry-run     supervised"),
    ):
        shell.type(f"\x15stagedoor {typed}\t")
        shell.until(becomes, after=len(shell.text))


def test_the_demo_ends_well(stagedoor: Any) -> None:
    done = stagedoor.run("demo")
    assert done.returncode == 0, done
    assert "Repaired, and the tests pass." in done.stdout
    assert re.search(r"^understudy .* success .* 0$", done.stdout, re.MULTILINE)
