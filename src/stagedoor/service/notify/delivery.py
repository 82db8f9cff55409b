"""What goes out to the receivers: nobody waits for it, and no receiver waits for another.

Each has a queue of its own with a bound, and one task that empties it. A receiver that is away is tried again, later
each time, for a while; what it then did not take, and what found no room, is counted and said in the log. Nothing
survives a restart: a notice that comes hours late is worse than none, and the page shows what it spoke of.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from stagedoor.engine import milliseconds
from stagedoor.errors import ConfigError, ConnectionLost
from stagedoor.transports.posting import post
from stagedoor.transports.tasks import TaskOwner
from stagedoor.unified.events import Done, Event

from ..config.settings import Settings
from ..views import SessionView
from .notices import (
    NoticeContent,
    NtfyTarget,
    Occasion,
    OutgoingNotice,
    Target,
    WebhookTarget,
    link_to,
    occasion_of,
    text_of,
)
from .signing import secret_key

_log = logging.getLogger("stagedoor.notify")
MOST_WAITING = 100
"""Notices that wait for one receiver; a new one then takes the place of the oldest."""
FLUSH_WITHIN = 2.0
"""Seconds that are left for what waits when the server stops."""
GONE = (404, 410)
"""How a push service says that a browser has unsubscribed."""
WORTH_RETRYING = frozenset({408, 425, 429, 500, 502, 503, 504})


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds for one try, until the second one (each later one takes ``factor`` times that), and for all of them."""

    answer: float = 10.0
    first: float = 2.0
    factor: float = 4.0
    tries: int = 6
    oldest: float = 900.0


class LastDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """How the last notice fared; ``problem`` is empty where it arrived."""

    at: int
    """Milliseconds since 1970."""
    problem: str = ""


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver, and what it wants to be told."""

    id: str
    target: Target
    on: frozenset[str]
    content: bool = False


class TargetQueue:
    """Of one receiver."""

    def __init__(
        self, target: Target, counts: Counter[str], patience: Patience, on_closed: Callable[[], None] | None = None
    ) -> None:
        self.last: LastDelivery | None = None
        self._target = target
        self._counts = counts
        self._patience = patience
        self._on_closed = on_closed
        self._waiting: deque[tuple[float, OutgoingNotice]] = deque()
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._full = False
        self._closed = False

    def put(self, notice: OutgoingNotice) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self._counts["notices dropped"] += 1
            if not self._full:  # once for each time that it fills up
                _log.warning("too many notifications wait; the oldest are dropped", extra={"target": self._target.name})
            self._full = True
        self._waiting.append((time.monotonic(), notice))
        self._empty.clear()
        self._more.set()

    async def run(self) -> None:
        """Until it is cancelled, or the receiver is no more."""
        while not self._closed:
            while self._waiting and not self._closed:
                since, notice = self._waiting.popleft()
                await self._deliver(since, notice)
            self._full = False
            self._empty.set()
            self._more.clear()
            if not self._closed:
                await self._more.wait()

    async def emptied(self) -> None:
        await self._empty.wait()

    async def attempt(self, notice: OutgoingNotice) -> tuple[str, bool]:
        """One try: what went wrong (nothing: it arrived), and whether another one may help."""
        problem, again = await self._posted(notice)
        self.last = LastDelivery(at=milliseconds(), problem=problem)
        return problem, again

    async def _posted(self, notice: OutgoingNotice) -> tuple[str, bool]:
        request = self._target.post(notice, time.time())
        try:
            status = await post(
                request.url,
                request.headers,
                request.body,
                seconds=self._patience.answer,
                public_only=request.public_only,
            )
        except ConnectionLost as fault:
            return str(fault), True
        if 200 <= status < 300:
            return "", False
        if status in GONE and self._on_closed is not None:
            self._closed = True
            self._on_closed()
            return "the device does not take notifications any more", False
        return f"it answered {status}", status in WORTH_RETRYING

    async def _deliver(self, since: float, notice: OutgoingNotice) -> None:
        patience = self._patience
        pause, tries = patience.first, 1
        problem, again = await self.attempt(notice)
        while again and tries < patience.tries and time.monotonic() + pause - since <= patience.oldest:
            await asyncio.sleep(pause)
            pause *= patience.factor
            tries += 1
            problem, again = await self.attempt(notice)
        if not problem:
            self._counts["notices sent"] += 1
            return
        self._counts["notices failed"] += 1
        extra = {"target": self._target.name, "tries": tries}
        _log.warning("a notification was not delivered: %s", problem, extra=extra)


class Notifications:
    """``service.notifications``: what happens to sessions goes in by ``announce``, which never waits."""

    def __init__(
        self,
        settings: Settings,
        counts: Counter[str],
        *,
        now: Callable[[], int],
        patience: Patience | None = None,
    ) -> None:
        self.page = ""
        """Where the page is for people elsewhere; set by whoever listens."""
        if settings.webhooks:
            try:
                secret_key(settings.webhook_secret)
            except ValueError:
                raise ConfigError("webhooks need a webhook_secret: whsec_ and base64 (docs/notifications.md)") from None
        self._counts = counts
        self._patience = patience or Patience()
        self._now = now
        self._tasks = TaskOwner()
        self._running = False
        self._places: dict[str, tuple[Destination, TargetQueue]] = {}
        self._failed: dict[str, int] = {}
        """Open sessions → the turn whose failure was announced: their end says nothing new."""
        targets: list[Target] = [
            *(
                WebhookTarget(f"webhook {number}", url, settings.webhook_secret)
                for number, url in enumerate(settings.webhooks, 1)
            ),
            *(NtfyTarget(f"ntfy {number}", url, settings.ntfy_token) for number, url in enumerate(settings.ntfy, 1)),
        ]
        on, content = frozenset(settings.notify_on), settings.notify_content
        for target in targets:
            self.add(Destination(id=target.name, target=target, on=on, content=content))

    def add(self, destination: Destination, on_closed: Callable[[], None] | None = None) -> None:
        """In place of the one with the same id. ``on_closed`` is called when a receiver says that it is no more."""
        queue = TargetQueue(destination.target, self._counts, self._patience, on_closed)
        self._places[destination.id] = (destination, queue)
        if self._running:
            self._tasks.start(queue.run(), key=destination.id)

    def remove(self, destination_id: str) -> None:
        """With all that waits for it."""
        self._places.pop(destination_id, None)
        self._tasks.cancel(destination_id)

    def destinations(self) -> list[tuple[Destination, LastDelivery | None]]:
        return [(destination, queue.last) for destination, queue in self._places.values()]

    def start(self) -> None:
        self._running = True
        for place, (_, queue) in self._places.items():
            self._tasks.start(queue.run(), key=place)

    async def stop(self) -> None:
        """What waits has a moment to go out."""
        self._running = False
        if len(self._tasks):
            try:
                async with asyncio.timeout(FLUSH_WITHIN):
                    for _, queue in [*self._places.values()]:
                        await queue.emptied()
            except TimeoutError:
                _log.warning("notifications were still waiting when the server stopped")
        await self._tasks.close()

    async def test(self, destination_id: str) -> LastDelivery:
        """One notice that nothing has happened for, tried once. Raises ``KeyError``."""
        _, queue = self._places[destination_id]
        url = f"{self.page}/" if self.page else ""
        await queue.attempt(OutgoingNotice(id=f"msg_{uuid.uuid4().hex}", kind="test", at=self._now(), url=url))
        assert queue.last is not None
        return queue.last

    def announce(self, view: SessionView, events: Sequence[Event]) -> None:
        """Events that are stored, and their session after them."""
        if not self._places:
            return
        for event in events:
            occasion = occasion_of(view, event)
            before = self._failed.pop(view.id, -1) if isinstance(event, Done) else -1
            if occasion == "failed" and not isinstance(event, Done):
                self._failed[view.id] = event.turn
            if occasion is not None and before != event.turn:
                self._send(view, event, occasion)

    def _send(self, view: SessionView, event: Event, occasion: Occasion) -> None:
        bare = OutgoingNotice(
            id=f"msg_{uuid.uuid4().hex}",
            kind=occasion,
            at=self._now(),
            url=link_to(self.page, view.id),
            session=view.id,
        )
        about = NoticeContent(session=view.id, agent=view.agent, title=view.title, text=text_of(view, event))
        full = replace(bare, content=about)
        for destination, queue in self._places.values():
            if occasion in destination.on:
                queue.put(full if destination.content else bare)
