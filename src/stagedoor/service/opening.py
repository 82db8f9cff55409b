"""From what a client wants, and how the server is configured, to a conversation that can begin."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stagedoor import catalog
from stagedoor.api import conversation
from stagedoor.engine import home_of
from stagedoor.errors import BadRequest, NotAllowed, NotSupported, SessionNotFound
from stagedoor.permissions.policy import Policy
from stagedoor.session import Session
from stagedoor.unified.capabilities import Capabilities
from stagedoor.unified.events import PermissionRequest
from stagedoor.unified.options import Options

from .policies import CurrentPolicy
from .settings import AgentSettings, Settings
from .views import Kept, SessionView, Wanted

OURS = "STAGEDOOR_"


class Opening:
    """``policy`` follows the configured file; without one, rules that are kept for good go to a file in ``home``."""

    def __init__(self, settings: Settings, home: Path) -> None:
        self._settings = settings
        self._home = home
        self.policy_file = Path(settings.policy).expanduser() if settings.policy else home / "policy.yaml"
        self.policy = CurrentPolicy(self.policy_file) if settings.policy else None

    def how(self, agent: str) -> AgentSettings:
        return self._settings.agents.get(agent, AgentSettings())

    def session(self, view: SessionView, *, resume: str | None = None, fork: bool = False) -> Session:
        """The conversation as it was asked for; nothing is started yet. Raises what is wrong with the wish."""
        wanted = view.wanted or Wanted(prompt="")
        how = self.how(view.agent)
        options: dict[str, Any] = {
            "cwd": view.cwd,
            "tier": view.tier,
            "approval": view.approval,
            "sandbox": view.sandbox,
            "model": view.model or None,
            "driver": view.driver or None,
            "executable": how.command or None,
            "extra_args": how.args,
            "env": {**environment(), **how.env, **_contained(view.agent, wanted.container)},
            "inherit_env": False,
            "max_turns": wanted.max_turns,
            "max_budget_usd": wanted.max_budget_usd,
            "allowed_tools": wanted.allowed_tools,
            "disallowed_tools": wanted.disallowed_tools,
            "system_prompt": wanted.system_prompt,
            "append_system_prompt": wanted.append_system_prompt,
            "output_schema": wanted.output_schema,
            "mcp_servers": wanted.mcp_servers,
            "timeout": wanted.timeout,
            "permission_timeout": wanted.permission_timeout or self._settings.answer_within,
            "policy": self._rules(wanted, how),
            "remember_in": str(self.policy_file),
            "audit": str(self._home / "audit.jsonl"),
        }
        if resume is not None:
            options |= {"resume": resume, "fork": fork}
        try:
            return conversation(view.agent, options, attended=True, session_id=view.id)
        except (NotSupported, NotAllowed, SessionNotFound, TypeError, ValueError) as fault:
            raise BadRequest(str(fault)) from fault

    def rule_for(self, request: PermissionRequest, view: SessionView) -> Kept:
        """What would be added to the policy to allow ``request`` for good."""
        from stagedoor.permissions.policy_file import rule_tree
        from stagedoor.permissions.remember import rules_for

        rules = rules_for(request, view.cwd, home=home_of(Options(env=self.how(view.agent).env)))
        return Kept(file=str(self.policy_file), rules=tuple(rule_tree(rule) for rule in rules))

    def capabilities(self, view: SessionView) -> Capabilities:
        """What the driver of this session can do; nothing where it could not even be opened."""
        try:
            return self.session(view, resume=view.native_id or None).capabilities
        except BadRequest:
            return Capabilities(resume=False)

    def _rules(self, wanted: Wanted, how: AgentSettings) -> CurrentPolicy | Policy | None:
        """The policy file as it is at each question, and tools that are approved by themselves where it is silent."""
        tools = (*how.auto_accept, *wanted.auto_approve)
        policy = self.policy
        if policy is None and self.policy_file.exists():
            policy = CurrentPolicy(self.policy_file)
        if policy is None:
            return Policy(auto_approve=tools) if tools else None
        return policy.stacked_on(Policy(auto_approve=tools)) if tools else policy


def environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What an agent may know of ours: everything but what is meant for the server itself."""
    return {name: value for name, value in env.items() if not name.startswith(OURS)}


def agent_named(name: str) -> str:
    try:
        return catalog.agent(name).name
    except NotSupported as fault:
        raise BadRequest(str(fault)) from fault


def _contained(agent: str, named: str) -> Mapping[str, str]:
    env: Mapping[str, str] | None = catalog.agent(agent).own_sandboxes.get(named) if named else {}
    if env is None:
        known = ", ".join(catalog.agent(agent).own_sandboxes) or "none"
        raise BadRequest(f"{agent} makes no container {named!r} around itself; it knows: {known}")
    return env
