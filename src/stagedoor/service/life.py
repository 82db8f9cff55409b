"""One run of a session's CLI: its conversation, and the task that hands on everything it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from stagedoor.errors import AgentRefused, LocalProtocolError, NotSupported, SessionEnded
from stagedoor.session import Session
from stagedoor.transports.relay import Reader
from stagedoor.unified.decisions import Decision
from stagedoor.unified.events import Event

from .continuation import Continuation, Counts
from .views import SessionView


class Life:
    def __init__(
        self,
        session: Session,
        view: SessionView,
        *,
        store: Callable[[list[Event]], Awaitable[None]],
        counts: Counts,
        over: Callable[[], None],
    ) -> None:
        self.session = session
        self._reader: Reader[Event] = session.events
        self._joined = Continuation(view)
        self._store = store
        self._counts = counts
        self.killed = False
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []
        self.pump = asyncio.get_running_loop().create_task(self._hand_on(), name=f"stagedoor events {view.id}")
        self.pump.add_done_callback(lambda _: over())

    @property
    def over(self) -> bool:
        return self.pump.done()

    def answer(self, request_id: str, decision: Decision) -> None:
        """The agent waits for this. ``AlreadyAnswered`` when it does no more."""
        self.session.answer(self._joined.own_ids.get(request_id, request_id), decision)

    async def steered(self, text: str) -> bool:
        """Say ``text`` into the running turn, and wait until that is stored. False: it cannot be said there."""
        try:
            told = await self.session.steer(text)
        except (NotSupported, LocalProtocolError, AgentRefused):
            return False
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited.append((told, stored))
        await asyncio.wait([stored, self.pump], return_when=asyncio.FIRST_COMPLETED)
        if not stored.done():
            raise SessionEnded("the agent ended before this message was stored; resume the session to continue")
        return True

    async def close(self) -> None:
        """End it in order; everything it says is stored."""
        await self.session.close()
        await asyncio.wait([self.pump])

    async def kill(self) -> None:
        """End it now; what it says of it is not stored, and its questions are not answered."""
        self.killed = True
        await self.session.close(at_once=True)
        await asyncio.wait([self.pump])
        if not self.pump.cancelled():
            self.pump.exception()  # whoever kills it knows, or does not want to

    async def _hand_on(self) -> None:
        """As much at once as there is; a slow disk slows the agent."""
        reader = self._reader
        while await reader.news():
            heard = list(reader.ready())
            last = heard[-1].seq if heard else 0
            events = self._joined.join(heard, self._counts)
            if events and not self.killed:
                try:
                    await self._store(events)
                except BaseException:
                    reader.close()  # nobody reads on: the agent must not wait for us while it is ended
                    raise
            if self._awaited:
                self._tell_stored(last)

    def _tell_stored(self, last: int) -> None:
        for number, stored in self._awaited:
            if number <= last and not stored.done():
                stored.set_result(None)
        self._awaited = [one for one in self._awaited if not one[1].done()]


async def first_of(*waits: Coroutine[Any, Any, Any] | asyncio.Task[Any]) -> None:
    """Return when one of them has ended; those that were begun for this are cancelled."""
    begun = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(begun, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ours = [task for task, wait in zip(begun, waits, strict=True) if task is not wait]
        for task in ours:
            task.cancel()
        await asyncio.gather(*ours, return_exceptions=True)
