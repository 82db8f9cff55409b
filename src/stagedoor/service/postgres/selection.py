"""Which sessions: a ``Query`` as SQL, and what is searched in as numbers that an index can hold.

No extension is needed: a server that somebody else looks after seldom has one. The index holds the letters of a text
one, two and three at a time, each as a number; what it finds is then looked at letter by letter.
"""

from __future__ import annotations

import zlib
from typing import Any

from ..store import Query, place_of
from ..views import SessionView

LONGEST = 3
"""Letters in the longest entry of the index."""
_PAGE = """
SELECT views.body, heads.last, heads.at, heads.worker, heads.epoch FROM (
  SELECT sessions.id, sessions.created FROM {} ORDER BY sessions.created DESC, sessions.id DESC LIMIT {} OFFSET {}
) AS page JOIN views USING(id) LEFT JOIN heads ON heads.session=page.id ORDER BY page.created DESC, page.id DESC
"""


def searchable(view: SessionView) -> str:
    return plain("\n".join((view.title, view.prompt, view.result, view.cwd, view.id)))


def grams(text: str) -> list[int]:
    """Every run of one, two or three letters in it, once."""
    runs = {text[at : at + size] for size in range(1, LONGEST + 1) for at in range(len(text) - size + 1)}
    return sorted({_number(run) for run in runs})


def page(query: Query) -> tuple[str, list[Any]]:
    chosen, values = _chosen(query)
    values += (query.limit, query.offset)
    return _PAGE.format(chosen, f"${len(values) - 1}", f"${len(values)}"), values


def count(query: Query) -> tuple[str, list[Any]]:
    chosen, values = _chosen(query)
    return f"SELECT count(*) FROM {chosen}", values


def is_slow(query: Query) -> bool:
    """It may have to look at many."""
    return bool(query.search) or query.offset > 1000


def plain(words: str) -> str:
    return words.lower().replace("\0", " ")


def text_of(value: str) -> str:
    """PostgreSQL's texts may hold anything but this one character."""
    return value.replace("\0", "\ufffd") if "\0" in value else value


def _chosen(query: Query) -> tuple[str, list[Any]]:
    """What follows FROM, up to the order."""
    tests: list[str] = []
    values: list[Any] = []

    def put(value: Any) -> str:
        values.append(value)
        return f"${len(values)}"

    source = "sessions"
    if query.search:
        words = plain(query.search)
        source = "words JOIN sessions USING(id)"
        tests.append(f"words.grams @> {put(_longest_grams(words))}::integer[]")
        tests.append(f"strpos(words.text, {put(words)}) > 0")
    for column, value in (
        ("state", query.state), ("agent", query.agent), ("project", query.project_id), ("grouped", query.group),
        ("cwd", query.cwd),
    ):  # fmt: skip
        if value:
            tests.append(f"sessions.{column}={put(text_of(value))}")
    if query.group:
        tests.append("sessions.grouped<>''")
    for column, flag in (("archived", query.archived), ("ended", query.ended)):
        if flag is not None:
            tests.append(f"sessions.{column}" if flag else f"NOT sessions.{column}")
    if query.cursor:
        created, session_id = place_of(query.cursor)
        tests.append(f"(sessions.created, sessions.id) < ({put(created)}, {put(text_of(session_id))})")
    return source + (" WHERE " + " AND ".join(tests) if tests else ""), values


def _longest_grams(words: str) -> list[int]:
    size = min(LONGEST, len(words))
    return sorted({_number(words[at : at + size]) for at in range(len(words) - size + 1)})


def _number(run: str) -> int:
    """The same on every machine and in every version; two runs with one number cost a second look, nothing more."""
    return zlib.crc32(run.encode("utf-8", "surrogatepass")) - 2**31
