"""What goes out to the receivers: nobody waits for it, and no receiver waits for another.

A notice is a row of the log, written together with what it speaks of. Every process that knows receivers looks for new
ones and takes those that nobody else tells: each receiver is told by one of them. What a process had taken when it was
killed is free again after a while, and told by another, or by itself when it is back: at least once, with the same id.

Each receiver has a queue of its own with a bound, and one task that empties it. One that is away is tried again, later
each time, for a while; what it then did not take, and what found no room, is counted and said in the log. A notice that
comes hours late is worse than none, and the page shows what it spoke of: old ones are not told.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
import uuid
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec.structs import replace

from stagedoor.engine import milliseconds
from stagedoor.errors import ConfigError, ConnectionLost, StoreError
from stagedoor.transports.posting import post
from stagedoor.transports.tasks import TaskOwner
from stagedoor.unified.events import Done, Event

from ..config.settings import Settings
from ..journal import NOTICES, Journal
from ..store import Remember
from ..views import NoticeRow, SessionView
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
LEASE = 45.0
"""Seconds after which others may tell what a process has taken, unless it says that it still lives."""
LOOK_EVERY = 10.0
"""Seconds after which it looks for notices without having been rung for, and says that it lives."""
HEAD_START = 5.0
"""Seconds that a process without a page leaves to those that have one: what they send has a link."""
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
    since: int = 0
    """What happened before is not for it."""
    key: str = ""
    """By which every process knows it, where that is not its ``id``."""

    @property
    def name(self) -> str:
        return self.key or self.id


async def _nobody(notice: OutgoingNotice) -> None:
    pass


class TargetQueue:
    """Of one receiver."""

    def __init__(
        self,
        target: Target,
        counts: Counter[str],
        patience: Patience,
        on_closed: Callable[[], None] | None = None,
        on_finished: Callable[[OutgoingNotice], Awaitable[None]] = _nobody,
    ) -> None:
        self.last: LastDelivery | None = None
        self._target = target
        self._counts = counts
        self._patience = patience
        self._on_closed = on_closed
        self._on_finished = on_finished
        """Awaited with each that was told, or given up."""
        self._waiting: deque[tuple[float, OutgoingNotice]] = deque()
        self._in_delivery: tuple[float, OutgoingNotice] | None = None
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._full = False
        self._closed = False

    def put(self, notice: OutgoingNotice, since: float | None = None) -> OutgoingNotice | None:
        """Returns the one that lost its place, if one did. ``since``: when it began to wait, if that was before."""
        dropped = None
        if len(self._waiting) >= MOST_WAITING:
            _, dropped = self._waiting.popleft()
            self._counts["notices dropped"] += 1
            if not self._full:  # once for each time that it fills up
                _log.warning("too many notifications wait; the oldest are dropped", extra={"target": self._target.name})
            self._full = True
        self._waiting.append((time.monotonic() if since is None else since, notice))
        self._empty.clear()
        self._more.set()
        return dropped

    def leave(self) -> list[tuple[float, OutgoingNotice]]:
        """All that was not told, and since when it waits: it is the caller's from now on."""
        left = [*([] if self._in_delivery is None else [self._in_delivery]), *self._waiting]
        self._in_delivery = None
        self._waiting.clear()
        self._empty.set()
        return left

    async def run(self) -> None:
        """Until it is cancelled, or the receiver is no more."""
        while not self._closed:
            while self._waiting:
                since, notice = self._in_delivery = self._waiting.popleft()
                if not self._closed:  # what waits behind its last one goes nowhere
                    await self._deliver(since, notice)
                self._in_delivery = None
                await self._on_finished(notice)
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
    """``service.notifications``. ``has_page``: whether people can be led to a page of this process."""

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        counts: Counter[str],
        *,
        now: Callable[[], int],
        has_page: bool = True,
        patience: Patience | None = None,
    ) -> None:
        self.refresh: Callable[[], Awaitable[None]] | None = None
        """Awaited before anything is told: who is to be told may have been changed elsewhere."""
        self._journal = journal
        self._has_page = has_page
        self._me = uuid.uuid4().hex
        self._claimed_here: set[tuple[str, str]] = set()
        """What is in a queue here, or was."""
        self._unreadable: set[str] = set()
        """Notices that were complained of."""
        self._under_way: set[tuple[str, str]] = set()
        """Of these what is not done."""
        self._finished: set[tuple[str, str]] = set()
        """What is done, as long as the log does not say so."""
        self.page = ""
        """Where the page is for people elsewhere; set by whoever listens."""
        if settings.webhooks:
            try:
                secret_key(settings.webhook_secret)
            except ValueError:
                raise ConfigError("webhooks need a webhook_secret: whsec_ and base64 (docs/notifications.md)") from None
        self._counts = counts
        self._patience = patience or Patience()
        self.now = now
        self._tasks = TaskOwner()
        self._running = False
        self._places: dict[str, tuple[Destination, TargetQueue]] = {}
        self._failed: dict[str, int] = {}
        """Open sessions → the turn whose failure was announced: their end says nothing new."""
        targets: list[WebhookTarget | NtfyTarget] = [
            *(
                WebhookTarget(f"webhook {number}", url, settings.webhook_secret)
                for number, url in enumerate(settings.webhooks, 1)
            ),
            *(NtfyTarget(f"ntfy {number}", url, settings.ntfy_token) for number, url in enumerate(settings.ntfy, 1)),
        ]
        on, content = frozenset(settings.notify_on), settings.notify_content
        for target in targets:
            key = hashlib.sha256(f"{type(target).__name__} {target.url}".encode()).hexdigest()[:32]
            self.add(Destination(id=target.name, target=target, on=on, content=content, key=key))

    def add(self, destination: Destination, on_closed: Callable[[], None] | None = None) -> None:
        """In place of the one with the same id, whose notices it gets. ``on_closed`` is called when a receiver says
        that it is no more."""

        async def finished(notice: OutgoingNotice) -> None:
            self._settle(notice.id, destination.name)
            with contextlib.suppress(StoreError):  # tried again at the next look
                await self._flush()

        queue = TargetQueue(destination.target, self._counts, self._patience, on_closed, finished)
        before = self._places.get(destination.id)
        self._places[destination.id] = (destination, queue)
        for since, notice in before[1].leave() if before is not None else ():
            self._hand(destination.id, destination.name, notice, since)
        if self._running:
            self._tasks.start(queue.run(), key=destination.id)

    def remove(self, destination_id: str) -> None:
        """With all that waits for it: nobody else tells it either."""
        place = self._places.pop(destination_id, None)
        self._tasks.cancel(destination_id)
        if place is not None:
            destination, queue = place
            for _, notice in queue.leave():
                self._settle(notice.id, destination.name)

    def destinations(self) -> list[tuple[Destination, LastDelivery | None]]:
        return [(destination, queue.last) for destination, queue in self._places.values()]

    def start(self) -> None:
        self._running = True
        for place, (_, queue) in self._places.items():
            self._tasks.start(queue.run(), key=place)
        self._tasks.start(self._follow(), name="stagedoor notices")

    async def stop(self) -> None:
        """What waits has a moment to go out; what then still waits, others may tell at once."""
        if not self._running:
            return
        self._running = False
        with contextlib.suppress(StoreError):
            await self.look()
        if self._places:
            try:
                async with asyncio.timeout(FLUSH_WITHIN):
                    for _, queue in [*self._places.values()]:
                        await queue.emptied()
            except TimeoutError:
                _log.warning("notifications were still waiting when the server stopped")
        await self._tasks.close()
        with contextlib.suppress(StoreError):
            await self._flush()
            if self._under_way:
                await self._journal.store.claim_deliveries(self._me, (), 0.0)

    async def test(self, destination_id: str) -> LastDelivery:
        """One notice that nothing has happened for, tried once. Raises ``KeyError``."""
        _, queue = self._places[destination_id]
        url = f"{self.page}/" if self.page else ""
        await queue.attempt(OutgoingNotice(id=f"msg_{uuid.uuid4().hex}", kind="test", at=self.now(), url=url))
        assert queue.last is not None
        return queue.last

    def notices_of(self, view: SessionView, events: Sequence[Event]) -> list[NoticeRow]:
        """What is to be told of ``events``, to be written with them; ``view`` is their session after them."""
        if not self._places and not self._journal.store.shared:
            return []
        notices: list[NoticeRow] = []
        for event in events:
            occasion = occasion_of(view, event)
            before = self._failed.pop(view.id, -1) if isinstance(event, Done) else -1
            if occasion == "failed" and not isinstance(event, Done):
                self._failed[view.id] = event.turn
            if occasion is not None and before != event.turn:
                notices.append(self._notice(view, event, occasion))
        return notices

    def _notice(self, view: SessionView, event: Event, occasion: Occasion) -> NoticeRow:
        about = NoticeContent(session=view.id, agent=view.agent, title=view.title, text=text_of(view, event))
        name, at = f"msg_{uuid.uuid4().hex}", self.now()
        notice = OutgoingNotice(id=name, kind=occasion, at=at, session=view.id, content=about)
        return NoticeRow(id=name, session_id=view.id, at=at, body=msgspec.json.encode(notice))

    async def look(self) -> None:
        """Take what nobody tells, for every receiver that is known here."""
        store = self._journal.store
        if not self._places and self.refresh is None:
            await self._flush()
            return
        head_start = 0 if self._has_page else int(HEAD_START * 1000)
        now = self.now()
        rows = await store.notices(now - int(self._patience.oldest * 1000))
        known = {row.id for row in rows}
        self._claimed_here = {one for one in self._claimed_here if one[0] in known}
        self._unreadable &= known
        if rows and self.refresh is not None:
            await self.refresh()
        open_deliveries: dict[tuple[str, str], tuple[str, OutgoingNotice]] = {}
        for row in rows:
            if row.at > now - head_start:
                continue
            places = [
                destination
                for destination, _ in self._places.values()
                if row.at >= destination.since
                and destination.name not in row.taken
                and (row.id, destination.name) not in self._claimed_here
            ]
            if not places:
                continue  # most of them, mostly: they were told
            if (notice := self._read(row)) is None:
                continue
            for destination in places:
                if notice.kind in destination.on:
                    open_deliveries[row.id, destination.name] = destination.id, notice
        if open_deliveries or self._under_way:
            claimed = await store.claim_deliveries(self._me, open_deliveries, LEASE)
            for delivery in (one for one in open_deliveries if one in claimed):  # the oldest first
                self._claimed_here.add(delivery)
                self._under_way.add(delivery)
                place, notice = open_deliveries[delivery]
                self._hand(place, delivery[1], notice)
        await self._flush()

    def _read(self, row: NoticeRow) -> OutgoingNotice | None:
        """With a link to this process's page. One that a newer version wrote may be of a kind that is not known here:
        it is left to those that know it."""
        if row.id in self._unreadable:
            return None
        try:
            notice = msgspec.json.decode(row.body, type=OutgoingNotice)
        except msgspec.DecodeError as fault:
            self._unreadable.add(row.id)
            _log.warning("a notification cannot be read and is not sent from here: %s", fault)
            return None
        return replace(notice, url=link_to(self.page, row.session_id))

    async def _follow(self) -> None:
        bell = self._journal.hub.bell(NOTICES)
        try:
            while True:
                with contextlib.suppress(StoreError):  # away: what is there is found when it is back
                    await self._begin()
                    break
                await asyncio.sleep(LOOK_EVERY)
            while True:
                with contextlib.suppress(StoreError):
                    await self.look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY if self._has_page else HEAD_START):
                        await bell.rung()
        finally:
            bell.close()

    async def _begin(self) -> None:
        """Receivers of the configuration are told what happens from when they were named there first."""
        for place, (destination, queue) in [*self._places.items()]:
            if not destination.key:
                continue
            name = f"told from then on: {destination.key}"
            if (since := await self._journal.store.setting(name)) is None:
                since = str(self.now()).encode()
                await self._journal.store.write(Remember(name, since))
            self._places[place] = replace(destination, since=int(since)), queue

    def _hand(self, place: str, receiver: str, notice: OutgoingNotice, since: float | None = None) -> None:
        """To the receiver as it is now: it may have been put anew, or removed, since somebody looked."""
        destination, queue = self._places.get(place, (None, None))
        if destination is None or queue is None or notice.kind not in destination.on:
            self._settle(notice.id, receiver)
            return
        dropped = queue.put(notice if destination.content else replace(notice, content=None), since)
        if dropped is not None:
            self._settle(dropped.id, receiver)

    def _settle(self, notice_id: str, receiver: str) -> None:
        """It was told, or never will be. The log is told at the next look, if not before."""
        self._under_way.discard((notice_id, receiver))
        self._finished.add((notice_id, receiver))

    async def _flush(self) -> None:
        if finished := frozenset(self._finished):
            await self._journal.store.finish_deliveries(finished)
            self._finished -= finished
