"""What tiers, approval modes and sandbox modes promise, and what each CLI is started with so that it keeps the promise.

The live tests try each cell and hold what happened against both; ``docs/tiers.md`` shows the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast, get_args

import msgspec

from stagedoor.drivers.confinement import is_confined
from stagedoor.unified.capabilities import Capabilities
from stagedoor.unified.options import Approval, Options, Sandbox, Tier

Action = Literal["edit", "harmless", "command", "outside", "danger"]
"""Write a file of the workspace; ``ls``; then commands that write in the workspace, outside, and to a start-up file."""
Outcome = Literal["runs", "asked", "refused", "runs~", "asked~"]
"""``asked``: somebody was asked, said yes, and then it ran. ``~``: a sandbox of the agent's own may still stop it."""
Row = tuple[Outcome, Outcome, Outcome, Outcome, Outcome]

ACTIONS: tuple[Action, ...] = get_args(Action)


class Cell(msgspec.Struct, frozen=True):
    """One tier, approval mode or sandbox mode, and the options that ask for it."""

    name: str
    tier: Tier = "supervised"
    approval: Approval | None = None
    sandbox: Sandbox | None = None

    @property
    def options(self) -> dict[str, Any]:
        return {"tier": self.tier, "approval": self.approval, "sandbox": self.sandbox}


TIERS = tuple(Cell(f"tier {name}", tier=name) for name in get_args(Tier))
APPROVALS = tuple(Cell(f"approval {name}", approval=name) for name in get_args(Approval))
SANDBOXES = tuple(Cell(f"sandbox {name}", tier="autonomous", sandbox=name) for name in get_args(Sandbox))
CELLS = (*TIERS, *APPROVALS, *SANDBOXES)

# ------------------------------------------------------------------------------------------------------- promises

_NOTHING = ("refused", "runs refused", "refused", "refused", "refused")
_EDITS = ("runs", "runs asked", "asked", "asked", "asked")
_ALL = ("runs", "runs", "runs", "runs", "runs")
PROMISES: Mapping[str, tuple[str, str, str, str, str]] = {
    "tier dry-run": _NOTHING,
    "tier supervised": _EDITS,
    "tier autonomous": _ALL,
    "approval ask": ("asked", "asked", "asked", "asked", "asked"),
    "approval askDangerous": ("runs", "runs", "runs", "runs", "asked"),
    "approval autoEdit": _EDITS,
    "approval autoAll": _ALL,
    "sandbox none": _ALL,
    "sandbox readOnly": _NOTHING,
    "sandbox workspaceWrite": ("runs", "runs", "runs", "refused", "refused"),
    "sandbox fullAccess": _ALL,
}
"""What may become of each action, in words."""


def broken(cell: Cell, row: Row, capabilities: Capabilities) -> list[str]:
    """The promises of the cell that this row breaks, in words.

    Where a driver can ask nobody, a mode that asks may refuse or, reading only, let run; it may let nothing act.
    """
    complaints: list[str] = []
    for action, promised, outcome in zip(ACTIONS, PROMISES[cell.name], row, strict=True):
        allowed = set(promised.split())
        if capabilities.permissions == "none" and "asked" in PROMISES[cell.name][-1]:
            harmless = {"runs"} if action == "harmless" else set[str]()
            allowed = (allowed & {"runs"}) | {"refused"} | harmless
        if outcome.removesuffix("~") not in allowed:
            complaints.append(f"{cell.name}: {action} is promised {' or '.join(sorted(allowed))}, but: {outcome}")
    return complaints


# ------------------------------------------------------------------------------------------- what the CLIs get


def _claude(driver: str, options: Options) -> str:
    from stagedoor.drivers.claude.rights import is_sandboxed, rights_of

    rights = rights_of(options)
    hook = f", hook `{rights.hook}`" if rights.hook else ", no hook"
    own = ", its own sandbox for commands, edits outside refused by us" if is_sandboxed(options) else ""
    return f"`--permission-mode {rights.mode.value}`{hook}{own}"


def _codex(driver: str, options: Options) -> str:
    from stagedoor.drivers.codex.rights import asks, config_of, stance_of

    config = config_of(options, cast("Any", driver))
    settings = [f"sandbox `{config.sandbox_mode}`"]
    if config.approval_policy is not None:
        settings.insert(0, f"approval policy `{config.approval_policy}`")
    if config.network_access:
        settings.append("network open")
    if config.ignore_rules:
        settings.append("`--ignore-rules`")
    if config.disable:
        settings.append("without " + ", ".join(f"`{name}`" for name in config.disable))
    if config.config.get("web_search") == "disabled":
        settings.append("web search off")
    if asks(options) and driver == "app-server" and stance_of(options) == "edits":
        settings.append("patches of the workspace allowed by us")
    return ", ".join(settings)


