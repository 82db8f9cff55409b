"""The verbs. Every door turns a request into one of these; none decides anything itself."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from msgspec.structs import replace

from stagedoor.engine import milliseconds
from stagedoor.errors import (
    AlreadyAnswered,
    BadRequest,
    SessionEnded,
    SessionNotFound,
    SessionRunning,
    StoreBroken,
    StoreError,
    TooMany,
)
from stagedoor.register import home
from stagedoor.session import Session
from stagedoor.unified.decisions import Allow, Decision

from . import branches, places
from .asking import answered
from .changes import Changes
from .chronicle import Chronicle
from .errands import Errands, to_the_end
from .hub import Hub, LocalHub
from .identity import fresh_id
from .journal import Journal, verdict
from .ledger import Ledger
from .opening import Opening, agent_named
from .past import Past
from .presence import Agents
from .seats import Seats
from .served import Served
from .settings import Settings
from .sqlite import SqliteStore
from .store import Query, Remember, Store
from .upkeep import Upkeep
from .views import Kept, Message, Question, Record, SessionView, Verdict, Wanted
from .workspaces import Workspaces

_log = logging.getLogger("stagedoor.service")
EVERYTHING = 1_000_000
SETTLE_WITHIN = 10.0
"""Seconds that verbs have to come to their end when the server stops."""
STOP_WITHIN = 60.0
"""Seconds in which everything that runs is ended when the server stops. What is left is mended at the next start."""


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
        self.journal = Journal(store or SqliteStore(self.home / "log.db", durable=settings.durable), hub or LocalHub())
        self.fault: StoreError | None = None
        """Why the service takes no more work, if it does not."""
        self.opening = Opening(settings, self.home)
        self.policy = self.opening.policy
        self.changes = Changes(self.journal, now)
        if self.policy is not None:
            self.policy.file.changed = self.changes.policy_changed
        self.ledger = Ledger(self.store)
        self.workspaces = Workspaces(
            self.get, self.home / "snapshots", check=lambda place, agent: places.allowed(place, settings, agent)
        )
        self.past = Past(self.journal, settings, now=now, new_id=new_id)
        self.agents = Agents(settings)
        self._now = now
        self._new_id = new_id
        self._served: dict[str, Served] = {}
        self._seats = Seats(settings.limits.awake, lambda: [one for one in self._served.values() if one.can_doze])
        self._counts: Counter[str] = Counter()
        self._killing: asyncio.Task[None] | None = None
        self._stopping = False
        self._mending = asyncio.Lock()
        self._upkeep = Upkeep(self.journal, settings.keep_days, now)
        self.errands = Errands()

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
        try:
            await self.changes.note(self.settings, self.opening.policy_file)
            await self._mend()
        except BaseException:
            await self.stop()
            raise
        self._upkeep.start()

    async def stop(self) -> None:
        """Nothing new is taken; what runs is ended truthfully, in bounded time; the log is closed last."""
        self._stopping = True
        await self._upkeep.stop()
        await self.errands.settled(SETTLE_WITHIN)  # a session that is just being made must be ended too
        running = [asyncio.ensure_future(served.stop()) for served in list(self._served.values())]
        if running:
            _, late = await asyncio.wait(running, timeout=STOP_WITHIN)
            for task in late:
                task.cancel()
        for served in list(self._served.values()):
            await served.kill()
        if self._killing is not None:
            await asyncio.wait([self._killing])
        await self.errands.settled(SETTLE_WITHIN)
        await self.changes.settled()
        await self.store.close()

    # -- sessions

    @to_the_end
    async def create(self, wanted: Wanted, *, who: str = "") -> SessionView:
        """Begin a session. Returns when it is kept; the agent starts afterwards, and the log tells how it went."""
        return await self._begin(wanted, who=who)

    @to_the_end
    async def resume(
        self, session_id: str, prompt: str, *, fork: bool = False, keep_open: bool | None = None, who: str = ""
    ) -> SessionView:
        """Go on with an ended session in a new one (``parent_id`` names the old), or beside any with ``fork``.

        ``keep_open`` not said: as the old one.
        """
        served = self._served.get(session_id)
        if served is not None and served.ending:
            await served.over()  # two programs must not write the same conversation at once
        old = await self.get(session_id)
        if not fork and not old.ended:
            raise SessionRunning(f"session {session_id} is still open: send it a message instead of resuming it")
        if not old.native_id:
            raise BadRequest(f"session {session_id} never reached its agent; there is nothing to resume")
        wanted = replace(
            old.wanted or Wanted(prompt=prompt),
            prompt=prompt,
            cwd=old.cwd,
            agent=old.agent,
            title=old.title,
            worktree=False,
            keep_open=old.keep_open if keep_open is None else keep_open,
        )
        return await self._begin(wanted, who=who, parent=old, fork=fork)

    @to_the_end
    async def send(self, session_id: str, prompt: str, *, steer: bool = False, who: str = "") -> Message:
        """A follow-up. It waits its turn, or is said into the running one; it wakes a session that sleeps."""
        await self.accepting()
        self._check_prompt(prompt)
        await self.get(session_id)
        served = self._served.get(session_id)
        if served is None or served.view.ended:
            raise SessionEnded(f"session {session_id} has ended; resume it to go on")
        if served.view.queued >= self.settings.limits.queued:
            raise TooMany(f"{served.view.queued} messages wait in session {session_id} already; let some be answered")
        message = Message(id=self._new_id(), session_id=session_id, prompt=prompt, at=self._now(), who=who)
        if not served.awake and not served.chronicle.asking.rearmed:
            await self._seats.find(session_id)
        try:
            return await served.post(message, steer=steer)
        except SessionEnded:
            self._seats.leave(session_id)
            raise

    async def interrupt(self, session_id: str) -> SessionView:
        """End the running turn. What is queued behind it comes next; a session that does not stay open ends."""
        await self.get(session_id)
        if (served := self._served.get(session_id)) is not None:
            await served.interrupt()
        return await self.get(session_id)

    @to_the_end
    async def cancel(self, session_id: str) -> SessionView:
        """End the session now, whatever it does. One that has ended stays as it is."""
        await self.get(session_id)
        if (served := self._served.get(session_id)) is not None:
            await served.cancel()
        return await self.get(session_id)

    @to_the_end
    async def change(self, session_id: str, *, title: str | None = None, archived: bool | None = None) -> SessionView:
        """Rename or archive."""
        wanted = {"title": title, "archived": archived}
        return await self._rewrite(session_id, **{name: value for name, value in wanted.items() if value is not None})

    @to_the_end
    async def delete(self, session_id: str) -> None:
        """Remove an ended session and all its records."""
        view = await self.get(session_id)
        if not view.ended:
            raise SessionRunning(f"session {session_id} is still running; cancel it first")
        if (served := self._served.get(session_id)) is not None:
            await served.over()  # it has said its last word and is being put away
        await self.journal.forget(session_id)
        await self.workspaces.forget(session_id)

    @to_the_end
    async def finish_worktree(self, session_id: str, *, keep: bool) -> SessionView:
        """Take an ended session's worktree away: its changes stay as a commit on its branch, or go with it."""
        view = await self.get(session_id)
        if not view.ended:
            raise SessionRunning(f"session {session_id} is still running; cancel it first, or let it end")
        if (served := self._served.get(session_id)) is not None:
            await served.over()
        await self.workspaces.keep_diff(session_id)
        left = await branches.finish(view, self.home, keep=keep)
        return await self._rewrite(session_id, branch=left, worktree="kept" if keep else "removed")

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

    @to_the_end
    async def answer(self, question_id: str, decision: Decision, *, who: str = "") -> Question:
        """Decide a question, once. ``question_id`` is ``<session id>:<request id>``."""
        answer_id = self._new_id()  # before anything else asks for one: a lost answer is found again by it
        asked = await self._question(question_id)
        late = AlreadyAnswered(f"question {question_id} has been answered already, or its time was up")
        served = self._served.get(asked.session_id)
        if not asked.open or served is None:
            raise late
        edited = isinstance(decision, Allow) and decision.updated_input is not None
        if edited and asked.request.tool_name != "question" and not self.opening.capabilities(served.view).edit_input:
            raise BadRequest(f"{asked.agent} cannot run a tool with another input than it asked for; allow or deny")
        await self.accepting()
        question = answered(asked, decision, by="client", who=who, now=self._now(), answer_id=answer_id)
        if not await served.decide(question):
            raise late
        return question

    async def rule_for(self, question_id: str) -> Kept:
        """What ``remember="always"`` would add to the policy, and where; no rules when none could speak for it."""
        asked = await self._question(question_id)
        return self.opening.rule_for(asked.request, await self.get(asked.session_id))

    def counters(self) -> dict[str, int]:
        """What has happened since the start, and how it stands: ``created <agent>``, ``ended <agent> <state>``, …"""
        return {
            **self._counts,
            "open": len(self._served),
            "awake": sum(served.awake for served in self._served.values()),
            "followers": self.journal.followers,
        }

    # -- the inside

    async def _begin(
        self, wanted: Wanted, *, who: str, parent: SessionView | None = None, fork: bool = False
    ) -> SessionView:
        await self.accepting()
        self._check_prompt(wanted.prompt)
        agent = agent_named(wanted.agent or self.settings.default_agent or await self.default_agent())
        how = self.opening.how(agent)
        if not how.enabled:
            raise BadRequest(f"{agent} is switched off in this server's configuration")
        cwd = places.workspace(wanted, self.settings, agent)
        session_id = self._new_id()
        view = SessionView(
            id=session_id,
            agent=agent,
            cwd=str(cwd),
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
            wanted=replace(wanted, prompt="", cwd=str(cwd)),
        )
        resume = None if parent is None else parent.native_id
        self.opening.session(view, resume=resume, fork=fork)  # what is wrong with the wish is said before all else
        await self._seats.find(session_id)
        try:
            branch, base = await self.workspaces.standing(session_id, cwd)
            view = replace(view, branch=branch, base=base)
            if wanted.worktree:
                view = await branches.branch_off(view, self.home)
            await self.accepting()  # that may have taken long
            session = self.opening.session(view, resume=resume, fork=fork)
            message = Message(id=self._new_id(), session_id=view.id, prompt=wanted.prompt, at=self._now(), who=who)
            await self._write_first(view, message)
        except BaseException:
            self._seats.leave(session_id)
            await branches.undo(view, self.home)
            await self.workspaces.forget(session_id)
            raise
        self._counts[f"created {agent}"] += 1
        _log.info("a session began", extra={"session": view.id, "agent": agent, "cwd": view.cwd, "who": who})
        self._serve(self._chronicle(view)).start(session, [message])
        return view

    async def _write_first(self, view: SessionView, message: Message) -> None:
        try:
            await self.journal.write(view, message)
        except StoreError as fault:
            self._broken(fault)
            raise

    async def default_agent(self) -> str:
        """The agent that runs when nobody names one."""
        for one in await self.agents():
            if one.default:
                return one.agent
        raise BadRequest("every agent is switched off in this server's configuration; enable one")

    def _chronicle(self, view: SessionView) -> Chronicle:
        return Chronicle(
            view, self.journal, now=self._now, new_id=self._new_id, broken=self._broken, counts=self._counts
        )

    def _serve(self, chronicle: Chronicle) -> Served:
        served = self._served[chronicle.view.id] = Served(
            chronicle,
            wake=self._woken,
            seats=self._seats,
            sleep_after=self.settings.sleep_after,
            broken=self._broken,
            left=self._left,
        )
        return served

    def _woken(self, view: SessionView) -> Session:
        return self.opening.session(view, resume=view.native_id)

    async def _mend(self) -> None:
        """Close or take up again the sessions that are open in the log and that nobody serves."""
        for view in await self.store.sessions(Query(ended=False, limit=EVERYTHING)):
            if view.id in self._served:
                continue
            chronicle = self._chronicle(view)
            resumable = bool(view.native_id) and self.opening.capabilities(view).resume
            decided = await chronicle.mend(resumable=resumable)
            if not chronicle.view.ended:
                self._serve(chronicle).start(None, decided=decided)

    async def _rewrite(self, session_id: str, **fields: object) -> SessionView:
        async with self.journal.rewriting:
            view = await self.get(session_id)
            served = self._served.get(session_id)
            chronicle = self._chronicle(view) if served is None else served.chronicle
            return await chronicle.change(**fields)

    def _left(self, session_id: str) -> None:
        self._served.pop(session_id, None)
        self._seats.leave(session_id)

    def _broken(self, fault: StoreError) -> None:
        """Nothing can be kept: no new work, and nothing is left running that nobody could tell of."""
        if self.fault is None:
            self.fault = fault
            _log.error("no more work is taken: %s", fault)
            self._killing = asyncio.get_running_loop().create_task(self._kill_all())

    async def _kill_all(self) -> None:
        await asyncio.gather(*(served.kill() for served in list(self._served.values())), return_exceptions=True)

    async def accepting(self) -> None:
        """Raises when no work is taken. A log that broke is tried again."""
        if self._stopping:
            raise TooMany("the server is stopping; try again when it is back")
        async with self._mending:  # who comes meanwhile waits: what is new must not be taken for left over
            if self.fault is not None:
                await self._try_again(self.fault)

    async def _try_again(self, fault: StoreError) -> None:
        """Whether the log can be written again, as when somebody has made room on the disk."""
        if self._killing is not None:
            await asyncio.wait([self._killing])
        try:
            await self.journal.write(Remember("written again", b"1"), Remember("written again", None))
        except StoreError:
            raise StoreBroken(f"the server takes no more work: {fault}") from fault
        self.fault = None
        await self._mend()

    async def _question(self, question_id: str) -> Question:
        asked = await self.store.question(question_id)
        if asked is None:
            raise SessionNotFound(f"no question has the id {question_id!r}")
        return asked

    def _check_prompt(self, prompt: str) -> None:
        if not prompt.strip():
            raise BadRequest("the prompt is empty; say what the agent is to do")
        if len(prompt) > self.settings.limits.prompt:
            raise BadRequest(
                f"the prompt has {len(prompt)} characters; this server takes {self.settings.limits.prompt}"
            )


def _title(prompt: str) -> str:
    line = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    return line if len(line) <= 80 else line[:79] + "…"
