"""REST: the server's agents, projects, policy, usage, and its record of decisions."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from stagedoor.errors import BadRequest, SessionNotFound
from stagedoor.service.agents import AgentView
from stagedoor.service.ledger import MOST_OFFSET, Audited, UsageSums
from stagedoor.service.store import ConfigChange
from stagedoor.service.terminal import TerminalAnswer, TerminalBody, why_not_here
from stagedoor.service.views import By
from stagedoor.service.workspaces import roots
from stagedoor.unified.settings import AgentSetting

from .operations import AgentName, Count, Operation, RestCall, Words


class AgentList(msgspec.Struct, frozen=True):
    agents: tuple[AgentView, ...]


class AgentQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    agent: AgentName


class SettingList(msgspec.Struct, frozen=True):
    """``locked`` says why one cannot be changed; empty: it can."""

    settings: tuple[AgentSetting, ...]


class Project(msgspec.Struct, frozen=True):
    id: str
    path: str


class ProjectList(msgspec.Struct, frozen=True):
    """``roots``: sessions run, and files are read, only inside these folders."""

    projects: list[Project]
    roots: list[str]


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Milliseconds since 1970: from ``since`` on and before ``until``. Days are those of UTC plus ``offsetMinutes``."""

    by: By = "day"
    since: Count | None = None
    until: Count | None = None
    offset_minutes: Annotated[int, msgspec.Meta(ge=-MOST_OFFSET, le=MOST_OFFSET)] = 0


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    session_id: Words | None = None
    offset: Count = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    entries: list[Audited]
    total: int
    offset: int
    limit: int


class ConfigChangeList(msgspec.Struct, frozen=True):
    """Newest first."""

    changes: list[ConfigChange]


class PolicyText(msgspec.Struct, frozen=True):
    """The policy file as it is; ``problem`` when it cannot be used (then the last good one applies)."""

    file: str
    text: str
    problem: str


async def agents(call: RestCall[None, None]) -> AgentList:
    return AgentList(await call.service.agents.list())


async def agent_settings(call: RestCall[AgentQuery, None]) -> SettingList:
    try:
        return SettingList(await call.service.agents.settings(call.query.agent))
    except BadRequest as fault:  # it is no agent, or one that is switched off
        raise SessionNotFound(str(fault)) from fault


async def projects(call: RestCall[None, None]) -> ProjectList:
    settings = call.service.settings
    configured = [Project(id=name, path=path) for name, path in settings.projects.items()]
    return ProjectList(projects=configured, roots=[str(root) for root in roots(settings)])


async def usage(call: RestCall[UsageQuery, None]) -> UsageSums:
    query = call.query
    return await call.service.usage.sums(
        by=query.by, since=query.since, until=query.until, offset_minutes=query.offset_minutes
    )


async def audit(call: RestCall[AuditQuery, None]) -> AuditPage:
    query = call.query
    entries, total = await call.service.audit.page(offset=query.offset, limit=query.limit, session_id=query.session_id)
    return AuditPage(entries=entries, total=total, offset=query.offset, limit=query.limit)


async def config_changes(call: RestCall[None, None]) -> ConfigChangeList:
    return ConfigChangeList(await call.service.audit.config_changes())


async def terminal(call: RestCall[None, TerminalBody]) -> TerminalAnswer:
    return TerminalAnswer(why=await asyncio.to_thread(why_not_here, call.body, call.service.settings))


async def policy(call: RestCall[None, None]) -> PolicyText:
    current = call.service.policy
    problem = "" if current is None else current.problem or ""
    file = call.service.policy_file
    try:
        text = await asyncio.to_thread(file.read_text, "utf-8", "replace")
    except OSError:
        return PolicyText(file="", text="", problem=problem)
    return PolicyText(file=str(file), text=text, problem=problem)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="listAgents", method="GET", path="/api/agents", tag="server", scope="watch", verb=agents,
        summary="The agents: installed, signed in, what each can do", answer=AgentList,
    ),
    Operation(
        name="listAgentSettings", method="GET", path="/api/agents/settings", tag="server", scope="run",
        verb=agent_settings, query=AgentQuery, answer=SettingList, faults=(404,),
        summary="The modes, models and other settings that a session of an agent offers; it may be started once to see",
    ),
    Operation(
        name="listProjects", method="GET", path="/api/projects", tag="server", scope="watch", verb=projects,
        summary="The configured projects and the folders that sessions may run in", answer=ProjectList,
    ),
    Operation(
        name="sumUsage", method="GET", path="/api/usage", tag="server", scope="watch", verb=usage,
        summary="Tokens and money by day, agent, project, session or model", query=UsageQuery, answer=UsageSums,
    ),
    Operation(
        name="listAudit", method="GET", path="/api/audit", tag="server", scope="watch", verb=audit,
        summary="The record of permission decisions", query=AuditQuery, answer=AuditPage,
    ),
    Operation(
        name="listConfigChanges", method="GET", path="/api/config/changes", tag="server", scope="admin",
        verb=config_changes, summary="When the server's configuration and policy changed", answer=ConfigChangeList,
    ),
    Operation(
        name="checkTerminal", method="POST", path="/api/terminal", tag="server", scope="admin", verb=terminal,
        summary="Whether a session here would be the same as one that a terminal of this machine runs itself",
        bodies=(TerminalBody,), answer=TerminalAnswer, keyed=False,
    ),
    Operation(
        name="showPolicy", method="GET", path="/api/policy", tag="server", scope="watch", verb=policy,
        summary="The policy file of this server", answer=PolicyText,
    ),
)  # fmt: skip
