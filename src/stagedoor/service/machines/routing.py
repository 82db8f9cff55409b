"""The verbs as a door has them where several machines share a log: what is about the log is done here, and what must
reach an agent, its folder or its git is carried out on the machine that has them (``commands``)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from itertools import count
from typing import Any

from msgspec.structs import replace

from stagedoor.errors import BadRequest, SessionNotFound, UnknownOutcome, WorkerAway

from ..questions import Questions
from ..sessions import Sessions
from ..stored import Past
from ..views import SessionSpec, SessionView
from ..workspaces import Workspaces
from ..workspaces.git_changes import GitBranches, GitCommit, GitPush
from ..workspaces.watch import Touched
from .commands import CommandOutbox, Placement
from .ground import AuditSlice, MachineGround
from .openings import OpeningsElsewhere
from .places import labels_of
from .watching import FolderWatches, watch_elsewhere

BY_SESSION: Mapping[str, tuple[str, ...]] = {
    "sessions": (
        "send", "attachment", "report", "settings", "change_setting", "interrupt", "rewrite", "withdraw", "cancel",
        "undo", "change", "reconfigure", "delete", "finish_worktree", "resume",
    ),
    "workspaces": ("git_status", "diff", "files", "find", "read"),
    "undoing": ("list",),
}  # fmt: skip
"""Verbs whose first argument is the session they are about."""
GOING_ON = frozenset({"send", "change_setting", "rewrite", "reconfigure", "resume"})
"""Those after which a session goes on: only a machine with all its labels does them."""
BY_QUESTION = ("answer", "respond", "rule_for", "editable")
PLACED = ("create", "create_for_model", "check")
GROUND = ("projects", "folders", "trust", "trusted", "policy", "audit", "agent_settings")
STORED = ("beside_log", "keeps", "newest", "import_session")
"""What a machine tells of its programs' own sessions (``histories``)."""
MOST_TOGETHER = 5000
TRIES = 3
"""Machines that a new session is offered to, should one go away at that moment."""


