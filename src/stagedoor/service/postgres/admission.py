"""Codes that count once, at every door; and the workers that were let in with one.

A worker's role can neither read nor write the codes, and cannot write who is enrolled: it can only call ``enrol``,
which runs with the rights of the owner of the tables and looks at the code itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..views import OneTimeCode
from .selection import text_of
from .writer import EngineWriter

if TYPE_CHECKING:
    from .connections import EngineConnection

MOST_CODES = 16
"""That count at the same time, of devices: the newest."""
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_PUT = f"INSERT INTO codes VALUES($1, $2, $3, {_NOW} + $4, $5) ON CONFLICT DO NOTHING"
_TRIM = f"""
DELETE FROM codes WHERE until<={_NOW} OR digest IN (
  SELECT digest FROM codes WHERE scope<>'worker' ORDER BY until DESC OFFSET {MOST_CODES})
"""
_TAKE = f"DELETE FROM codes WHERE digest=$1 AND scope<>'worker' AND until>{_NOW} RETURNING body"


class PostgresAdmission:
    def __init__(self, writer: EngineWriter) -> None:
        self._writer = writer

    async def put_code(self, code: OneTimeCode, seconds: float) -> None:
        body = msgspec.json.encode(code)

        async def put(db: EngineConnection) -> None:
            await db.execute(_PUT, code.digest, code.scope, text_of(code.by), int(seconds * 1000), body)
            await db.execute(_TRIM)

        await self._writer.do(put, _nothing)

    async def take_code(self, digest: bytes) -> OneTimeCode | None:
        found: list[bytes] = []

        async def put(db: EngineConnection) -> None:
            body = await db.fetchval(_TAKE, digest)
            found[:] = [] if body is None else [body]

        await self._writer.do(put, _nothing)
        return msgspec.json.decode(found[0], type=OneTimeCode) if found else None

    async def void_codes(self, by: str) -> None:
        await self._writer.do(lambda db: db.execute("DELETE FROM codes WHERE made_by=$1", text_of(by)), _nothing)

    async def enrol(self, worker_id: str, code: str) -> bool:
        values = text_of(worker_id), text_of(code)

        async def ask(db: EngineConnection) -> bool:
            sql = "SELECT EXISTS(SELECT FROM enrolled WHERE worker=$1 AND NOT revoked)"
            return bool(await db.fetchval(sql, values[0]))

        return bool(await self._writer.do(lambda db: db.fetchval("SELECT enrol($1, $2)", *values), ask))


async def _nothing(db: EngineConnection) -> Any:
    return None
