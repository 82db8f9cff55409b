"""One conversation on a server, with the same verbs as one here."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Any
from urllib.parse import quote

import msgspec

from ..api import LAST
from ..errors import ConnectionLost, LocalProtocolError, StagedoorError
from ..service.views import Question, QueuedPrompt, SessionSpec, SessionView
from ..service.workspaces.git import WorkspaceDiff
from ..service.workspaces.undoing import CheckpointList
from ..shadow_git.checkpoints import Checkpoint, UndoResult
from ..transports.relay import Reader, Relay
from ..transports.tasks import TaskOwner
from ..unified.decisions import Allow, CanUseTool, Decision
from ..unified.events import Done, Event, TurnCompleted, TurnStarted, Unrecognized
from ..unified.options import Approval, Tier
from ..unified.settings import AgentReport, AgentSetting, setting_named
from .answers import CallbackAnswers
from .connection import ServerConnection
from .following import EventFollower

LEAVE_WITHIN = 10.0
"""Seconds to try to end a session that nobody waits for any more."""
_closings = TaskOwner()
"""Closes sessions that were dropped without being closed."""


class RemoteSession:
    """Made by ``remote.open`` or ``remote.session``. Use as ``async with``.

    A session opened here ends when it is closed or dropped; one that was only joined continues without us.
    """

    def __init__(self, link: SessionLink) -> None:
        self._link = link
        weakref.finalize(self, link.abandon).atexit = False

    @property
    def id(self) -> str:
        """The server's id; empty before the first ``send`` of a session opened here."""
        return self._link.id

    @property
    def agent(self) -> str:
        """Empty for a joined session of which no event has come yet."""
        return self._link.agent

    @property
    def ends_by_itself(self) -> bool:
        """It was opened for one prompt: it ends when that is done."""
        return self._link.opened_here and not self._link.keep_open

    @property
    def unrecognized(self) -> int:
        """How many of the messages received so far could not be typed."""
        return self._link.unrecognized

    @property
    def events(self) -> RemoteEvents:
        """Everything, from ``init`` to ``done`` (of a joined one: after the ``seq`` that was named); many may read."""
        return RemoteEvents(self)

    async def send(self, prompt: str) -> AsyncGenerator[Event]:
        """Send a prompt and yield the events of its turn, up to and including ``turn_completed``."""
        link = self._link
        after = link.yielded_seq if link.opened_here else (await link.view()).last_seq
        reader = self.events
        turn: int | None = None
        try:
            await self.post(prompt)
            async for event in reader:
                if event.seq <= after:
                    continue
                link.yielded_seq = event.seq
                yield event
                if turn is None and isinstance(event, TurnStarted) and event.prompt == prompt:
                    turn = event.turn
                if turn is not None and isinstance(event, TurnCompleted) and event.turn >= turn:
                    return
        finally:
            reader.close()

    async def post(self, prompt: str) -> None:
        """Send a prompt and return when the server has it; it waits for its turn. Read ``events`` for what follows."""
        await self._link.post(prompt)

    async def steer(self, text: str) -> None:
        """Add ``text`` to the running turn where the agent supports that; else it waits for its own turn."""
        await self._link.post(text, steer=True)

    async def view(self) -> SessionView:
        """The session as the server has it now."""
        return await self._link.view()

    async def settings(self) -> tuple[AgentSetting, ...]:
        """What can be chosen in this session, as it stands now: the agent's modes, models, effort and more."""
        return await self._link.settings()

    async def report(self) -> AgentReport:
        """What the agent says of itself: its commands, its context, its quota."""
        return await self._link.report()

    async def change_setting(self, name: str, value: str) -> AgentSetting:
        """Choose a value of a setting, by its id or kind (``mode``, ``model``, ``effort``)."""
        return setting_named(await self._link.change_setting(name, value), name)

    async def interrupt(self, *, pause: bool = False) -> None:
        """End the running turn; the session continues. ``pause``: what waits for its turn goes on waiting."""
        await self._link.act("interrupt", {"pause": True} if pause else None)

    async def configure(
        self, *, model: str | None = None, tier: Tier | None = None, approval: Approval | None = None
    ) -> SessionView:
        """Another model, tier or approval, from the next prompt on; the agent must be able to resume."""
        return await self._link.change({"model": model, "tier": tier, "approval": approval})

    async def diff(self) -> WorkspaceDiff:
        """What has changed in its workspace since it began, new files included."""
        return await self._link.diff()

    async def undo(self, *, turn: int | None = None, checkpoint: str = "", paths: Sequence[str] = ()) -> UndoResult:
        """Put the workspace, or ``paths`` of it, back as it was before ``turn`` (left out: the last one).

        ``checkpoint`` names any other of ``checkpoints()``: the result's ``redo`` undoes the undo.
        """
        return await self._link.undo({"turn": turn, "checkpoint": checkpoint, "paths": list(paths)})

    async def checkpoints(self) -> list[Checkpoint]:
        """The states of the workspace that ``undo`` can restore, oldest first."""
        return list((await self._link.checkpoints()).checkpoints)

    async def queued(self) -> list[QueuedPrompt]:
        """The prompts that wait for their turn, oldest first."""
        return await self._link.queued()

    async def cancel(self) -> None:
        """End the session on the server, whoever opened it."""
        await self._link.act("cancel")

    async def answer(self, request_id: str, decision: Decision) -> None:
        """Decide an open question. ``AlreadyAnswered`` when somebody was faster."""
        await self._link.answer(request_id, decision)

    async def leave(self) -> None:
        """Stop following; on the server the session continues. ``remote.session(id)`` joins it again."""
        self._link.opened_here = False
        await self._link.close()

    async def close(self) -> None:
        """End a session that was opened here, the last event is ``done``; leave one that was joined."""
        await self._link.close()

    async def __aenter__(self) -> RemoteSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
            return
        with suppress(StagedoorError):  # the caller must see the first error
            await self.close()


