"""One conversation on a server, with the same verbs as one here."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from types import TracebackType
from urllib.parse import quote

import msgspec

from ..errors import ConnectionLost, LocalProtocolError, StagedoorError
from ..service.views import Message, Question, SessionView
from ..transports.relay import Reader, Relay
from ..unified.decisions import Allow, CanUseTool, Decision
from ..unified.events import Done, Event, TurnCompleted, TurnStarted, Unrecognized
from .answering import Answering
from .following import Following
from .line import Line
from .wishes import Wish

LEAVE_WITHIN = 10.0
"""Seconds to try to end a session that nobody waits for any more."""
_leaving: set[asyncio.Task[None]] = set()


class RemoteSession:
    """Made by ``remote.open`` or ``remote.session``. Use as ``async with``.

    One that was opened here is ended when it is closed or dropped; one that was only joined goes on without us.
    """

    def __init__(self, live: Live) -> None:
        self._live = live
        weakref.finalize(self, live.abandon).atexit = False

    @property
    def id(self) -> str:
        """The server's id; empty before the first ``send`` of a session opened here."""
        return self._live.id

    @property
    def agent(self) -> str:
        """Empty for a joined session that has not been heard yet."""
        return self._live.agent

    @property
    def unrecognized(self) -> int:
        """How many of the messages heard so far could not be typed."""
        return self._live.unrecognized

    @property
    def events(self) -> Events:
        """Everything, from ``init`` to ``done`` (of a joined one: after the ``seq`` that was named); many may read."""
        return Events(self)

    async def send(self, prompt: str) -> AsyncGenerator[Event]:
        """Send a prompt and yield the events of its turn, up to and including ``turn_completed``."""
        live = self._live
        after = live.told if live.own else (await live.view()).last_seq
        reader = self.events
        turn: int | None = None
        try:
            await self.post(prompt)
            async for event in reader:
                if event.seq <= after:
                    continue
                live.told = event.seq
                yield event
                if turn is None and isinstance(event, TurnStarted) and event.prompt == prompt:
                    turn = event.turn
                if turn is not None and isinstance(event, TurnCompleted) and event.turn >= turn:
                    return
        finally:
            reader.close()

    async def post(self, prompt: str) -> None:
        """Send a prompt and return when the server has it; it waits its turn. What comes of it is in ``events``."""
        await self._live.post(prompt)

    async def steer(self, text: str) -> None:
        """Say ``text`` into the running turn, where the agent can take it there; else it waits its turn."""
        await self._live.post(text, steer=True)

    async def view(self) -> SessionView:
        """How the session stands now."""
        return await self._live.view()

    async def interrupt(self) -> None:
        """End the running turn; the session goes on."""
        await self._live.act("interrupt")

    async def cancel(self) -> None:
        """End the session on the server, whoever opened it."""
        await self._live.act("cancel")

    async def answer(self, request_id: str, decision: Decision) -> None:
        """Decide an open question. ``AlreadyAnswered`` when somebody was faster."""
        await self._live.answer(request_id, decision)

    async def leave(self) -> None:
        """Stop following; on the server the session goes on. ``remote.session(id)`` joins it again."""
        self._live.own = False
        await self._live.close()

    async def close(self) -> None:
        """End a session that was opened here, the last event is ``done``; leave one that was joined."""
        await self._live.close()

    async def __aenter__(self) -> RemoteSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
            return
        with suppress(StagedoorError):  # what went wrong first is what the caller must hear
            await self.close()


