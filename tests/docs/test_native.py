"""docs/native.md is true: its programs run, its names exist, its table is what the launch modules say."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from stagedoor.agents import acp, claude, codex, gemini, opencode
from stagedoor.agents.claude.launch import launch as claude_launch
from stagedoor.agents.gemini.launch import launch as gemini_launch
from stagedoor.agents.opencode.launch import launch as opencode_launch
from stagedoor.testing.clis import find_cli
from stagedoor.transports.launch import EndInput, Launch, Signal

PAGE = Path(__file__).parents[2] / "docs" / "native.md"
BEGIN, END = "<!-- table: written by tests/docs/test_native.py -->\n", "<!-- end of table -->\n"
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S))
PROGRAMS = {
    name: code for name, body in SECTIONS.items() for code in re.findall(r"```python\n(.*?)```", body, re.DOTALL)
}
# section → the CLI it needs, and what it must print
EXPECTED: dict[str, tuple[str, list[str]]] = {
    "Claude Code": ("claude", ["may I: Bash touch made", "Done", "settled: success"]),
    "Codex CLI": ("codex", ["may I: .*touch made", "not", "completed: completed"]),
    "Gemini CLI": ("gemini", ["→ write_file", r"\+one", "Written", "result: success"]),
    "OpenCode": ("opencode", ["may I: bash", "not", "ended: well"]),
    "Any agent that uses ACP": ("", [r"may I: .*a\.txt", "Written", "stopped: end_turn"]),
}


def test_every_program_is_known() -> None:
    assert list(PROGRAMS) == list(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_program_compiles_and_what_it_imports_exists(name: str) -> None:
    tree = ast.parse(PROGRAMS[name])
    missing = [
        f"{node.module}.{one.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for one in node.names
        if not hasattr(import_module(node.module), one.name)
    ]
    assert missing == []


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.live] if cli else []) for name, (cli, _) in EXPECTED.items()]
)
def test_a_program_runs(name: str, tmp_path: Path) -> None:
    cli, expected = EXPECTED[name]
    if cli and find_cli(cli) is None:
        pytest.skip(f"{cli} is not installed: run `make clis`")
    (tmp_path / "work").mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "understudy"),
        **({"STAGEDOOR_CLIS": os.environ["STAGEDOOR_CLIS"]} if "STAGEDOOR_CLIS" in os.environ else {}),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAMS[name]],
        cwd=tmp_path / "work",
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert [line for line in expected if not re.search(line, done.stdout)] == [], done.stdout
    assert not (tmp_path / "work" / "made").exists()


LAUNCHES: dict[str, Callable[[], Launch]] = {
    "Claude Code": lambda: claude_launch(claude.ClaudeSessionConfig(), cwd="/w", executable="claude"),
    "Codex `exec`": lambda: codex.launch(codex.CodexSessionConfig(), cwd="/w", executable="codex", prompt="p"),
    "Codex `app-server`": lambda: codex.launch(
        codex.CodexSessionConfig(driver="app-server"), cwd="/w", executable="codex"
    ),
    "Gemini `stream-json`": lambda: gemini_launch(
        gemini.GeminiSessionConfig(), cwd="/w", executable="gemini", prompt="p"
    ),
    "Gemini `acp`": lambda: gemini_launch(
        gemini.GeminiSessionConfig(driver=gemini.GeminiDriver.ACP), cwd="/w", executable="gemini"
    ),
    "OpenCode `run`": lambda: _opencode(opencode.OpenCodeDriver.RUN),
    "OpenCode `serve`": lambda: _opencode(opencode.OpenCodeDriver.SERVE),
    "OpenCode `acp`": lambda: _opencode(opencode.OpenCodeDriver.ACP),
    "any ACP agent": lambda: acp.launch(["agent"], cwd="/w"),
}


def _opencode(driver: opencode.OpenCodeDriver) -> Launch:
    config = opencode.OpenCodeSessionConfig(driver=driver)
    return opencode_launch(config, cwd="/w", executable="opencode", prompt="p", password="secret")


def _row(name: str, plan: Launch) -> str:
    match plan.stdin:
        case "pipe":
            stdin = "stays open; prompts are messages on it"
        case "null":
            stdin = "empty; prompts travel over HTTP"
        case _:
            stdin = "the prompt, then closed"
    steps = [
        f"close its input, wait {step.wait:g} s"
        if isinstance(step, EndInput)
        else f"{signal.Signals(step.number).name}, wait {step.wait:g} s"
        for step in plan.stop
        if isinstance(step, EndInput | Signal)
    ]
    return f"| {name} | {plan.stdout} | {stdin} | {' → '.join(steps)} → kill |"


def table() -> str:
    head = ["| driver | output | standard input | the stop ladder |", "|---|---|---|---|"]
    return "\n".join([*head, *(_row(name, made()) for name, made in LAUNCHES.items())]) + "\n"


def test_the_table_is_what_the_launch_modules_say() -> None:
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    written, after = rest.split(END)
    if os.environ.get("STAGEDOOR_REWRITE"):
        written = table()
        PAGE.write_text(before + BEGIN + written + END + after, encoding="utf-8")
    assert written == table()
