"""What “don't ask again” means: the rules that answer the same question next time, and no wider one.

A person allows what they saw. So a command is remembered word for word and in its folder, a line of several commands
as a whole and letter for letter, a file by its path, an address by itself, a tool of another server with its arguments.
What a rule cannot say so exactly is not remembered.
"""

from __future__ import annotations

import re

from stagedoor.unified.events import PermissionRequest, Risk

from .globs import literal
from .paths import Folder, as_ground
from .risk.effects import LEVELS
from .risk.judge import RiskVerdict, judge
from .rules import PolicyCall, Rule, Unit, call_of, is_fed, is_neutral
from .shell.words import HOLE


def rules_for(request: PermissionRequest, cwd: Folder, *, home: str | None = None) -> tuple[Rule, ...]:
    """The rules that would have allowed ``request``; none when no rule could speak for it exactly.

    They hold only up to the risk of this request: a path that leads elsewhere by then is asked about again.
    """
    ground = as_ground(cwd, home)
    verdict = judge(request.tool_name, request.operation, request.input, cwd=ground)
    call = call_of(request, verdict, ground, verdict.problems)
    risks = _up_to(verdict)
    if not verdict.understood:
        return ()
    shell: list[Rule] = []
    rules: list[Rule] = []
    for unit in call.units:
        if is_neutral(unit, ground):
            continue
        if HOLE in unit.text or unit.kind == "unclear":
            return ()
        tool = (request.tool_name,)
        if unit.command is not None:
            folders = unit.command.cwds
            if is_fed(unit.command) or len(folders) != 1 or folders[0] is None:
                return ()
            texts = (literal(unit.command.whole_text),)
            shell.append(Rule(action="allow", tool=tool, command=texts, folder=(folders[0],), risk=risks))
        elif unit.kind == "file":
            if any(re.search(r"[*?]", path) for path in unit.paths):
                return ()
            rules.append(Rule(action="allow", tool=tool, operation=(unit.operation,), path=unit.paths, risk=risks))
        else:
            named = (request.native_name or request.tool_name,)
            rules.append(
                Rule(action="allow", tool=named, operation=(unit.operation,), input=call.arguments, risk=risks)
            )
    if verdict.commands and not _is_one_command(verdict, call):
        if call.folder is None or not (shell or rules):
            return ()
        tool = (request.tool_name,)
        return (Rule(action="allow", tool=tool, input=call.arguments, folder=(call.folder,), risk=risks),)
    return tuple(dict.fromkeys([*shell, *rules]))


def _is_one_command(verdict: RiskVerdict, call: PolicyCall) -> bool:
    """Whether a line runs one command and nothing else, so that the command says all of it. Of several, one may have
    been allowed only because another comes before it, stops it, or reads what it prints."""
    ways = {id(unit.command) for unit in call.units if is_neutral(unit, call.ground) and _is_cd(unit)}
    own = [command for command in verdict.commands if not command.transparent and id(command) not in ways]
    return len(own) == 1 and bool(own[0].words) and not own[0].through


def _is_cd(unit: Unit) -> bool:
    return unit.command is not None and unit.command.words[:1] == ("cd",)


def _up_to(verdict: RiskVerdict) -> tuple[Risk, ...]:
    return tuple(risk for risk, level in LEVELS.items() if level <= LEVELS[verdict.risk])
