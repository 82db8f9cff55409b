"""Which agents this server can run, looked up anew when some seconds have passed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stagedoor import catalog
from stagedoor.drivers.agent import Agent, Presence
from stagedoor.errors import BadRequest, NotSupported, StagedoorError
from stagedoor.unified.capabilities import Capabilities
from stagedoor.unified.settings import AgentSetting

from .config.settings import AgentSettings, Settings

FRESH = 30.0


class AgentView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An agent as this server has it. ``default``: what runs when nobody names an agent, as configured, else the first
    that could run now."""

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
    settings: tuple[AgentSetting, ...] = ()
    """What its sessions let one choose, where that was seen: in a session, or by ``Agents.settings``."""
    drivers: Mapping[str, Capabilities] = {}


class Agents:
    """``service.agents``: every agent, those that are switched off too. Looking never fails."""

    def __init__(
        self, settings: Settings, *, fresh: float = FRESH, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._fresh = fresh
        self._clock = clock
        self._views: tuple[AgentView, ...] = ()
        self._until = float("-inf")
        self._looking = asyncio.Lock()
        self._trying = asyncio.Lock()
        self._offered: dict[str, tuple[AgentSetting, ...]] = {}
        self.elsewhere: Callable[[], Awaitable[frozenset[str]]] | None = None
        """The labels of the machines that take work, where several share a log."""
        self.runs_here = True

    def enabled(self, name: str) -> bool:
        return self._settings.agents.get(name, AgentSettings()).enabled

    def check(self, name: str) -> str:
        """The agent's own name, for any it goes by. Raises ``BadRequest`` for one that this server does not run."""
        agent = _named(name).name
        if not self.enabled(agent):
            raise BadRequest(f"{agent} is switched off in this server's configuration")
        return agent

    async def default(self) -> str:
        """The agent that runs when nobody names one."""
        if self._settings.default_agent:
            return self._settings.default_agent
        for view in await (self.on_this_machine() if self.runs_here else self.list()):
            if view.default:
                return view.agent
        raise BadRequest("every agent is switched off in this server's configuration; enable one")

    async def list(self) -> tuple[AgentView, ...]:
        """With those that other machines have, where several share a log."""
        if self.elsewhere is None:
            return await self.on_this_machine()
        labels = await self.elsewhere()
        views = [self._anywhere(view, labels) for view in await self.on_this_machine()]
        default = self._settings.default_agent or _first_ready(views)
        return tuple(replace(view, default=view.agent == default) for view in views)

    def _anywhere(self, view: AgentView, labels: frozenset[str]) -> AgentView:
        if not view.enabled or (self.runs_here and view.installed):
            return view
        unknown = replace(view, installed=False, version="", signed_in=None, problem="", fix="")
        if f"agent:{view.agent}" in labels:
            return replace(unknown, installed=True)
        return replace(unknown, fix="install it on a machine that takes work (stagedoor workers lists them)")

    async def on_this_machine(self) -> tuple[AgentView, ...]:
        """As this machine has them."""
        async with self._looking:  # who comes meanwhile gets the same answer
            if self._clock() >= self._until:
                views = await asyncio.gather(*(self._look(name) for name in catalog.names()))
                default = self._settings.default_agent or _first_ready(views)
                self._views = tuple(replace(view, default=view.agent == default) for view in views)
                self._until = self._clock() + self._fresh
                self._show_settings()
            return self._views

    async def settings(self, name: str) -> tuple[AgentSetting, ...]:
        """What a session of this agent would let one choose. An agent that speaks ACP is started once to see it; of
        the others it is known when a session has run."""
        agent = _named(name)
        if not self.enabled(agent.name):
            raise BadRequest(f"{agent.name} is switched off in this server's configuration")
        if agent.name not in self._offered and agent.offered_settings is not None:
            async with self._trying:  # one at a time, and who comes meanwhile gets the same answer
                if agent.name not in self._offered:
                    configured = self._settings.agents.get(agent.name, AgentSettings())
                    try:
                        self._offered[agent.name] = await agent.offered_settings(environment(configured))
                        self._show_settings()
                    except StagedoorError as fault:
                        raise BadRequest(str(fault)) from fault
        return self._offered.get(agent.name, ())

    def note_settings(self, name: str, settings: Sequence[AgentSetting]) -> None:
        """A session has these: the next one of this agent will, too, but nothing of them is locked before it began."""
        offered = tuple(replace(one, locked="") for one in settings)
        if offered and offered != self._offered.get(name):
            self._offered[name] = offered
            self._show_settings()

    def _show_settings(self) -> None:
        self._views = tuple(replace(view, settings=self._offered.get(view.agent, ())) for view in self._views)

    async def _look(self, name: str) -> AgentView:
        configured = self._settings.agents.get(name, AgentSettings())
        presence = Presence(agent=name) if not configured.enabled else await _inspect(name, configured)
        return AgentView(
            agent=name,
            title=presence.title,
            enabled=configured.enabled,
            installed=presence.installed,
            version=presence.version,
            signed_in=presence.signed_in,
            problem=presence.problem if configured.enabled else "switched off in the configuration",
            fix=presence.fix if configured.enabled else f"set agents.{name}.enabled: true",
            model=configured.model or "",
            drivers=presence.drivers,
        )


def _named(name: str) -> Agent:
    try:
        return catalog.agent(name)
    except NotSupported as fault:
        raise BadRequest(str(fault)) from fault


def _first_ready(views: Sequence[AgentView]) -> str:
    """The first that is installed and not signed out, else that is installed; the embedded one always is."""
    present = [view.agent for view in views if view.enabled and view.installed]
    ready = [view.agent for view in views if view.agent in present and view.signed_in is not False]
    return next(iter(ready or present), "")


async def _inspect(name: str, configured: AgentSettings) -> Presence:
    try:
        return await catalog.agent(name).inspect(environment(configured))
    except ModuleNotFoundError as missing:
        return Presence(agent=name, problem=f"{missing.name} is not part of this installation")
    except (StagedoorError, OSError) as fault:
        return Presence(agent=name, problem=str(fault))


def environment(configured: AgentSettings) -> dict[str, str] | None:
    """What an agent's program sees, for looking at it and at what it has stored; ``None``: ours as it is."""
    if not configured.env and not configured.command:
        return None
    env = {**os.environ, **configured.env}
    if "/" in configured.command:
        env["PATH"] = os.pathsep.join([str(Path(configured.command).expanduser().parent), env.get("PATH", os.defpath)])
    return env
