"""How dangerous is one tool call? Judged from its words alone, and closed: what is not understood is never low."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from stagedoor.unified.events import Operation, Risk, ToolName
from stagedoor.unified.tools import target_of

from ..paths import Folder, Ground, as_ground, locate, resolve
from ..shell.reader import read_script
from ..shell.script import NETWORK, Script, ShellCommand
from ..shell.wrappers import SHELLS
from . import programs
from .effects import LEVELS, Finding, display_path, reading, worst, writing
from .hostile import metadata_in

MAX_REASONS = 12
_MAX_NESTED_JUDGEMENTS = 3
_FOLDER_KEYS = ("workdir", "cwd", "directory", "dir_path", "working_directory", "workingDirectory")
_PATH_KEYS = (
    "file_path",
    "filePath",
    "filepath",
    "absolute_path",
    "path",
    "dir_path",
    "notebook_path",
    "target_file",
    "filename",
)
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$|^\*\*\* Move to: (.+)$", re.MULTILINE)
_PATH_LISTS = ("paths", "file_paths", "files")


class RiskVerdict(msgspec.Struct, frozen=True):
    """The risk of a call, why, and, for a shell, the simple commands it was taken apart into."""

    risk: Risk
    reasons: tuple[str, ...] = ()
    commands: tuple[ShellCommand, ...] = ()
    paths: tuple[str, ...] = ()  # the files a file tool is about
    problems: tuple[str, ...] = ()  # what of a script could not be followed

    @property
    def understood(self) -> bool:
        """Whether ``commands`` are surely all that a shell would run. Always so for other tools."""
        return not self.problems


def judge(
    tool_name: ToolName, operation: Operation, input: Mapping[str, Any], *, cwd: Folder, home: str | None = None
) -> RiskVerdict:
    """Never raises on content. ``cwd`` is the workspace; ``home`` makes ``~`` a known place."""
    ground = as_ground(cwd, home)
    if tool_name == "shell" or operation == "execute":
        return _as_run(_shell(command_text(input), _start(input, ground), ground), input)
    if operation in ("read", "write"):
        verdict = _files(operation, paths_of(tool_name, input), ground)
        if tool_name not in ("mcp", "other") or verdict.risk != "low":
            return verdict
    match tool_name:
        case "plan" | "question":
            return RiskVerdict("low")
        case "web_fetch" | "web_search":
            return _network(target_of(tool_name, input), ground)
        case _ if operation == "network":
            return RiskVerdict("medium", ("it uses the network",))
        case "task":
            return RiskVerdict("medium", ("it starts another agent",))
        case "mcp":
            return RiskVerdict("medium", ("what a tool of another server does cannot be known",))
        case _:
            return RiskVerdict("medium", ("what this tool does cannot be known",))


def judge_command(text: str, *, cwd: Folder, home: str | None = None) -> RiskVerdict:
    """The verdict on one shell command line."""
    ground = as_ground(cwd, home)
    return _shell(text, ground.workspace, ground)


def command_text(input: Mapping[str, Any]) -> str | None:
    """The command line of a shell call, whatever the agent calls it; a list of words is quoted into one."""
    for key in ("command", "cmd", "script", "input", "code"):
        value = input.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, Sequence) and value:
            return shlex.join(str(word) for word in cast("Sequence[object]", value))
    return None


def paths_of(tool_name: ToolName, input: Mapping[str, Any]) -> tuple[str, ...]:
    """Every file a call names."""
    findings = [value for key in _PATH_KEYS if isinstance(value := input.get(key), str) and value]
    for key in _PATH_LISTS:
        value = input.get(key)
        if isinstance(value, list):
            findings += [item for item in cast("list[object]", value) if isinstance(item, str)]
    changes = input.get("changes")
    if isinstance(changes, Mapping):
        findings += [str(path) for path in cast("Mapping[object, object]", changes)]
    elif isinstance(changes, list):
        for change in cast("list[object]", changes):
            if isinstance(change, Mapping):
                path = cast("Mapping[object, object]", change).get("path")
                findings += [path] if isinstance(path, str) else []
    for key in ("patch", "input", "patchText"):
        text = input.get(key)
        if isinstance(text, str):
            findings += [path for pair in _PATCHED.findall(text) for path in cast("tuple[str, ...]", pair) if path]
    pattern = input.get("pattern")
    if tool_name == "find_files" and isinstance(pattern, str) and pattern.startswith(("/", "~", "..")):
        findings.append(pattern)
    return tuple(dict.fromkeys(findings))


def _start(input: Mapping[str, Any], ground: Ground) -> str | None:
    for key in _FOLDER_KEYS:
        value = input.get(key)
        if isinstance(value, str) and value:
            return resolve(value, ground.workspace, ground.home)
    return ground.workspace


def _shell(text: str | None, start: str | None, ground: Ground) -> RiskVerdict:
    if text is None:
        return RiskVerdict("medium", ("the command is missing",), problems=("the command is missing",))
    script = read_script(text, start)
    findings = _script_findings(script, ground, depth=0)
    if script.problems:
        findings += _named_anywhere(text, start, ground)
    verdict = _verdict(findings, script.commands)
    return RiskVerdict(verdict.risk, verdict.reasons, verdict.commands, (), (*script.problems, *script.alarms))


_LEAVES_SANDBOX = re.compile(
    r"disable_?sandbox|no_?sandbox|bypass_?sandbox|escalat|privileged|as_?root|sudo|unsandboxed", re.I
)
_CHANGES_SHELL = frozenset(
    {"env", "environment", "envs", "environment_variables", "shell", "stdin", "user", "interpreter"}
)
_USUAL_SHELLS = frozenset(
    {"", "bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash", "/usr/bin/zsh"}
)


def _as_run(verdict: RiskVerdict, input: Mapping[str, Any]) -> RiskVerdict:
    """What the other fields of a call make of its command: where it runs, as whom, with which shell and variables."""
    findings: list[Finding] = []
    problems: list[str] = []
    for key, value in input.items():
        if not value or (key == "shell" and value in _USUAL_SHELLS):
            continue
        if _LEAVES_SANDBOX.search(key) or (isinstance(value, str) and key.startswith("sandbox") and "escalat" in value):
            findings.append(Finding("high", f"asks to run outside the agent's sandbox ({key})"))
            problems.append(f"not understood: the call says `{key}`, which changes how the command runs")
        elif key in _CHANGES_SHELL:
            findings.append(Finding("medium", f"sets `{key}`, which changes how the command runs"))
            problems.append(f"not understood: the call says `{key}`, which changes how the command runs")
    if not findings:
        return verdict
    whole = _verdict([*findings, *(Finding(verdict.risk, reason) for reason in verdict.reasons)], verdict.commands)
    return RiskVerdict(whole.risk, whole.reasons, whole.commands, (), (*verdict.problems, *problems))


def _named_anywhere(text: str, start: str | None, ground: Ground) -> list[Finding]:
    """Secrets in a line that was not understood, wherever they stand."""
    for word in re.findall(r"[^\s;|&<>()'\"`=,]+", text)[:400]:
        if ("/" in word or "." in word) and locate(word, (start,), ground).place == "secret":
            return [Finding("high", f"names {display_path(word)}, where credentials are stored")]
    return []


def _script_findings(script: Script, ground: Ground, *, depth: int) -> list[Finding]:
    findings = [Finding("high", why) for why in script.alarms]
    findings += [Finding("medium", why) for why in script.problems]

    def judge_text(text: str) -> Risk:
        if depth >= _MAX_NESTED_JUDGEMENTS:
            return "medium"
        inner = read_script(text, ground.workspace)
        return worst(finding.risk for finding in _script_findings(inner, ground, depth=depth + 1))

    for command in script.commands:
        findings += programs.findings(command, ground, judge_text)
    findings += _downloaded_then_run(script.commands)
    programs_run = {command.program for command in script.commands if len(command.words) <= 2}
    if script.problems and programs_run & {"env", "printenv"} and NETWORK & {one.program for one in script.commands}:
        findings.append(Finding("high", "sends the environment, which often contains credentials"))
    return findings


def _downloaded_then_run(commands: Sequence[ShellCommand]) -> list[Finding]:
    """``curl -o x.sh … && sh x.sh``: the pipe in two steps."""
    fetched: set[str] = set()
    for command in commands:
        words = [*command.words, *(redirect.target for redirect in command.redirects)]
        if command.program in NETWORK:
            names = {
                posixpath.basename(word.partition("?")[0].rstrip("/")) for word in words[1:] if not word.startswith("-")
            }
            fetched |= {name for name in names if name}
            continue
        runs = command.program in SHELLS | {"python", "node", "perl", "ruby", "php", "source", "."}
        touched = {posixpath.basename(word) for word in (command.words[1:2] if runs else ())}
        if "/" in (command.words[0] if command.words else ""):
            touched.add(posixpath.basename(command.words[0]))
        if touched & fetched:
            return [Finding("high", f"runs {', '.join(sorted(touched & fetched))} right after downloading it")]
    return []


def _files(operation: Operation, paths: tuple[str, ...], ground: Ground) -> RiskVerdict:
    if not paths:
        words = ("the path is missing",) if operation == "write" else ()
        return RiskVerdict("medium" if operation == "write" else "low", words)
    look = writing if operation == "write" else reading
    findings = [finding for path in paths for finding in look(path, (ground.workspace,), ground)]
    verdict = _verdict(findings, ())
    return RiskVerdict(verdict.risk, verdict.reasons, (), paths)


def _network(target: str, ground: Ground) -> RiskVerdict:
    if target.startswith("file:"):
        return _files("read", (target,), ground)
    if metadata_in(target):
        return RiskVerdict("high", (f"{target} is where a cloud machine gets its credentials",))
    return RiskVerdict("medium", ("it uses the network",))


def _verdict(findings: Sequence[Finding], commands: tuple[ShellCommand, ...]) -> RiskVerdict:
    risk = worst(finding.risk for finding in findings)
    ranked = sorted(findings, key=lambda finding: -LEVELS[finding.risk])
    reasons = tuple(dict.fromkeys(finding.reason for finding in ranked))[:MAX_REASONS]
    return RiskVerdict(risk, reasons, commands)
