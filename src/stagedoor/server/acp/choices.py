"""What an editor lets its user choose for a session: agent, model, effort, and the tier, which is the mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast, get_args

import msgspec
from msgspec.structs import replace

from stagedoor.errors import BadRequest
from stagedoor.service.agents import AgentView
from stagedoor.service.service import Service
from stagedoor.service.store import Query
from stagedoor.service.views import SessionSpec, SessionView
from stagedoor.unified.options import Tier

Json: TypeAlias = dict[str, Any]
DEFAULT = "default"
"""The value of a choice that is left to the agent."""
RECENT = 100
"""Sessions that are looked through for models that were used before."""
EFFORTS = ("low", "medium", "high")
"""What is offered where an agent does not say what it knows."""
MODES: Mapping[Tier, tuple[str, str]] = {
    "dry-run": ("Dry run", "Changes nothing: reads and plans"),
    "supervised": ("Supervised", "Edits in the workspace; asks before it runs commands"),
    "autonomous": ("Autonomous", "Never asks; the policy still decides"),
}


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """``agent_is_fixed``: the conversation has begun, and another agent could not continue it."""

    agent: str
    model: str = ""
    effort: str = ""
    tier: Tier = "supervised"
    agent_is_fixed: bool = False

    @classmethod
    def of(cls, view: SessionView) -> Choices:
        spec = view.spec or SessionSpec(prompt="")
        return cls(agent=view.agent, model=view.model, effort=spec.effort or "", tier=view.tier, agent_is_fixed=True)

    def applied_to(self, spec: SessionSpec) -> SessionSpec:
        return replace(spec, agent=self.agent, model=self.model or None, effort=self.effort or None, tier=self.tier)


async def default_choices(service: Service, agent: str) -> Choices:
    """As the configuration has them. ``agent`` empty: the one that runs when nobody names one."""
    name = agent or await service.agents.default()
    configured = service.settings.agents.get(name)
    if configured is None:
        return Choices(agent=name, tier=service.settings.tier)
    tier = configured.tier or service.settings.tier
    return Choices(agent=name, model=configured.model or "", effort=configured.effort or "", tier=tier)


async def choose(service: Service, choices: Choices, option: str, value: object) -> Choices:
    """``choices`` with one of them changed. Raises ``BadRequest``."""
    if not isinstance(value, str):
        raise BadRequest(f"the value of {option!r} must be a string, one of those in configOptions")
    match option:
        case "mode":
            if value not in get_args(Tier):
                raise BadRequest(f"unknown mode {value!r}: choose one of {', '.join(get_args(Tier))}")
            return replace(choices, tier=cast("Tier", value))
        case "model":
            return replace(choices, model="" if value == DEFAULT else value)
        case "effort":
            return replace(choices, effort="" if value == DEFAULT else value)
        case "agent":
            if value == choices.agent:
                return choices
            if choices.agent_is_fixed:
                raise BadRequest(f"this conversation is with {choices.agent}; start a new session for another agent")
            known = [view.agent for view in await service.agents.list() if view.enabled]
            if value not in known:
                raise BadRequest(f"unknown agent {value!r}: choose one of {', '.join(known)}")
            return await default_choices(service, value)
        case _:
            raise BadRequest(f"unknown option {option!r}: choose one of agent, model, effort, mode")


def modes(choices: Choices) -> Json:
    """For editors that know modes and no config options."""
    available = [{"id": tier, "name": name, "description": about} for tier, (name, about) in MODES.items()]
    return {"currentModeId": choices.tier, "availableModes": available}


async def config_options(service: Service, choices: Choices) -> list[Json]:
    """All of them, as they stand. Nothing is started to find out: what an agent offers is known when it has run."""
    views = await service.agents.list()
    chosen = next((view for view in views if view.agent == choices.agent), None)
    options = [
        _select("agent", "Agent", "_agent", choices.agent, _agents(views, choices)),
        _select("model", "Model", "model", choices.model or DEFAULT, await _models(service, choices, chosen)),
        _select("mode", "Mode", "mode", choices.tier, [_choice(tier, *MODES[tier]) for tier in MODES]),
    ]
    if chosen is not None and any(driver.effort for driver in chosen.drivers.values()):
        efforts = _offered(chosen, "effort") or [_choice(effort, effort.capitalize(), "") for effort in EFFORTS]
        current = choices.effort or DEFAULT
        options.append(_select("effort", "Effort", "thought_level", current, _with_current(efforts, current)))
    return options


def _agents(views: Sequence[AgentView], choices: Choices) -> list[Json]:
    """Those that could run now, and the chosen one whatever it is."""
    offered: list[Json] = []
    for view in views:
        usable = view.enabled and view.installed and not choices.agent_is_fixed
        if usable or view.agent == choices.agent:
            about = view.problem or " ".join(word for word in (view.agent, view.version) if word)
            offered.append(_choice(view.agent, view.title or view.agent, about))
    return offered or [_choice(choices.agent, choices.agent, "")]


async def _models(service: Service, choices: Choices, chosen: AgentView | None) -> list[Json]:
    """What the agent offers; else the configured one, and those that sessions with this agent have used."""
    models = [] if chosen is None else _offered(chosen, "model")
    if not models:
        configured = service.settings.agents.get(choices.agent)
        recent = await service.sessions.list(Query(agent=choices.agent, limit=RECENT))
        names = ["" if configured is None else configured.model or "", *(view.model for view in recent)]
        models = [_choice(name, name, "") for name in dict.fromkeys(names) if name]
    return _with_current(models, choices.model or DEFAULT)


def _offered(agent: AgentView, kind: str) -> list[Json]:
    setting = next((setting for setting in agent.settings if setting.kind == kind), None)
    offered = () if setting is None else setting.choices
    return [_choice(choice.value, choice.name or choice.value, choice.about) for choice in offered]


def _with_current(choices: list[Json], current: str) -> list[Json]:
    """Beside them what leaves it to the agent, and what is chosen now."""
    values = {choice["value"] for choice in choices}
    default = [] if DEFAULT in values else [_choice(DEFAULT, "Default", "What the agent chooses")]
    chosen = [] if current in values or current == DEFAULT else [_choice(current, current, "")]
    return [*default, *chosen, *choices]


def _select(option: str, name: str, category: str, current: str, choices: list[Json]) -> Json:
    shape = {"id": option, "name": name, "category": category, "type": "select"}
    return {**shape, "currentValue": current, "options": choices}


def _choice(value: str, name: str, about: str) -> Json:
    return {"value": value, "name": name} | ({"description": about} if about else {})
