"""What turns used, and its sums kept as rows: a question about a year reads some rows per day, however many turns.

``used`` holds, for each quarter of an hour (``slot``: no clock on earth is set otherwise) and each agent, project and
model, the sums of the turns that ended then; those of all under ``dim='all'``. A session that had several turns must
count once, which sums of sums would lose. So turns are told apart by the slot of the turn *before* them in their
session (``prev``, -1 for none): of the turns in any time and of any key, exactly one per session has its ``prev``
before that time. Of models it is the turn before with the same model (``prev_same_model``).
"""

from __future__ import annotations

import sqlite3
from datetime import date
from typing import Any

from stagedoor.unified.events import Usage

from ..views import By, TurnUsage, UsageSum

SLOT = 900_000
DAY = 86_400_000
FOREVER = 2**60 // SLOT * SLOT
USED = Usage.__struct_fields__
_USED = ", ".join(USED)
_SUMS = ", ".join(f"sum({name})" for name in USED)
_FIRST_DAY = date(1970, 1, 1).toordinal()
_BIAS = 4
"""Days: a time that an offset puts before 1970 must not be rounded towards it."""
_PUT = f"INSERT INTO turns VALUES({','.join('?' * (8 + len(USED)))})"
_ROW = f"({','.join('?' * (5 + len(USED)))})"
_ADD = (
    f"INSERT INTO used VALUES{','.join([_ROW] * 4)}"
    " ON CONFLICT DO UPDATE SET turns=turns+1, cost_usd=CASE WHEN excluded.cost_usd IS NULL THEN cost_usd"
    " ELSE coalesce(cost_usd, 0.0)+excluded.cost_usd END, "
    + ", ".join(f"{name}={name}+excluded.{name}" for name in USED if name != "cost_usd")
)
_SLOT_OF_PREV = f"CASE WHEN prev<0 THEN -1 ELSE prev/{SLOT} END"
_SUM_UP = f"""
INSERT INTO used SELECT dim, slot, key, {_SLOT_OF_PREV}, count(*), {_SUMS} FROM (
  SELECT 'all' AS dim, at/{SLOT} AS slot, '' AS key, prev, {_USED} FROM turns WHERE at>=:first AND at<:end
  UNION ALL SELECT 'agent', at/{SLOT}, agent, prev, {_USED} FROM turns WHERE at>=:first AND at<:end
  UNION ALL SELECT 'project', at/{SLOT}, project, prev, {_USED} FROM turns WHERE at>=:first AND at<:end
  UNION ALL SELECT 'model', at/{SLOT}, model, prev_same_model, {_USED} FROM turns WHERE at>=:first AND at<:end
) GROUP BY 1, 2, 3, 4
"""
_CHAIN = """
UPDATE turns SET prev=chain.prev, prev_same_model=chain.prev_same_model FROM (
  SELECT turn, coalesce(lag(at) OVER (ORDER BY at, turn), -1) AS prev,
    coalesce(lag(at) OVER (PARTITION BY model ORDER BY at, turn), -1) AS prev_same_model
  FROM turns WHERE session=:session
) AS chain WHERE turns.session=:session AND turns.turn=chain.turn
"""


