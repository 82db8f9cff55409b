"""What is asked of the tables, as statements."""

from __future__ import annotations

from typing import Any

from stagedoor.unified.events import Usage

from ..store import Query
from ..views import By

USED = Usage.__struct_fields__
_TEXT = "CAST(body AS TEXT)"
_USED = ", ".join(f"sum(json_extract({_TEXT}, '$.usage.{name}'))" for name in Usage.__struct_encode_fields__)
_KEYS: dict[By | None, str] = {
    None: "''",
    "day": "date((at + ?) / 1000, 'unixepoch')",
    "session": "session",
    "agent": f"json_extract({_TEXT}, '$.agent')",
    "project": f"json_extract({_TEXT}, '$.project')",
    "model": f"json_extract({_TEXT}, '$.model')",
}


def summing(by: By | None, since: int, until: int | None, offset_minutes: int) -> tuple[str, tuple[Any, ...]]:
    """Rows of key, sessions, turns, and what was used in the order of ``USED``."""
    sql = (
        f"SELECT {_KEYS[by]} AS key, count(DISTINCT session), count(*), {_USED} FROM spent"
        " WHERE at>=? AND (? IS NULL OR at<?) GROUP BY key"
    )
    shift = (offset_minutes * 60_000,) if by == "day" else ()
    return sql, (*shift, since, until, until)


def where(query: Query) -> tuple[str, tuple[Any, ...]]:
    tests: list[str] = []
    values: list[Any] = []
    for column, value in (
        ("state", query.state), ("agent", query.agent), ("project", query.project_id), ("grouped", query.group),
    ):  # fmt: skip
        if value:
            tests.append(f"{column}=?")
            values.append(value)
    for column, flag in (("archived", query.archived), ("ended", query.ended)):
        if flag is not None:
            tests.append(f"{column}=?")
            values.append(int(flag))
    if query.search:
        tests.append("instr(words, ?) > 0")
        values.append(query.search.lower())
    return ("WHERE " + " AND ".join(tests) if tests else ""), tuple(values)
