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
        self._unclaimed: dict[str, list[Pair]] = {}
        self._ended: Pair | None = None

    async def open(self, thread_id: str) -> Relay[Pair]:
        """A relay for this thread, with what it has said already."""
        relay: Relay[Pair] = Relay()
        self._relays[thread_id] = relay
        for known in [key for key in self._unclaimed if self._conversations.root(key) == thread_id]:
            await relay.publish(self._unclaimed.pop(known))
        if self._ended is not None:
            await relay.publish([self._ended])
            relay.close()
        return relay

    def close(self, thread_id: str) -> None:
        if (relay := self._relays.pop(thread_id, None)) is not None:
            relay.close()

    async def publish(self, items: Iterable[Pair]) -> None:
        sorted_out: dict[str, list[Pair]] = {}
        for pair in items:
            for thread_id in self._addressees(pair):
                sorted_out.setdefault(thread_id, []).append(pair)
            if isinstance(pair[1], Exited):
                self._ended = pair
        for thread_id, pairs in sorted_out.items():
            relay = self._relays.get(thread_id)
            if relay is None:
                self._unclaimed.setdefault(thread_id, []).extend(pairs)
            else:
                waiting = [key for key in self._unclaimed if self._conversations.root(key) == thread_id]
                earlier = [pair for key in waiting for pair in self._unclaimed.pop(key)]
                await relay.publish([*earlier, *pairs])
        if self._ended is not None:
            for relay in self._relays.values():
                relay.close()

    def _addressees(self, pair: Pair) -> list[str]:
        thread_id = thread_of(pair)
        if thread_id is None:
            return list(self._relays)
        root = self._conversations.root(thread_id)
        if root not in self._relays and len(self._relays) == 1 and root == thread_id and not self._expected(pair):
            return list(self._relays)  # a sub-agent that has not been introduced: there is only one it can belong to
        return [root]

    def _expected(self, pair: Pair) -> bool:
        return isinstance(pair[1], Replied)


def thread_of(pair: Pair) -> str | None:
    """The thread an event is about, where it is about one."""
    raw, event = pair
    if isinstance(event, Replied):
        return event.result.thread.id if isinstance(event.result, ThreadResponse) else None
    if isinstance(event, Unrecognized):
        try:
            return _ADDRESSED.decode(raw).params.thread_id
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
    return cast("str | None", getattr(event, "thread_id", None)) or None