def put_turn(db: sqlite3.Connection, turn: TurnUsage) -> None:
    last = db.execute(
        "SELECT at, model FROM turns WHERE session=? ORDER BY at DESC, turn DESC LIMIT 1", (turn.session_id,)
    ).fetchone()
    again = "SELECT 1 FROM turns WHERE session=? AND turn=?"
    prev = prev_same_model = -1
    if last is not None:
        if last[0] > turn.at or db.execute(again, (turn.session_id, turn.turn)).fetchone():
            _put_between(db, turn)
            return
        prev = prev_same_model = last[0]
        if last[1] != turn.model:
            same = "SELECT coalesce(max(at), -1) FROM turns WHERE session=? AND model=?"
            prev_same_model = db.execute(same, (turn.session_id, turn.model)).fetchone()[0]
    _insert(db, turn, prev, prev_same_model)
    used = (1, *(getattr(turn.usage, name) for name in USED))
    slot = turn.at // SLOT
    values: list[Any] = []
    for dim, key, before in (
        ("all", "", prev),
        ("agent", turn.agent, prev),
        ("project", turn.project, prev),
        ("model", turn.model, prev_same_model),
    ):
        values += (dim, slot, key, before // SLOT, *used)  # -1 // SLOT is -1
    db.execute(_ADD, values)


def _put_between(db: sqlite3.Connection, turn: TurnUsage) -> None:
    """One that is put again, or that comes late: the sums of every slot its session had a part in are made anew."""
    slots = {turn.at // SLOT}
    mine = "SELECT DISTINCT at FROM turns WHERE session=?"
    slots.update(at // SLOT for (at,) in db.execute(mine, (turn.session_id,)))
    db.execute("DELETE FROM turns WHERE session=? AND turn=?", (turn.session_id, turn.turn))
    _insert(db, turn, -1, -1)
    db.execute(_CHAIN, {"session": turn.session_id})
    for slot in slots:
        db.execute("DELETE FROM used WHERE dim IN ('all', 'agent', 'project', 'model') AND slot=?", (slot,))
        db.execute(_SUM_UP, {"first": slot * SLOT, "end": (slot + 1) * SLOT})


def _insert(db: sqlite3.Connection, turn: TurnUsage, prev: int, prev_same_model: int) -> None:
    names = (turn.agent, turn.project, turn.model)
    used = (getattr(turn.usage, name) for name in USED)
    db.execute(_PUT, (turn.session_id, turn.turn, turn.at, prev, prev_same_model, *names, *used))


def sums(db: sqlite3.Connection, by: By | None, since: int, until: int | None, offset_minutes: int) -> list[UsageSum]:
    """Whole slots from their sums; what is left at both ends, and what must be told apart there, turn by turn."""
    since = max(since, 0)
    until = FOREVER if until is None else min(until, FOREVER)
    shift = offset_minutes * 60_000 if by == "day" else 0
    begin = -(-since // SLOT)
    end = max(until // SLOT, begin)
    if by == "session" or shift % SLOT:
        begin = end = FOREVER // SLOT
    whole, whole_end = min(begin * SLOT, until), min(end * SLOT, until)
    cut = since // SLOT if since % SLOT and begin < end else -2
    values = {
        "dim": "all" if by in (None, "day") else by, "since": since, "until": until, "shift": shift + _BIAS * DAY,
        "begin": begin, "end": end, "whole": whole, "whole_end": whole_end, "cut": cut,
        "cut_from": cut * SLOT, "cut_to": (cut + 1) * SLOT,
    }  # fmt: skip
    prev = "prev_same_model" if by == "model" else "prev"
    if by == "day":
        slot_key, turn_key = f"(slot*{SLOT}+:shift)/{DAY}", f"(at+:shift)/{DAY}"
        slot_new = f"prev<max(:begin, ({slot_key}*{DAY}-:shift)/{SLOT})"
        turn_new = f"prev<max(:since, {turn_key}*{DAY}-:shift)"
    else:
        slot_key, turn_key = "key", "''" if by is None else by
        slot_new, turn_new = "prev<:begin", f"{prev}<:since"
    turns = f"SELECT {turn_key} AS key, {turn_new} AS new, 1 AS turns, {_USED} FROM turns"
    parts = [
        f"{turns} WHERE at>=:since AND at<:whole",
        f"{turns} WHERE at>=:whole_end AND at<:until",
        f"SELECT {slot_key} AS key, turns*({slot_new}) AS new, turns, {_USED} FROM used"
        " WHERE dim=:dim AND slot>=:begin AND slot<:end AND prev<>:cut",
        f"{turns} WHERE {prev}>=:cut_from AND {prev}<:cut_to AND at>=:whole AND at<:whole_end",
    ]
    chosen = parts[:2] if begin >= end else parts[:3] if cut < 0 else parts
    sql = f"SELECT key, sum(new), sum(turns), {_SUMS} FROM ({' UNION ALL '.join(chosen)}) GROUP BY key"
    return [
        UsageSum(
            key=date.fromordinal(_FIRST_DAY - _BIAS + key).isoformat() if by == "day" else key,
            sessions=sessions,
            turns=count,
            usage=Usage(**dict(zip(USED, used, strict=True))),
        )
        for key, sessions, count, *used in db.execute(sql, values)
    ]
