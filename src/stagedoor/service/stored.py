"""What was done before: the sessions the programs keep on disk beside those of the log, and taking them into it."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stagedoor import catalog
from stagedoor.drivers.agent import StoredSession
from stagedoor.engine import milliseconds
from stagedoor.errors import BadRequest, NotSupported, SessionNotFound, StagedoorError
from stagedoor.stored_sessions import events_of, stored_sessions
from stagedoor.unified.events import Event, Init, TurnCompleted, TurnStarted, Usage, stamp
from stagedoor.unified.grammar import Grammar

from .agents import environment
from .config.settings import AgentSettings, Settings
from .journal import Journal
from .projection import project
from .store import Append, Query
from .views import Record, SessionSpec, SessionView, State
from .workspaces import check_allowed, roots, session_folder

EVERYTHING = 1_000_000
LAST = "last"
RECENT_FOLDERS = 20
"""In place of an id: an agent's newest session in a folder."""
FRESH = 2.0
"""Seconds."""


class PastSession(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``session_id``: its id in the log, empty where only the agent's program keeps it (under ``native_id``)."""

    agent: str
    native_id: str = ""
    session_id: str = ""
    cwd: str = ""
    place: str = ""
    """The machine that has it (``host:NAME``), where several share a log."""
    title: str = ""
    first_prompt: str = ""
    model: str = ""
    branch: str = ""
    state: State | None = None
    imported: bool = False
    started_at: int = 0
    updated_at: int = 0
    messages: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None


class BesideLog(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a machine's programs keep and the log has not. ``folder``: the one that was asked for, as that machine has
    it, with every link followed; empty where none was named."""

    folder: str = ""
    sessions: list[PastSession]


class Past:
    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        *,
        place: Callable[[], str] = lambda: "",
        now: Callable[[], int] = milliseconds,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._place = place
        """Of this machine, where several share a log."""
        self._journal = journal
        self._settings = settings
        self._now = now
        self._new_id = new_id
        self._importing = asyncio.Lock()
        self._listing = asyncio.Lock()
        self._on_disk: tuple[StoredSession, ...] = ()
        self._listed_at = float("-inf")

    async def sessions(self, *, cwd: str = "", agent: str = "") -> list[PastSession]:
        """All of a folder (empty: of every root and project, and of those that sessions ran in lately), newest first;
        each once, the log's word first."""
        folders = [self._folder(cwd, agent and canonical_agent(agent))] if cwd else self._folders()
        names = [canonical_agent(agent)] if agent else list(catalog.names())
        query = Query(agent=names[0] if agent else "", cwd=str(folders[0]) if cwd else "", limit=EVERYTHING)
        logged = await self._journal.store.sessions(query)
        known = {(view.agent, view.native_id) for view in logged if view.native_id}
        found = [past_of(view) for view in logged]
        if not cwd:
            folders = list(dict.fromkeys([*folders, *self._lately(logged)]))
        for stored in await asyncio.to_thread(self._stored, folders, names):
            if (stored.agent, stored.session_id) in known:
                continue
            known.add((stored.agent, stored.session_id))
            # One that ran here may stand in the log as one of another folder: its worktree.
            if not cwd or await self._journal.store.session_of(stored.agent, stored.session_id) is None:
                found.append(self._of_disk(stored))
        return sorted(found, key=lambda session: session.updated_at, reverse=True)

    async def beside_log(self, *, cwd: str = "", agent: str = "") -> BesideLog:
        """Of ``sessions`` those that are on this machine's disk and not in the log."""
        folder = str(self._folder(cwd, agent)) if cwd else ""
        found = await self.sessions(cwd=folder, agent=agent)
        return BesideLog(folder=folder, sessions=[past for past in found if not past.session_id])

    async def keeps(self, native_id: str, *, cwd: str = "") -> PastSession | None:
        """The one that a program keeps on this machine's disk by this name."""
        listed: Sequence[StoredSession] = await self._listed()
        if cwd:
            folder = self._folder(cwd, "")
            listed = [*listed, *await asyncio.to_thread(self._stored, [folder], list(catalog.names()))]
        return next((self._of_disk(stored) for stored in listed if stored.session_id == native_id), None)

    async def only_on_disk(self, agent: str = "") -> list[PastSession]:
        """Those of every root and project that are not in the log, newest first."""
        name = agent and canonical_agent(agent)
        found: dict[tuple[str, str], PastSession] = {}
        for stored in await self._listed():
            key = stored.agent, stored.session_id
            if name in ("", stored.agent) and key not in found and await self._journal.store.session_of(*key) is None:
                found[key] = self._of_disk(stored)
        return sorted(found.values(), key=lambda session: session.updated_at, reverse=True)

    async def named(self, session_id: str, *, take_in: bool) -> SessionView:
        """The session of this id, be it the log's or its program's own. Raises ``SessionNotFound``."""
        view = await self._journal.store.session(session_id) or await self.find(session_id, take_in=take_in)
        if view is None:
            raise SessionNotFound(f"session {session_id!r} not found")
        return view

    async def to_continue(
        self, session_id: str, *, agent: str = "", cwd: str = "", project_id: str = ""
    ) -> SessionView:
        """The session to continue: by its id, or with ``last`` the newest one of ``agent`` in a folder."""
        if session_id == LAST:
            past = await self.newest(canonical_agent(agent), cwd=cwd, project_id=project_id)
            if past is None:
                folder = session_folder(_place(cwd, project_id), self._settings)
                raise SessionNotFound(
                    f"{agent} has no session in {folder} to continue; start a new one, or name another folder"
                )
            if past.session_id:
                return await self.named(past.session_id, take_in=False)
            return await self.import_session(past.agent, past.native_id, past.cwd)
        view = await self.named(session_id, take_in=True)
        return await self.continued_by_id(view, agent=agent, cwd=cwd, project_id=project_id)

    async def continued_by_id(self, view: SessionView, *, agent: str, cwd: str, project_id: str) -> SessionView:
        """``view``, if nothing else is asked for that does not go together with it."""
        for name, value in (("cwd", cwd), ("projectId", project_id)):
            if value:
                raise BadRequest(
                    f"{name} is for the session {LAST!r} only: one that is named by its id keeps its folder"
                )
        if agent and canonical_agent(agent) != view.agent:
            raise BadRequest(f"session {view.id} runs {view.agent}, not {agent}")
        return view

    async def newest(self, agent: str, *, cwd: str = "", project_id: str = "") -> PastSession | None:
        """The newest one of ``agent`` in a folder that can be continued."""
        folder = session_folder(_place(cwd, project_id), self._settings)
        for past in await self.sessions(cwd=str(folder), agent=agent):
            if not past.session_id or past.native_id or past.state == "running":
                return replace(past, cwd=past.cwd or str(folder))
        return None

    async def find(self, native_id: str, *, take_in: bool) -> SessionView | None:
        """The session that a program calls ``native_id``: the log's, else, with ``take_in``, the program's own, which
        is in the log from then on."""
        for name in catalog.names():
            if (view := await self._journal.store.session_of(name, native_id)) is not None:
                return view
        if not take_in:
            return None
        match = next((stored for stored in await self._listed() if stored.session_id == native_id), None)
        return None if match is None else await self.import_session(match.agent, native_id, match.cwd)

    async def _listed(self) -> tuple[StoredSession, ...]:
        """What the programs keep on disk; what was read a moment ago is not read again."""
        async with self._listing:
            if time.monotonic() - self._listed_at > FRESH:
                sessions = await asyncio.to_thread(self._stored, self._folders(), list(catalog.names()))
                self._on_disk, self._listed_at = tuple(sessions), time.monotonic()
            return self._on_disk

    async def import_session(self, agent: str, native_id: str, cwd: str, *, place: str = "") -> SessionView:
        """Take a session that a program has stored into the log, as one that has ended. Done twice, it is one."""
        if place not in ("", self._place()):
            raise SessionNotFound(f"no machine is {place}; stagedoor workers lists them")
        name = canonical_agent(agent)
        folder = self._folder(cwd, name)
        async with self._importing:
            if (view := await self._journal.store.session_of(name, native_id)) is not None:
                return view
            stored = await asyncio.to_thread(self._stored, [folder], [name])
            match = next((session for session in stored if session.session_id == native_id), None)
            if match is None:
                raise SessionNotFound(f"{name} has no session {native_id!r} in {folder}; GET /api/history lists them")
            return await self._take_in(match, folder)

    async def _take_in(self, stored: StoredSession, folder: Path) -> SessionView:
        env = environment(self._settings_of(stored.agent))
        try:
            events = await asyncio.to_thread(lambda: list(events_of(stored) if env is None else events_of(stored, env)))
        except (OSError, NotSupported) as fault:
            raise BadRequest(f"session {stored.session_id} cannot be imported: {fault}") from fault
        began = stored.started_ms or stored.updated_ms or self._now()
        view = SessionView(
            id=self._new_id(),
            agent=stored.agent,
            cwd=str(folder),
            title=stored.title or stored.first_prompt[:80],
            prompt=stored.first_prompt,
            model=stored.model,
            branch=stored.branch,
            native_id=stored.session_id,
            imported=True,
            created_at=began,
            place=self._place(),
            needs=(self._place(),) if self._place() else (),
        )
        records: list[Record] = []
        for event in _whole(view, events, began, stored.updated_ms):
            view = project(view, event)
            records.append(Record.of(event))
        usage = Usage(total_tokens=stored.tokens or 0, cost_usd=stored.cost_usd)
        view = replace(view, usage=usage, cost_usd=stored.cost_usd)
        await self._journal.write(Append(view.id, records), view)
        return view

    def _stored(self, folders: Iterable[Path], names: Iterable[str]) -> list[StoredSession]:
        sessions: list[StoredSession] = []
        for folder in folders:
            for name in names:
                try:
                    sessions += stored_sessions(folder, [name], environment(self._settings_of(name)))
                except (ModuleNotFoundError, OSError):
                    continue  # one that cannot be read hides no other one's sessions
        return sessions

    def _of_disk(self, stored: StoredSession) -> PastSession:
        return PastSession(
            agent=stored.agent,
            native_id=stored.session_id,
            cwd=stored.cwd,
            place=self._place(),
            title=stored.title,
            first_prompt=stored.first_prompt,
            model=stored.model,
            branch=stored.branch,
            started_at=stored.started_ms,
            updated_at=stored.updated_ms,
            messages=stored.messages,
            tokens=stored.tokens,
            cost_usd=stored.cost_usd,
        )

    def _settings_of(self, agent: str) -> AgentSettings:
        return self._settings.agents.get(agent, AgentSettings())

    def _folder(self, cwd: str, agent: str) -> Path:
        folder = Path(cwd).expanduser()
        if not folder.is_absolute():
            raise BadRequest(f"{cwd!r} is not an absolute path; give the full path of the folder")
        folder = folder.resolve()
        check_allowed(folder, self._settings)
        return folder

    def _lately(self, views: Sequence[SessionView]) -> list[Path]:
        """Where sessions ran, newest first: a program in a terminal mostly ran in the same folders."""
        places = dict.fromkeys((view.spec.cwd if view.spec else "") or view.cwd for view in views)
        folders: list[Path] = []
        for place in places:
            with contextlib.suppress(StagedoorError, OSError):  # outside of the roots now, or gone
                folders.append(self._folder(place, ""))
            if len(folders) >= RECENT_FOLDERS:
                break
        return folders

    def _folders(self) -> list[Path]:
        own = [Path(folder).expanduser().resolve() for folder in self._settings.projects.values()]
        return list(dict.fromkeys([*roots(self._settings), *own]))


def _place(cwd: str, project_id: str) -> SessionSpec:
    return SessionSpec(prompt="", cwd=cwd, project_id=project_id)


def canonical_agent(agent: str) -> str:
    try:
        return catalog.canonical_name(agent)
    except NotSupported as fault:
        raise BadRequest(str(fault)) from fault


def _whole(view: SessionView, events: Iterable[Event], began: int, updated: int) -> Iterator[Event]:
    """A story as a session: every turn and call closed, and ``done`` at the end. Only what is told has a time."""
    grammar = Grammar(Init(cwd=view.cwd))
    seq, at = 0, began
    for event in [*events, None]:
        at = max(at, updated) if event is None else max(at, event.timestamp)
        turn = grammar.turn
        if event is None or (isinstance(event, TurnStarted) and grammar.in_turn):
            made = grammar.accept(TurnCompleted(status="success")) if grammar.in_turn else []
            made += grammar.end("success") if event is None else grammar.accept(event)
        else:
            made = grammar.accept(event)
        for accepted in made:
            seq += 1
            turn += isinstance(accepted, TurnStarted)
            yield stamp(accepted, agent=view.agent, session_id=view.id, seq=seq, timestamp=at, turn=turn)


def past_of(view: SessionView) -> PastSession:
    return PastSession(
        agent=view.agent,
        native_id=view.native_id,
        session_id=view.id,
        cwd=view.cwd,
        place=view.place,
        title=view.title,
        first_prompt=view.prompt,
        model=view.model,
        branch=view.branch,
        state=view.state,
        imported=view.imported,
        started_at=view.created_at,
        updated_at=view.updated_at,
        messages=view.messages,
        tokens=view.usage.total_tokens or None,
        cost_usd=view.cost_usd,
    )
