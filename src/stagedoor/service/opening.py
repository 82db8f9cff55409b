"""From what a client wants, and how the server is configured, to a conversation that can begin."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from stagedoor import catalog
from stagedoor.api import conversation
from stagedoor.errors import BadRequest, NotAllowed, NotSupported, PolicyError, SessionNotFound
from stagedoor.permissions.audit import FILE_NAME, audit_log
from stagedoor.permissions.ground import ground_of
from stagedoor.permissions.paths import Folder
from stagedoor.permissions.policy import Policy, Ruling
from stagedoor.permissions.policy_file import load_policy
from stagedoor.permissions.risk.judge import RiskVerdict
from stagedoor.register import Register
from stagedoor.session import Session
from stagedoor.unified.capabilities import Capabilities
from stagedoor.unified.events import PermissionRequest, ToolName, ToolUse
from stagedoor.unified.options import APPROVALS, Approval, Confine, Options, Tier, protected_files

from .config.settings import AgentSettings, Settings
from .views import PolicyRules, SessionSpec, SessionView
from .workspaces.trust import Trust

if TYPE_CHECKING:
    from stagedoor.agents.acp.config import Host

OURS = "STAGEDOOR_"
SESSION_VARIABLE = "STAGEDOOR_SESSION"
"""In the environment of everything that a session starts: its id. What it starts through us is then seen as its own."""


class Opening:
    """``policy`` follows the configured file; without one, rules that are kept for good go to a file in ``home``."""

    def __init__(self, settings: Settings, home: Path) -> None:
        self._settings = settings
        self._home = home
        self.audit = audit_log(home / FILE_NAME)
        self.trust = Trust(settings, home)
        self.policy_file = Path(settings.policy).expanduser() if settings.policy else home / "policy.yaml"
        self.policy = CurrentPolicy(self.policy_file) if settings.policy else None
        self.hosts: dict[str, Host] = {}
        """Of each session that an editor drives: what that editor does for the agent."""
        self.environments: dict[str, Mapping[str, str]] = {}
        """Of each session that an editor drives which has brought its own environment: that one."""

    def agent_settings(self, agent: str) -> AgentSettings:
        return self._settings.agents.get(agent, AgentSettings())

    def environment_of(self, view: SessionView) -> dict[str, str]:
        """What a session's agent, and all that it starts, finds in its environment."""
        contained = _contained(view.agent, "" if view.spec is None else view.spec.container)
        env = self.agent_settings(view.agent).env
        return {**self._environment(view), **env, **contained, SESSION_VARIABLE: view.id}

    def session(
        self, view: SessionView, *, resume: str | None = None, fork: bool = False, images: Sequence[str] = ()
    ) -> Session:
        """The conversation as it was asked for; nothing is started yet. Raises what is wrong with the wish.

        ``images`` go with its first prompt.
        """
        spec = view.spec or SessionSpec(prompt="")
        configured = self.agent_settings(view.agent)
        options: dict[str, Any] = {
            "cwd": view.cwd,
            "tier": view.tier,
            "approval": view.approval,
            "sandbox": view.sandbox,
            **self._confined(view, configured),
            "trust": self.trust.covers(Path(view.cwd), view.agent) if spec.trust is None else spec.trust,
            "model": view.model or None,
            "effort": spec.effort or configured.effort,
            "mode": spec.mode,
            "driver": view.driver or None,
            "executable": configured.command or None,
            "extra_args": configured.args,
            "env": self.environment_of(view),
            "inherit_env": False,
            "max_turns": spec.max_turns,
            "max_budget_usd": spec.max_budget_usd,
            "allowed_tools": spec.allowed_tools,
            "disallowed_tools": spec.disallowed_tools,
            "system_prompt": spec.system_prompt,
            "append_system_prompt": spec.append_system_prompt,
            "output_schema": spec.output_schema,
            "mcp_servers": spec.mcp_servers,
            "timeout": spec.timeout,
            "permission_timeout": spec.permission_timeout or self._settings.answer_within,
            "policy": self._rules(spec, configured),
            "protected": (*self._settings.protected, *spec.protected),
            "before_tool_call": self._settings.before_tool_call,
            "after_tool_call": self._settings.after_tool_call,
            "on_event": self._settings.on_event,
            "hook_timeout": float(self._settings.hook_timeout),
            "remember_in": str(self.policy_file),
            "audit": str(self.audit.path),
            "raw": "lines" if catalog.agent(view.agent).keep_lines else False,
        }
        if images:
            options["images"] = tuple(images)
        if resume is not None:
            options |= {"resume": resume, "fork": fork}
        try:
            return conversation(
                view.agent, options, attended=True, session_id=view.id, host=partial(self._in_editor, view.id)
            )
        except (NotSupported, NotAllowed, SessionNotFound, TypeError, ValueError) as fault:
            raise BadRequest(str(fault)) from fault

    def _environment(self, view: SessionView) -> dict[str, str]:
        """That of the editor which drives it, or drove the session that it continues; else our own."""
        lent = self.environments.get(view.id) or self.environments.get(view.parent_id or "")
        return environment(os.environ if lent is None else lent)

    async def _in_editor(self, session_id: str, method: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What an agent wants its client to do, done by the editor that drives the session, if one does and can."""
        host = self.hosts.get(session_id)
        return None if host is None else await host(method, params)

    def permit(self, view: SessionView, changed: SessionView) -> None:
        """A person lets a session go on with other permissions, also wider ones, which resuming alone never gives it.

        Raises what is wrong with that; then everything is as it was.
        """
        register = Register()
        entry = register.find(view.native_id)
        if entry is not None:
            register.add(replace(entry, tier=changed.tier, approval=changed.approval))
        try:
            self.session(changed, resume=view.native_id)
        except BadRequest:
            if entry is not None:
                register.add(entry)
            raise

    def rule_for(self, request: PermissionRequest, view: SessionView) -> PolicyRules:
        """What would be added to the policy to allow ``request`` for good."""
        from stagedoor.permissions.policy_file import rule_tree
        from stagedoor.permissions.remember import rules_for

        env = {**self._environment(view), **self.agent_settings(view.agent).env}
        added = (*self._settings.protected, *(view.spec.protected if view.spec is not None else ()))
        protected = {**catalog.protected(), **protected_files(added)}
        rules = rules_for(request, ground_of(Options(cwd=view.cwd, env=env, inherit_env=False, protected=protected)))
        return PolicyRules(file=str(self.policy_file), rules=tuple(rule_tree(rule) for rule in rules))

    def capabilities(self, view: SessionView) -> Capabilities:
        """What the driver of this session can do; nothing where it could not even be opened."""
        try:
            return self.session(view, resume=view.native_id or None).capabilities
        except BadRequest:
            return Capabilities(resume=False)

    def may_resume(self, view: SessionView) -> bool:
        """Whether its agent could go on with it, on the machine that has its folder."""
        drivers = catalog.agent(view.agent).drivers
        chosen = [drivers[view.driver]] if view.driver in drivers else drivers.values()
        return any(driver.capabilities.resume for driver in chosen)

    def _confined(self, view: SessionView, configured: AgentSettings) -> dict[str, Any]:
        """Nothing of the server's own can be read from inside."""
        confine = narrower(view.confine, configured.confine)
        if confine == "off" and view.sandbox != "workspaceWrite":
            return {}
        hidden = (*configured.confine_hide, str(self._home))
        return {"confine": confine, "confine_write": configured.confine_write, "confine_hide": hidden}

    def _rules(self, spec: SessionSpec, configured: AgentSettings) -> CurrentPolicy | Policy | None:
        """The policy file as it is at each question, and tools that are approved by themselves where it is silent."""
        tools = () if spec.only_refusing else (*configured.auto_accept, *spec.auto_approve)
        policy = self.policy
        if policy is None and self.policy_file.exists():
            policy = CurrentPolicy(self.policy_file)
        if policy is not None and spec.only_refusing:
            return policy.only_refusing()
        if policy is None:
            return Policy(auto_approve=tools) if tools else None
        return policy.stacked_on(Policy(auto_approve=tools)) if tools else policy


CONFINES: tuple[Confine, ...] = ("off", "workspace", "read-only")


def narrower(first: Confine, second: Confine) -> Confine:
    return first if CONFINES.index(first) > CONFINES.index(second) else second


LEAST_BUDGET = 0.01
"""USD; less is nothing."""
_Limit = TypeVar("_Limit", int, float)
_FREEDOM: tuple[Approval, ...] = ("ask", "autoEdit", "askDangerous", "autoAll")


def narrowed(spec: SessionSpec, above: SessionView, others: Sequence[SessionView] = ()) -> SessionSpec:
    """What a model of the session ``above`` asks for, within what that session itself may do.

    ``others``: those it has started before; they share its budget.
    """
    theirs = above.spec or SessionSpec(prompt="")
    return replace(
        spec,
        cwd=spec.cwd or above.cwd,
        tier=spec.tier or above.tier,
        approval=spec.approval or (above.approval if spec.tier in (None, above.tier) else None),
        sandbox=above.sandbox or spec.sandbox,
        confine=narrower(spec.confine or "off", above.confine),
        trust=None if theirs.trust is None else theirs.trust,
        container=theirs.container or spec.container,
        allowed_tools=theirs.allowed_tools if spec.allowed_tools is None else spec.allowed_tools,
        disallowed_tools=(*theirs.disallowed_tools, *spec.disallowed_tools),
        auto_approve=(),
        only_refusing=theirs.only_refusing or spec.only_refusing,
        protected=(*theirs.protected, *spec.protected),
        max_budget_usd=_share(spec.max_budget_usd, above, others),
        max_turns=_least(spec.max_turns, theirs.max_turns),
        timeout=_least(spec.timeout, theirs.timeout),
        permission_timeout=_least(spec.permission_timeout, theirs.permission_timeout),
    )


def _least(*limits: _Limit | None) -> _Limit | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _share(budget: float | None, above: SessionView, others: Sequence[SessionView]) -> float | None:
    """Half of what is left of the budget above, so that there is always something for one more; never over it.

    One that has ended has taken what it cost, any other one what it was given.
    """
    whole = None if above.spec is None else above.spec.max_budget_usd
    if whole is None:
        return budget
    left = whole - (above.cost_usd or 0.0)
    for other in others:
        given = whole if other.spec is None or other.spec.max_budget_usd is None else other.spec.max_budget_usd
        left -= given if not other.ended or other.cost_usd is None else other.cost_usd
    if left < LEAST_BUDGET:
        raise NotAllowed(
            f"the budget of the session that starts this one ({whole:g} USD) is spent, or given to those it has started"
        )
    return _least(budget, left / 2)


def check_narrower(tier: Tier, approval: Approval | None, cwd: Path, above: SessionView) -> None:
    """Raises ``NotAllowed`` for a session that may do more than the one whose model starts it."""
    if freedom(tier, approval) > freedom(above.tier, above.approval):
        raise NotAllowed(
            f"a session with tier {tier!r} may do more than the one that starts it ({above.tier!r}): leave tier out"
        )
    if not cwd.resolve().is_relative_to(Path(above.cwd).resolve()):
        raise NotAllowed(f"{cwd} is outside {above.cwd}, where the session that starts this one works")


def is_freer(view: SessionView, above: SessionView) -> bool:
    return freedom(view.tier, view.approval) > freedom(above.tier, above.approval)


def freedom(tier: Tier, approval: Approval | None) -> int:
    """How much may be done without a question: comparable, nothing else."""
    return 0 if tier == "dry-run" else 1 + _FREEDOM.index(approval or APPROVALS[tier])


def environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What an agent may know of ours: everything but what is meant for the server itself."""
    return {name: value for name, value in env.items() if not name.startswith(OURS) and name != "PGPASSWORD"}


def agent_named(name: str) -> str:
    try:
        return catalog.agent(name).name
    except NotSupported as fault:
        raise BadRequest(str(fault)) from fault


def _contained(agent: str, named: str) -> Mapping[str, str]:
    env: Mapping[str, str] | None = catalog.agent(agent).own_sandboxes.get(named) if named else {}
    if env is None:
        known = ", ".join(catalog.agent(agent).own_sandboxes) or "none"
        raise BadRequest(f"{agent} has no container {named!r}; available: {known}")
    return env


_policy_log = logging.getLogger("stagedoor.policy")
_Mark = tuple[int, int, int]


class PolicyFile:
    """The last good policy of a file. ``problem`` says why the file as it is now does not count."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self.changed: Callable[[str, str], None] | None = None
        """Told the text before and after when a changed file counts."""
        self._text = ""
        self._good: Policy | None = None
        self._mark: _Mark | None = None
        self._looked = False

    def current(self) -> Policy | None:
        """``None`` when there never was a good one."""
        mark = self._look()
        if self._looked and mark == self._mark:
            return self._good
        self._looked, self._mark = True, mark
        try:
            policy = load_policy(self.path)
            text = self.path.read_text("utf-8", "replace")
        except (PolicyError, OSError) as fault:
            kept = "nothing is allowed" if self._good is None else "the last good policy stays in force"
            self.problem = f"{fault}; {kept} until it is fixed"
            _policy_log.warning("%s", self.problem)
            return self._good
        if self.problem or self._good is not None:
            _policy_log.info("policy %s reloaded", self.path)
        if self._good is not None and self.changed is not None and text != self._text:
            self.changed(self._text, text)
        self._text = text
        self.problem = ""
        self._good = policy
        return policy

    def _look(self) -> _Mark | None:
        try:
            seen = self.path.stat()
        except OSError:
            return None
        return seen.st_mtime_ns, seen.st_size, seen.st_ino


class CurrentPolicy:
    """Stands where a ``Policy`` may stand (``Options.policy``), and decides by its file as it is at that moment.

    A wrong file changes nothing: the last good one holds. Where there never was one, everything is refused.
    """

    def __init__(
        self,
        path: Path | PolicyFile,
        *,
        beneath: Policy | None = None,
        only_refusing: bool = False,
        modes: Policy | None = None,
    ) -> None:
        self.file = path if isinstance(path, PolicyFile) else PolicyFile(path)
        self._beneath = beneath
        self._only_refusing = only_refusing
        self._modes = modes

    @property
    def problem(self) -> str:
        """Why the file as it is now does not count; empty when it does."""
        self.file.current()
        return self.file.problem

    @property
    def policy(self) -> Policy | None:
        policy = self.file.current()
        if policy is not None and self._only_refusing:
            policy = policy.only_refusing()
        if policy is not None and self._beneath is not None:
            policy = policy.stacked_on(self._beneath)
        return policy if policy is None or self._modes is None else policy.over_modes(self._modes)

    def over_modes(self, modes: Policy) -> CurrentPolicy:
        """As ``Policy.over_modes``."""
        return CurrentPolicy(self.file, beneath=self._beneath, only_refusing=self._only_refusing, modes=modes)

    def denies_every(self, tool: ToolName, native_name: str, agent: str) -> bool:
        """As ``Policy.denies_every``, by the file as it is now; without a good one nothing is allowed."""
        policy = self.policy
        return policy is None or policy.denies_every(tool, native_name, agent)

    def stacked_on(self, other: Policy) -> CurrentPolicy:
        """Its file first, then ``other``, as ``Policy.stacked_on``."""
        beneath, modes = self._beneath, self._modes
        if modes is not None:
            modes = modes.stacked_on(other)
        else:
            beneath = other if beneath is None else beneath.stacked_on(other)
        return CurrentPolicy(self.file, beneath=beneath, only_refusing=self._only_refusing, modes=modes)

    def only_refusing(self) -> CurrentPolicy:
        """The same without what it allows."""
        beneath = None if self._beneath is None else self._beneath.only_refusing()
        modes = None if self._modes is None else self._modes.only_refusing()
        return CurrentPolicy(self.file, beneath=beneath, only_refusing=True, modes=modes)

    def decide(
        self,
        request: PermissionRequest | ToolUse,
        cwd: Folder,
        *,
        home: str | None = None,
        verdict: RiskVerdict | None = None,
    ) -> Ruling:
        policy = self.policy
        if policy is not None:
            return policy.decide(request, cwd, home=home, verdict=verdict)
        ruling = Policy().decide(request, cwd, home=home, verdict=verdict)
        return Ruling(
            action="deny", rule=None, why=f"the policy {self.file.path} cannot be read, so nothing is allowed",
            risk=ruling.risk, reasons=ruling.reasons,
        )  # fmt: skip
