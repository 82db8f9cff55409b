"""The log at any size: what is asked of it is answered as before, from indexes, sums and words kept beside it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from stagedoor.errors import StoreBroken, TooMany
from stagedoor.service.sqlite import SqliteStore, selection, threads
from stagedoor.service.store import Query
from stagedoor.service.views import SessionView

LOGS = Path(__file__).parent / "logs"
DAY = 86_400_000
BEGIN = 1_794_700_000_000
Value = TypeVar("Value")


def on(path: Path, work: Callable[[SqliteStore], Awaitable[Value]]) -> Value:
    async def main() -> Value:
        async with asyncio.timeout(120):
            store = SqliteStore(path)
            await store.open()
            try:
                return await work(store)
            finally:
                await store.close()

    return asyncio.run(main())


def old_log(path: Path) -> None:
    """As the version before wrote it."""
    db = sqlite3.connect(path)
    db.executescript((LOGS / "schema_4.sql").read_text("utf-8"))
    db.close()


async def answers(store: SqliteStore, like: dict[str, Any]) -> dict[str, Any]:
    """The questions that ``like`` answers, asked again."""
    sums: dict[str, object] = {}
    for name in like["sums"]:
        by, since, until, offset = name.split("/")
        key: Any = None if by == "None" else by
        end = None if until == "None" else int(until)
        rows = await store.sums(key, since=int(since), until=end, offset_minutes=int(offset))
        sums[name] = sorted(rows, key=lambda row: row.key)
    found = {
        "sessions": await store.sessions(Query()),
        "open": await store.sessions(Query(ended=False)),
        "search": {words: [one.id for one in await store.sessions(Query(search=words))] for words in like["search"]},
        "questions": await store.questions(),
        "messages": await store.messages("session-4"),
        "records": {name: await store.records(name, 0, 99) for name in like["records"]},
        "sums": sums,
        "devices": await store.devices(),
        "done": await store.done("k"),
        "changes": await store.config_changes(),
        "theme": await store.setting("theme"),
    }
    return json.loads(msgspec.json.encode(found))  # type: ignore[no-any-return]


def as_then(found: Any, expected: Any) -> Any:
    """``found`` without the fields that views have got since then."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return {key: as_then(value, expected[key]) for key, value in found.items() if key in expected}
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        return [as_then(*pair) for pair in zip(found, expected, strict=True)]
    return found


def test_a_log_of_the_version_before_answers_everything_as_it_did(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    old_log(path)
    expected = json.loads((LOGS / "schema_4_answers.json").read_text("utf-8"))

    async def use(store: SqliteStore) -> None:
        assert as_then(await answers(store, expected), expected) == expected
        assert [one.id for one in await store.sessions(Query(cwd="/work/p2"))] == ["session-5", "session-2"]
        assert [await store.session_of("claude", "native-3"), await store.session_of("codex", "native-3")] == [
            await store.session("session-3"), None,
        ]  # fmt: skip
        removable = await store.removable(BEGIN + 2 * DAY, None, 9)
        assert [(one.session_id, one.first_seq, one.last_seq) for one in removable] == [
            ("session-0", 1, 3), ("session-1", 1, 4),
        ]  # fmt: skip

    on(path, use)
    on(path, use)


def test_a_migration_that_fails_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    old_log(path)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("UPDATE spent SET body=? WHERE session='session-5' AND turn=2", (b"{cut off",))
    before = list(db.iterdump())
    db.close()
    with pytest.raises(StoreBroken, match="cannot be opened: malformed JSON"):
        on(path, lambda store: store.count(Query()))
    db = sqlite3.connect(path)
    assert list(db.iterdump()) == before
    assert db.execute("PRAGMA user_version").fetchone() == (4,)
    db.close()


def test_what_asks_for_few_looks_at_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in steps of SQLite's machine, with a few sessions in the log and with thirty times as many."""
    queries = {
        "running": Query(state="running"), "open": Query(ended=False), "archived": Query(archived=True),
        "group": Query(group="g"), "first page": Query(limit=5), "no hit": Query(search="zzyzx"),
        "no hit of two": Query(search="zq"), "cursor": Query(limit=5, cursor="20.x"),
        "agent": Query(agent="few"), "project": Query(project_id="few"), "folder": Query(cwd="/few"),
    }  # fmt: skip
    counts: dict[str, list[int]] = {name: [] for name in queries}
    for size in (100, 3000):
        path = tmp_path / f"{size}.db"
        few = SessionView(
            id="few", agent="few", cwd="/few", project_id="few", group="g", archived=True, created_at=1
        )  # fmt: skip
        views = [
            SessionView(id=f"s{n}", agent="a", cwd="/", activity="ended", state="done", created_at=n, native_id="n")
            for n in range(size)
        ]

        async def fill(store: SqliteStore, views: tuple[SessionView, ...] = (few, *views)) -> None:
            await store.write(*views)

        on(path, fill)
        for name, query in queries.items():
            db = sqlite3.connect(path)
            count = 0

            def step() -> int:
                nonlocal count
                count += 1
                return 0

            db.set_progress_handler(step, 10)
            selection.page(db, query).fetchall()
            if name != "first page" and name != "cursor":  # how many there are is counted, in the index
                selection.count(db, query)
            db.close()
            counts[name].append(count)
    assert {name: many for name, (small, many) in counts.items() if many > 2 * small + 20} == {}


def test_a_question_that_takes_too_long_is_given_up_and_harms_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "STEPS", 100)

    async def work(store: SqliteStore) -> None:
        await store.write(*(SessionView(id=f"s{n}", agent="a", cwd="/", title="word " * 50) for n in range(500)))
        store._slow_readers.most_seconds = 0.0
        slow = [store.count(Query(search="o")) for _ in range(4)]
        outcomes = await asyncio.gather(*slow, store.session("s1"), return_exceptions=True)
        assert [type(one) for one in outcomes] == [TooMany] * 4 + [SessionView]
        assert "took longer than 0 seconds and was given up; ask for less" in str(outcomes[0])
        store._slow_readers.most_seconds = 60.0
        assert await store.count(Query(search="o")) == 500

    on(tmp_path / "log.db", work)
