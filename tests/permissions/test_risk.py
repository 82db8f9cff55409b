"""Verdicts on tool calls: the table of commands row by row, and what must hold for any text."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stagedoor.permissions.risk.judge import RiskVerdict, judge, judge_command
from stagedoor.unified.events import Operation, ToolName

WORKSPACE = "/home/me/work"
TABLE = cast("dict[str, list[str]]", yaml.safe_load((Path(__file__).parent / "commands.yaml").read_text()))
ROWS = [(kind, command) for kind, commands in TABLE.items() for command in commands]
HIGH = [command for kind, command in ROWS if kind == "high"]


@pytest.mark.parametrize(("kind", "command"), ROWS)
def test_a_command_of_the_table(kind: str, command: str) -> None:
    verdict = judge_command(command, cwd=WORKSPACE)
    assert (verdict.risk, verdict.reasons) == ("high" if kind == "hidden" else kind, verdict.reasons)
    assert (verdict.risk == "low") == (verdict.reasons == ()), "every risk says why"


def test_the_table_is_large_and_says_nothing_twice() -> None:
    assert len(ROWS) >= 400
    assert len({command for _, command in ROWS}) == len(ROWS)


WRAPPERS = [
    "sudo {c}", "env {c}", "nice -n 3 {c}", "timeout 5 {c}", "nohup {c} &", "command {c}", "ls && {c}", "ls || {c}",
    "ls; {c}",
    "({c})", "{{ {c}; }}", "sh -c {q}", "bash -lc {q}", "eval {q}", "echo $({c})", "echo \"$({c})\"", "cat <({c})",
    "! {c}",
    "f() {{ {c}; }}; f", "if true; then {c}; fi", "for i in 1; do {c}; done", "while true; do {c}; done",
    "bash <<'END'\n{c}\nEND", "trap {q} EXIT", "ls\n{c}", "A=1 {c}", "x={q}; eval \"$x\"", "sh -c \"$(printf %s {q})\"",
    "case a in a) {c};; esac", "ssh host {q}", "watch {q}", "ls | xargs -I_IT_ sh -c {q}", "find . -exec sh -c {q} \\;",
]  # fmt: skip
SIMPLE = [
    c for c in HIGH if not any(mark in c for mark in "|;&<>\n*") and "(" not in c and not c.startswith((":", "cd "))
]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapped_high_command_stays_high(wrapper: str) -> None:
    lost = [
        wrapped
        for command in SIMPLE
        if judge_command(wrapped := wrapper.format(c=command, q=shlex.quote(command)), cwd=WORKSPACE).risk != "high"
    ]
    assert lost == []


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SIMPLE), st.lists(st.sampled_from(WRAPPERS), min_size=2, max_size=3))
def test_wrapped_again_and_again_it_stays_high(command: str, wrappers: list[str]) -> None:
    for wrapper in wrappers:
        command = wrapper.format(c=command, q=shlex.quote(command))
        command = f"sh -c {shlex.quote(command)}"
    assert judge_command(command, cwd=WORKSPACE).risk == "high"


SHELL_TEXT = st.text(
    alphabet=st.sampled_from(list("rm -f/$(){}[]<>|&;'\"\\`\n\t=*?~!#aeEOF01,.@:%^\0\x01é🎭")), max_size=60
) | st.text(max_size=60)


@settings(max_examples=300, deadline=None)
@given(SHELL_TEXT)
def test_no_text_raises(text: str) -> None:
    assert judge_command(text, cwd=WORKSPACE).risk in ("low", "medium", "high")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["command", "cmd", "file_path", "path", "paths", "changes", "patch", "url", "pattern", "workdir"]
)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(
        ["shell", "read_file", "write_file", "find_files", "web_fetch", "mcp", "other", "task", "question"]
    ),
    st.sampled_from(["read", "write", "execute", "network", "other"]),
    st.dictionaries(KEYS, JSON, max_size=4),
)
def test_no_input_raises(name: ToolName, operation: Operation, arguments: dict[str, Any]) -> None:
    assert isinstance(judge(name, operation, arguments, cwd=WORKSPACE), RiskVerdict)


FILES: list[tuple[ToolName, Operation, dict[str, Any], str]] = [
    ("read_file", "read", {"file_path": "src/a.py"}, "low"),
    ("read_file", "read", {"file_path": "/home/me/work/src/a.py"}, "low"),
    ("read_file", "read", {"file_path": "/home/me/other/a.py"}, "medium"),
    ("read_file", "read", {"file_path": "src/../../other/a.py"}, "medium"),
    ("read_file", "read", {"file_path": "/etc/hosts"}, "medium"),
    ("read_file", "read", {"file_path": "/etc/shadow"}, "high"),
    ("read_file", "read", {"file_path": "/home/me/.ssh/id_rsa"}, "high"),
    ("read_file", "read", {"file_path": ".env"}, "high"),
    ("read_file", "read", {"file_path": ".env.example"}, "low"),
    ("read_file", "read", {"file_path": ".git/config"}, "low"),
    ("search_content", "read", {"pattern": "TODO"}, "low"),
    ("search_content", "read", {"pattern": "TODO", "path": "/"}, "medium"),
    ("find_files", "read", {"pattern": "**/*.py"}, "low"),
    ("find_files", "read", {"pattern": "/etc/**"}, "high"),
    ("write_file", "write", {"file_path": "src/a.py"}, "medium"),
    ("write_file", "write", {"file_path": "/tmp/a.py"}, "medium"),
    ("write_file", "write", {"file_path": "../a.py"}, "high"),
    ("write_file", "write", {"file_path": "~/.bashrc"}, "high"),
    ("write_file", "write", {"file_path": "/etc/passwd"}, "high"),
    ("write_file", "write", {"file_path": ".git/hooks/pre-commit"}, "high"),
    ("write_file", "write", {"file_path": ".GIT/hooks/pre-commit"}, "high"),
    ("write_file", "write", {}, "medium"),
    ("edit_file", "write", {"changes": {"a.py": {}, "/etc/passwd": {}}}, "high"),
    ("edit_file", "write", {"changes": [{"path": "a.py"}]}, "medium"),
    ("edit_file", "write", {"patch": "*** Begin Patch\n*** Add File: ../x\n*** End Patch"}, "high"),
    ("shell", "execute", {"command": "ls"}, "low"),
    ("shell", "execute", {"command": ["bash", "-lc", "rm -rf /"]}, "high"),
    ("shell", "execute", {"command": ["ls", "a;rm -rf /"]}, "low"),
    ("shell", "execute", {"cmd": "rm -rf build", "workdir": "/"}, "high"),
    ("shell", "execute", {"command": "cat x", "workdir": "/etc"}, "medium"),
    ("shell", "execute", {}, "medium"),
    ("other", "execute", {"command": "rm -rf /"}, "high"),
    ("web_fetch", "network", {"url": "https://example.com"}, "medium"),
    ("web_fetch", "network", {"url": "http://169.254.169.254/latest/meta-data"}, "high"),
    ("web_fetch", "network", {"url": "file:///etc/shadow"}, "high"),
    ("web_search", "network", {"query": "x"}, "medium"),
    ("mcp", "other", {"x": 1}, "medium"),
    ("mcp", "read", {"path": "a"}, "medium"),
    ("task", "other", {"prompt": "x"}, "medium"),
    ("plan", "other", {}, "low"),
    ("question", "other", {}, "low"),
    ("other", "other", {}, "medium"),
    ("other", "read", {"path": "a"}, "medium"),
    ("read_file", "read", {"fileName": "/home/me/.ssh/id_rsa"}, "high"),
    ("read_file", "read", {"file-path": "/home/me/.ssh/id_rsa"}, "high"),
    ("read_file", "read", {"resource": ["/home/me/.ssh/id_rsa"]}, "high"),
    ("read_file", "read", {"path": "a.txt", "include": "/home/me/.ssh/id_rsa"}, "high"),
    ("read_file", "read", {"something": "new"}, "medium"),
    ("read_file", "read", {"path": "a.txt", "more": [[[[[[[["b"]]]]]]]]}, "medium"),
    ("read_file", "read", {"paths": ["a.txt"] * 3_000}, "medium"),
    ("search_content", "read", {"pattern": ".env", "glob": "**/*.py", "output_mode": "content"}, "low"),
    ("search_content", "read", {"pattern": "a", "include": "*.{ts,tsx}"}, "low"),
    ("search_content", "read", {"pattern": "a", "include": "/etc/*"}, "high"),
    ("find_files", "read", {"pattern": "src/../../.ssh/*"}, "high"),
    ("find_files", "read", {"pattern": "./../.ssh/*"}, "high"),
    ("find_files", "read", {"pattern": "{/home/me/.ssh/*,x}"}, "high"),
    ("find_files", "read", {"pattern": "src/*.{ts,tsx}"}, "low"),
    ("edit_file", "write", {"path": "a.txt", "patch_text": "*** Update File: /home/me/.bashrc"}, "high"),
    ("edit_file", "write", {"path": "a.txt", "diff": "--- a/a.txt\n+++ /home/me/.bashrc\n"}, "high"),
    ("edit_file", "write", {"path": "x/etc/motd", "diff": "--- /etc/motd\n+++ /etc/motd\n"}, "high"),
    ("edit_file", "write", {"path": "src/a.txt", "diff": "--- a.txt\n+++ a.txt\n"}, "medium"),
    ("shell", "execute", {"command": "ls", "workdir": ".", "directory": "/home/me/.aws"}, "medium"),
    ("shell", "execute", {"command": "ls", "workdir": ".", "cwd": WORKSPACE}, "low"),
    ("shell", "execute", {"command": "ls", "cwd": ["/home/me/.aws"]}, "medium"),
    ("shell", "execute", {"command": "ls", "shellId": "python"}, "medium"),
    ("shell", "execute", {"command": "ls", "session_id": 7}, "medium"),
    ("shell", "execute", {"command": "ls", "terminal_id": "t"}, "medium"),
    ("shell", "execute", {"command": "ls", "mode": "sync", "description": "x"}, "low"),
    ("shell", "execute", {"command": "ls", "mode": "async", "type": "shell"}, "low"),
    ("shell", "execute", {"command": "ls", "mode": "privileged"}, "medium"),
    ("shell", "execute", {"command": "ls", "mode": ["sync"]}, "medium"),
    ("shell", "execute", {"command": "ls", "type": "ssh"}, "medium"),
    ("shell", "execute", {"command": "ls", "kind": "container"}, "medium"),
    ("shell", "execute", {"command": "ls", "name": "production"}, "medium"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operation", "arguments", "risk"), FILES)
def test_a_call_of_another_tool(name: ToolName, operation: Operation, arguments: dict[str, Any], risk: str) -> None:
    assert judge(name, operation, arguments, cwd=WORKSPACE).risk == risk


@pytest.mark.parametrize("more", [{"workdir": ".", "dir": "/x"}, {"cwd": ["/x"]}, {"shellId": "0"}, {"session_id": 1}])
def test_a_command_that_may_run_elsewhere_is_not_understood(more: dict[str, Any]) -> None:
    assert not judge("shell", "execute", {"command": "make test", **more}, cwd=WORKSPACE).understood


def test_the_verdict_names_every_simple_command() -> None:
    verdict = judge_command("cd src && sudo rm -rf ../build | tee log", cwd=WORKSPACE)
    assert [command.text for command in verdict.commands] == [
        "cd src",
        "sudo rm -rf ../build",
        "rm -rf ../build",
        "tee log",
    ]
    assert verdict.reasons[0] == "sudo runs as another user"


def test_a_known_home_makes_its_paths_known() -> None:
    assert judge_command("cat ~/work/a", cwd=WORKSPACE).risk == "medium"
    assert judge_command("cat ~/work/a", cwd=WORKSPACE, home="/home/me").risk == "low"
    # A home of its own in a temporary folder is a home all the same.
    assert judge_command("touch ~/.bashrc", cwd=WORKSPACE, home="/tmp/home").risk == "high"
    assert judge_command("touch /tmp/beside", cwd=WORKSPACE, home="/tmp/home").risk == "medium"


def test_the_parser_is_loaded_only_when_a_command_is_read() -> None:
    code = "import sys, stagedoor, stagedoor.permissions.risk.judge; sys.exit('tree_sitter' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


HUGE = [
    "a=(" * 10_000, "(" * 20_000, "$(" * 10_000, "`" * 20_000, '"$(' * 8_000, "if " * 9_000, "{" * 20_000,
    "x;" * 15_000,
    "echo " + "$a" * 10_000, "echo " + "{a,b}" * 5_000, "a=$a$a;" * 3_000 + "$a", "sh -c '" * 500,
    "eval " * 5_000 + "ls",
    "env -a " * 5_000, "for i in a b c; do " * 300, "\U0010068e\u6edb" * 5_000, "<<a" * 9_000, "echo x; " * 50_000,
    "cat " + "a " * 400_000, "'a'" * 300_000, "cat <<X\n" + "a\n" * 40_000 + "X", "echo " + "\\a" * 40_000,
    "x=a;" * 20_000, "if ls; then " * 5_000, "echo \"" + "$x" * 40_000, "[" * 90_000, "cat " + "[a" * 40_000,
]  # fmt: skip


@pytest.mark.parametrize("text", HUGE, ids=range(len(HUGE)))
def test_no_text_costs_much(text: str) -> None:
    start = time.process_time()
    judge_command(text, cwd=WORKSPACE)
    assert time.process_time() - start < 60  # the worst takes two; what grows with the square takes minutes


def test_what_stands_at_the_end_of_a_long_line_is_seen() -> None:
    assert judge_command("echo x; " * 50_000 + "rm -rf /", cwd=WORKSPACE).risk == "high"
    assert judge_command("env " * 50 + "rm -rf /", cwd=WORKSPACE).risk == "high"


def test_rare_characters_survive_the_parser() -> None:
    verdict = judge_command("rm -rf '/home/me/work/é 🎭' \U0010068e\x02", cwd=WORKSPACE)
    assert [command.words for command in verdict.commands] == [("rm", "-rf", "/home/me/work/é 🎭", "\U0010068e\x02")]
