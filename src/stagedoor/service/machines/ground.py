"""``service.ground``: what a machine has: its projects, its folders and what of them is trusted, its policy and its
audit, and what its agents let one choose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stagedoor.errors import SessionNotFound
from stagedoor.trust.record import TrustedFolder
from stagedoor.unified.settings import AgentSetting

from ..agents import Agents
from ..config.settings import Settings
from ..ledger import Audited, AuditRows
from ..opening import CurrentPolicy, agent_named
from ..views import SessionSpec
from ..workspaces import folders_in, roots, session_folder
from ..workspaces.files import Folders
from ..workspaces.trust import FolderTrust, Trust
from .places import HOST

BRIEF = 500
_LONG = ("target", "rule", "message", "native_name")


class Project(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    path: str


class ProjectList(msgspec.Struct, frozen=True, kw_only=True):
    """``roots``: sessions run, and files are read, only inside these folders."""

    projects: list[Project]
    roots: list[str]


class PolicyText(msgspec.Struct, frozen=True):
    """The policy file as it is; ``problem`` when it cannot be used (then the last good one applies). ``machine``: whose
    it is, where several share a log."""

    file: str
    text: str
    problem: str
    machine: str = ""


class TrustedFolders(msgspec.Struct, frozen=True):
    """Those that a person has trusted; the configuration may name more. ``machine``: where, where several share a
    log."""

    folders: list[TrustedFolder]
    machine: str = ""


class AuditSlice(msgspec.Struct, frozen=True):
    """Decisions, newest first, and how many there are in all."""

    entries: list[Audited]
    total: int


def _in_brief(audited: Audited) -> Audited:
    entry = audited.entry
    short = {name: text[:BRIEF] + "…" for name in _LONG if len(text := getattr(entry, name)) > BRIEF}
    return replace(audited, entry=replace(entry, **short)) if short else audited


class MachineGround:
    """``place``: the machine that is meant (``host:NAME``); empty: this one, or any where this one runs nothing."""

    def __init__(
        self,
        settings: Settings,
        trust: Trust,
        agents: Agents,
        audit: AuditRows,
        policy: CurrentPolicy | None,
        policy_file: Path,
        name: Callable[[], str],
        *,
        is_one_of_many: bool,
    ) -> None:
        self._settings = settings
        self._trust = trust
        self._agents = agents
        self._audit = audit
        self._policy = policy
        self._policy_file = policy_file
        self._name = name
        self._is_one_of_many = is_one_of_many

    async def projects(self, *, place: str = "") -> ProjectList:
        self._check(place)
        configured = [Project(id=name, path=path) for name, path in self._settings.projects.items()]
        return ProjectList(projects=configured, roots=[str(root) for root in roots(self._settings)])

    async def folders(self, path: str, *, place: str = "") -> Folders:
        self._check(place)
        return await folders_in(path, self._settings)

    async def trust(self, *, cwd: str, project_id: str, agent: str, place: str = "") -> FolderTrust:
        """Of the folder where a session would start, and what the agent would load from it."""
        self._check(place)
        folder = session_folder(SessionSpec(prompt="", cwd=cwd, project_id=project_id), self._settings)
        return await self._trust.of(folder, agent_named(agent or await self._agents.default()))

    async def trusted(self, *, place: str = "") -> TrustedFolders:
        self._check(place)
        return TrustedFolders(list(await self._trust.list()), machine=self._machine)

    async def trust_folder(self, folder: str, *, who: str, place: str = "") -> TrustedFolder:
        self._check(place)
        return await self._trust.add(session_folder(SessionSpec(prompt="", cwd=folder), self._settings), who=who)

    async def distrust_folder(self, folder: str, *, place: str = "") -> None:
        self._check(place)
        await self._trust.remove(Path(folder))

    async def policy(self, *, place: str = "") -> PolicyText:
        self._check(place)
        problem = "" if self._policy is None else self._policy.problem or ""
        try:
            text = await asyncio.to_thread(self._policy_file.read_text, "utf-8", "replace")
        except OSError:
            return PolicyText(file="", text="", problem=problem, machine=self._machine)
        return PolicyText(file=str(self._policy_file), text=text, problem=problem, machine=self._machine)

    async def audit(
        self, *, offset: int = 0, limit: int = 100, session_id: str | None = None, place: str = "", brief: bool = False
    ) -> AuditSlice:
        """``brief``: no long text, so that an answer to another machine always finds room."""
        self._check(place)
        entries, total = await self._audit.page(offset=offset, limit=limit, session_id=session_id)
        return AuditSlice([_in_brief(one) for one in entries] if brief else entries, total)

    async def agent_settings(self, agent: str, *, place: str = "") -> tuple[AgentSetting, ...]:
        """What a session of this agent would let one choose."""
        self._check(place)
        return await self._agents.settings(agent)

    @property
    def _machine(self) -> str:
        return self._name() if self._is_one_of_many else ""

    def _check(self, place: str) -> None:
        if place not in ("", f"{HOST}{self._name()}"):
            raise SessionNotFound(f"no machine is {place}; stagedoor workers lists them")
