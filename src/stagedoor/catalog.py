"""The table of agents: the only source file that names them all."""

from __future__ import annotations

import difflib
from importlib import import_module

from .drivers.driver import Agent, Driver
from .errors import NotSupported
from .unified.capabilities import require
from .unified.options import Options

AGENTS: dict[str, str] = {
    "claude": "claude",
    "codex": "codex",
    "gemini": "gemini",
    "opencode": "opencode",
    "understudy": "understudy",
}
"""Name → its module in ``drivers``; imported when the agent is first used."""

ALIASES = {"claude-code": "claude", "codex-cli": "codex", "gemini-cli": "gemini"}


def known(name: str) -> str:
    """The name we have for the agent called ``name``. Raises ``NotSupported`` with the nearest one we know."""
    ours = ALIASES.get(name, name)
    if ours not in AGENTS:
        near = difflib.get_close_matches(name, AGENTS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(AGENTS)}"
        raise NotSupported(f"there is no agent {name!r}; {hint}")
    return ours


def agent(name: str) -> Agent:
    """The agent called ``name``. Raises ``NotSupported`` when there is none."""
    found: Agent = import_module(f".drivers.{AGENTS[known(name)]}", __package__).AGENT
    return found


def driver(of: Agent, options: Options) -> Driver:
    """The driver these options ask for, checked: what it cannot do is refused before anything is started."""
    name = options.driver or of.choose(options)
    if name not in of.drivers:
        raise NotSupported(f"{of.name} has no driver {name!r}; choose from {', '.join(of.drivers)}")
    chosen = of.drivers[name]
    require(options, chosen.capabilities, agent=of.name, driver=name)
    return chosen
