"""Keeps the threads of one app-server apart: each thread's readers get its own events and those of its sub-agents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, cast

import msgspec

from ...transports.launch import Exited
from ...transports.relay import Relay
from ...wire.shapes import Unrecognized
from .conversations import Conversations
from .notifications import AppEvent
from .threads import Replied, ThreadResponse

Pair: TypeAlias = tuple[bytes, AppEvent]


class _Params(msgspec.Struct, frozen=True, rename="camel"):
    thread_id: str | None = None


class _Addressed(msgspec.Struct, frozen=True):
    params: _Params = _Params()


_ADDRESSED = msgspec.json.Decoder(_Addressed)


class Switchboard:
    """Takes all pairs of the pipe. What names no thread goes to every thread; what nobody knows yet is kept."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations
        self._relays: dict[str, Relay[Pair]] = {}
        self._closed: set[str] = set()
        self._unclaimed: dict[str, list[Pair]] = {}
        self._early: list[Pair] = []  # about no thread, said before there was any
        self._ended: Pair | None = None
        self.expecting = 0
        """How many threads are about to be opened: an unknown one may be one of them."""

    async def open(self, thread_id: str) -> Relay[Pair]:
        """A relay for this thread, with what it has said already."""
        relay: Relay[Pair] = Relay()
        self._closed.discard(thread_id)
        self._relays[thread_id] = relay
        early, self._early = self._early, []
        await relay.publish([*early, *self._claimed(thread_id)])
        if self._ended is not None:
            await relay.publish([self._ended])
            relay.close()
        return relay

    def close(self, thread_id: str) -> None:
        if (relay := self._relays.pop(thread_id, None)) is not None:
            relay.close()
            self._closed.add(thread_id)

    def close_all(self) -> None:
        """Nothing more is waited for: what still comes is added, and readers end behind it."""
        for relay in self._relays.values():
            relay.close()

    def home(self, thread_id: str) -> str:
        """Which open thread hears of ``thread_id``: its family's head, else the only one it can belong to."""
        root = self._conversations.root(thread_id)
        if root not in self._relays and root not in self._closed and len(self._relays) == 1 and not self.expecting:
            return next(iter(self._relays))  # a sub-agent that has not been introduced
        return root

    async def publish(self, items: Iterable[Pair]) -> None:
        sorted_out: dict[str, list[Pair]] = {}
        for pair in items:
            thread_id = thread_of(pair)
            if thread_id is not None:
                sorted_out.setdefault(self.home(thread_id), []).append(pair)
                continue
            for each in self._relays:
                sorted_out.setdefault(each, []).append(pair)
            if isinstance(pair[1], Exited):
                self._ended = pair
            elif not self._relays:
                self._early.append(pair)
        for thread_id, pairs in sorted_out.items():
            if (relay := self._relays.get(thread_id)) is not None:
                await relay.publish([*self._claimed(thread_id), *pairs])
            elif thread_id not in self._closed:
                self._unclaimed.setdefault(thread_id, []).extend(pairs)
        if self._ended is not None:
            self.close_all()

    def _claimed(self, thread_id: str) -> list[Pair]:
        """What was kept for the thread and for those that turned out to be its sub-agents."""
        known = [key for key in self._unclaimed if self.home(key) == thread_id]
        return [pair for key in known for pair in self._unclaimed.pop(key)]


def thread_of(pair: Pair) -> str | None:
    """The thread an event is about, where it is about one."""
    raw, event = pair
    if isinstance(event, Replied) and isinstance(event.result, ThreadResponse):
        return event.result.thread.id
    if isinstance(event, Unrecognized):
        try:
            return _ADDRESSED.decode(raw).params.thread_id
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
    return cast("str | None", getattr(event, "thread_id", None)) or None
