"""The table of agents: the only source file that names them all."""

from __future__ import annotations

import contextlib
import difflib
import shutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec

from .drivers.acp.definition import ANY, AcpAgent
from .drivers.acp.unproven import UNPROVEN
from .drivers.agent import Agent, AnyDriver
from .errors import ConfigError, NotSupported
from .unified.capabilities import require
from .unified.options import Options

BUILT_IN: dict[str, tuple[str, ...]] = {
    "claude": ("claude-code",),
    "codex": ("codex-cli",),
    "gemini": ("gemini-cli",),
    "opencode": (),
    "copilot": ("copilot-cli", "github-copilot"),
    "qwen": ("qwen-code",),
    "kimi": ("kimi-code",),
    "understudy": (),
}
"""Name → its other names. The agent is the value ``AGENT`` in ``drivers/<name>/agent.py``, imported when first used."""

ALIASES = {alias: name for name, aliases in BUILT_IN.items() for alias in aliases}

ENTRY_POINTS = "stagedoor.agents"
"""Installed packages bring agents here: ``name = "package.module:AGENT"``, a value of the type ``Agent``."""


_configured: dict[str, AcpAgent] | None = None
"""Those of the configuration in force; ``None``: nobody has said which one that is, so it is the user's own file."""


def configure(agents: Mapping[str, AcpAgent] | None) -> None:
    """From now on the configured agents are these; ``None``: those of the user's own file, read when needed."""
    global _configured
    _configured = None if agents is None else dict(agents)


def configured() -> Mapping[str, AcpAgent]:
    """The agents that the configuration adds. Raises ``ConfigError`` when they cannot be read."""
    global _configured
    if _configured is None:
        from .drivers.acp.configured import read_agents

        _configured = read_agents(taken=(*BUILT_IN, *ALIASES, *_installed()))
    return _configured


def is_configured(name: str) -> bool:
    """Whether ``name`` is an agent only because the configuration says so."""
    with contextlib.suppress(ConfigError):
        return name in configured()
    return False


def names() -> tuple[str, ...]:
    """All agents: those of our own, those that installed packages bring, those that the configuration adds, then those
    on this machine that nobody has tried."""
    added: list[str] = []
    with contextlib.suppress(ConfigError):  # told when the configuration is read, or one of its agents is named
        added = sorted(configured())
    present = [name for name in unproven_names() if shutil.which(UNPROVEN[name].command[0])]
    return (*BUILT_IN, *sorted(_installed()), *added, *present)


def unproven_names() -> tuple[str, ...]:
    """The agents of which we know a command and no more, unless somebody else has described them."""
    return tuple(name for name in UNPROVEN if name not in _installed() and not is_configured(name))


def canonical_name(name: str) -> str:
    """The name we have for the agent called ``name``. Raises ``NotSupported`` with the nearest one we know."""
    canonical = ALIASES.get(name, name)
    if canonical in BUILT_IN or canonical in _installed() or canonical in configured():
        return canonical
    if canonical in UNPROVEN:
        return canonical
    if name == ANY:
        raise NotSupported(
            "the protocol alone names no agent: give its command with --acp, or a name with stagedoor agents add"
        )
    near = difflib.get_close_matches(name, names(), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(names())}"
    raise NotSupported(f"unknown agent {name!r}: {hint}")


def agent(name: str | AcpAgent) -> Agent:
    """The agent called ``name``, or described so. Raises ``NotSupported`` when there is none."""
    if isinstance(name, AcpAgent):
        return _from_definition(name)
    canonical = canonical_name(name)
    if canonical in BUILT_IN:
        built_in: Agent = import_module(f".drivers.{canonical}.agent", __package__).AGENT
        return built_in
    if canonical in _installed():
        return _load(_installed()[canonical])
    return _from_definition(configured().get(canonical) or UNPROVEN[canonical])


def _from_definition(definition: AcpAgent) -> Agent:
    from .drivers.acp.agent import acp_agent

    return acp_agent(definition)


@cache
def protected() -> Mapping[str, str]:
    """The files from which any agent we know runs something by itself, whichever agent is to write them."""
    files: dict[str, str] = {}
    for name in BUILT_IN:
        # Its own small module: whoever drives one agent need not load the others.
        if find_spec(module := f"{__package__}.drivers.{name}.protected") is not None:
            files |= import_module(module).PROTECTED
    for name in _installed():
        with contextlib.suppress(NotSupported):  # it cannot run either
            files |= agent(name).protected
    return files


def driver(of: Agent, options: Options) -> AnyDriver:
    """The driver these options ask for, checked: what it cannot do is refused before anything is started."""
    name = options.driver or of.choose_driver(options)
    if name not in of.drivers:
        raise NotSupported(f"{of.name} has no driver {name!r}; choose from {', '.join(of.drivers)}")
    chosen = of.drivers[name]
    require(options, chosen.capabilities, agent=of.name, driver=name)
    of.tool_lists(options)
    chosen.check(options)
    return chosen


@cache
def _installed() -> dict[str, metadata.EntryPoint]:
    """Nobody can take the place of an agent of our own."""
    taken = {*BUILT_IN, *ALIASES}
    return {point.name: point for point in metadata.entry_points(group=ENTRY_POINTS) if point.name not in taken}


def _load(point: metadata.EntryPoint) -> Agent:
    package = point.dist.name if point.dist is not None else "an installed package"
    try:
        value = point.load()
    except Exception as fault:  # other people's code: whatever is wrong there, say where
        raise NotSupported(f"the agent {point.name!r} of {package} cannot be loaded: {fault!r}") from fault
    if not isinstance(value, Agent) or value.name != point.name:
        raise NotSupported(f"the agent {point.name!r} of {package} must be a stagedoor Agent with that name: {value!r}")
    return value