def _gemini(driver: str, options: Options) -> str:
    from stagedoor.agents.gemini import Decision
    from stagedoor.drivers.gemini.rules import ANY, LOWEST, MODES, rules, stance_of

    words = {Decision.DENY: "deny", Decision.ASK_USER: "ask", Decision.ALLOW: "allow"}
    settings = [f"`--approval-mode {MODES[stance_of(options)]}`"]
    for rule in rules(options, asks=driver == "acp"):
        if rule.args_pattern == ANY or rule.priority == LOWEST:
            tools = (rule.tool_name,) if isinstance(rule.tool_name, str) else tuple(rule.tool_name or ())
            which = "MCP tools" if rule.mcp_name else ", ".join(f"`{tool}`" for tool in tools)
            settings.append(f"{words[rule.decision]} {which}")
    return "; ".join(settings) if len(settings) > 1 else f"{settings[0]}, no rules"


def _understudy(driver: str, options: Options) -> str:
    from stagedoor.drivers.understudy.agent import mode_of

    return f"mode `{mode_of(options)}`"


def _opencode(driver: str, options: Options) -> str:
    from stagedoor.agents.opencode.config import OpenCodeDriver
    from stagedoor.drivers.opencode.opening import config_of
    from stagedoor.drivers.opencode.rights import stance_of

    config = config_of(options, OpenCodeDriver(driver))
    rules: dict[str, Any] = dict(cast("Mapping[str, Any]", config.permission))
    if driver == "acp":
        rules["task"] = "deny"  # by the launch itself: a sub-agent's question would wait for ever
    actions: dict[str, list[str]] = {}
    for name, action in rules.items():
        if name == "question":
            continue  # whether the agent may talk, not whether it may act
        if isinstance(action, str):
            actions.setdefault(action, []).append("all else" if name == "*" else f"`{name}`")
        else:
            but = [f"`{pattern}` {other}" for pattern, other in action.items() if pattern != "*"]
            actions.setdefault(action["*"], []).append(f"`{name}` (but {', '.join(but)})")
    settings = [f"{action} {', '.join(sorted(names))}" for action, names in reversed(actions.items())]
    if config.ask_every_command:
        settings.append("a plugin that asks about every command")
    if driver != "run" and stance_of(options) == "edit":
        settings.append("edits of the workspace allowed by us")
    return "; ".join(settings)


def _copilot(driver: str, options: Options) -> str:
    from stagedoor.drivers.copilot.opening import rights_of

    return ", ".join(f"`{argument}`" for argument in rights_of(options)) or "nothing: it asks by itself"


def _qwen(driver: str, options: Options) -> str:
    from stagedoor.drivers.acp.questions import stance_of
    from stagedoor.drivers.qwen.rights import MODES, permission_rules

    rules = [f"{name} {', '.join(f'`{tool}`' for tool in tools)}" for name, tools in permission_rules(options).items()]
    return "; ".join([f"`--approval-mode {MODES[stance_of(options)]}`", *(rule for rule in rules if rule.strip())])


def _kimi(driver: str, options: Options) -> str:
    from stagedoor.drivers.acp.questions import stance_of
    from stagedoor.drivers.kimi.rights import MODES, refusals_of

    names = [refused.names.removeprefix("^(?:").removesuffix(")$").split("|") for refused in refusals_of(options)]
    hooks = ["a hook that refuses " + ", ".join(f"`{tool}`" for tool in tools) for tools in names]
    return "; ".join([f"mode `{MODES[stance_of(options)]}`", *hooks])


_SETTINGS: Mapping[str, Callable[[str, Options], str]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
    "understudy": _understudy,
    "copilot": _copilot,
    "qwen": _qwen,
    "kimi": _kimi,
}


OWN_SANDBOX = ("claude", "codex")
"""Those that keep to ``workspaceWrite`` by a sandbox of their own."""


def native_settings(agent: str, driver: str, cell: Cell) -> str:
    """What the CLI is started with in this cell, from the driver's own tables."""
    nobody = {"HOME": "/nonexistent", "CODEX_HOME": "/nonexistent"}  # whose own rules would change the settings
    options = Options(**cell.options, env=nobody, inherit_env=False)
    ours = "; [confined](confine.md)" if is_confined(options, own_sandbox=agent in OWN_SANDBOX) else ""
    return _SETTINGS[agent](driver, options) + ours
