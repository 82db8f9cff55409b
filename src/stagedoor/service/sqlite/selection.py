"""Which sessions: a ``Query`` as SQL on the narrow table, so that an index answers each of them."""

from __future__ import annotations

import sqlite3
from typing import Any

from ..store import Query, place_of
from ..views import SessionView

GRAM = 3
"""Letters in one entry of the index of words."""
MOST_GRAMS = 64
"""Entries that begin with the one or two letters looked for; with more, nearly every session has them: reading on is
faster than putting that many lists together."""
LAST_LETTER = "\U0010ffff"
_PAGE = """
SELECT views.body, seq, at, worker, page.epoch FROM (
  SELECT sessions.n, id, created, worker, epoch FROM {} ORDER BY created DESC, id DESC LIMIT ? OFFSET ?
) AS page
JOIN views ON views.n=page.n
LEFT JOIN records ON session=page.id AND seq=(SELECT max(seq) FROM records WHERE session=page.id)
ORDER BY created DESC, page.id DESC
"""
"""Each view with the number and the time of its last record. Only those on the page are read whole."""


def searchable(view: SessionView) -> str:
    """What is searched in, ended so that each of its letters begins an entry of the index."""
    words = "\n".join((view.title, view.prompt, view.result, view.cwd, view.id))
    return _plain(words) + "\n\n"


def page(db: sqlite3.Connection, query: Query) -> sqlite3.Cursor:
    chosen, values = _chosen(db, query)
    return db.execute(_PAGE.format(chosen), (*values, query.limit, query.offset))


def count(db: sqlite3.Connection, query: Query) -> int:
    chosen, values = _chosen(db, query)
    return int(db.execute(f"SELECT count(*) FROM {chosen}", values).fetchone()[0])


def is_slow(query: Query) -> bool:
    """It may have to look at many."""
    return bool(query.search) or query.offset > 1000


def _chosen(db: sqlite3.Connection, query: Query) -> tuple[str, tuple[Any, ...]]:
    """What follows FROM, up to the order."""
    tests: list[str] = []
    values: list[Any] = []
    source = "sessions"
    if query.search:
        source = "words CROSS JOIN sessions ON sessions.n=words.rowid"
        test, words = _matching(db, _plain(query.search))
        tests.append(test)
        values.append(words)
    for column, value in (
        ("state", query.state), ("agent", query.agent), ("project", query.project_id), ("grouped", query.group),
        ("cwd", query.cwd),
    ):  # fmt: skip
        if value:
            tests.append(f"{column}=?")
            values.append(value)
    if query.group:
        tests.append("grouped<>''")  # says to SQLite that the index of groups has them all
    for column, flag in (("archived", query.archived), ("ended", query.ended)):
        if flag is not None:
            tests.append(f"{column}={int(flag)}")
    if query.cursor:
        tests.append("(created, id) < (?, ?)")
        values += place_of(query.cursor)
    return source + (" WHERE " + " AND ".join(tests) if tests else ""), tuple(values)


def _matching(db: sqlite3.Connection, words: str) -> tuple[str, str]:
    """A substring, whatever its letters are. The index has entries of three; shorter ones are where those begin."""
    if len(words) >= GRAM:
        return "words MATCH ?", _quoted(words)
    grams = "SELECT term FROM grams WHERE term>=? AND term<? LIMIT ?"
    terms = [term for (term,) in db.execute(grams, (words, words + LAST_LETTER, MOST_GRAMS + 1))]
    if len(terms) > MOST_GRAMS:
        return "instr(text, ?) > 0", words
    return ("words MATCH ?", " OR ".join(map(_quoted, terms))) if terms else ("?=''", words)


def _quoted(words: str) -> str:
    return '"' + words.replace('"', '""') + '"'


def _plain(words: str) -> str:
    return words.lower().replace("\0", " ")
