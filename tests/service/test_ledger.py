"""Sums of what turns used, over a real log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stagedoor.errors import BadRequest
from stagedoor.service.ledger import UsageLedger, UsageSums
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.store import Forget
from stagedoor.service.views import TurnUsage, UsageSum
from stagedoor.unified.events import Usage

DAY = 86_400_000
MORNING = 1_794_700_800_000  # 2026-11-15T00:00:00Z
HOUR = 3_600_000


def used(tokens: int, cost: float | None = None) -> Usage:
    return Usage(input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1, cost_usd=cost)


def spent(session: str, turn: int, at: int, agent: str, project: str, usage: Usage, model: str = "m") -> TurnUsage:
    return TurnUsage(session_id=session, turn=turn, at=at, agent=agent, project=project, model=model, usage=usage)


SPENT = (
    spent("s1", 1, MORNING - HOUR, "one", "/p", used(10, 0.5)),
    spent("s1", 2, MORNING, "one", "/p", used(20)),
    spent("s2", 1, MORNING + HOUR, "two", "/q", used(5, 2.0), model="n"),
)


def row(key: str, sessions: int, turns: int, *usages: Usage) -> UsageSum:
    return UsageSum(key=key, sessions=sessions, turns=turns, usage=sum(usages, Usage()))


A, B, C = (one.usage for one in SPENT)
CASES: dict[str, tuple[dict[str, Any], tuple[UsageSum, ...], UsageSum]] = {
    "days": (
        {"by": "day"},
        (row("2026-11-14", 1, 1, A), row("2026-11-15", 2, 2, B, C)),
        row("", 2, 3, A, B, C),
    ),
    "days elsewhere": (
        {"by": "day", "offset_minutes": -60},
        (row("2026-11-14", 1, 2, A, B), row("2026-11-15", 1, 1, C)),
        row("", 2, 3, A, B, C),
    ),
    "agents, the dearest first": (
        {"by": "agent"},
        (row("two", 1, 1, C), row("one", 1, 2, A, B)),
        row("", 2, 3, A, B, C),
    ),
    "projects": ({"by": "project"}, (row("/q", 1, 1, C), row("/p", 1, 2, A, B)), row("", 2, 3, A, B, C)),
    "sessions": ({"by": "session"}, (row("s2", 1, 1, C), row("s1", 1, 2, A, B)), row("", 2, 3, A, B, C)),
    "models": ({"by": "model"}, (row("n", 1, 1, C), row("m", 1, 2, A, B)), row("", 2, 3, A, B, C)),
    "since": ({"by": "day", "since": MORNING}, (row("2026-11-15", 2, 2, B, C),), row("", 2, 2, B, C)),
    "until": ({"by": "day", "until": MORNING}, (row("2026-11-14", 1, 1, A),), row("", 1, 1, A)),
    "nothing": ({"by": "agent", "since": MORNING + DAY}, (), UsageSum()),
}


@pytest.mark.parametrize("name", CASES)
def test_sums(name: str, tmp_path: Path) -> None:
    query_fields, rows, total = CASES[name]

    async def main() -> UsageSums:
        store = SqliteStore(tmp_path / "log.db")
        await store.open()
        try:
            await store.write(*SPENT)
            await store.write(Forget("s1"))  # what was used was used
            return await UsageLedger(store).sums(**query_fields)
        finally:
            await store.close()

    assert asyncio.run(main()) == UsageSums(**query_fields, rows=rows, total=total)


@pytest.mark.parametrize("query_fields", [{"offset_minutes": 900}, {"since": 2, "until": 1}], ids=str)
def test_what_makes_no_sense_is_refused(query_fields: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadRequest):
        asyncio.run(UsageLedger(SqliteStore(tmp_path / "log.db")).sums(**query_fields))
