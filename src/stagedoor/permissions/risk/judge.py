"""How dangerous is one tool call? Judged from its words alone, and closed: what is not understood is never low."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stagedoor.unified.events import Operation, Risk, ToolName
from stagedoor.unified.tools import target_of

from ..paths import Folder, Ground, as_ground, locate, resolve
from ..shell.reader import read_script
from ..shell.script import NETWORK, Script, ShellCommand
from ..shell.wrappers import SHELLS
from . import programs
from .effects import LEVELS, Finding, display_path, reading, worst, writing
from .fields import FOLDERS, command_text, is_cut, other_texts, paths_of, unknown_fields
from .hostile import metadata_in

MAX_REASONS = 12
_MAX_NESTED_JUDGEMENTS = 3


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
        start = start_folder(input, ground)
        return _as_run(_shell(command_text(input), start, ground), input, start)
    if operation in ("read", "write"):
        verdict = _files(operation, paths_of(tool_name, input, ground.workspace), ground)
        verdict = _with_findings(verdict, _unnamed(tool_name, operation, input, verdict, ground))
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


def start_folder(input: Mapping[str, Any], ground: Ground) -> str | None:
    """The folder in which a command runs; ``None`` when the call does not say one that can be known."""
    folders = {
        resolve(value, ground.workspace, ground.home) if isinstance(value, str) else None
        for key in FOLDERS
        if (value := input.get(key))
    }
    return next(iter(folders or {ground.workspace})) if len(folders) < 2 else None


def _shell(text: str | None, start: str | None, ground: Ground) -> RiskVerdict:
    if text is None:
        return RiskVerdict("medium", ("the command is missing",), problems=("the command is missing",))
    script = read_script(text, start)
    findings = _script_findings(script, ground, depth=0)
    if script.problems:
        findings += _named_anywhere(text, start, ground)
        findings += _keys_sent(text, script.commands)
    verdict = _verdict(findings, script.commands)
    return RiskVerdict(verdict.risk, verdict.reasons, verdict.commands, (), (*script.problems, *script.alarms))


_LEAVES_SANDBOX = re.compile(
    r"disable_?sandbox|no_?sandbox|bypass_?sandbox|escalat|privileged|as_?root|sudo|unsandboxed", re.I
)
_USUAL_SHELLS = frozenset(
    {"", "bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash", "/usr/bin/zsh"}
)


def _as_run(verdict: RiskVerdict, input: Mapping[str, Any], start: str | None) -> RiskVerdict:
    """What the other fields of a call make of its command: where it runs, as whom, with which shell and variables."""
    findings: list[Finding] = []
    problems: list[str] = []
    if start is None:
        findings.append(Finding("medium", "does not say clearly in which folder it runs"))
        problems.append("not understood: the call does not say clearly in which folder it runs")
    for key in unknown_fields(input):
        value = input[key]
        if key == "shell" and value in _USUAL_SHELLS:
            continue
        if _LEAVES_SANDBOX.search(key) or (key.startswith("sandbox") and (not value or "escalat" in str(value))):
            findings.append(Finding("high", f"asks to run outside the agent's sandbox ({key})"))
        else:
            findings.append(Finding("medium", f"sets `{key}`, which may change how the command runs"))
        problems.append(f"not understood: the call says `{key}`, which may change how the command runs")
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


_KEY_VARIABLE = re.compile(
    r"\$\{?\w*(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIAL|SESSION_?KEY|AUTH_?KEY)\w*",
    re.IGNORECASE,
)
_HERE = re.compile(r"(https?://)?(localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|\[::1\])([:/]|$)", re.IGNORECASE)


def _keys_sent(text: str, commands: Sequence[ShellCommand]) -> list[Finding]:
    """A variable that by its name holds a key, in a line that talks to another machine."""
    if (key := _KEY_VARIABLE.search(text)) is None:
        return []
    for command in commands:
        words = command.words[1:]
        if command.program in NETWORK and not any(_HERE.match(word) for word in words):
            return [Finding("high", f"{command.program} may send {key.group(0)}, a key, over the network")]
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


def _unnamed(
    tool_name: ToolName, operation: Operation, input: Mapping[str, Any], verdict: RiskVerdict, ground: Ground
) -> list[Finding]:
    """What a call for files may be about beside the files it names where we look for them."""
    findings: list[Finding] = []
    if is_cut(input):
        findings.append(Finding("medium", "has more fields than were looked at"))
    if operation != "read":
        return findings
    texts = [text for text in other_texts(input) if text not in verdict.paths]
    for text in texts:
        if locate(text, (ground.workspace,), ground).place == "secret":
            findings.append(Finding("high", f"names {display_path(text)}, where credentials are stored"))
        elif not verdict.paths:
            findings += reading(text, (ground.workspace,), ground)
    if not verdict.paths and tool_name == "read_file" and any(input.values()):
        findings.append(Finding("medium", "does not say clearly which files it reads"))
    return findings


def _with_findings(verdict: RiskVerdict, more: Sequence[Finding]) -> RiskVerdict:
    if not more:
        return verdict
    whole = _verdict([*more, *(Finding(verdict.risk, reason) for reason in verdict.reasons)], ())
    return RiskVerdict(whole.risk, whole.reasons, (), verdict.paths)


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
