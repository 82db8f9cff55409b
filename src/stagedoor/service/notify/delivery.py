"""What goes out to the receivers of the configuration: nobody waits for it, and no receiver waits for another.

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
WORTH_RETRYING = frozenset({408, 425, 429, 500, 502, 503, 504})


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds for one try, until the second one (each later one takes ``factor`` times that), and for all of them."""

    answer: float = 10.0
    first: float = 2.0
    factor: float = 4.0
    tries: int = 6
    oldest: float = 900.0


class TargetQueue:
    """Of one receiver."""

    def __init__(self, target: Target, counts: Counter[str], patience: Patience) -> None:
        self._target = target
        self._counts = counts
        self._patience = patience
        self._waiting: deque[tuple[float, OutgoingNotice]] = deque()
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._full = False

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
        while True:
            while self._waiting:
                since, notice = self._waiting.popleft()
                await self._deliver(since, notice)
            self._full = False
            self._empty.set()
            self._more.clear()
            await self._more.wait()

    async def emptied(self) -> None:
        await self._empty.wait()

    async def _deliver(self, since: float, notice: OutgoingNotice) -> None:
        patience = self._patience
        pause, why, tries = patience.first, "", 0
        while True:
            tries += 1
            request = self._target.post(notice, time.time())
            try:
                status = await post(request.url, request.headers, request.body, seconds=patience.answer)
            except ConnectionLost as fault:
                why = str(fault)
            else:
                if 200 <= status < 300:
                    self._counts["notices sent"] += 1
                    return
                why = f"it answered {status}"
                if status not in WORTH_RETRYING:
                    break
            if tries >= patience.tries or time.monotonic() + pause - since > patience.oldest:
                break
            await asyncio.sleep(pause)
            pause *= patience.factor
        self._counts["notices failed"] += 1
        _log.warning("a notification was not delivered: %s", why, extra={"target": self._target.name, "tries": tries})


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
        targets: list[Target] = [
            *(
                WebhookTarget(f"webhook {number}", url, settings.webhook_secret)
                for number, url in enumerate(settings.webhooks, 1)
            ),
            *(NtfyTarget(f"ntfy {number}", url, settings.ntfy_token) for number, url in enumerate(settings.ntfy, 1)),
        ]
        self._queues = [TargetQueue(target, counts, patience or Patience()) for target in targets]
        self._on = frozenset(settings.notify_on)
        self._content = settings.notify_content
        self._now = now
        self._tasks = TaskOwner()
        self._failed: dict[str, int] = {}
        """Open sessions → the turn whose failure was announced: their end says nothing new."""

    @property
    def targets(self) -> int:
        return len(self._queues)

    def start(self) -> None:
        for queue in self._queues:
            self._tasks.start(queue.run())

    async def stop(self) -> None:
        """What waits has a moment to go out."""
        if len(self._tasks):
            try:
                async with asyncio.timeout(FLUSH_WITHIN):
                    for queue in self._queues:
                        await queue.emptied()
            except TimeoutError:
                _log.warning("notifications were still waiting when the server stopped")
        await self._tasks.close()

    def announce(self, view: SessionView, events: Sequence[Event]) -> None:
        """Events that are stored, and their session after them."""
        if not self._queues:
            return
        for event in events:
            occasion = occasion_of(view, event)
            before = self._failed.pop(view.id, -1) if isinstance(event, Done) else -1
            if occasion == "failed" and not isinstance(event, Done):
                self._failed[view.id] = event.turn
            if occasion is not None and occasion in self._on and before != event.turn:
                self._send(view, event, occasion)

    def _send(self, view: SessionView, event: Event, occasion: Occasion) -> None:
        content = None
        if self._content:
            content = NoticeContent(session=view.id, agent=view.agent, title=view.title, text=text_of(view, event))
        notice = OutgoingNotice(
            id=f"msg_{uuid.uuid4().hex}",
            kind=occasion,
            at=self._now(),
            url=link_to(self.page, view.id),
            content=content,
        )
        for queue in self._queues:
            queue.put(notice)
