"""REST: agents, projects, usage, the record of decisions, workspaces, and the agents' own past sessions."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stagedoor.service.agents import AgentView
from stagedoor.service.ledger import MOST_OFFSET, UsageSums
from stagedoor.service.store import Audited, ConfigChange
from stagedoor.service.stored import PastSession
from stagedoor.service.views import By, SessionView
from stagedoor.service.workspaces import roots
from stagedoor.service.workspaces.files import FileText, Listing
from stagedoor.service.workspaces.git import Diff, GitStatus

from .operations import LARGEST, AgentName, Call, Count, Operation, Words
from .sessions import shown

_LINE = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
PathText = Annotated[str, msgspec.Meta(max_length=4096)]


class AgentList(msgspec.Struct, frozen=True):
    agents: tuple[AgentView, ...]


class Project(msgspec.Struct, frozen=True):
    id: str
    path: str


class ProjectList(msgspec.Struct, frozen=True):
    """``roots``: sessions run, and files are read, only under these folders."""

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


class ConfigChanges(msgspec.Struct, frozen=True):
    """Newest first."""

    changes: list[ConfigChange]


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cwd: PathText = ""
    agent: AgentName = ""


class History(msgspec.Struct, frozen=True):
    sessions: list[PastSession]


class Import(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """As ``GET /api/history`` tells it."""

    agent: AgentName
    native_id: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    cwd: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class PathQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As seen from the workspace; empty: all of it."""

    path: PathText = ""


class FileQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    first_line: _LINE | None = None
    last_line: _LINE | None = None


async def agents(call: Call[None, None]) -> AgentList:
    return AgentList(await call.service.agents.list())


async def projects(call: Call[None, None]) -> ProjectList:
    settings = call.service.settings
    named = [Project(id=name, path=path) for name, path in settings.projects.items()]
    return ProjectList(projects=named, roots=[str(root) for root in roots(settings)])


async def usage(call: Call[UsageQuery, None]) -> UsageSums:
    query = call.query
    return await call.service.usage.sums(
        by=query.by, since=query.since, until=query.until, offset_minutes=query.offset_minutes
    )


async def audit(call: Call[AuditQuery, None]) -> AuditPage:
    query, rows = call.query, call.service.audit
    return AuditPage(
        entries=await rows.list(offset=query.offset, limit=query.limit, session_id=query.session_id),
        total=await rows.count(session_id=query.session_id),
        offset=query.offset,
        limit=query.limit,
    )


async def config_changes(call: Call[None, None]) -> ConfigChanges:
    return ConfigChanges(await call.service.audit.config_changes())


async def history(call: Call[HistoryQuery, None]) -> History:
    return History(await call.service.stored.sessions(cwd=call.query.cwd, agent=call.query.agent))


async def take_in(call: Call[None, Import]) -> SessionView:
    wanted = call.body
    return shown(await call.service.stored.import_session(wanted.agent, wanted.native_id, wanted.cwd))


async def git(call: Call[None, None]) -> GitStatus:
    return await call.service.workspaces.git_status(call.session_id)


async def diff(call: Call[PathQuery, None]) -> Diff:
    return await call.service.workspaces.diff(call.session_id, path=call.query.path)


async def files(call: Call[PathQuery, None]) -> Listing:
    return await call.service.workspaces.files(call.session_id, call.query.path)


async def file(call: Call[FileQuery, None]) -> FileText:
    query = call.query
    return await call.service.workspaces.read(
        call.session_id, query.path, first_line=query.first_line, last_line=query.last_line
    )


_ONE = "/api/sessions/{sessionId}"
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="sessionGit", method="GET", path=_ONE + "/git", tag="workspaces", scope="watch", verb=git,
        summary="What git says of a session's workspace", answer=GitStatus, faults=(404,),
    ),
    Operation(
        name="sessionDiff", method="GET", path=_ONE + "/diff", tag="workspaces", scope="watch", verb=diff,
        summary="What has changed since the session began", query=PathQuery, answer=Diff, faults=(404,),
    ),
    Operation(
        name="listFiles", method="GET", path=_ONE + "/files", tag="workspaces", scope="watch", verb=files,
        summary="A folder of the workspace", query=PathQuery, answer=Listing, faults=(404,),
    ),
    Operation(
        name="readFile", method="GET", path=_ONE + "/file", tag="workspaces", scope="watch", verb=file,
        summary="A file of the workspace, or some of its lines", query=FileQuery, answer=FileText, faults=(404,),
    ),
    Operation(
        name="listAgents", method="GET", path="/api/agents", tag="server", scope="watch", verb=agents,
        summary="The agents: installed, signed in, what each can do", answer=AgentList,
    ),
    Operation(
        name="listProjects", method="GET", path="/api/projects", tag="server", scope="watch", verb=projects,
        summary="The named projects and the folders sessions may run in", answer=ProjectList,
    ),
    Operation(
        name="sumUsage", method="GET", path="/api/usage", tag="server", scope="watch", verb=usage,
        summary="Tokens and money by day, agent, project, session or model", query=UsageQuery, answer=UsageSums,
    ),
    Operation(
        name="listAudit", method="GET", path="/api/audit", tag="server", scope="watch", verb=audit,
        summary="The record of decisions", query=AuditQuery, answer=AuditPage,
    ),
    Operation(
        name="listConfigChanges", method="GET", path="/api/config/changes", tag="server", scope="admin",
        verb=config_changes, summary="When what the server is told changed", answer=ConfigChanges,
    ),
    Operation(
        name="listHistory", method="GET", path="/api/history", tag="history", scope="watch", verb=history,
        summary="All sessions, those the agents keep on disk too", query=HistoryQuery, answer=History,
    ),
    Operation(
        name="importSession", method="POST", path="/api/history/import", tag="history", scope="run", verb=take_in,
        summary="Take a session an agent keeps on disk into the log", bodies=(Import,), answer=SessionView, status=201,
        faults=(404,), recall=take_in,
    ),
)  # fmt: skip
