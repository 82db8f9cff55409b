"""What is to be told to receivers, and who tells it to which of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from stagedoor.engine import milliseconds

from ..views import NoticeRow

_CLAIM = """
INSERT INTO deliveries SELECT ?1,?2,?3,?4,0 WHERE EXISTS(SELECT 1 FROM notices WHERE id=?1)
ON CONFLICT(notice, receiver) DO UPDATE SET holder=excluded.holder, until=excluded.until
WHERE done=0 AND until<=?5 RETURNING 1
"""


def add_notice(db: sqlite3.Connection, notice: NoticeRow) -> None:
    values = (notice.id, notice.session_id, notice.at, notice.body)
    db.execute("INSERT OR IGNORE INTO notices VALUES(?,?,?,?)", values)


def remove_notices(db: sqlite3.Connection, test: str, value: object) -> None:
    db.execute(f"DELETE FROM deliveries WHERE notice IN (SELECT id FROM notices WHERE {test})", (value,))
    db.execute(f"DELETE FROM notices WHERE {test}", (value,))


def notices(db: sqlite3.Connection, since: int) -> list[NoticeRow]:
    found = db.execute("SELECT id, session, at, body FROM notices WHERE at>=? ORDER BY at, id", (since,)).fetchall()
    taken = "SELECT receiver FROM deliveries WHERE notice=? AND (done=1 OR until>?) ORDER BY receiver"
    now = milliseconds()
    return [
        NoticeRow(id=name, session_id=session, at=at, body=body, taken=tuple(one for (one,) in receivers))
        for name, session, at, body in found
        for receivers in (db.execute(taken, (name, now)).fetchall(),)
    ]


def claim(
    db: sqlite3.Connection, holder: str, deliveries: Collection[tuple[str, str]], seconds: float
) -> set[tuple[str, str]]:
    now = milliseconds()
    until = now + int(seconds * 1000)
    db.execute("UPDATE deliveries SET until=? WHERE holder=? AND done=0", (until, holder))
    return {
        (notice, receiver)
        for notice, receiver in sorted(deliveries)
        if db.execute(_CLAIM, (notice, receiver, holder, until, now)).fetchall()
    }


def finish(db: sqlite3.Connection, deliveries: Collection[tuple[str, str]]) -> None:
    db.executemany("UPDATE deliveries SET done=1 WHERE notice=? AND receiver=?", sorted(deliveries))
