"""What is to be told to receivers, and who tells it to which of them. Times are those of the database: the clocks of
machines differ."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ..views import NoticeRow
from .selection import text_of

if TYPE_CHECKING:
    from .connections import EngineConnection

_NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_NOTICES = f"""
SELECT id, session, at, body, ARRAY(
  SELECT receiver FROM deliveries WHERE notice=id AND (done OR until>{_NOW}) ORDER BY receiver
) FROM notices WHERE at>=$1 ORDER BY at, id
"""
_RENEW = f"UPDATE deliveries SET until={_NOW}+$2 WHERE holder=$1 AND NOT done"
_CLAIM = f"""
INSERT INTO deliveries
SELECT claimed.notice, receiver, $1, {_NOW}+$4, false FROM unnest($2::text[], $3::text[]) AS claimed(notice, receiver)
WHERE EXISTS(SELECT FROM notices WHERE id=claimed.notice)
ON CONFLICT(notice, receiver) DO UPDATE SET holder=excluded.holder, until=excluded.until
WHERE NOT deliveries.done AND deliveries.until<={_NOW}
"""
_HELD = """
SELECT notice, receiver FROM deliveries JOIN unnest($2::text[], $3::text[]) AS claimed(notice, receiver)
USING(notice, receiver) WHERE holder=$1 AND NOT done
"""
_FINISH = """
UPDATE deliveries SET done=true FROM unnest($1::text[], $2::text[]) AS told(notice, receiver)
WHERE deliveries.notice=told.notice AND deliveries.receiver=told.receiver
"""


async def notices(db: EngineConnection, since: int) -> list[NoticeRow]:
    return [
        NoticeRow(id=name, session_id=session, at=at, body=body, taken=tuple(taken))
        for name, session, at, body, taken in await db.fetch(_NOTICES, since)
    ]


async def claim(
    db: EngineConnection, holder: str, deliveries: Collection[tuple[str, str]], seconds: float
) -> set[tuple[str, str]]:
    lease = int(seconds * 1000)
    before = await deliveries_of(db, holder, deliveries)
    await db.execute(_RENEW, text_of(holder), lease)
    await db.execute(_CLAIM, text_of(holder), *_columns(deliveries), lease)
    return await deliveries_of(db, holder, deliveries) - before


async def deliveries_of(
    db: EngineConnection, holder: str, deliveries: Collection[tuple[str, str]]
) -> set[tuple[str, str]]:
    rows = await db.fetch(_HELD, text_of(holder), *_columns(deliveries)) if deliveries else []
    return {(row[0], row[1]) for row in rows}


async def finish(db: EngineConnection, deliveries: Collection[tuple[str, str]]) -> None:
    await db.execute(_FINISH, *_columns(deliveries))


def _columns(deliveries: Collection[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """In one order, as everywhere: whoever locks several rows waits for nobody who waits for it."""
    ordered = sorted(deliveries)
    return [text_of(notice) for notice, _ in ordered], [text_of(receiver) for _, receiver in ordered]
