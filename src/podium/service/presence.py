"""Which agents this server can run, looked up anew when some seconds have passed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from podium import catalog
from podium.drivers.driver import Presence
from podium.errors import PodiumError
from podium.unified.capabilities import Capabilities

from .settings import AgentSettings, Settings

FRESH = 30.0


class AgentView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An agent as this server has it: ``enabled`` and ``default`` by its configuration, the rest as found."""

    agent: str
    title: str = ""
    enabled: bool = True
    default: bool = False
    installed: bool = False
    version: str = ""
    signed_in: bool | None = None
    problem: str = ""
    fix: str = ""
    model: str = ""
    drivers: Mapping[str, Capabilities] = {}


class Agents:
    """``await agents()``: every agent, those that are switched off too. Looking never fails."""

    def __init__(
        self, settings: Settings, *, fresh: float = FRESH, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._fresh = fresh
        self._clock = clock
        self._found: tuple[AgentView, ...] = ()
        self._until = float("-inf")
        self._looking = asyncio.Lock()

    async def __call__(self) -> tuple[AgentView, ...]:
        async with self._looking:  # who comes meanwhile gets the same answer
            if self._clock() >= self._until:
                self._found = tuple(await asyncio.gather(*(self._look(name) for name in catalog.AGENTS)))
                self._until = self._clock() + self._fresh
            return self._found

    async def _look(self, name: str) -> AgentView:
        how = self._settings.agents.get(name, AgentSettings())
        found = Presence(agent=name) if not how.enabled else await _found(name, how)
        default = self._settings.default_agent or next(iter(catalog.AGENTS))
        return AgentView(
            agent=name,
            title=found.title,
            enabled=how.enabled,
            default=name == default,
            installed=found.installed,
            version=found.version,
            signed_in=found.signed_in,
            problem=found.problem if how.enabled else "switched off in the configuration",
            fix=found.fix if how.enabled else f"set agents.{name}.enabled: true",
            model=how.model or "",
            drivers=found.drivers,
        )


async def _found(name: str, how: AgentSettings) -> Presence:
    try:
        return await catalog.agent(name).inspect(environment(how))
    except ModuleNotFoundError as missing:
        return Presence(agent=name, problem=f"{missing.name} is not part of this installation")
    except (PodiumError, OSError) as fault:
        return Presence(agent=name, problem=str(fault))


def environment(how: AgentSettings) -> dict[str, str] | None:
    """What an agent's program sees, for looking at it and at what it has stored; ``None``: ours as it is."""
    if not how.env and not how.command:
        return None
    env = {**os.environ, **how.env}
    if "/" in how.command:
        env["PATH"] = os.pathsep.join([str(Path(how.command).expanduser().parent), env.get("PATH", os.defpath)])
    return env
