"""The verbs. Every door turns a request into one of these; none decides anything itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from podium import catalog
from podium.api import conversation
from podium.drivers.wishes import container, containers
from podium.errors import (
    AlreadyAnswered,
    BadRequest,
    NotSupported,
    SessionEnded,
    SessionNotFound,
    StoreBroken,
    StoreError,
    TooMany,
)
from podium.live import milliseconds
from podium.permissions.policy import Policy
from podium.register import home
from podium.session import Session
from podium.unified.decisions import Allow, Decision
from podium.unified.events import decode

from . import places
from .hub import Hub, LocalHub
from .identity import fresh_id
from .journal import Journal, verdict
from .ledger import Ledger
from .past import Past
from .policies import CurrentPolicy
from .presence import Agents
from .recovery import closing
from .served import Served
from .settings import AgentSettings, Settings
from .sqlite import SqliteStore
from .store import Forget, Query, Store
from .tracking import standing
from .views import Message, Question, Record, SessionView, Verdict, Wanted
from .workspaces import Workspaces

EVERYTHING = 1_000_000


class Service:
    """``async with Service(settings) as service:`` opens the log, mends what a crash left, and closes in order."""

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store | None = None,
        hub: Hub | None = None,
        now: Callable[[], int] = milliseconds,
        new_id: Callable[[], str] = fresh_id,
    ) -> None:
        self.settings = settings
        self.home = Path(settings.home) if settings.home else home()
        self.journal = Journal(store or SqliteStore(self.home / "log.db"), hub or LocalHub())
        self.fault: StoreError | None = None
        """Why the service takes no more work, if it does not."""
        self.policy = CurrentPolicy(Path(settings.policy).expanduser()) if settings.policy else None
        self.ledger = Ledger(self.store)
        self.workspaces = Workspaces(self.get)
        self.past = Past(self.journal, settings, now=now, new_id=new_id)
        self.agents = Agents(settings)
        self._now = now
        self._new_id = new_id
        self._served: dict[str, Served] = {}
        self._stopping = False

    @property
    def store(self) -> Store:
        return self.journal.store

    async def __aenter__(self) -> Service:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        await self.store.open()
        for view in await self.store.sessions(Query(ended=False, limit=EVERYTHING)):
            await self._mend(view)

    async def stop(self) -> None:
        """Nothing new is taken; what runs is ended truthfully; the log is closed last."""
        self._stopping = True
        await asyncio.gather(*(served.end() for served in list(self._served.values())), return_exceptions=True)
        await self.store.close()

    # -- sessions

    async def create(self, wanted: Wanted, *, who: str = "") -> SessionView:
        """Begin a session. Returns when it is kept; the agent starts afterwards, and the log tells how it went."""
        return await self._begin(wanted, who=who)

    async def resume(self, session_id: str, prompt: str, *, fork: bool = False, who: str = "") -> SessionView:
        """Go on with an ended session in a new one (``parent_id`` names the old), or beside any with ``fork``."""
        old = await self.get(session_id)
        if not fork and not old.ended:
            raise BadRequest(f"session {session_id} is still open: send it a message instead of resuming it")
        if not old.native_id:
            raise BadRequest(f"session {session_id} never reached its agent; there is nothing to resume")
        wanted = replace(old.wanted or Wanted(prompt=prompt, agent=old.agent), prompt=prompt, cwd=old.cwd)
        wanted = replace(wanted, agent=old.agent, title=old.title, worktree=False)
        return await self._begin(wanted, who=who, parent=old, fork=fork)

    async def send(self, session_id: str, prompt: str, *, who: str = "") -> Message:
        """A follow-up. It waits its turn; it wakes a session that sleeps."""
        self._accepting()
        self._check_prompt(prompt)
        view = await self.get(session_id)
        if view.ended or session_id not in self._served:
            raise SessionEnded(f"session {session_id} has ended; resume it to go on")
        served = self._served[session_id]
        if served.view.queued >= self.settings.limits.queued:
            raise TooMany(f"{served.view.queued} messages wait in session {session_id} already; let some be answered")
        message = Message(id=self._new_id(), session_id=session_id, prompt=prompt, at=self._now(), who=who)
        await served.post(message)
        return message

    async def interrupt(self, session_id: str) -> SessionView:
        """End the running turn."""
        await self.get(session_id)
        if (served := self._served.get(session_id)) is not None:
            await served.interrupt()
        return await self.get(session_id)

    async def cancel(self, session_id: str) -> SessionView:
        """End the session now, whatever it does. One that has ended stays as it is."""
        await self.get(session_id)
        if (served := self._served.get(session_id)) is not None:
            await served.end()
        return await self.get(session_id)

    async def change(self, session_id: str, *, title: str | None = None, archived: bool | None = None) -> SessionView:
        """Rename or archive."""
        view = await self.get(session_id)
        served = self._served.get(session_id)
        changed = replace(
            view if served is None else served.view,
            title=view.title if title is None else title,
            archived=view.archived if archived is None else archived,
        )
        if served is not None:
            served.view = changed
        await self.journal.write(changed)
        return changed

    async def delete(self, session_id: str) -> None:
        """Remove an ended session and all its records."""
        view = await self.get(session_id)
        if not view.ended:
            raise BadRequest(f"session {session_id} is still running; cancel it first")
        await self.journal.write(Forget(session_id))

    async def get(self, session_id: str) -> SessionView:
        view = await self.store.session(session_id)
        if view is None:
            raise SessionNotFound(f"no session has the id {session_id!r}")
        return view

    async def sessions(self, query: Query) -> tuple[list[SessionView], int]:
        """A page of sessions, and how many there are in all."""
        return await self.store.sessions(query), await self.store.count(query)

    # -- events

    async def events(self, session_id: str, *, after: int = 0, limit: int = 512) -> list[Record]:
        await self.get(session_id)
        return await self.journal.read(session_id, after, limit)

    async def verdict(self, session_id: str, after: int) -> Verdict:
        return verdict(await self.get(session_id), after)

    def follow(self, session_id: str, after: int) -> AsyncGenerator[list[Record]]:
        """Everything after ``after``, then what comes, until the session has ended."""
        return self.journal.follow(session_id, after)

    # -- questions

    async def questions(self, *, session_id: str | None = None, open_only: bool = True) -> list[Question]:
        return await self.store.questions(session_id=session_id, open_only=open_only)

    async def answer(self, question_id: str, decision: Decision, *, who: str = "") -> Question:
        """Decide a question, once. ``question_id`` is ``<session id>:<request id>``."""
        asked = await self.store.question(question_id)
        if asked is None:
            raise SessionNotFound(f"no question has the id {question_id!r}")
        answered = replace(
            asked, open=False, decision=decision, by="client", who=who, resolved_at=self._now(),
            message="" if isinstance(decision, Allow) else decision.message,
        )  # fmt: skip
        if not await self.store.answer(answered):
            raise AlreadyAnswered(f"question {question_id} has been answered already, or its time was up")
        served = self._served.get(asked.session_id)
        if served is None:
            raise AlreadyAnswered(f"session {asked.session_id} has ended; its questions are closed")
        served.tell(asked.request.request_id, decision)
        return answered

    # -- the inside

    async def _begin(
        self, wanted: Wanted, *, who: str, parent: SessionView | None = None, fork: bool = False
    ) -> SessionView:
        self._accepting()
        self._check_prompt(wanted.prompt)
        awake = sum(served.awake for served in self._served.values())
        if awake >= self.settings.limits.awake:
            raise TooMany(f"{awake} agents run already, which is this server's limit; end one, or try again later")
        name = wanted.agent or self.settings.default_agent
        agent = catalog.agent(name).name if name else next(iter(catalog.AGENTS))
        how = self.settings.agents.get(agent, AgentSettings())
        if not how.enabled:
            raise BadRequest(f"{agent} is switched off in this server's configuration")
        cwd = places.workspace(wanted, self.settings, agent)
        branch, base = await standing(cwd)
        view = SessionView(
            id=self._new_id(),
            agent=agent,
            cwd=str(cwd),
            branch=branch,
            base=base,
            prompt=wanted.prompt,
            title=wanted.title or _title(wanted.prompt),
            project_id=wanted.project_id,
            model=wanted.model or how.model or "",
            driver=wanted.driver or how.driver or "",
            tier=wanted.tier or how.tier or self.settings.tier,
            approval=wanted.approval or how.approval,
            sandbox=wanted.sandbox or how.sandbox,
            parent_id=None if parent is None else parent.id,
            forked=fork,
            keep_open=wanted.keep_open,
            group=wanted.group,
            created_at=self._now(),
            updated_at=self._now(),
            queued=1,
            wanted=wanted,
        )
        session = self._open(view, resume=None if parent is None else parent.native_id, fork=fork)
        message = Message(id=self._new_id(), session_id=view.id, prompt=wanted.prompt, at=self._now(), who=who)
        await self.journal.write(view, message)
        self._serve(view).start(session, [message])
        return view

    def _serve(self, view: SessionView) -> Served:
        served = self._served[view.id] = Served(
            view,
            self.journal,
            wake=lambda now: self._open(now, resume=now.native_id),
            now=self._now,
            sleep_after=self.settings.sleep_after,
            broken=self._broken,
            ended=self._left,
        )
        return served

    def _open(self, view: SessionView, *, resume: str | None = None, fork: bool = False) -> Session:
        """The conversation as it was asked for; nothing is started yet. Raises what is wrong with the wish."""
        wanted = view.wanted or Wanted(prompt="")
        how = self.settings.agents.get(view.agent, AgentSettings())
        options: dict[str, Any] = {
            "cwd": view.cwd,
            "tier": view.tier,
            "approval": view.approval,
            "sandbox": view.sandbox,
            "model": view.model or None,
            "driver": view.driver or None,
            "executable": how.command or None,
            "extra_args": how.args,
            "env": {**how.env, **_contained(view.agent, wanted.container)},
            "max_turns": wanted.max_turns,
            "max_budget_usd": wanted.max_budget_usd,
            "allowed_tools": wanted.allowed_tools,
            "disallowed_tools": wanted.disallowed_tools,
            "system_prompt": wanted.system_prompt,
            "append_system_prompt": wanted.append_system_prompt,
            "output_schema": wanted.output_schema,
            "mcp_servers": wanted.mcp_servers,
            "timeout": wanted.timeout,
            "permission_timeout": wanted.permission_timeout or self.settings.answer_within,
            "policy": self._rules(wanted, how),
            "remember_in": self.settings.policy or None,
            "audit": str(self.home / "audit.jsonl"),
        }
        if resume is not None:
            options |= {"resume": resume, "fork": fork}
        try:
            return conversation(view.agent, options, attended=True, session_id=view.id)
        except (NotSupported, TypeError, ValueError) as fault:
            raise BadRequest(str(fault)) from fault

    def _rules(self, wanted: Wanted, how: AgentSettings) -> CurrentPolicy | Policy | None:
        """The policy file as it is at each question, and tools that are approved by themselves where it is silent."""
        tools = (*how.auto_accept, *wanted.auto_approve)
        if self.policy is None:
            return Policy(auto_approve=tools) if tools else None
        return self.policy.over(Policy(auto_approve=tools)) if tools else self.policy

    async def _mend(self, view: SessionView) -> None:
        """A session that was open when the server last stopped."""
        records = await self.store.records(view.id, max(view.turn_seq - 1, 0), EVERYTHING)
        events = closing(view, [decode(one.body) for one in records], self._now(), why="the server stopped")
        served = self._serve(view)
        await served.store(events)
        self._served.pop(view.id, None)

    def _left(self, session_id: str) -> None:
        self._served.pop(session_id, None)

    def _broken(self, fault: StoreError) -> None:
        self.fault = fault

    def _accepting(self) -> None:
        if self.fault is not None:
            raise StoreBroken(f"the server takes no more work: {self.fault}")
        if self._stopping:
            raise TooMany("the server is stopping; try again when it is back")

    def _check_prompt(self, prompt: str) -> None:
        if not prompt.strip():
            raise BadRequest("the prompt is empty; say what the agent is to do")
        if len(prompt) > self.settings.limits.prompt:
            raise BadRequest(
                f"the prompt has {len(prompt)} characters; this server takes {self.settings.limits.prompt}"
            )


def _contained(agent: str, named: str) -> Mapping[str, str]:
    env = container(agent, named) if named else {}
    if env is None:
        known = ", ".join(containers(agent)) or "none"
        raise BadRequest(f"{agent} makes no container {named!r} around itself; it knows: {known}")
    return env


def _title(prompt: str) -> str:
    line = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    return line if len(line) <= 80 else line[:79] + "…"