class RemoteEvents:
    """An async iterator. Raises at its end when the session could not be followed to its own."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session  # as long as somebody reads, the session is not dropped
        self._reader: Reader[Event] = session._link.relay.reader()

    def __aiter__(self) -> RemoteEvents:
        return self

    async def __anext__(self) -> Event:
        link = self._session._link
        link.start()
        try:
            return await self._reader.__anext__()
        except StopAsyncIteration:
            if link.fault is not None:
                raise link.fault from None
            raise

    def close(self) -> None:
        self._reader.close()


class SettingAnswer(msgspec.Struct, frozen=True):
    settings: tuple[AgentSetting, ...]


class OpenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of ``open``. ``resume`` is the id of a session of the server to continue, or ``last``."""

    agent: str
    options: Mapping[str, Any]
    can_use_tool: CanUseTool | None = None
    resume: str | None = None
    fork: bool = False

    def place(self) -> dict[str, object]:
        """Where to look for the agent's last session."""
        if self.resume != LAST:
            return {}
        place = {sent: self.options[name] for name, sent in _PLACES.items() if name in self.options}
        return {"agent": self.agent, **place}

    def create_body(self, prompt: str, *, keep_open: bool) -> dict[str, object]:
        """Only what was passed: an older server refuses fields it does not know."""
        body = SessionSpec(prompt=prompt, agent=self.agent, keep_open=keep_open, **self.options)
        fields: dict[str, object] = msgspec.to_builtins(body)
        defaults: dict[str, object] = msgspec.to_builtins(SessionSpec(prompt=""))
        return {name: value for name, value in fields.items() if name == "prompt" or value != defaults[name]}


_PLACES = {"cwd": "cwd", "project_id": "projectId"}


