"""One rule of a policy, and the parts of a call it is held against."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from stagedoor.unified.events import Operation, PermissionRequest, Risk, ToolName, ToolUse

from ..machine.names import short_name
from ..unified.tools import operation_of
from .globs import Match, match_command, match_path
from .paths import Ground, inside, locate, real_paths, resolve
from .risk.fields import command_text, web_arguments
from .risk.judge import RiskVerdict, start_folder
from .risk.possible import possible_commands
from .risk.programs import only_reads
from .shell.script import ShellCommand
from .shell.words import HOLE
from .shell.wrappers import as_called_by_name, is_known_file

Action = Literal["allow", "deny", "ask"]
_NEUTRAL = frozenset({"true", "false", ":", "test", "[", "set"})


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is said must hold; a list holds when one of its entries does; what is not said does not matter."""

    action: Action
    name: str = ""
    tool: tuple[str, ...] = ()
    operation: tuple[Operation, ...] = ()
    command: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    folder: tuple[str, ...] = ()  # the folder a command runs in, fed by nothing that another rule spoke for
    input: str = ""  # all of what a call is given: a shell line, an address, or its arguments as JSON
    outside: bool | None = None
    risk: tuple[Risk, ...] = ()
    agent: tuple[str, ...] = ()
    understood: bool | None = None  # of a shell line; an allow rule must say `false` to allow one that is not
    message: str = ""

    @property
    def label(self) -> str:
        if self.name:
            return self.name
        parts = [
            f"{key}={','.join(map(str, value))}"
            for key in ("tool", "operation", "command", "path", "folder", "risk", "agent")
            if (value := getattr(self, key))
        ]
        parts += [f"input={self.input}"] if self.input else []
        for key in ("outside", "understood"):
            parts += [f"{key}={str(flag).lower()}"] if (flag := getattr(self, key)) is not None else []
        return f"{self.action} {' '.join(parts) or 'everything'}"


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a call does: a simple command, a file it opens, or the call itself.

    ``unclear`` stands for the part of a script that could not be followed: no pattern can speak for it.
    """

    kind: Literal["command", "file", "call", "unclear"]
    text: str
    operation: Operation
    command: ShellCommand | None = None
    paths: tuple[str, ...] = ()


class PolicyCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as rules see it."""

    tool: ToolName
    native_name: str
    agent: str
    verdict: RiskVerdict
    ground: Ground
    units: tuple[Unit, ...]
    arguments: str = ""
    """What whoever is asked sees of a call: the whole line of a shell, an address, or the arguments."""
    folder: str | None = None
    """Where a shell line begins to run; not known when the call does not say it clearly."""


def call_of(
    request: PermissionRequest | ToolUse, verdict: RiskVerdict, ground: Ground, problems: Sequence[str]
) -> PolicyCall:
    tool = request.tool_name if isinstance(request, PermissionRequest) else request.name
    units: list[Unit] = []
    for command in verdict.commands:
        units += _command_units(command, ground)
    if tool == "shell" or request.operation == "execute":
        units += [Unit(kind="unclear", text=why, operation="execute") for why in problems]
    for path in verdict.paths:
        full = resolve(path, ground.workspace, ground.home) or path
        units.append(Unit(kind="file", text=path, operation=request.operation, paths=real_paths(full, ground)))
    if not units:
        units.append(Unit(kind="call", text=request.target or tool, operation=request.operation))
    return PolicyCall(
        tool=tool,
        native_name=request.native_name,
        agent=request.agent,
        verdict=verdict,
        ground=ground,
        units=tuple(units),
        arguments=_arguments(request, tool),
        folder=start_folder(request.input, ground),
    )


def _arguments(request: PermissionRequest | ToolUse, tool: ToolName) -> str:
    if tool in ("web_fetch", "web_search") and (target := web_arguments(tool, request.input)):
        return target
    if (tool == "shell" or request.operation == "execute") and (line := command_text(request.input)) is not None:
        return line  # with a field that says more, the call is not understood
    return json.dumps(request.input, sort_keys=True, separators=(",", ":"), default=repr, ensure_ascii=False)


def _command_units(command: ShellCommand, ground: Ground) -> list[Unit]:
    units: list[Unit] = []
    if command.words or command.assignments:
        paths = _paths_in(command, ground)
        units.append(Unit(kind="command", text=command.text, operation="execute", command=command, paths=paths))
    for redirect in command.redirects:
        spot = locate(redirect.target, command.cwds, ground)
        if spot.place != "harmless":
            operation: Operation = "write" if redirect.writes else "read"
            paths = real_paths(spot.path, ground)
            units.append(Unit(kind="file", text=redirect.target, operation=operation, paths=paths))
    return units


def _paths_in(command: ShellCommand, ground: Ground) -> tuple[str, ...]:
    """Every word that may be a path: options are cut at their ``=``."""
    found: dict[str, None] = {}
    for word in command.words[1:]:
        for part in re.split(r"[=@]", word) if word.startswith("-") else [word, *word.split("=")[1:]]:
            if part and not part.startswith("-") and HOLE not in part and len(part) < 4096:
                for cwd in command.cwds:
                    if (full := resolve(part, cwd, ground.home)) is not None:
                        found |= dict.fromkeys(real_paths(full, ground))
    return tuple(found)


