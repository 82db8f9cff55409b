"""The log at any size: sums, searches, pages and retention are answered alike by every engine."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from stagedoor.errors import BadRequest
from stagedoor.service.journal import Journal, LocalHub
from stagedoor.service.sqlite import selection
from stagedoor.service.store import Append, Forget, Query, Store, Trim, cursor_of
from stagedoor.service.views import By, Record, SessionView, TurnUsage, UsageSum
from stagedoor.unified.events import Usage
from tests.service.conformance.engines import Engine, run

DAY = 86_400_000
BEGIN = 1_794_700_000_000


def on(engine: Engine, work: Callable[[Store], Awaitable[None]]) -> None:
    async def main() -> None:
        async with engine.parties(1) as [party]:
            await work(party.store)

    run(main())


def naive_sums(turns: list[TurnUsage], by: By | None, since: int, until: int | None, offset: int) -> list[UsageSum]:
    def key_of(turn: TurnUsage) -> str:
        if by == "day":
            at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=turn.at + offset * 60_000)
            return at.date().isoformat()
        return "" if by is None else turn.session_id if by == "session" else str(getattr(turn, by))

    rows: dict[str, list[TurnUsage]] = {}
    for turn in turns:
        if since <= turn.at and (until is None or turn.at < until):
            rows.setdefault(key_of(turn), []).append(turn)
    return [
        UsageSum(
            key=key,
            sessions=len({one.session_id for one in group}),
            turns=len(group),
            usage=sum((one.usage for one in group), Usage()),
        )
        for key, group in sorted(rows.items())
    ]


@pytest.mark.parametrize("seed", range(4), ids=("days", "hours", "slots", "at once"))
def test_sums_are_those_of_all_turns(engine: Engine, seed: int) -> None:
    chance = random.Random(seed)
    wide = (DAY * 5, DAY // 8, 2_000_000, 50)[seed]
    turns: dict[tuple[str, int], TurnUsage] = {}
    put: list[TurnUsage] = []
    for number in range(120):
        session = chance.randrange(12)
        turn = TurnUsage(
            session_id=f"s{session}",
            turn=chance.randrange(30) if chance.random() < 0.3 else number,
            at=(BEGIN if seed < 3 else 0) + (number * wide // 120 if chance.random() < 0.7 else chance.randrange(wide)),
            agent=("claude", "codex")[session % 2],
            project=f"p{session % 3}",
            model=chance.choice(("m", "n", "")),
            usage=Usage(input_tokens=number, total_tokens=number, cost_usd=chance.choice((None, 0.25, 0.5))),
        )
        turns[turn.session_id, turn.turn] = turn
        put.append(turn)
    times = [0, BEGIN, *(one.at for one in chance.sample(put, 4)), *(BEGIN // DAY * DAY + n * 900_000 for n in (0, 90))]
    cases: list[tuple[By | None, int, int | None, int]] = [
        (by, since, None if until is not None and until <= since else until, offset)
        for by in (None, "day", "agent", "project", "session", "model")
        for since in times
        for until in (None, chance.choice(times), since + 1, since + chance.randrange(wide))
        for offset in ((0, 120, -345, 7) if by == "day" else (0,))
    ]

    async def work(store: Store) -> None:
        for turn in put:
            await store.write(turn)
        stored = list(turns.values())
        for by, since, until, offset in cases:
            rows = await store.sums(by, since=since, until=until, offset_minutes=offset)
            expected = naive_sums(stored, by, since, until, offset)
            assert sorted(rows, key=lambda row: row.key) == expected, (by, since, until, offset)

    on(engine, work)


LETTERS = 'abAB ä"%_*-\n\0ßİ😀()'


def searched(view: SessionView, words: str) -> bool:
    text = "\n".join((view.title, view.prompt, view.result, view.cwd, view.id)).lower().replace("\0", " ")
    return words.lower().replace("\0", " ") in text


def test_a_search_finds_a_text_wherever_it_stands(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(5)

    def some(most: int) -> str:
        return "".join(chance.choices(LETTERS, k=chance.randrange(most)))

    views = [
        SessionView(id=f"s{n}", agent="a", cwd=f"/{some(4)}", title=some(9), prompt=some(20), created_at=n)
        for n in range(60)
    ]
    changed = [replace(one, result=some(15), title=some(9)) for one in views[:30]]
    left = changed[:20] + views[30:]
    words = [*LETTERS, "s59", "9", "/", *filter(None, (some(6) for _ in range(150)))]

    async def work(store: Store) -> None:
        await store.write(*views)
        await store.write(*changed)
        await store.write(*map(Forget, [one.id for one in changed[20:]]))
        for most in (selection.MOST_GRAMS, 3):  # few letters are read through when too many entries begin with them
            monkeypatch.setattr(selection, "MOST_GRAMS", most)
            for text in words:
                expected = {one.id for one in left if searched(one, text)}
                found = await store.sessions(Query(search=text, limit=100))
                assert ({one.id for one in found}, await store.count(Query(search=text))) == (expected, len(expected))

    on(engine, work)


def test_pages_by_cursor_hold_each_session_once(engine: Engine) -> None:
    views = [
        SessionView(
            id=f"s{n:02}", agent=("a", "b")[n % 2], cwd=f"/{n % 3}", title="same", project_id=f"p{n % 3}",
            group="g" if n % 5 == 0 else "", archived=n % 7 == 0, state="done" if n % 4 else "running",
            activity="ended" if n % 4 else "idle", created_at=n // 3,
        )
        for n in range(50)
    ]  # fmt: skip
    queries = [
        Query(), Query(agent="a"), Query(project_id="p1"), Query(group="g"), Query(archived=True),
        Query(archived=False), Query(ended=False), Query(ended=True), Query(state="running"), Query(cwd="/2"),
        Query(search="same"), Query(search="s4"), Query(agent="b", state="done", archived=False, search="am"),
    ]  # fmt: skip

    async def work(store: Store) -> None:
        await store.write(*views)
        for query in queries:
            whole = await store.sessions(replace(query, limit=99))
            assert whole == sorted(whole, key=lambda one: (one.created_at, one.id), reverse=True)
            assert len(whole) == await store.count(query) > 0
            read: list[SessionView] = []
            cursor = ""
            while page := await store.sessions(replace(query, limit=7, cursor=cursor)):
                read += page
                cursor = cursor_of(page[-1])
                # one that comes meanwhile is newer than all and moves nothing
                await store.write(SessionView(id=f"new{len(read)}", agent="z", cwd="/z", created_at=99, archived=True))
                await store.write(Forget(f"new{len(read)}"))
            assert read == whole
        for wrong in ("x", "12", ".s1", "1" * 30 + ".s", "-1.s"):
            with pytest.raises(BadRequest, match="is no place in a list of sessions; send the nextCursor"):
                await store.sessions(Query(cursor=wrong))

    on(engine, work)


def test_retention_passes_over_what_is_followed_and_takes_all_else(engine: Engine) -> None:
    def records(count: int) -> list[Record]:
        return [Record(seq, seq, "text", b"{}") for seq in range(1, count + 1)]

    def ended(number: int, updated: int) -> SessionView:
        count = 3 + number % 4
        return SessionView(
            id=f"s{number:04}", agent="a", cwd="/", activity="ended", state="done", last_seq=count, updated_at=updated
        )

    views = [ended(n, n % 7) for n in range(600)]
    new = ended(600, 10 * DAY)

    async def work(store: Store) -> None:
        for one in (*views, new):
            store.write(Append(one.id, records(one.last_seq)), one)
        await store.write(Trim("s0001", 2))
        journal = Journal(store, LocalHub())
        following = journal.follow("s0007", 0)
        assert len(await anext(following)) == 6
        assert await journal.retain(1, 10 * DAY) == 599
        assert await store.records("s0007", 0, 9) == records(6)
        await following.aclose()
        assert [await journal.retain(1, 10 * DAY), await journal.retain(1, 10 * DAY)] == [1, 0]
        for one in views:
            assert await store.session(one.id) == replace(one, first_seq=one.last_seq)
            assert [record.seq for record in await store.records(one.id, 0, 9)] == [one.last_seq]
        assert [await store.session(new.id), await store.records(new.id, 0, 9)] == [new, records(3)]

    on(engine, work)