class SessionLink:
    """Our end of a session: follows it, publishes its events to many readers, and asks the callback.

    It is apart from ``RemoteSession`` so that one that is dropped can be collected, and is closed then.
    """

    def __init__(
        self,
        connection: ServerConnection,
        *,
        request: OpenRequest | None = None,
        keep_open: bool = True,
        session_id: str = "",
        after: int = 0,
        can_use_tool: CanUseTool | None = None,
    ) -> None:
        self.id = session_id
        self.agent = "" if request is None else request.agent
        self.opened_here = request is not None
        self.yielded_seq = 0
        """The last event that ``send`` has yielded."""
        self.unrecognized = 0
        self.keep_open = keep_open
        self.relay: Relay[Event] = Relay()
        self.fault: Exception | None = None
        self._connection = connection
        self._request = request
        self._after = after
        self._tasks = TaskOwner()
        self._following: asyncio.Task[None] | None = None
        self._creating: asyncio.Task[None] | None = None
        self._ended = False
        self._closed = False
        self._answers = None if can_use_tool is None else CallbackAnswers(can_use_tool, self.answer, self._fail)

    def start(self) -> None:
        """Follow the session, once there is one."""
        if self._following is None and self.id and not self._closed:
            self._following = self._tasks.start(self._follow(), name=f"stagedoor follows {self.id}")

    async def post(self, prompt: str, *, steer: bool = False) -> None:
        if self._closed:
            raise LocalProtocolError("this session is closed; open another one")
        if not self.id and self._creating is None:
            self._creating = self._tasks.start(self._create(prompt))
            try:
                await asyncio.shield(self._creating)  # whoever leaves now must still be able to end what was created
            except StagedoorError:
                self._creating = None
                raise
            return
        if self._creating is not None:
            await asyncio.shield(self._creating)
        self.start()
        await self._connection.post(f"{self._path}/messages", QueuedPrompt, {"prompt": prompt, "steer": steer})

    async def _create(self, prompt: str) -> None:
        request = self._request
        assert request is not None
        if request.resume is None:
            body = request.create_body(prompt, keep_open=self.keep_open)
            view = await self._connection.post("/api/sessions", SessionView, body)
        else:
            verb = "fork" if request.fork else "resume"
            body = {"prompt": prompt, "keepOpen": self.keep_open, **request.place()}
            path = f"/api/sessions/{quote(request.resume, safe='')}/{verb}"
            view = await self._connection.post(path, SessionView, body)
        self.id = view.id
        self.start()

    async def view(self) -> SessionView:
        if not self.id:
            raise LocalProtocolError("the session starts with its first prompt; send one")
        return await self._connection.get(self._path, SessionView)

    async def settings(self) -> tuple[AgentSetting, ...]:
        return (await self._connection.get(f"{self._path}/settings", SettingAnswer)).settings if self.id else ()

    async def report(self) -> AgentReport:
        return await self._connection.get(f"{self._path}/agent", AgentReport) if self.id else AgentReport()

    async def change_setting(self, name: str, value: str) -> tuple[AgentSetting, ...]:
        if not self.id:
            raise LocalProtocolError("the session starts with its first prompt; send one")
        body = {"id": name, "value": value}
        return (await self._connection.patch(f"{self._path}/settings", SettingAnswer, body)).settings

    async def change(self, fields: Mapping[str, object]) -> SessionView:
        body = {name: value for name, value in fields.items() if value is not None}
        return await self._connection.patch(self._path, SessionView, body)

    async def undo(self, body: dict[str, object]) -> UndoResult:
        await self.view()  # says what is wrong where there is none yet
        return await self._connection.post(f"{self._path}/undo", UndoResult, body)

    async def checkpoints(self) -> CheckpointList:
        await self.view()
        return await self._connection.get(f"{self._path}/checkpoints", CheckpointList)

    async def diff(self) -> WorkspaceDiff:
        return await self._connection.get(f"{self._path}/diff", WorkspaceDiff)

    async def queued(self) -> list[QueuedPrompt]:
        return (await self._connection.get(f"{self._path}/messages", dict[str, list[QueuedPrompt]]))["messages"]

    async def act(self, verb: str, body: object = None, *, patience: float | None = None) -> None:
        if self.id:
            await self._connection.post(f"{self._path}/{verb}", SessionView, body, patience=patience)

    async def answer(self, request_id: str, decision: Decision) -> None:
        await self._connection.post(
            f"{self._path}/permissions/{quote(request_id, safe='')}", Question, answer_body(decision)
        )

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.relay.release()
        try:
            if self._creating is not None:
                await asyncio.wait([self._creating], timeout=LEAVE_WITHIN)
            if self.opened_here and not self._ended and not isinstance(self.fault, ConnectionLost):
                await self.act("cancel", patience=LEAVE_WITHIN)
                if self._following is not None:
                    await asyncio.wait([self._following])
        finally:
            await self._leave()

    def abandon(self) -> None:
        """Nobody can close it any more: do so, if there is a loop left to do it in."""
        task = self._following
        if task is None or task.done():
            return
        loop = task.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._close_later)

    def _close_later(self) -> None:
        _closings.start(self._close_quietly())

    async def _close_quietly(self) -> None:
        with suppress(StagedoorError):
            await self.close()

    @property
    def _path(self) -> str:
        return f"/api/sessions/{quote(self.id, safe='')}"

    async def _follow(self) -> None:
        follower = EventFollower(self._connection, self.id, self._after)
        answers = self._answers
        try:
            async with self._connection.client(), aclosing(follower.batches()) as batches:
                async for events in batches:
                    self._ended = self._ended or isinstance(events[-1], Done)
                    self.agent = events[-1].agent or self.agent
                    self.unrecognized += sum(type(event) is Unrecognized for event in events)
                    if answers is not None:
                        answers.receive(events, current=follower.last_seq >= follower.server_seq)
                    await self.relay.publish(events)
            self._ended = True
        except Exception as fault:  # it is raised to every reader
            self.fault = self.fault or fault
        finally:
            self.relay.close()
            if answers is not None:
                await answers.close()

    def _fail(self, fault: StagedoorError) -> None:
        self.fault = fault
        self.relay.close()
        if self._following is not None:
            self._following.cancel()

    async def _leave(self) -> None:
        self.relay.close()
        await self._tasks.close()


def answer_body(decision: Decision) -> dict[str, object]:
    if isinstance(decision, Allow):
        return {"decision": "allow", "updatedInput": decision.updated_input, "remember": decision.remember}
    return {"decision": "deny", "message": decision.message, "interrupt": decision.interrupt}
