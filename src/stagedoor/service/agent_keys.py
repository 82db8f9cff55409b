"""What the configuration says of each agent, as ``AgentSettings``: what its driver owns is taken out, what it cannot
do is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from stagedoor import catalog
from stagedoor.unified.options import Sandbox
from stagedoor.written import hint

from .settings import AgentSettings

_AS_THEY_ARE = ("enabled", "model", "driver", "tier", "approval", "auto_accept", "trusted_folders")


class AgentWishes:
    """``values``: dotted key → value. ``mistakes`` are pairs of a key and what is wrong with it."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.mistakes: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self._wishes: dict[str, dict[str, Any]] = {}
        for path, value in values.items():
            section, _, rest = path.partition(".")
            name, dot, key = rest.partition(".")
            if section == "agents" and dot:
                self._wishes.setdefault(name, {})[key] = value

    def settings(self) -> dict[str, AgentSettings]:
        return {name: self._agent(name, wishes) for name, wishes in self._wishes.items()}

    def _agent(self, name: str, wishes: Mapping[str, Any]) -> AgentSettings:
        made: dict[str, Any] = {key: wishes[key] for key in _AS_THEY_ARE if key in wishes}
        env = dict(cast("Mapping[str, str]", wishes.get("env", {})))
        if wishes.get("command", name) != name:  # its own name is what is looked for anyway, in more places
            made["command"] = wishes["command"]
        if "args" in wishes:
            made["args"] = self._arguments(name, wishes["args"])
        if "sandbox" in wishes:
            sandbox = wishes["sandbox"]
            own = catalog.agent(name).own_sandboxes.get(sandbox)
            if own is not None:
                env = {**own, **env}
            elif sandbox in get_args(Sandbox):
                made["sandbox"] = sandbox
            else:
                known = (*get_args(Sandbox), *catalog.agent(name).own_sandboxes)
                told = hint(sandbox, known) or f"; use one of {', '.join(known)}"
                self._wrong(name, "sandbox", f"{name} has no sandbox '{sandbox}'{told}")
        if wishes.get("skip_permissions"):
            if wishes.get("tier", "autonomous") != "autonomous" or "approval" in wishes:
                self._wrong(name, "skip_permissions", "'skip_permissions' contradicts tier or approval; keep one")
            made["tier"] = "autonomous"
        if "driver" in wishes:
            drivers = catalog.agent(name).drivers
            if wishes["driver"] not in drivers:
                told = hint(wishes["driver"], drivers) or f"; use one of {', '.join(drivers)}"
                self._wrong(name, "driver", f"{name} has no driver '{wishes['driver']}'{told}")
        return AgentSettings(**made, env=env)

    def _arguments(self, name: str, words: tuple[str, ...]) -> tuple[str, ...]:
        sorted_out = catalog.agent(name).arguments.sort(words)
        if sorted_out.dropped:
            told = " ".join(sorted_out.dropped)
            self.warnings.append(
                f"agents.{name}.args: {told} dropped: Stagedoor gives the program what it needs of that"
            )
        for word, key in sorted_out.misplaced.items():
            self._wrong(name, "args", f"'{word}' cannot be an argument: Stagedoor must know of it; use '{key}' instead")
        return sorted_out.passed

    def _wrong(self, name: str, key: str, what: str) -> None:
        self.mistakes.append((f"agents.{name}.{key}", what))
