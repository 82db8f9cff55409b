"""What “don't ask again” means: the rules that answer the same question next time, and no wider one."""

from __future__ import annotations

from stagedoor.unified.events import PermissionRequest, Risk

from .globs import literal
from .paths import Folder, Ground, as_ground, inside
from .risk.destructive import TABLE as DESTRUCTIVE
from .risk.effects import LEVELS
from .risk.judge import RiskVerdict, judge
from .risk.network import TABLE as REMOTE
from .risk.programs import INTERPRETERS
from .rules import Rule, Unit, call_of, is_neutral
from .shell.script import ShellCommand
from .shell.words import HOLE
from .shell.wrappers import SHELLS, WRAPPERS

# Programs whose first word says what they do; the rest of their words may vary.
_TALKING = frozenset({
    "git", "npm", "pnpm", "yarn", "cargo", "go", "make", "just", "uv", "pip", "poetry", "pytest", "dotnet", "mvn",
    "gradle", "bundle", "rake", "composer", "docker", "kubectl", "terraform", "gh", "ruff", "mypy", "tox", "nox",
})  # fmt: skip


def rules_for(request: PermissionRequest, cwd: Folder, *, home: str | None = None) -> tuple[Rule, ...]:
    """The rules that would have allowed ``request``; none when no rule could speak for it safely.

    They hold only up to the risk of this request: whoever allowed ``git push`` is asked about ``git push --force``.
    """
    ground = as_ground(cwd, home)
    verdict = judge(request.tool_name, request.operation, request.input, cwd=ground)
    call = call_of(request, verdict, ground, verdict.problems)
    risks = _up_to(verdict)
    commands: list[str] = []
    rules: list[Rule] = []
    for unit in call.units:
        if is_neutral(unit, ground):
            continue
        if HOLE in unit.text or unit.kind == "unclear":
            return ()
        if unit.command is not None:
            commands.append(_pattern(unit.command, verdict.risk))
        elif unit.kind == "file":
            rules.append(_path_rule(request, unit, ground, risks))
        else:
            tool = request.native_name or request.tool_name
            rules.append(Rule(action="allow", tool=(tool,), operation=(unit.operation,), risk=risks))
    if commands:
        patterns = tuple(dict.fromkeys(commands))
        rules.insert(0, Rule(action="allow", tool=(request.tool_name,), command=patterns, risk=risks))
    return tuple(dict.fromkeys(rules))


def _path_rule(request: PermissionRequest, unit: Unit, ground: Ground, risks: tuple[Risk, ...]) -> Rule:
    paths = tuple(
        "./" + path[len(ground.workspace.rstrip("/")) + 1 :] if inside(path, ground.workspace) else path
        for path in unit.paths
    )
    return Rule(action="allow", tool=(request.tool_name,), operation=(unit.operation,), path=paths, risk=risks)


def _up_to(verdict: RiskVerdict) -> tuple[Risk, ...]:
    return tuple(risk for risk, level in LEVELS.items() if level <= LEVELS[verdict.risk])


def _pattern(command: ShellCommand, risk: Risk) -> str:
    program = command.program
    exact = literal(command.text)
    narrow = (
        program in DESTRUCTIVE or program in SHELLS or program in INTERPRETERS or program in REMOTE.keys() - _TALKING
    )
    if risk == "high" or command.assignments or narrow or program in WRAPPERS.keys() - _TALKING:
        return exact
    if program in _TALKING and len(command.words) > 1 and not command.words[1].startswith("-"):
        return f"{literal(' '.join(command.words[:2]))} *"
    return exact
