"""``service.sessions``: the verbs that create, steer, list and remove sessions."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from stagedoor.errors import (
    AgentRefused,
    BadRequest,
    Fenced,
    LocalProtocolError,
    NotAllowed,
    NotSupported,
    SessionEnded,
    SessionNotFound,
    SessionRunning,
    StagedoorError,
    TooMany,
    WorkerAway,
)
from stagedoor.shadow_git.checkpoints import UndoResult
from stagedoor.transports.tasks import TaskOwner
from stagedoor.unified.events import Notice
from stagedoor.unified.options import Approval, McpServer, Tier, without_modes
from stagedoor.unified.settings import AgentReport, AgentSetting, check_model

from .agents import Agents
from .config.settings import AgentSettings, Settings
from .journal import SESSIONS, Bell, Journal
from .machines.places import GitPlace, clone_label, git_place, labels_of
from .opening import Opening, agent_named, check_narrower, is_freer, narrowed, narrower
from .runner import SessionRunner
from .running import RunningSessions, to_the_end
from .store import Query, cursor_of, place_of
from .views import AttachedFile, QueuedPrompt, SessionSpec, SessionView
from .workspaces import (
    Workspaces,
    check_allowed,
    discard_worktree,
    end_worktree,
    own_folder,
    remove_own_folder,
    session_folder,
    start_worktree,
)  # fmt: skip
from .workspaces.attachments import AttachedPicture, attach, read_picture
from .workspaces.undoing import Undoing

if TYPE_CHECKING:
    from stagedoor.agents.acp.config import Host

_log = logging.getLogger("stagedoor.service")


class Sessions:
    def __init__(
        self,
        journal: Journal,
        running: RunningSessions,
        opening: Opening,
        agents: Agents,
        settings: Settings,
        home: Path,
        *,
        now: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self._journal = journal
        self._running = running
        self._opening = opening
        self._agents = agents
        self._settings = settings
        self._home = home
        self._now = now
        self._new_id = new_id
        self._attachments = home / "attachments"
        self._counting = asyncio.Lock()
        self.workspaces = Workspaces(
            self.get,
            home / "snapshots",
            check=lambda place: check_allowed(place, settings),
            push_to=settings.push,
        )
        self.undoing = Undoing(
            home,
            self.workspaces.folder,
            audit=opening.audit,
            working=running.working,
            now=now,
            on=settings.checkpoints,
        )
        running.before_turn = self.undoing.before_turn

    @property
    def tasks(self) -> TaskOwner:
        return self._running.tasks

    # -- what there is

    async def get(self, session_id: str) -> SessionView:
        view = await self.find(session_id)
        if view is None:
            raise SessionNotFound(f"session {session_id!r} not found")
        return view

    async def find(self, session_id: str) -> SessionView | None:
        return await self._journal.store.session(session_id)

    async def continued(self, view: SessionView) -> SessionView:
        """The session in which ``view`` goes on after it ended, by whoever resumed it; ``view`` itself if none does."""
        while view.ended and (later := await self._resumed_in(view)) is not None:
            view = later
        return view

    async def _resumed_in(self, view: SessionView) -> SessionView | None:
        """It runs in the same folder, and began later: newer ones come first."""
        query = Query(agent=view.agent, cwd=view.cwd, limit=100)
        while page := await self._journal.store.sessions(query):
            for other in page:
                if other.parent_id == view.id and not other.forked:
                    return other
                if other.created_at < view.created_at:
                    return None
            query = replace(query, cursor=cursor_of(page[-1]))
        return None

    async def page(self, query: Query) -> tuple[list[SessionView], int]:
        """A page of sessions, and how many there are on all pages."""
        if query.cursor:
            place_of(query.cursor)
            if query.offset:
                raise BadRequest("send cursor or offset, not both")
            whole = replace(query, cursor="")
            return await self._journal.store.sessions(query), await self._journal.store.count(whole)
        return await self._journal.store.sessions(query), await self._journal.store.count(query)

    async def messages(self, session_id: str, *, queued_only: bool = True) -> list[QueuedPrompt]:
        """The prompts of a session, oldest first: those that wait for their turn, or all."""
        return await self._journal.store.messages(session_id, queued_only=queued_only)

    async def list(self, query: Query) -> list[SessionView]:
        return await self._journal.store.sessions(query)

    def open_sessions(self) -> tuple[SessionView, ...]:
        """Those that run or could go on, as they stand now."""
        return tuple(runner.view for runner in self._running.runners.values())

    def watch_openings(self, watcher: Callable[[SessionView], None]) -> Callable[[], None]:
        """Call ``watcher`` with every session that opens from now on, until what is returned is called."""
        self._running.watchers.add(watcher)
        return lambda: self._running.watchers.discard(watcher)

    def bell(self) -> Bell:
        """Rings whenever anything about any session changes."""
        return self._journal.hub.bell(SESSIONS)

    def lend(self, session_id: str, host: Host, environment: Mapping[str, str] | None = None) -> Callable[[], None]:
        """An editor drives this session: agents that leave files and commands to their client use that editor's, and
        one that starts has its ``environment``, until what is returned is called, or another editor drives it."""
        hosts, environments = self._opening.hosts, self._opening.environments
        hosts[session_id] = host
        if environment is not None:
            environments[session_id] = environment

        def take_back() -> None:
            if hosts.get(session_id) is host:
                del hosts[session_id]
            if environments.get(session_id) is environment and environment is not None:
                del environments[session_id]

        return take_back

    # -- what changes it

    @to_the_end
    async def create(self, spec: SessionSpec, *, who: str = "", session_id: str = "") -> SessionView:
        """Start a session. Returns when it is stored; the agent starts afterwards, and the log shows how it went.

        ``session_id``: one that was reserved for it, by a door whose clients name a session before its first prompt.
        """
        return await self._begin(spec, who=who, session_id=session_id)

    @to_the_end
    async def create_for_model(self, spec: SessionSpec, *, caller: str, parent: str = "", who: str = "") -> SessionView:
        """Start a session that a model asked for: that of the session ``parent``, or one that a device runs.

        It may do no more than ``parent`` may; how many there are, and how deep, is limited. Raises ``NotAllowed`` and
        ``TooMany``.
        """
        async with self._counting:  # many calls at once would each see room for one
            return await self._begin_for_model(spec, caller=caller, parent=parent, who=who)

    async def _begin_for_model(self, spec: SessionSpec, *, caller: str, parent: str, who: str) -> SessionView:
        limits = self._settings.limits
        siblings = [
            view
            for view in self.open_sessions()
            if not view.ended and (view.parent == parent if parent else view.caller == caller)
        ]
        if len(siblings) >= limits.children:
            raise TooMany(f"{len(siblings)} sessions started from here are open, which is the limit: cancel one first")
        if not parent:
            return await self._begin(spec, who=who, caller=caller)
        above = await self.find(parent)
        if above is None or above.ended:
            raise NotAllowed(f"session {parent!r}, from which this one would be started, is not open on this server")
        depth, ancestor = 1, above
        while ancestor.parent and depth <= limits.depth:
            depth += 1
            found = await self.find(ancestor.parent)
            if found is None:
                break
            ancestor = found
        if depth >= limits.depth:
            raise TooMany(f"sessions are nested {depth} deep already, which is the limit: do it in this session")
        limited = above.spec is not None and above.spec.max_budget_usd is not None
        others = await self._started_by(above) if limited else ()
        return await self._begin(narrowed(spec, above, others), who=who, caller=caller, started_by=above)

    async def _started_by(self, above: SessionView) -> Sequence[SessionView]:
        """All that the model of a session has started, those that have ended too: they began later than it."""
        started: list[SessionView] = []
        query = Query(limit=500)
        while page := await self._journal.store.sessions(query):
            started += [view for view in page if view.parent == above.id]
            if page[-1].created_at < above.created_at:
                break
            query = replace(query, cursor=cursor_of(page[-1]))
        return started

    def reserve_id(self) -> str:
        """An id for a session that will be created."""
        return self._new_id()

    async def check(self, spec: SessionSpec) -> None:
        """Raises what ``create`` would say of it, whatever the prompt will be."""
        self._opening.session(await self._view(spec, "", parent=None, fork=False))

    def folder_of(self, spec: SessionSpec) -> Path:
        """Where a session with this spec would run. Raises ``NotAllowed`` or ``BadRequest`` when it could not."""
        return session_folder(spec, self._settings)

    @to_the_end
    async def resume(
        self, session_id: str, prompt: str, *, fork: bool = False, keep_open: bool | None = None, who: str = ""
    ) -> SessionView:
        """Continue an ended session in a new one (``parent_id`` names the old), or beside any with ``fork``.

        ``keep_open`` left out: as the old one.
        """
        runner = self._running.get(session_id)
        if runner is not None and runner.ending:
            await runner.ended()  # two programs must not write the same conversation at once
        old = await self.get(session_id)
        if not fork and not old.ended:
            raise SessionRunning(f"session {session_id} is still open: send it a message instead of resuming it")
        if not old.native_id:
            raise BadRequest(f"session {session_id} cannot be resumed: it ended before its agent started")
        spec = replace(
            old.spec or SessionSpec(prompt=prompt),
            prompt=prompt,
            cwd="" if git_place(old.place) else old.cwd,
            agent=old.agent,
            title=old.title,
            worktree=False,
            from_branch="",
            keep_open=old.keep_open if keep_open is None else keep_open,
        )
        return await self._begin(spec, who=who, parent=old, fork=fork)

    @to_the_end
    async def send(
        self,
        session_id: str,
        prompt: str,
        *,
        steer: bool = False,
        attachments: Sequence[AttachedFile] = (),
        who: str = "",
    ) -> QueuedPrompt:
        """A follow-up. It waits for its turn, or steers the running one; it wakes a session that sleeps."""
        await self._running.accepting()
        view = await self.get(session_id)
        runner = await self._running.serving(session_id)
        if runner is None or runner.view.ended:
            raise SessionEnded(f"session {session_id} has ended; resume it to continue")
        if runner.view.queued >= self._settings.limits.queued:
            raise TooMany(
                f"session {session_id} has {runner.view.queued} waiting messages already; wait until some are answered"
            )
        message_id = self._new_id()
        if self._journal.store.shared:
            for one in await self.messages(session_id, queued_only=False):
                if one.id == message_id:
                    return one  # this very message was stored before, and only the word of it was lost
        prompt, images = await self._attached(view, message_id, prompt, attachments)
        message = QueuedPrompt(
            id=message_id, session_id=session_id, prompt=prompt, at=self._now(), who=who, images=images
        )
        if not runner.awake and not runner.log.questions.rearmed:
            await self._running.seats.find(session_id)
        try:
            return await runner.post(message, steer=steer and not images)
        except SessionEnded:
            self._running.seats.leave(session_id)
            raise

    async def attachment(self, session_id: str, name: str) -> AttachedPicture:
        """A picture that was sent to a session, by the name that its ``attached`` notice has for it."""
        await self.get(session_id)
        return await asyncio.to_thread(read_picture, own_folder(self._attachments, session_id), name)

    async def report(self, session_id: str) -> AgentReport:
        """What the agent of a session says of itself: its commands, its context, its quota."""
        await self.get(session_id)
        runner = self._running.get(session_id)
        return AgentReport() if runner is None else runner.report

    async def settings(self, session_id: str) -> tuple[AgentSetting, ...]:
        """What can be chosen in a session, by the agent's own names; nothing before it has started or when it ended."""
        view = await self.get(session_id)
        runner = self._running.get(session_id)
        settings = () if runner is None or view.ended else runner.settings
        self._agents.note_settings(view.agent, settings)
        return settings

    @to_the_end
    async def change_setting(self, session_id: str, name: str, value: str) -> tuple[AgentSetting, ...]:
        """Choose a mode, a model, an effort or another setting of the agent's own; returns all as they stand then."""
        await self.get(session_id)
        runner = await self._running.serving(session_id)
        if runner is None or runner.ending:
            raise SessionEnded(f"session {session_id} has ended; resume it to continue")
        try:
            await runner.change_setting(name, value)
        except (NotSupported, LocalProtocolError, AgentRefused) as fault:
            raise BadRequest(str(fault)) from fault
        return await self.settings(session_id)

    async def interrupt(self, session_id: str, *, pause: bool = False) -> SessionView:
        """End the running turn. What is queued behind it comes next; a session that does not stay open ends.

        ``pause``: what is queued waits until somebody sends a message, or resumes the queue.
        """
        await self.get(session_id)
        if (runner := await self._running.serving(session_id)) is not None:
            await runner.interrupt(pause=pause)
        return await self.get(session_id)

    @to_the_end
    async def rewrite(
        self, session_id: str, message_id: str, *, prompt: str | None = None, place: int | None = None
    ) -> QueuedPrompt:
        """Change a message that waits for its turn, or its place among those that do (0: it comes next)."""
        if prompt is not None:
            self._check_prompt(prompt)
        return await (await self._queue_of(session_id)).log.rewrite(message_id, prompt=prompt, place=place)

    @to_the_end
    async def withdraw(self, session_id: str, message_id: str) -> None:
        """Remove a message that waits for its turn."""
        runner = await self._queue_of(session_id)
        await runner.log.withdraw(message_id)
        runner.go_on()

    async def _queue_of(self, session_id: str) -> SessionRunner:
        await self.get(session_id)
        runner = await self._running.serving(session_id)
        if runner is None or runner.view.ended:
            raise SessionEnded(f"session {session_id} has ended; nothing waits in it")
        return runner

    @to_the_end
    async def cancel(self, session_id: str) -> SessionView:
        """End the session now, whatever it does. One that has ended stays as it is."""
        await self.get(session_id)
        if await self._running.end_stranded(session_id):
            return await self.get(session_id)
        if (runner := await self._running.serving(session_id)) is not None:
            await runner.cancel()
        return await self.get(session_id)

    @to_the_end
    async def undo(
        self,
        session_id: str,
        *,
        turn: int | None = None,
        checkpoint: str = "",
        paths: Sequence[str] = (),
        who: str = "",
    ) -> UndoResult:
        """Put the workspace, or ``paths`` of it, back as it was before ``turn`` (left out: the last one).

        ``checkpoint`` names any other state that was kept, as the one before an undo. The log tells it, unless the
        session has ended; the audit log does in any case.
        """
        view = await self.get(session_id)
        await self._running.serving(session_id)  # before anything is changed that could not be told
        result, event = await self.undoing.restore(view, turn=turn, checkpoint=checkpoint, paths=paths, who=who)
        if (runner := self._running.get(session_id)) is not None:
            await runner.log.say(event)
        return result

    @to_the_end
    async def change(
        self,
        session_id: str,
        *,
        title: str | None = None,
        archived: bool | None = None,
        queue_paused: bool | None = None,
    ) -> SessionView:
        """Rename or archive; let the queue wait, or go on."""
        fields = {"title": title, "archived": archived, "queue_paused": queue_paused}
        view = await self._rewrite(session_id, **{name: value for name, value in fields.items() if value is not None})
        if (runner := self._running.get(session_id)) is not None:
            runner.go_on()
        return view

    @to_the_end
    async def reconfigure(
        self,
        session_id: str,
        *,
        model: str | None = None,
        tier: Tier | None = None,
        approval: Approval | None = None,
        effort: str | None = None,
        mcp_servers: Mapping[str, McpServer] | None = None,
        who: str = "",
    ) -> SessionView:
        """Another model, permissions, effort or tool servers from the next turn on: its program is started anew for it.

        A ``tier`` comes with its ``approval``; without one it decides alone.
        """
        runner = await self._queue_of(session_id)
        view = runner.view
        if model:
            check_model(runner.settings, model)
        fields: dict[str, object] = {} if model is None else {"model": model}
        if tier is not None:
            fields |= {"tier": tier, "approval": approval}
        elif approval is not None:
            fields["approval"] = approval
        fields = {name: value for name, value in fields.items() if getattr(view, name) != value}
        spec = view.spec or SessionSpec(prompt="")
        effort = (spec.effort or "") if effort is None else effort
        servers = spec.mcp_servers if mcp_servers is None else dict(mcp_servers)
        added = {"effort": effort or "default"} if effort != (spec.effort or "") else {}
        added |= {"tool servers": ", ".join(servers) or "none"} if servers != spec.mcp_servers else {}
        if not fields and not added:
            return view
        changes = {name: value or None for name, value in fields.items()}
        fields["spec"] = replace(spec, **changes, effort=effort or None, mcp_servers=servers)
        if not view.native_id:
            raise BadRequest(f"{view.agent} has not started yet; change it when it has")
        changed = replace(view, **fields)
        if not self._opening.session(view, resume=view.native_id).capabilities.resume:
            raise NotSupported(f"{view.agent} cannot change this within a session; start a new one")
        self._opening.permit(view, changed)
        named = {name: value for name, value in fields.items() if value and name != "spec"} | added
        words = ", ".join(f"{name} {value}" for name, value in named.items())
        view = await runner.log.change(**fields)
        runner.reopen(f"with {words}" if words else "with other settings")
        message = f"from the next message on: {words or 'other settings'}" + (f" (changed by {who})" if who else "")
        await runner.log.say(Notice(level="info", code="reconfigured", message=message))
        await self._narrow_below(runner.view, who)
        return runner.view

    async def _narrow_below(self, above: SessionView, who: str) -> None:
        """What a session's model has started may do no more than the session itself may from now on. One that cannot be
        changed is ended."""
        for view in self.open_sessions():
            if view.parent != above.id or view.ended or not is_freer(view, above):
                continue
            try:
                await self.reconfigure(view.id, tier=above.tier, approval=above.approval, who=who)
            except StagedoorError as fault:
                _log.warning("a session that could not be narrowed is ended: %s", fault, extra={"session": view.id})
                await self.cancel(view.id)

    @to_the_end
    async def delete(self, session_id: str) -> None:
        """Remove an ended session and all its records."""
        view = await self.get(session_id)
        if not view.ended:
            raise SessionRunning(f"session {session_id} is still running; cancel it first")
        if (runner := self._running.get(session_id)) is not None:
            await runner.ended()  # its last event is stored, and it is being put away
        await self._journal.forget(session_id)
        await self._forget(session_id)
        await self._running.carrying.forget(session_id)
        await self.workspaces.forget(session_id)
        await self.undoing.forget(session_id, view.cwd)

    @to_the_end
    async def finish_worktree(self, session_id: str, *, keep: bool) -> SessionView:
        """Remove an ended session's worktree: its changes stay as a commit on its branch, or go with it."""
        view = await self.get(session_id)
        if not view.ended:
            raise SessionRunning(f"session {session_id} is still running; cancel it first, or wait until it ends")
        if (runner := self._running.get(session_id)) is not None:
            await runner.ended()
        await self.workspaces.keep_diff(session_id)
        branch = await end_worktree(view, self._home, keep=keep)
        return await self._rewrite(session_id, branch=branch, worktree="kept" if keep else "removed")

    # -- the inside

    async def _begin(
        self,
        spec: SessionSpec,
        *,
        who: str,
        session_id: str = "",
        parent: SessionView | None = None,
        fork: bool = False,
        caller: str = "",
        started_by: SessionView | None = None,
    ) -> SessionView:
        running = self._running
        await running.accepting()
        self._check_prompt(spec.prompt)
        session_id, message_id = session_id or self._new_id(), self._new_id()
        if (made := await self._made_before(session_id)) is not None:
            return made
        view = await self._view(spec, session_id, parent=parent, fork=fork)
        agent, cwd = view.agent, Path(view.cwd)
        if parent is not None and parent.spec is not None:  # as it may do now, whatever it once began with
            view = replace(view, tier=parent.tier, approval=parent.approval)
        view = replace(
            view,
            parent=_inherited("parent", "" if started_by is None else started_by.id, parent),
            caller=_inherited("caller", caller, parent),
        )
        if started_by is not None:
            check_narrower(view.tier, view.approval, cwd, started_by)
        resume = None if parent is None else parent.native_id
        self._opening.session(view, resume=resume, fork=fork)  # raises what is wrong with the request
        prompt, images = await self._attached(view, message_id, spec.prompt, spec.attachments)
        await running.seats.find(session_id)
        try:
            session = None
            if git_place(view.place) is None:
                branch, base = await self.workspaces.standing(session_id, cwd)
                view = replace(view, branch=branch, base=base)
                if spec.worktree:
                    view = await start_worktree(view, self._home)
                await running.accepting()  # that may have taken long
                session = self._opening.session(view, resume=resume, fork=fork, images=images)
            message = QueuedPrompt(
                id=message_id, session_id=view.id, prompt=prompt, at=self._now(), who=who, images=images
            )
            view = await running.own(view, message)
        except BaseException:
            running.seats.leave(session_id)
            await discard_worktree(view, self._home)
            await self._forget(session_id)
            raise
        running.counts[f"created {agent}"] += 1
        _log.info("session started", extra={"session": view.id, "agent": agent, "cwd": view.cwd, "who": who})
        running.serve(running.open_log(view)).start(session, [message])
        return view

    async def _made_before(self, session_id: str) -> SessionView | None:
        """By the same request, which came to another machine, or here, before: only the word of it was lost."""
        made = await self.find(session_id) if self._journal.store.shared else None
        if made is not None and not made.epoch:
            raise WorkerAway(f"session {session_id} is just being started; try again in a moment")
        return made

    async def _view(self, spec: SessionSpec, session_id: str, *, parent: SessionView | None, fork: bool) -> SessionView:
        """The row that a session with this spec begins with."""
        agent = agent_named(spec.agent or await self._agents.default())
        configured = self._opening.agent_settings(agent)
        if not configured.enabled:
            raise BadRequest(f"{agent} is switched off in this server's configuration")
        self._check_machine(spec)
        if spec.from_branch and not spec.worktree:
            raise BadRequest("from_branch needs worktree: what is checked out in the folder stays as it is")
        place = git_place(spec.place)
        cwd = session_folder(spec, self._settings) if place is None else self._clone_folder(spec, place, session_id)
        tier, approval = _rights(spec, configured, self._settings)
        return SessionView(
            id=session_id,
            agent=agent,
            cwd=str(cwd),
            prompt=spec.prompt,
            title=spec.title or _title(spec.prompt),
            project_id=spec.project_id,
            model=spec.model or configured.model or "",
            driver=spec.driver or configured.driver or "",
            tier=tier,
            approval=approval,
            sandbox=spec.sandbox or configured.sandbox,
            confine=narrower(spec.confine or "off", configured.confine),
            parent_id=None if parent is None else parent.id,
            forked=fork,
            keep_open=spec.keep_open,
            group=spec.group,
            created_at=self._now(),
            updated_at=self._now(),
            queued=1,
            spec=replace(spec, prompt="", cwd="" if place else str(cwd), attachments=()),
            place="" if place is None else spec.place,
            needs=self._needs(spec, place, agent),
        )

    def _clone_folder(self, spec: SessionSpec, place: GitPlace, session_id: str) -> Path:
        """Where the clone will be. Raises for what does not go together with one."""
        if spec.cwd or spec.project_id or spec.worktree:
            raise BadRequest("a session in a git place has a clone of its own: leave cwd, projectId and worktree out")
        self._running.carrying.check(place)
        return self._running.carrying.begins_in(session_id)

    def _needs(self, spec: SessionSpec, place: GitPlace | None, agent: str) -> tuple[str, ...]:
        """The labels of a machine on which it could go on. In a folder without that of its agent: one that was removed
        since is missed by name."""
        if not self._journal.store.shared:
            return ()
        if place is None:
            return tuple(dict.fromkeys(spec.needs))
        return (*labels_of(spec.needs, "", agent), clone_label(place, self._running.worker.labels))

    def _check_machine(self, spec: SessionSpec) -> None:
        missing = set(labels_of(spec.needs, spec.place, "")) - set(self._running.worker.labels)
        if missing:
            raise BadRequest(f"this machine does not have the labels {', '.join(sorted(missing))}; leave them out")

    async def _attached(
        self, view: SessionView, message_id: str, prompt: str, attachments: Sequence[AttachedFile]
    ) -> tuple[str, tuple[str, ...]]:
        """The prompt as the agent gets it, and its pictures."""
        self._check_prompt(prompt)
        folder = own_folder(self._attachments, view.id) / message_id
        text, images = await asyncio.to_thread(attach, prompt, attachments, folder)
        try:
            self._check_prompt(text)
            if images and not self._opening.capabilities(view).images:
                raise NotSupported(f"{view.agent} takes no pictures; remove them, or use another agent")
        except BaseException:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise
        return text, images

    async def _forget(self, session_id: str) -> None:
        await self.workspaces.forget(session_id)
        await asyncio.to_thread(remove_own_folder, self._attachments, session_id)

    async def _rewrite(self, session_id: str, **fields: object) -> SessionView:
        async with self._journal.rewriting:
            while True:
                stranded = await self._running.stranded(session_id)
                view = stranded or await self.get(session_id)
                runner = await self._running.serving(session_id) if stranded is None else None
                session_log = self._running.open_log(view) if runner is None else runner.log
                try:
                    return await session_log.change(**fields)
                except Fenced:  # it changed hands between reading and writing
                    if runner is not None:
                        raise

    def _check_prompt(self, prompt: str) -> None:
        if not prompt.strip():
            raise BadRequest("the prompt is empty; write what the agent should do")
        if len(prompt) > self._settings.limits.prompt:
            raise BadRequest(
                f"the prompt has {len(prompt)} characters; this server allows {self._settings.limits.prompt}"
            )


def _inherited(field: str, value: str, continued: SessionView | None) -> str:
    """A session that goes on in another one was started by whom the first was."""
    return value or ("" if continued is None else str(getattr(continued, field)))


def _rights(spec: SessionSpec, configured: AgentSettings, settings: Settings) -> tuple[Tier, Approval | None]:
    """Modes in our own words: planning is a dry run, whatever tier is named beside it or configured."""
    tier, approval = spec.tier or configured.tier or settings.tier, spec.approval or configured.approval
    chosen = without_modes({"tier": tier, "approval": approval})
    return chosen["tier"], chosen["approval"]


def _title(prompt: str) -> str:
    line = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    return line if len(line) <= 80 else line[:79] + "…"
