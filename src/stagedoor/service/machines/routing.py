"""The verbs as a door has them where several machines share a log: what is about the log is done here, and what must
reach an agent, its folder or its git is carried out on the machine that has them (``commands``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any

from msgspec.structs import replace

from stagedoor.errors import SessionNotFound, UnknownOutcome, WorkerAway

from ..questions import Questions
from ..sessions import Sessions
from ..views import SessionSpec, SessionView
from ..workspaces import Workspaces
from ..workspaces.git_changes import GitBranches, GitCommit, GitPush
from .commands import CommandOutbox, Placement
from .places import labels_of

BY_SESSION: Mapping[str, tuple[str, ...]] = {
    "sessions": (
        "send", "report", "settings", "change_setting", "interrupt", "rewrite", "withdraw", "cancel", "undo",
        "change", "reconfigure", "delete", "finish_worktree", "resume",
    ),
    "workspaces": ("git_status", "diff", "files", "find", "read"),
    "undoing": ("list",),
}  # fmt: skip
"""Verbs whose first argument is the session they are about."""
BY_QUESTION = ("answer", "respond", "rule_for", "editable")
PLACED = ("create", "create_for_model", "check")
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


GIT = ("stage", "unstage", "discard", "commit", "branches", "checkout", "push")


def verb_groups(sessions: Sessions, questions: Questions) -> dict[str, tuple[object, tuple[str, ...]]]:
    """What may be called from other machines."""
    return {
        "sessions": (sessions, (*BY_SESSION["sessions"], *PLACED)),
        "questions": (questions, BY_QUESTION),
        "workspaces": (sessions.workspaces, BY_SESSION["workspaces"]),
        "undoing": (sessions.undoing, BY_SESSION["undoing"]),
        "git": (GitVerbs(sessions.workspaces), GIT),
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

    def sessions(self, local: Sessions) -> Any:
        return Routed(
            local,
            {
                **self._by_session("sessions"),
                "create": self._create,
                "create_for_model": self._create_for_model,
                "check": self._check,
                "undoing": Routed(local.undoing, self._by_session("undoing")),
                "workspaces": self.workspaces(local.workspaces),
            },
        )

    def workspaces(self, local: Workspaces) -> Any:
        return Routed(local, {**self._by_session("workspaces"), "changes": self._changes})

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
                        # It is open still, so nothing came of it: whoever has the session now is asked.
                raise AssertionError

            return call

        return Routed(local, {name: routed(name) for name in BY_QUESTION})

    def _by_session(self, group: str) -> dict[str, Callable[..., Awaitable[Any]]]:
        def routed(name: str) -> Callable[..., Awaitable[Any]]:
            async def call(session_id: str, *args: Any, **named: Any) -> Any:
                view = await self._located(session_id)
                kind = f"{group}.{name}"
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
        """With the machine that must do it: its owner, else the one with its folder."""
        view = await self._get(session_id)
        return replace(view, worker=await self._placement.home_of(view)) if view.ended or not view.worker else view

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
            worker = await self._placement.choose(needs)
            try:
                return await self._outbox.to_machine(kind, worker.id, spec, **named)
            except WorkerAway:
                if number + 1 == TRIES:
                    raise
        raise AssertionError
