"""What “don't ask again” means: the rules that answer the same question next time, and no wider one.

A person allows what they saw. So a command is remembered word for word and in its folder, a file by its path, an
address by itself, a tool of another server with its arguments. What a rule cannot say so exactly is not remembered.
"""

from __future__ import annotations

import re

from stagedoor.unified.events import PermissionRequest, Risk

from .globs import literal
from .paths import Folder, as_ground
from .risk.effects import LEVELS
from .risk.judge import RiskVerdict, judge
from .rules import Rule, call_of, is_fed, is_neutral
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
    commands: dict[str, list[str]] = {}
    rules: list[Rule] = []
    for unit in call.units:
        if is_neutral(unit, ground):
            continue
        if HOLE in unit.text or unit.kind == "unclear":
            return ()
        if unit.command is not None:
            folders = unit.command.cwds
            if is_fed(unit.command) or len(folders) != 1 or folders[0] is None:
                return ()
            commands.setdefault(folders[0], []).append(literal(unit.command.text))
        elif unit.kind == "file":
            if any(re.search(r"[*?]", path) for path in unit.paths):
                return ()
            tool = (request.tool_name,)
            rules.append(Rule(action="allow", tool=tool, operation=(unit.operation,), path=unit.paths, risk=risks))
        else:
            named = (request.native_name or request.tool_name,)
            rules.append(
                Rule(action="allow", tool=named, operation=(unit.operation,), input=call.arguments, risk=risks)
            )
    shell = [
        Rule(
            action="allow",
            tool=(request.tool_name,),
            command=tuple(dict.fromkeys(texts)),
            folder=(folder,),
            risk=risks,
        )
        for folder, texts in commands.items()
    ]
    return tuple(dict.fromkeys([*shell, *rules]))


def _up_to(verdict: RiskVerdict) -> tuple[Risk, ...]:
    return tuple(risk for risk, level in LEVELS.items() if level <= LEVELS[verdict.risk])