def is_neutral(unit: Unit, ground: Ground) -> bool:
    """A command that does nothing by itself, so that it needs no rule of its own."""
    command = unit.command
    if command is None:
        return False
    if command.transparent:
        return True
    if command.assignments or not command.words:
        return False
    if command.words == ("cat",) and command.stdin is not None and not command.redirects and not command.into_file:
        return True  # it repeats what the line itself says
    if command.words[0] == "cd":
        return all(locate(word, command.cwds, ground).place == "workspace" for word in command.words[1:])
    return command.words[0] in _NEUTRAL


def may_speak(rule: Rule, tool: ToolName, native_name: str, agent: str) -> bool:
    """Whether a rule can speak of any call of this tool."""
    if rule.tool and not _names_tool(rule, tool, native_name):
        return False
    if (rule.command or rule.folder) and operation_of(tool) != "execute":
        return False  # it speaks of commands
    return (not rule.agent or agent in rule.agent) and (not rule.operation or operation_of(tool) in rule.operation)


def is_conditional(rule: Rule) -> bool:
    """Whether it depends on what a call is given."""
    given = (rule.command, rule.path, rule.folder, rule.input, rule.risk)
    return any(given) or rule.outside is not None or rule.understood is not None


def _names_tool(rule: Rule, tool: ToolName, native_name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in rule.tool for name in (tool, native_name) if name)


def matches(rule: Rule, unit: Unit, call: PolicyCall) -> Match:
    """Whether a rule speaks of this unit. A rule that allows must be sure; one that forbids is generous."""
    if rule.tool and not _names_tool(rule, call.tool, call.native_name):
        return "no"
    if rule.agent and call.agent not in rule.agent:
        return "no"
    understood = call.verdict.understood
    if rule.understood is not None and rule.understood != understood:
        return "no"
    if not understood:
        if rule.action == "allow" and rule.understood is None:
            return "no"  # what else the line does, no pattern has seen
        if unit.kind == "unclear" and rule.action != "allow" and (rule.command or rule.path):
            return "maybe"
    if rule.operation and unit.operation not in rule.operation:
        return "no"
    if rule.risk and call.verdict.risk not in rule.risk:
        return "no"
    if rule.outside is not None and rule.outside != _is_outside(unit, call.ground):
        return "no"
    if rule.path and not _path_holds(rule, unit, call.ground):
        return "no"
    if rule.folder and not (call.folder in rule.folder if rule.input else _runs_in(rule, unit)):
        return "no"
    if rule.input and rule.input != call.arguments:
        return "no"
    return _command_holds(rule, unit) if rule.command else "yes"


def _runs_in(rule: Rule, unit: Unit) -> bool:
    command = unit.command
    if command is None or (rule.action == "allow" and is_fed(command)):
        return False
    hits = [cwd in rule.folder for cwd in command.cwds]
    return all(hits) if rule.action == "allow" else any(hits)


def is_fed(command: ShellCommand) -> bool:
    """Whether a command gets something that its words do not show, and may do more with it than show it."""
    fed = command.stdin is not None or command.fed_by or command.made_from
    return bool(fed) and (command.writes_file or not only_reads(command))


def _is_outside(unit: Unit, ground: Ground) -> bool:
    return any(not inside(path, short_name(ground.workspace)) for path in unit.paths)


def _path_holds(rule: Rule, unit: Unit, ground: Ground) -> bool:
    allowing = rule.action == "allow"
    hits = [
        any(_matches(pattern, path, ground.workspace, loosely=not allowing) for pattern in rule.path)
        for path in unit.paths
    ]
    # A rule that allows a path speaks for a command only together with a pattern for the command itself.
    if allowing:
        return bool(hits) and all(hits) and (unit.kind == "file" or bool(rule.command))
    return any(hits)


def _matches(pattern: str, path: str, workspace: str, *, loosely: bool) -> bool:
    return match_path(short_name(pattern), path, short_name(workspace), loosely=loosely)


def _command_holds(rule: Rule, unit: Unit) -> Match:
    command = unit.command
    if command is None:
        return "maybe" if unit.kind == "unclear" and rule.action != "allow" else "no"
    if rule.action == "allow":
        texts = [one.whole_text if rule.folder else one.text for one in _strict(command)]
        sure = any(match_command(pattern, text) == "yes" for pattern in rule.command for text in texts)
        return "yes" if sure else "no"
    found = {match_command(pattern, text) for pattern in rule.command for text in _loose(command)}
    if "yes" in found:
        return "yes"
    return "maybe" if "maybe" in found or _may_run(rule, command) else "no"


def _may_run(rule: Rule, command: ShellCommand) -> bool:
    """Whether one of a rule's commands may be what another program is told to run. A pattern that begins with a star
    names no program, and has said what it has to say about the command itself."""
    patterns = [pattern for pattern in rule.command if pattern[:1] not in ("*", "?", "")]
    return bool(patterns) and any(
        match_command(pattern, text) != "no"
        for inner in possible_commands(command)
        for text in _loose(inner)
        for pattern in patterns
    )


def _strict(command: ShellCommand) -> list[ShellCommand]:
    if command.words and "/" in command.words[0] and is_known_file(command.words[0]) and not command.assignments:
        return [command, _bare(command)]
    return [command]


def _loose(command: ShellCommand) -> list[str]:
    texts = [command.text, msgspec.structs.replace(command, assignments=()).text, _bare(command).text]
    if (words := as_called_by_name(command.words)) is not None:
        texts.append(msgspec.structs.replace(command, words=words, assignments=()).text)
    return list(dict.fromkeys(texts))


def _bare(command: ShellCommand) -> ShellCommand:
    return msgspec.structs.replace(command, words=(command.program, *command.words[1:]), assignments=())
