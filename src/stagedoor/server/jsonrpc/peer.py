"""One client: what it has selected, what it follows, and its calls that run.

Nothing is queued for a client. Each of its subscriptions reads the log and writes to the client, one message after the
other; a client that reads slowly is told slowly, and slows nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeAlias

from stagedoor.errors import BadRequest, StagedoorError, TooMany
from stagedoor.service.service import Service

from ..access.auth import Caller
from ..problems import InvalidField
from ..streams.dialect_cursor import Tellings
from ..streams.following import STALLED
from .following import Tell, follow, notification, watch
from .overview import Lookout, overview
from .params import Dialect, Watched
from .results import Configured

CALLS = 32
"""Calls of one client that run at once; further ones wait in its connection."""
EVERYTHING = ""
"""The name of the subscription to all sessions."""
Work: TypeAlias = Callable[[Tell], Awaitable[None]]
_LOG = logging.getLogger("stagedoor.server.jsonrpc")


class Gone(Exception):
    """The client is no longer there."""


class Shared:
    """What all clients of a service have in common."""

    def __init__(self, service: Service) -> None:
        self.tellings = Tellings(service.events)
        self.lookout = Lookout(service)


class Choice:
    """A client's defaults: the agent it has selected, how it has configured each, the session it ran last."""

    def __init__(self) -> None:
        self.agent = ""
        self.configured: dict[str, Configured] = {}
        self.session_id = ""


class Call:
    """One call while it is carried out. What is in ``afterwards`` is done when its answer has been sent."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.service = peer.service
        self.caller = peer.caller
        self.choice = peer.choice
        self.afterwards: list[Callable[[], None]] = []

    def session(self, named: str) -> str:
        """The session a call means: named, else the one this client ran last."""
        if not named and not self.choice.session_id:
            raise InvalidField("this client has run nothing yet: name the sessionId", field="$.sessionId")
        return named or self.choice.session_id

    def subscribe(self, session_id: str, after: int, dialect: Dialect, *more: Work) -> None:
        """Follow a session; what is told of it comes after the answer. One already followed is followed anew."""
        service, tellings = self.service, self.peer.tellings

        async def story(tell: Tell) -> None:
            await follow(service, tellings, tell, session_id, after, dialect)

        self.afterwards.append(self.peer.begin(session_id, story, *more))

    async def subscribe_and_watch(
        self, session_id: str, after: int, dialect: Dialect, watched: tuple[Watched, ...]
    ) -> None:
        """And its workspace: from the answer on, nothing that changes there is missed."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def touches(tell: Tell) -> None:
            with _failing(begun):
                await watch(self.service, tell, session_id, watched, begun)

        self.subscribe(session_id, after, dialect, touches)
        await self._begun(session_id, begun)

    async def subscribe_to_everything(self) -> None:
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lookout = self.peer.lookout

        async def everything(tell: Tell) -> None:
            with _failing(begun):
                await overview(lookout, tell, begun)

        self.afterwards.append(self.peer.begin(EVERYTHING, everything))
        await self._begun(EVERYTHING, begun)

    async def _begun(self, session_id: str, begun: asyncio.Future[None]) -> None:
        """Wait until nothing of a subscription is missed; raise what is in its way."""
        await asyncio.wait([begun, *self.peer.followings(session_id)], return_when=asyncio.FIRST_COMPLETED)
        if begun.done() and (fault := begun.exception()) is not None:
            self.peer.end(session_id)
            raise fault


@contextlib.contextmanager
def _failing(begun: asyncio.Future[None]) -> Generator[None]:
    try:
        yield
    except Exception as fault:
        if not begun.done():
            begun.set_exception(fault)
        raise


class Peer:
    """``send`` is ``None`` where only answers can be sent (HTTP)."""

    def __init__(
        self,
        service: Service,
        shared: Shared,
        caller: Caller,
        *,
        send: Tell | None = None,
        choice: Choice | None = None,
    ) -> None:
        self.service = service
        self.tellings = shared.tellings
        self.lookout = shared.lookout
        self.caller = caller
        self.choice = choice or Choice()
        self._send = send
        self._sending = asyncio.Lock()
        self._free = asyncio.Semaphore(CALLS)
        self._calls: set[asyncio.Task[None]] = set()
        self._followed: dict[str, set[asyncio.Task[None]]] = {}
        self.gone = asyncio.Event()

    @property
    def listens(self) -> bool:
        return self._send is not None

    def follows(self, session_id: str) -> bool:
        return session_id in self._followed

    def followings(self, session_id: str) -> set[asyncio.Task[None]]:
        return set(self._followed[session_id])

    async def receive(self, message: bytes) -> None:
        """Take one message; returns when it is under way. With too many under way it waits, and so does the client."""
        await self._free.acquire()
        self._start(self._calls, self._carry_out(message))

    async def tell(self, message: bytes) -> None:
        """Send to the client, in order. Raises ``Gone``."""
        if self._send is None or self.gone.is_set():
            raise Gone
        try:
            async with self._sending, asyncio.timeout(STALLED):
                await self._send(message)
        except Exception as fault:
            self.gone.set()
            raise Gone from fault

    def begin(self, session_id: str, *works: Work) -> Callable[[], None]:
        """Follow ``session_id``. Nothing is sent before the returned function is called."""
        if self._send is None:
            raise BadRequest(
                "notifications need a connection that stays: subscribe over WebSocket /ws or stagedoor rpc"
            )
        most = self.service.settings.limits.subscriptions
        if session_id not in self._followed and len(self._followed) >= most:
            raise TooMany(f"{most} sessions are followed already, which is this server's limit; unsubscribe from one")
        self.end(session_id)
        followed = self._followed[session_id] = set()
        answered = asyncio.Event()

        async def tell(message: bytes) -> None:
            await answered.wait()
            await self.tell(message)

        for work in works:
            self._start(followed, self._told(session_id, work, tell))
        return answered.set

    def end(self, session_id: str) -> bool:
        """Follow a session no more. False: it was not followed."""
        followed = self._followed.pop(session_id, None)
        for task in followed or ():
            task.cancel()
        return followed is not None

    async def finish(self) -> None:
        """Wait for the calls that run."""
        while self._calls:
            await asyncio.wait(self._calls)

    async def close(self) -> None:
        self.gone.set()
        tasks = [*self._calls, *(task for followed in self._followed.values() for task in followed)]
        self._followed.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self, among: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        among.add(task)
        task.add_done_callback(among.discard)

    async def _carry_out(self, message: bytes) -> None:
        from .dispatch import reply_to

        try:
            reply = await reply_to(self, message)
            with contextlib.suppress(Gone):
                if reply.body is not None:
                    await self.tell(reply.body)
                for work in reply.afterwards:
                    work()
        finally:
            self._free.release()

    async def _told(self, session_id: str, work: Work, tell: Tell) -> None:
        """A subscription until it ends by itself: then it makes room for another."""
        try:
            await work(tell)
        except Gone:
            pass
        except StagedoorError as fault:
            await _ended(tell, session_id, str(fault))
        except Exception:
            _LOG.exception("a subscription broke", extra={"session": session_id})
            await _ended(tell, session_id, "something went wrong in Stagedoor itself; subscribe again")
        finally:
            mine = asyncio.current_task()
            followed = self._followed.get(session_id)
            if followed is not None and mine in followed and len(followed) == 1:
                del self._followed[session_id]


async def _ended(tell: Tell, session_id: str, why: str) -> None:
    said = notification("subscription_ended", {"session_id": session_id, "reason": "fault", "message": why})
    with contextlib.suppress(Gone):
        await tell(said)
