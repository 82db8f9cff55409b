"""What turns used, and its sums kept as rows. The same tables and sums as in ``sqlite/usage.py``, which says why."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from stagedoor.unified.events import Usage

from ..views import By, TurnUsage, UsageSum
from .schema import USAGE
from .selection import text_of

if TYPE_CHECKING:
    from .connections import EngineConnection

SLOT = 900_000
DAY = 86_400_000
FOREVER = 2**60 // SLOT * SLOT
USED = Usage.__struct_fields__
_USED = ", ".join(USED)
_SUMS = ", ".join(f"sum({name})" + ("" if name == "cost_usd" else "::bigint") for name in USED)
_FIRST_DAY = date(1970, 1, 1).toordinal()
_BIAS = 4
"""Days: a time that an offset puts before 1970 must not be rounded towards it."""
_PUT = f"INSERT INTO turns VALUES({','.join(f'${n}' for n in range(1, 9 + len(USED)))})"
_ADD = (
    f"INSERT INTO used VALUES({','.join(f'${n}' for n in range(1, 6 + len(USED)))})"
    " ON CONFLICT (dim, slot, key, prev) DO UPDATE SET turns=used.turns+1, cost_usd=CASE WHEN excluded.cost_usd IS NULL"
    " THEN used.cost_usd ELSE coalesce(used.cost_usd, 0.0)+excluded.cost_usd END, "
    + ", ".join(f"{name}=used.{name}+excluded.{name}" for name in USED if name != "cost_usd")
)
_SUM_UP = f"""
INSERT INTO used SELECT dim, slot, key, CASE WHEN prev<0 THEN -1 ELSE prev/{SLOT} END, count(*), {_SUMS} FROM (
  SELECT 'all' AS dim, at/{SLOT} AS slot, '' AS key, prev, {_USED} FROM turns WHERE at>=$1 AND at<$2
  UNION ALL SELECT 'agent', at/{SLOT}, agent, prev, {_USED} FROM turns WHERE at>=$1 AND at<$2
  UNION ALL SELECT 'project', at/{SLOT}, project, prev, {_USED} FROM turns WHERE at>=$1 AND at<$2
  UNION ALL SELECT 'model', at/{SLOT}, model, prev_same_model, {_USED} FROM turns WHERE at>=$1 AND at<$2
) AS parts GROUP BY 1, 2, 3, 4
"""
_CHAIN = """
UPDATE turns SET prev=chain.prev, prev_same_model=chain.prev_same_model FROM (
  SELECT turn, coalesce(lag(at) OVER (ORDER BY at, turn), -1) AS prev,
    coalesce(lag(at) OVER (PARTITION BY model ORDER BY at, turn), -1) AS prev_same_model
  FROM turns WHERE session=$1
) AS chain WHERE turns.session=$1 AND turns.turn=chain.turn
"""


async def put_turns(db: EngineConnection, turns: list[TurnUsage]) -> None:
    """Inside a transaction."""
    await db.execute("SELECT pg_advisory_xact_lock_shared($1)", USAGE)
    sums: list[tuple[Any, ...]] = []
    for turn in turns:
        last = await db.fetchrow(
            "SELECT at, model, EXISTS(SELECT FROM turns WHERE session=$1 AND turn=$2) AS again FROM turns"
            " WHERE session=$1 ORDER BY at DESC, turn DESC LIMIT 1",
            text_of(turn.session_id), turn.turn,
        )  # fmt: skip
        prev = prev_same_model = -1
        if last is not None:
            if last["at"] > turn.at or last["again"]:
                await _add(db, sums)
                sums.clear()
                await _put_between(db, turn)
                continue
            prev = prev_same_model = last["at"]
            if last["model"] != text_of(turn.model):
                same = "SELECT coalesce(max(at), -1) FROM turns WHERE session=$1 AND model=$2"
                prev_same_model = await db.fetchval(same, text_of(turn.session_id), text_of(turn.model))
        await _insert(db, turn, prev, prev_same_model)
        used = (1, *(getattr(turn.usage, name) for name in USED))
        for dim, key, before in (
            ("all", "", prev),
            ("agent", turn.agent, prev),
            ("project", turn.project, prev),
            ("model", turn.model, prev_same_model),
        ):
            sums.append((dim, turn.at // SLOT, text_of(key), before // SLOT, *used))  # -1 // SLOT is -1
    await _add(db, sums)


async def _add(db: EngineConnection, sums: list[tuple[Any, ...]]) -> None:
    await db.executemany(_ADD, sorted(sums, key=lambda row: row[:4]))  # in one order, so that nobody waits in a circle


async def _put_between(db: EngineConnection, turn: TurnUsage) -> None:
    """One that is put again, or that comes late: the sums of every slot its session had a part in are made anew."""
    await db.execute("SELECT pg_advisory_xact_lock($1)", USAGE)
    session = text_of(turn.session_id)
    mine = await db.fetch(f"SELECT DISTINCT at/{SLOT} FROM turns WHERE session=$1", session)
    slots = {turn.at // SLOT, *(slot for (slot,) in mine)}
    await db.execute("DELETE FROM turns WHERE session=$1 AND turn=$2", session, turn.turn)
    await _insert(db, turn, -1, -1)
    await db.execute(_CHAIN, session)
    for slot in sorted(slots):
        await db.execute("DELETE FROM used WHERE dim IN ('all', 'agent', 'project', 'model') AND slot=$1", slot)
        await db.execute(_SUM_UP, slot * SLOT, (slot + 1) * SLOT)


async def _insert(db: EngineConnection, turn: TurnUsage, prev: int, prev_same_model: int) -> None:
    names = map(text_of, (turn.agent, turn.project, turn.model))
    used = (getattr(turn.usage, name) for name in USED)
    await db.execute(_PUT, text_of(turn.session_id), turn.turn, turn.at, prev, prev_same_model, *names, *used)


def sums_question(by: By | None, since: int, until: int | None, offset_minutes: int) -> str:
    """Whole slots from their sums; what is left at both ends, and what must be told apart there, turn by turn."""
    since = min(max(int(since), 0), FOREVER)
    until = FOREVER if until is None else min(max(int(until), 0), FOREVER)
    shift = int(offset_minutes) * 60_000 if by == "day" else 0
    begin = -(-since // SLOT)
    end = max(until // SLOT, begin)
    if by == "session" or shift % SLOT:
        begin = end = FOREVER // SLOT
    whole, whole_end = min(begin * SLOT, until), min(end * SLOT, until)
    cut = since // SLOT if since % SLOT and begin < end else -2
    shift += _BIAS * DAY
    prev = "prev_same_model" if by == "model" else "prev"
    if by == "day":
        slot_key, turn_key = f"(slot*{SLOT}+{shift})/{DAY}", f"(at+{shift})/{DAY}"
        slot_new = f"prev<greatest({begin}, ({slot_key}*{DAY}-{shift})/{SLOT})"
        turn_new = f"prev<greatest({since}, {turn_key}*{DAY}-{shift})"
    else:
        slot_key, turn_key = "key", "''" if by is None else by
        slot_new, turn_new = f"prev<{begin}", f"{prev}<{since}"
    turns = f"SELECT {turn_key} AS key, ({turn_new})::int AS new, 1 AS turns, {_USED} FROM turns"
    dim = "all" if by in (None, "day") else by
    parts = [
        f"{turns} WHERE at>={since} AND at<{whole}",
        f"{turns} WHERE at>={whole_end} AND at<{until}",
        f"SELECT {slot_key} AS key, turns*({slot_new})::int AS new, turns, {_USED} FROM used"
        f" WHERE dim='{dim}' AND slot>={begin} AND slot<{end} AND prev<>{cut}",
        f"{turns} WHERE {prev}>={cut * SLOT} AND {prev}<{(cut + 1) * SLOT} AND at>={whole} AND at<{whole_end}",
    ]
    chosen = parts[:2] if begin >= end else parts[:3] if cut < 0 else parts
    rows = f"SELECT key, sum(new)::bigint, sum(turns)::bigint, {_SUMS} FROM ({' UNION ALL '.join(chosen)}) AS parts"
    return f"{rows} GROUP BY key"


def sum_of(by: By | None, row: tuple[Any, ...]) -> UsageSum:
    key, sessions, turns, *used = row
    return UsageSum(
        key=date.fromordinal(_FIRST_DAY - _BIAS + key).isoformat() if by == "day" else key,
        sessions=sessions,
        turns=turns,
        usage=Usage(**dict(zip(USED, used, strict=True))),
    )
