"""``Idempotency-Key``: the same key with the same request gives the same answer, and is carried out once.

Before the verb runs, the key is written down; after it, the answer. Two requests at the same time wait for each other.
When the server died in between, what the verb made is looked for by the ids that follow from the key (``identity``):
found, it is the answer; not found, it never happened and is carried out now.
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

from ..problems import InvalidField, Refused

HEADER = "idempotency-key"
_BEGUN = 0
_NOT_KEPT = -1
_TRANSIENT = frozenset({401, 403, 408, 421, 429})
_KEY = re.compile(r"[\x21-\x7e]{1,255}\Z")


class Reply(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    replayed: bool = False


Work: TypeAlias = Callable[[], Awaitable[Reply]]
Recall: TypeAlias = Callable[[], Awaitable[Reply | None]]


def checked_key(given: Sequence[str]) -> str:
    if len(given) != 1:
        raise InvalidField("Idempotency-Key is given more than once; give one", field=HEADER)
    if not _KEY.match(given[0]):
        raise InvalidField("Idempotency-Key takes 1 to 255 visible ASCII characters", field=HEADER)
    return given[0]


def fingerprint(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


class Once:
    def __init__(self, rows: ReplyRows, now: Callable[[], int]) -> None:
        self._rows = rows
        self._now = now
        self._busy: dict[str, asyncio.Event] = {}

    async def carry_out(self, key: str, print_: str, work: Work, recall: Recall | None) -> Reply:
        """``key`` names the caller too: nobody is told another's answers."""
        while (busy := self._busy.get(key)) is not None:
            await busy.wait()
        over = self._busy[key] = asyncio.Event()
        try:
            return await self._first(key, print_, work, recall)
        finally:
            del self._busy[key]
            over.set()

    async def _first(self, key: str, print_: str, work: Work, recall: Recall | None) -> Reply:
        done = await self._rows.get(key)
        if done is not None and done.status != _NOT_KEPT:
            if done.fingerprint != print_:
                raise Refused("key-reused", "this Idempotency-Key came with another request before; take a new one")
            if done.status != _BEGUN:
                return Reply(done.status, done.body, replayed=True)
            found = await self._recalled(key, recall)
            if found is not None:
                return await self._keep(key, print_, found)
        else:
            await self._rows.save(self._row(key, print_, _BEGUN, b""))
        with ids_from(key):
            reply = await work()
        return await self._keep(key, print_, reply)

    async def _recalled(self, key: str, recall: Recall | None) -> Reply | None:
        if recall is None:
            raise Refused(
                "unknown-outcome",
                "the server stopped while it worked on this; look whether it was carried out, then take a new key",
            )
        with ids_from(key):
            return await recall()

    async def _keep(self, key: str, print_: str, reply: Reply) -> Reply:
        kept = reply.status < 500 and reply.status not in _TRANSIENT
        row = self._row(key, print_, reply.status if kept else _NOT_KEPT, reply.body if kept else b"")
        await self._rows.save(row)
        return reply

    def _row(self, key: str, print_: str, status: int, body: bytes) -> IdempotentReply:
        return IdempotentReply(key=key, fingerprint=print_, status=status, body=body, at=self._now())
