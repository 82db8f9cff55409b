"""``Idempotency-Key``: the same key with the same request gives the same answer, and is carried out once.

Before the verb runs, the key is stored; after it, the answer. Two requests at the same time wait for each other. When
the server died in between, what the verb created is looked up by the ids that follow from the key (``identity``): if it
is there, it is the answer; if not, it never happened and is carried out now.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from stagedoor.service.identity import ids_from
from stagedoor.service.ledger import ReplyRows
from stagedoor.service.views import IdempotentReply

from ..problems import InvalidField, RefusedRequest

HEADER = "idempotency-key"
_STARTED = 0
_NOT_STORED = -1
_TRANSIENT = frozenset({401, 403, 408, 421, 429})
_KEY = re.compile(r"[\x21-\x7e]{1,255}\Z")


class RestReply(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    replayed: bool = False


Work: TypeAlias = Callable[[], Awaitable[RestReply]]
Recall: TypeAlias = Callable[[], Awaitable[RestReply | None]]


def checked_key(values: Sequence[str]) -> str:
    if len(values) != 1:
        raise InvalidField("Idempotency-Key was sent more than once; send one", field=HEADER)
    if not _KEY.match(values[0]):
        raise InvalidField("Idempotency-Key must have 1 to 255 visible ASCII characters", field=HEADER)
    return values[0]


def is_final(status: int) -> bool:
    """Whether the same request would be answered so again; else it is carried out when it comes again."""
    return status < 500 and status not in _TRANSIENT


def fingerprint(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


class IdempotencyKeys:
    """Carries out each key once."""

    def __init__(self, rows: ReplyRows, now: Callable[[], int]) -> None:
        self._rows = rows
        self._now = now
        self._busy: dict[str, asyncio.Event] = {}

    async def carry_out(self, key: str, request_hash: str, work: Work, recall: Recall | None) -> RestReply:
        """``key`` holds the caller too: nobody gets the answers of another."""
        while (busy := self._busy.get(key)) is not None:
            await busy.wait()
        finished = self._busy[key] = asyncio.Event()
        try:
            return await self._first(key, request_hash, work, recall)
        finally:
            del self._busy[key]
            finished.set()

    async def _first(self, key: str, request_hash: str, work: Work, recall: Recall | None) -> RestReply:
        done = await self._rows.get(key)
        if done is not None and done.status != _NOT_STORED:
            if done.fingerprint != request_hash:
                raise RefusedRequest("key-reused", "this Idempotency-Key was used for another request; use a new one")
            if done.status != _STARTED:
                return RestReply(done.status, done.body, replayed=True)
            earlier = await self._recalled(key, recall)
            if earlier is not None:
                return await self._store(key, request_hash, earlier)
        else:
            await self._rows.save(self._row(key, request_hash, _STARTED, b""))
        with ids_from(key):
            reply = await work()
        return await self._store(key, request_hash, reply)

    async def _recalled(self, key: str, recall: Recall | None) -> RestReply | None:
        if recall is None:
            raise RefusedRequest(
                "unknown-outcome",
                "the server stopped during this request; check whether it was carried out, then use a new key",
            )
        with ids_from(key):
            return await recall()

    async def _store(self, key: str, request_hash: str, reply: RestReply) -> RestReply:
        final = is_final(reply.status)
        row = self._row(key, request_hash, reply.status if final else _NOT_STORED, reply.body if final else b"")
        await self._rows.save(row)
        return reply

    def _row(self, key: str, request_hash: str, status: int, body: bytes) -> IdempotentReply:
        return IdempotentReply(key=key, fingerprint=request_hash, status=status, body=body, at=self._now())
