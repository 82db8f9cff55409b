"""Stored sessions, read from small databases laid out as OpenCode lays out its own."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from stagedoor.agents.opencode.history import (
    OpenCodeHistory,
    OpenCodeStoredSession,
    database,
    find_session,
    list_sessions,
)

SCHEMA = """
create table session (
  id text primary key, project_id text not null, parent_id text, directory text not null, title text not null,
  cost real default 0 not null, tokens_input integer default 0 not null, tokens_output integer default 0 not null,
  tokens_reasoning integer default 0 not null, tokens_cache_read integer default 0 not null,
  tokens_cache_write integer default 0 not null, agent text, model text,
  time_created integer not null, time_updated integer not null, time_archived integer
);
create table message (id text primary key, session_id text, time_created integer, time_updated integer, data text);
create table part (
  id text primary key, message_id text, session_id text, time_created integer, time_updated integer, data text
);
"""

Store = Callable[..., None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "opencode"
    folder.mkdir(parents=True)
    connection = sqlite3.connect(folder / "opencode.db")
    connection.executescript(SCHEMA)
    connection.close()
    return folder / "opencode.db"


@pytest.fixture
def env(tmp_path: Path, path: Path) -> dict[str, str]:
    return {"XDG_DATA_HOME": str(tmp_path / "data"), "HOME": str(tmp_path)}


@pytest.fixture
def store(path: Path) -> Store:
    def write(session_id: str, directory: str, updated: int, *prompts: str, parent: str | None = None) -> None:
        model = json.dumps({"id": "m", "providerID": "p"})
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(
                "insert into session values (?, 'global', ?, ?, ?, 0.5, 1, 2, 3, 4, 5, 'build', ?, ?, ?, null)",
                (session_id, parent, directory, f"Title of {session_id}", model, updated - 10, updated),
            )
            for number, prompt in enumerate(prompts):
                name = f"msg_{session_id}_{number}"
                connection.execute("insert into message values (?, ?, ?, ?, '{}')", (name, session_id, number, number))
                for part, value in enumerate(
                    ({"type": "text", "text": "made by the CLI", "synthetic": True}, {"type": "text", "text": prompt})
                ):
                    values = (f"prt_{name}_{part}", name, session_id, number, number, json.dumps(value))
                    connection.execute("insert into part values (?, ?, ?, ?, ?, ?)", values)
        connection.close()

    return write


def stored(
    session_id: str, directory: str, updated: int, path: Path, prompt: str, messages: int
) -> OpenCodeStoredSession:
    return OpenCodeStoredSession(
        session_id=session_id,
        cwd=directory,
        title=f"Title of {session_id}",
        first_prompt=prompt,
        message_count=messages,
        model="p/m",
        started_ms=updated - 10,
        updated_ms=updated,
        tokens=15,
        cost_usd=0.5,
        path=str(path),
        agent="build",
    )


def test_only_this_folders_root_sessions_newest_first(store: Store, env: dict[str, str], path: Path) -> None:
    store("ses_a", "/repo", 100, "first", "second")
    store("ses_b", "/repo", 200)
    store("ses_c", "/elsewhere", 300, "not here")
    store("ses_d", "/repo", 400, "a sub-agent", parent="ses_a")
    assert list_sessions("/repo", env=env) == OpenCodeHistory(
        [stored("ses_b", "/repo", 200, path, "", 0), stored("ses_a", "/repo", 100, path, "first", 2)], []
    )
    assert find_session("ses_c", env=env) == stored("ses_c", "/elsewhere", 300, path, "not here", 1)
    assert find_session("ses_x", env=env) is None


def test_no_database_is_no_history_and_a_broken_one_is_reported(tmp_path: Path) -> None:
    env = {"XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)}
    assert list_sessions("/repo", env=env) == OpenCodeHistory()
    (tmp_path / "opencode").mkdir()
    broken = tmp_path / "opencode" / "opencode.db"
    broken.write_bytes(b"this is no database" * 100)
    history = list_sessions("/repo", env=env)
    assert history.sessions == []
    assert [where for where, _ in history.skipped] == [str(broken)]


def test_a_broken_part_does_not_hide_its_session(store: Store, env: dict[str, str], path: Path) -> None:
    store("ses_a", "/repo", 100, "first")
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("update part set data = '{not json'")
        connection.execute("update session set model = '[]', title = cast(x'ff41' as text)")
    connection.close()
    (history,) = list_sessions("/repo", env=env).sessions
    assert (history.first_prompt, history.model, history.title) == ("", None, "\ufffdA")


def test_the_database_is_left_alone(store: Store, env: dict[str, str], path: Path) -> None:
    store("ses_a", "/repo", 100, "first")
    before = path.read_bytes(), sorted(file.name for file in path.parent.iterdir())
    list_sessions("/repo", env=env)
    assert (path.read_bytes(), sorted(file.name for file in path.parent.iterdir())) == before


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"HOME": "/h"}, "/h/.local/share/opencode/opencode.db"),
        ({"HOME": "/h", "XDG_DATA_HOME": "/d"}, "/d/opencode/opencode.db"),
        ({"HOME": "/h", "OPENCODE_DB": "other.db"}, "/h/.local/share/opencode/other.db"),
        ({"HOME": "/h", "OPENCODE_DB": "/x/y.db"}, "/x/y.db"),
    ],
)
def test_where_it_is(env: dict[str, str], expected: str) -> None:
    assert database(env) == Path(expected)
