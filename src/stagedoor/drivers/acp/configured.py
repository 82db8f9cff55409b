"""The agents that a configuration file adds: what of it the library needs, which the server's own reader checks, too.

>>> agents:
...   mine:
...     acp: [my-agent, --acp]
...     modes: {supervised: ask, autonomous: auto}
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from ...errors import BadRequest, ConfigError
from ...register import config_files
from ...unified.options import Tier
from .definition import AcpAgent

KEY = "acp"
"""What makes an entry of ``agents:`` an agent of its own."""


class ConfiguredAgent(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of an entry that describe the agent itself."""

    acp: tuple[str, ...]
    env: Mapping[str, str | int | float] = {}
    modes: Mapping[Tier, str] = {}
    options: Mapping[str, str | bool] = {}
    title: str = ""
    install: str = ""


def agent_of(name: str, entry: Mapping[str, Any]) -> AcpAgent:
    """The agent of one entry, of which other keys are somebody else's. Raises ``ConfigError``."""
    command = entry.get(KEY)
    try:
        words = shlex.split(command) if isinstance(command, str) else command
        keys = msgspec.convert({**entry, KEY: words}, ConfiguredAgent)
        env = {variable: str(value) for variable, value in keys.env.items()}
        return AcpAgent(
            command=keys.acp, env=env, modes=keys.modes, options=keys.options,
            name=name, title=keys.title, install=keys.install,
        )  # fmt: skip
    except (msgspec.ValidationError, BadRequest, ValueError) as fault:
        raise ConfigError(f"agents.{name}: {fault}") from None


def entries_in(tree: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The entries of ``agents:`` that add an agent."""
    agents = cast("dict[object, object]", tree).get("agents") if isinstance(tree, dict) else None
    if isinstance(agents, dict):
        for name, entry in cast("dict[object, object]", agents).items():
            if isinstance(entry, dict) and KEY in entry:
                yield str(name), cast("dict[str, Any]", entry)


def read_agents(env: Mapping[str, str] = os.environ, *, taken: Collection[str] = ()) -> dict[str, AcpAgent]:
    """Those of the user's own configuration file. Raises ``ConfigError`` when that cannot be read."""
    named = [Path(env["STAGEDOOR_CONFIG"])] if env.get("STAGEDOOR_CONFIG") else config_files(env)
    file = next((place for place in named if place.is_file()), None)
    if file is None:
        return {}
    from ...yaml_with_lines import yaml_tree

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(f"cannot read {file}: {fault}") from fault
    tree, _ = yaml_tree(text, str(file), ConfigError)
    agents = {name: agent_of(name, entry) for name, entry in entries_in(tree)}
    if both := next((name for name in agents if name in taken), None):
        raise ConfigError(f"{file}: agents.{both}: {both} is an agent of its own; give yours another name")
    return agents
