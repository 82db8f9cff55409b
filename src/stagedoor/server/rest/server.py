"""REST: the server's agents, projects, policy, usage, and its record of decisions."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from stagedoor.errors import BadRequest, SessionNotFound
from stagedoor.service.agents import AgentView
from stagedoor.service.ledger import MOST_OFFSET, Audited, UsageSums
from stagedoor.service.machines.ground import AuditSlice, PolicyText, ProjectList
from stagedoor.service.store import ConfigChange
from stagedoor.service.terminal import TerminalAnswer, TerminalBody, why_not_here
from stagedoor.service.views import By
from stagedoor.unified.settings import AgentSetting

from .operations import AgentName, Count, Operation, PlaceQuery, RestCall, Words


class AgentList(msgspec.Struct, frozen=True):
    agents: tuple[AgentView, ...]


class AgentQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    agent: AgentName


class SettingList(msgspec.Struct, frozen=True):
    """``locked`` says why one cannot be changed; empty: it can."""

    settings: tuple[AgentSetting, ...]


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Milliseconds since 1970: from ``since`` on and before ``until``. Days are those of UTC plus ``offsetMinutes``."""

    by: By = "day"
    since: Count | None = None
    until: Count | None = None
    offset_minutes: Annotated[int, msgspec.Meta(ge=-MOST_OFFSET, le=MOST_OFFSET)] = 0


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """``place``: of which machine (``host:NAME``); empty: of all that are there."""

    session_id: Words | None = None
    place: Words = ""
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


async def agents(call: RestCall[None, None]) -> AgentList:
    return AgentList(await call.service.agents.list())


async def agent_settings(call: RestCall[AgentQuery, None]) -> SettingList:
    try:
        return SettingList(await call.service.ground.agent_settings(call.query.agent))
    except BadRequest as fault:  # it is no agent, or one that is switched off
        raise SessionNotFound(str(fault)) from fault


async def projects(call: RestCall[PlaceQuery, None]) -> ProjectList:
    found: ProjectList = await call.service.ground.projects(place=call.query.place)
    return found


async def usage(call: RestCall[UsageQuery, None]) -> UsageSums:
    query = call.query
    return await call.service.usage.sums(
        by=query.by, since=query.since, until=query.until, offset_minutes=query.offset_minutes
    )


async def audit(call: RestCall[AuditQuery, None]) -> AuditPage:
    query = call.query
    found: AuditSlice = await call.service.ground.audit(
        offset=query.offset, limit=query.limit, session_id=query.session_id, place=query.place
    )
    return AuditPage(entries=found.entries, total=found.total, offset=query.offset, limit=query.limit)


async def config_changes(call: RestCall[None, None]) -> ConfigChangeList:
    return ConfigChangeList(await call.service.audit.config_changes())


async def terminal(call: RestCall[None, TerminalBody]) -> TerminalAnswer:
    if not call.service.agents.runs_here:
        return TerminalAnswer(why="the server runs its sessions on other machines")
    return TerminalAnswer(why=await asyncio.to_thread(why_not_here, call.body, call.service.settings))


async def policy(call: RestCall[PlaceQuery, None]) -> PolicyText:
    found: PolicyText = await call.service.ground.policy(place=call.query.place)
    return found


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
        summary="The configured projects and the folders that sessions may run in", query=PlaceQuery,
        answer=ProjectList, faults=(404,),
    ),
    Operation(
        name="sumUsage", method="GET", path="/api/usage", tag="server", scope="watch", verb=usage,
        summary="Tokens and money by day, agent, project, session or model", query=UsageQuery, answer=UsageSums,
    ),
    Operation(
        name="listAudit", method="GET", path="/api/audit", tag="server", scope="watch", verb=audit,
        summary="The record of permission decisions", query=AuditQuery, answer=AuditPage, faults=(404,),
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
        summary="The policy file of this server, or of a machine", query=PlaceQuery, answer=PolicyText, faults=(404,),
    ),
)  # fmt: skip