class Events:
    """An async iterator. Raises at its end when the session could not be followed to its own."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session  # as long as somebody reads, the session is not dropped
        self._reader: Reader[Event] = session._live.relay.reader()

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
        live = self._session._live
        live.start()
        try:
            return await self._reader.__anext__()
        except StopAsyncIteration:
            if live.fault is not None:
                raise live.fault from None
            raise

    def close(self) -> None:
        self._reader.close()


class Live:
    """The middle of a session: follows it, tells many readers, and asks the callback."""

    def __init__(
        self,
        line: Line,
        *,
        wish: Wish | None = None,
        keep_open: bool = True,
        session_id: str = "",
        after: int = 0,
        can_use_tool: CanUseTool | None = None,
    ) -> None:
        self.id = session_id
        self.agent = "" if wish is None else wish.agent
        self.own = wish is not None
        self.told = 0
        self.unrecognized = 0
        self.kept_open = keep_open
        self.relay: Relay[Event] = Relay()
        self.fault: Exception | None = None
        self._line = line
        self._wish = wish
        self._after = after
        self._task: asyncio.Task[None] | None = None
        self._creating: asyncio.Task[None] | None = None
        self._over = False
        self._closed = False
        self._answering = None if can_use_tool is None else Answering(can_use_tool, self.answer, self._fail)

    def start(self) -> None:
        """Begin to follow, once there is something to follow."""
        if self._task is None and self.id and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._follow(), name=f"stagedoor follows {self.id}")

    async def post(self, prompt: str, *, steer: bool = False) -> None:
        if self._closed:
            raise LocalProtocolError("the session is closed; open another one")
        if not self.id and self._creating is None:
            self._creating = asyncio.get_running_loop().create_task(self._create(prompt))
            try:
                await asyncio.shield(self._creating)  # whoever leaves now must still be able to end what was begun
            except StagedoorError:
                self._creating = None
                raise
            return
        if self._creating is not None:
            await asyncio.shield(self._creating)
        self.start()
        await self._line.post(f"{self._path}/messages", Message, {"prompt": prompt, "steer": steer})

    async def _create(self, prompt: str) -> None:
        wish = self._wish
        assert wish is not None
        if wish.resume is None:
            wanted = wish.wanted(prompt, keep_open=self.kept_open)
            view = await self._line.post("/api/sessions", SessionView, _given(wanted))
        else:
            verb = "fork" if wish.fork else "resume"
            body = {"prompt": prompt, "keepOpen": self.kept_open}
            view = await self._line.post(f"/api/sessions/{quote(wish.resume, safe='')}/{verb}", SessionView, body)
        self.id = view.id
        self.start()

    async def view(self) -> SessionView:
        if not self.id:
            raise LocalProtocolError("the session begins with its first prompt; send one")
        return await self._line.get(self._path, SessionView)

    async def act(self, verb: str, *, patience: float | None = None) -> None:
        if self.id:
            await self._line.post(f"{self._path}/{verb}", SessionView, patience=patience)

    async def answer(self, request_id: str, decision: Decision) -> None:
        await self._line.post(f"{self._path}/permissions/{quote(request_id, safe='')}", Question, answer_body(decision))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.relay.release()
        try:
            if self._creating is not None:
                await asyncio.wait([self._creating], timeout=LEAVE_WITHIN)
            if self.own and not self._over and not isinstance(self.fault, ConnectionLost):
                await self.act("cancel", patience=LEAVE_WITHIN)
                if self._task is not None:
                    await asyncio.wait([self._task])
        finally:
            await self._leave()

    def abandon(self) -> None:
        """Nobody can close it any more: do so, if there is a loop left to do it in."""
        task = self._task
        if task is None or task.done():
            return
        loop = task.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._close_later)

    def _close_later(self) -> None:
        closing = asyncio.get_running_loop().create_task(self._close_quietly())
        _leaving.add(closing)
        closing.add_done_callback(_leaving.discard)

    async def _close_quietly(self) -> None:
        with suppress(StagedoorError):
            await self.close()

    @property
    def _path(self) -> str:
        return f"/api/sessions/{quote(self.id, safe='')}"

    async def _follow(self) -> None:
        following = Following(self._line, self.id, self._after)
        answering = self._answering
        try:
            async with self._line.held(), aclosing(following.batches()) as batches:
                async for events in batches:
                    self._over = self._over or isinstance(events[-1], Done)
                    self.agent = events[-1].agent or self.agent
                    self.unrecognized += sum(type(event) is Unrecognized for event in events)
                    if answering is not None:
                        answering.hear(events, current=following.seen >= following.known)
                    await self.relay.publish(events)
            self._over = True
        except Exception as fault:  # it is raised to every reader
            self.fault = self.fault or fault
        finally:
            self.relay.close()
            if answering is not None:
                await answering.close()

    def _fail(self, fault: StagedoorError) -> None:
        self.fault = fault
        self.relay.close()
        if self._task is not None:
            self._task.cancel()

    async def _leave(self) -> None:
        self.relay.close()
        tasks = [task for task in (self._task, self._creating) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answer_body(decision: Decision) -> dict[str, object]:
    if isinstance(decision, Allow):
        return {"decision": "allow", "updatedInput": decision.updated_input, "remember": decision.remember}
    return {"decision": "deny", "message": decision.message, "interrupt": decision.interrupt}


def _given(wanted: msgspec.Struct) -> dict[str, object]:
    """Only what was asked for: an older server refuses fields it does not know."""
    plain: dict[str, object] = msgspec.to_builtins(wanted)
    bare: dict[str, object] = msgspec.to_builtins(type(wanted)(prompt=""))
    return {name: value for name, value in plain.items() if name == "prompt" or value != bare[name]}