class GitVerbs:
    """The verbs of a session's git, each with the session it is about."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def stage(self, session_id: str, paths: Sequence[str], *, who: str) -> None:
        await (await self._workspaces.changes(session_id, who=who)).stage(paths)

    async def unstage(self, session_id: str, paths: Sequence[str], *, who: str) -> None:
        await (await self._workspaces.changes(session_id, who=who)).unstage(paths)

    async def discard(self, session_id: str, paths: Sequence[str], *, who: str) -> None:
        await (await self._workspaces.changes(session_id, who=who)).discard(paths)

    async def commit(self, session_id: str, message: str, *, everything: bool, who: str) -> GitCommit:
        return await (await self._workspaces.changes(session_id, who=who)).commit(message, everything=everything)

    async def branches(self, session_id: str, *, who: str) -> GitBranches:
        return await (await self._workspaces.changes(session_id, who=who)).branches()

    async def checkout(self, session_id: str, branch: str, *, create: bool, who: str) -> None:
        await (await self._workspaces.changes(session_id, who=who)).checkout(branch, create=create)

    async def push(self, session_id: str, *, remote: str, branch: str, who: str) -> GitPush:
        return await (await self._workspaces.changes(session_id, who=who)).push(remote=remote, branch=branch)


LOOKS = frozenset(
    {
        "sessions.report", "sessions.settings", "sessions.check", "sessions.attachment", "questions.rule_for",
        "questions.editable", "git.branches", "undoing.list",
        "stored.beside_log", "stored.keeps", "stored.newest", "watching.touched",
        *(f"workspaces.{name}" for name in BY_SESSION["workspaces"]),
        *(f"ground.{name}" for name in GROUND),
    }
)  # fmt: skip
"""Those that change nothing."""
GIT = ("stage", "unstage", "discard", "commit", "branches", "checkout", "push")


def verb_groups(
    sessions: Sessions, questions: Questions, ground: MachineGround, past: Past, watches: FolderWatches
) -> dict[str, tuple[object, tuple[str, ...]]]:
    """What may be called from other machines."""
    return {
        "sessions": (sessions, (*BY_SESSION["sessions"], *PLACED)),
        "questions": (questions, BY_QUESTION),
        "workspaces": (sessions.workspaces, BY_SESSION["workspaces"]),
        "undoing": (sessions.undoing, BY_SESSION["undoing"]),
        "git": (GitVerbs(sessions.workspaces), GIT),
        "ground": (ground, GROUND),
        "stored": (past, STORED),
        "watching": (watches, ("touched",)),
    }


class Routed:
    """Stands where a group of verbs stands; ``routes`` are those that are carried out elsewhere."""

    def __init__(self, local: object, routes: Mapping[str, Callable[..., Awaitable[Any]] | object]) -> None:
        self._local = local
        self._routes = routes

    def __getattr__(self, name: str) -> Any:
        return self._routes[name] if name in self._routes else getattr(self._local, name)


class Router:
    def __init__(
        self,
        outbox: CommandOutbox,
        placement: Placement,
        get: Callable[[str], Awaitable[SessionView]],
        me: Callable[[], str],
    ) -> None:
        self._me = me
        self._outbox = outbox
        self._placement = placement
        self._get = get

    def sessions(self, local: Sessions, openings: OpeningsElsewhere) -> Any:
        def watch_openings(watcher: Callable[[SessionView], None]) -> Callable[[], None]:
            stops = (local.watch_openings(watcher), openings.watch(watcher))

            def stop() -> None:
                for one in stops:
                    one()

            return stop

        return Routed(
            local,
            {
                **self._by_session("sessions"),
                "create": self._create,
                "create_for_model": self._create_for_model,
                "check": self._check,
                "watch_openings": watch_openings,
                "undoing": Routed(local.undoing, self._by_session("undoing")),
                "workspaces": self.workspaces(local.workspaces),
            },
        )

    def workspaces(self, local: Workspaces) -> Any:
        async def watch(session_id: str) -> AsyncGenerator[Touched]:
            place = await self._placement.home_of(await self._get(session_id))
            ask = partial(self._outbox.to_machine, "watching.touched", place)
            touches = local.watch(session_id) if place == self._me() else watch_elsewhere(ask, session_id)
            async with aclosing(touches):
                async for touched in touches:
                    yield touched

        return Routed(local, {**self._by_session("workspaces"), "changes": self._changes, "watch": watch})

    def ground(self, local: MachineGround) -> Any:
        async def on(machine: str, name: str, *args: Any, **named: Any) -> Any:
            if machine == self._me():
                return await getattr(local, name)(*args, **named)
            return await self._outbox.to_machine(f"ground.{name}", machine, *args, **named)

        def routed(name: str) -> Callable[..., Awaitable[Any]]:
            async def call(*args: Any, place: str = "", **named: Any) -> Any:
                machine = self._me() if not place else ""
                machine = machine or (await self._placement.choose(labels_of((), place, ""))).id
                return await on(machine, name, *args, place=place, **named)

            return call

        async def agent_settings(agent: str, *, place: str = "") -> Any:
            """Of a machine that has the agent: this one first."""
            rows = await self._placement.ready(labels_of((), place, agent))
            machine = self._me() if any(row.id == self._me() for row in rows) else ""
            machine = machine or (await self._placement.choose(labels_of((), place, agent))).id
            return await on(machine, "agent_settings", agent, place=place)

        async def audit(
            *, offset: int = 0, limit: int = 100, session_id: str | None = None, place: str = ""
        ) -> AuditSlice:
            """Each machine has an audit of its own; together, those of all that are there."""
            rows = await self._placement.ready(labels_of((), place, ""))
            if len(rows) == 1:
                found: AuditSlice = await on(rows[0].id, "audit", offset=offset, limit=limit, session_id=session_id)
                return found
            if offset + limit > MOST_TOGETHER:
                words = f"of several machines together the last {MOST_TOGETHER} decisions can be listed"
                raise BadRequest(f"{words}; name one of them with place")
            calls = [on(row.id, "audit", limit=offset + limit, session_id=session_id, brief=True) for row in rows]
            slices: list[AuditSlice] = []
            for answer in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(answer, AuditSlice):
                    slices.append(answer)
                elif not isinstance(answer, WorkerAway):  # nobody's decisions are left out for another reason
                    raise answer
            if not slices:
                raise WorkerAway("no machine is there whose audit could be shown; stagedoor workers lists them")
            entries = sorted((entry for each in slices for entry in each.entries), key=lambda entry: -entry.at)
            return AuditSlice(entries[offset : offset + limit], sum(each.total for each in slices))

        def of_this_machine(name: str) -> Callable[..., Awaitable[Any]]:
            """For good, so never by a command: every worker's role can write those."""

            async def call(folder: str, *, place: str = "", **named: Any) -> Any:
                chosen = (await self._placement.choose(labels_of((), place, ""))).id if place else self._me()
                if not chosen or chosen != self._me():
                    raise BadRequest("a folder is trusted for good on its own machine only: run stagedoor trust there")
                return await getattr(local, name)(folder, place=place, **named)

            return call

        routes = {name: routed(name) for name in GROUND}
        routes |= {name: of_this_machine(name) for name in ("trust_folder", "distrust_folder")}
        return Routed(local, routes | {"agent_settings": agent_settings, "audit": audit})

    def questions(self, local: Questions) -> Any:
        def routed(name: str) -> Callable[..., Awaitable[Any]]:
            async def call(question_id: str, *args: Any, **named: Any) -> Any:
                question = await local.find(question_id)
                if question is None or named.get("session_id") not in (None, question.session_id):
                    raise SessionNotFound(f"question {question_id!r} not found")
                for number in count(1):
                    view = await self._located(question.session_id)
                    try:
                        return await self._outbox.again(f"questions.{name}", view, number, question_id, *args, **named)
                    except UnknownOutcome:
                        current = await local.find(question_id)
                        if current is None or not current.open:
                            raise
                        # It is open still, so nothing came of it: whoever has the session now gets it.
                raise AssertionError

            return call

        return Routed(local, {name: routed(name) for name in BY_QUESTION})

    def _by_session(self, group: str) -> dict[str, Callable[..., Awaitable[Any]]]:
        def routed(name: str) -> Callable[..., Awaitable[Any]]:
            async def call(session_id: str, *args: Any, **named: Any) -> Any:
                kind = f"{group}.{name}"
                try:
                    view = await self._located(session_id)
                except WorkerAway:  # no machine can go on with it
                    keeper = await self._placement.keeper_of(await self._get(session_id))
                    if not keeper or (group == "sessions" and name in GOING_ON):
                        raise
                    return await self._outbox.to_machine(kind, keeper, session_id, *args, **named)
                if group == "sessions":
                    return await self._outbox.to_owner(kind, view, session_id, *args, **named)
                # Its files are on that machine and on no other: nobody waits for one that takes over.
                place = await self._placement.home_of(view)
                if place == self._me():  # what is only looked at needs no row
                    return await self._outbox.verbs[kind].method(session_id, *args, **named)
                return await self._outbox.to_machine(kind, place, session_id, *args, **named)

            return call

        return {name: routed(name) for name in BY_SESSION[group]}

    async def _located(self, session_id: str) -> SessionView:
        """With the machine that must do it: its owner, else the one that can go on with it."""
        view = await self._get(session_id)
        return replace(view, worker=await self._placement.next_of(view)) if view.ended or not view.worker else view

    async def _changes(self, session_id: str, *, who: str = "") -> Any:
        place = await self._placement.home_of(await self._get(session_id))

        def routed(name: str) -> Callable[..., Awaitable[Any]]:
            async def call(*args: Any, **named: Any) -> Any:
                return await self._outbox.to_machine(f"git.{name}", place, session_id, *args, who=who, **named)

            return call

        return Routed(None, {name: routed(name) for name in GIT})

    async def _create(self, spec: SessionSpec, *, who: str = "", session_id: str = "") -> Any:
        return await self._placed("sessions.create", spec, who=who, session_id=session_id)

    async def _check(self, spec: SessionSpec) -> None:
        await self._placed("sessions.check", spec)

    async def _create_for_model(self, spec: SessionSpec, *, caller: str, parent: str = "", who: str = "") -> Any:
        if not parent:
            return await self._placed("sessions.create_for_model", spec, caller=caller, who=who)
        above = await self._get(parent)  # it works in a folder of the session that starts it
        return await self._outbox.to_machine(
            "sessions.create_for_model", above.worker, spec, caller=caller, parent=parent, who=who
        )

    async def _placed(self, kind: str, spec: SessionSpec, **named: Any) -> Any:
        needs = labels_of(spec.needs, spec.place, spec.agent)
        for number in range(TRIES):
            is_left_to_us = bool(self._me()) and not spec.place and not spec.needs
            if is_left_to_us and not await self._placement.knows(needs):
                machine = self._me()  # which says what is wrong with the agent
            else:
                machine = (await self._placement.choose(needs, spec.place)).id
            try:
                return await self._outbox.to_machine(kind, machine, spec, **named)
            except WorkerAway:
                if number + 1 == TRIES:
                    raise
        raise AssertionError
