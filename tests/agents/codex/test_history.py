"""Sessions on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stagedoor.agents.codex.events import CodexUsage
from stagedoor.agents.codex.history import CodexHistory, CodexStoredSession, list_sessions, names, total_usage
from stagedoor.drivers.agent import StoredSession
from stagedoor.drivers.codex.stored import read_stored

FIRST = "01a1de27-921f-75e3-9f54-4236643c9af4"
SECOND = "01a1de27-94c0-7a72-8de4-d8c9ffc09a69"
THIRD = "01a1de28-0000-7000-8000-000000000000"
PROMPT = "First prompt\nwith two lines"


def record(kind: str, second: int, **payload: Any) -> str:
    line = {"timestamp": f"2026-11-15T07:40:{second:02d}.500Z", "ordinal": second, "type": kind, "payload": payload}
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False)


def meta(thread_id: str, cwd: str, **more: Any) -> str:
    return record(
        "session_meta",
        0,
        id=thread_id,
        timestamp="2026-11-15T07:40:00.250Z",
        cwd=cwd,
        cli_version="0.166.0",
        **{"source": "exec"} | more,
        base_instructions={"text": "x" * 22_000},
    )


def message(kind: str, second: int, text: str) -> str:
    part = "text" if kind == "UserMessage" else "Text"
    return record(
        "event_msg", second, type="item_completed", item={"type": kind, "content": [{"type": part, "text": text}]}
    )


def usage(second: int, tokens: int) -> str:
    return record("token_usage_record", second, thread_token_usage={"input_tokens": tokens, "output_tokens": 1})


def write(home: Path, thread_id: str, *lines: str, folder: str = "sessions/2026/11/15") -> Path:
    path = home / folder / f"rollout-2026-11-15T07-40-00-{thread_id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def whole(home: Path, cwd: Path) -> Path:
    quoting = 'he said "item":{"type":"UserMessage" and went on'
    return write(
        home,
        FIRST,
        meta(FIRST, str(cwd), git={"branch": "main", "repository_url": "https://example.com/a.git"}),
        record("response_item", 1, type="message", role="user", content=[{"text": "<environment_context>"}]),
        record("turn_context", 1, model="gpt-5.5", cwd=str(cwd)),
        message("UserMessage", 2, PROMPT),
        message("AgentMessage", 3, quoting),
        usage(3, 100),
        record("event_msg", 4, type="item_completed", item={"type": "CommandExecution", "output": "y" * 300_000}),
        message("UserMessage", 5, "again"),
        record("turn_context", 5, model="gpt-6", cwd=str(cwd)),
        message("AgentMessage", 6, "done"),
        usage(6, 250),
        record("event_msg", 7, type="task_complete", last_agent_message="done"),
    )


def test_sessions_of_a_folder(tmp_path: Path) -> None:
    home, cwd = tmp_path / "home", tmp_path / "repo"
    cwd.mkdir()
    path = whole(home, cwd)
    write(home, SECOND, meta(SECOND, "/elsewhere"), message("UserMessage", 2, "other"))
    write(home, THIRD, meta(THIRD, str(cwd), source={"subagent": "review"}), message("UserMessage", 2, "judge"))
    expected = CodexStoredSession(
        session_id=FIRST,
        cwd=str(cwd),
        title="First prompt",
        first_prompt=PROMPT,
        message_count=4,
        model="gpt-6",
        git_branch="main",
        started_ms=1794728400250,
        updated_ms=1794728407500,
        tokens=CodexUsage(250, 0, 0, 1),
        path=str(path),
        source="exec",
        cli_version="0.166.0",
        repository_url="https://example.com/a.git",
    )
    assert list_sessions(str(cwd), home=home) == CodexHistory([expected], [])
    assert list_sessions(str(cwd), env={"CODEX_HOME": str(home)}) == CodexHistory([expected], [])
    assert [session.session_id for session in list_sessions(home=home).sessions] == [FIRST, SECOND]


def test_a_link_to_the_folder_is_the_folder(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "repo")
    whole(tmp_path / "home", tmp_path / "repo")
    assert len(list_sessions(str(tmp_path / "link"), home=tmp_path / "home").sessions) == 1


def test_broken_files_are_skipped_and_reported(tmp_path: Path) -> None:
    whole(tmp_path, tmp_path)
    empty = write(tmp_path, "empty")
    broken = write(tmp_path, "broken", '{"timestamp":"2026')
    headless = write(tmp_path, "headless", message("UserMessage", 1, "x"))
    odd = write(tmp_path, "odd", record("session_meta", 0, cwd="/"))
    packed = empty.with_name("rollout-packed.jsonl.zst")
    packed.write_bytes(b"\x28\xb5\x2f\xfd")
    history = list_sessions(str(tmp_path), home=tmp_path)
    assert [session.session_id for session in history.sessions] == [FIRST]
    beginning = "the file does not begin with a session_meta line"
    assert dict(history.skipped) == {
        str(empty): beginning,
        str(broken): beginning,
        str(headless): beginning,
        str(odd): "session_meta: Object missing required field `id`",
        str(packed): "the recording is compressed (.zst): resume it in Codex to unpack it",
    }


def test_a_cut_off_or_garbled_line_spoils_nothing(tmp_path: Path) -> None:
    path = whole(tmp_path, tmp_path)
    with path.open("ab") as file:
        file.write(b'\x00\xff not json\n{"timestamp":"2026-11-15T07:40:09')
    (session,) = list_sessions(str(tmp_path), home=tmp_path).sessions
    assert (session.message_count, session.updated_ms, session.tokens) == (4, 1794728407500, CodexUsage(250, 0, 0, 1))


def test_older_recordings(tmp_path: Path) -> None:
    write(
        tmp_path,
        FIRST,
        meta(FIRST, str(tmp_path)),
        record("event_msg", 1, type="user_message", message="Old prompt"),
        record("event_msg", 2, type="agent_message", message="Old answer"),
        record("event_msg", 2, type="user_message", message="A later one"),
        record("event_msg", 3, type="token_count", info={"total_token_usage": {"input_tokens": 7}}),
    )
    (session,) = list_sessions(str(tmp_path), home=tmp_path).sessions
    assert (session.first_prompt, session.message_count, session.tokens) == ("Old prompt", 3, CodexUsage(7))


def test_the_model_is_the_one_of_the_last_turn_however_long_that_was(tmp_path: Path) -> None:
    write(
        tmp_path,
        FIRST,
        meta(FIRST, str(tmp_path)),
        record("turn_context", 1, model="gpt-5.5"),
        message("UserMessage", 2, PROMPT),
        record("turn_context", 10, model="gpt-6"),
        record("event_msg", 11, type="collab_agent_spawn_begin", model="of another agent"),
        *(record("event_msg", 12, type="exec_command_end", output="y" * 1000) for _ in range(300)),
    )
    (session,) = list_sessions(str(tmp_path), home=tmp_path).sessions
    assert (session.model, session.first_prompt, session.updated_ms) == ("gpt-6", PROMPT, 1794728412500)


def test_names_are_titles(tmp_path: Path) -> None:
    whole(tmp_path, tmp_path)
    index = [{"id": FIRST, "thread_name": "Draft"}, {"id": FIRST, "thread_name": "My title"}, {"id": "x"}]
    (tmp_path / "session_index.jsonl").write_text("\n".join(map(json.dumps, index)) + "\nnot json\n")
    assert names(tmp_path) == {FIRST: "My title"}
    (session,) = list_sessions(str(tmp_path), home=tmp_path).sessions
    assert session.title == "My title"


def test_a_long_prompt_makes_a_short_title(tmp_path: Path) -> None:
    write(tmp_path, FIRST, meta(FIRST, str(tmp_path)), message("UserMessage", 1, "\n" + "w" * 200_000))
    (session,) = list_sessions(str(tmp_path), home=tmp_path).sessions
    assert (session.title, len(session.first_prompt)) == ("w" * 99 + "…", 200_001)


def test_archived_sessions_are_apart(tmp_path: Path) -> None:
    write(tmp_path, FIRST, meta(FIRST, str(tmp_path)), folder="archived_sessions")
    assert list_sessions(str(tmp_path), home=tmp_path) == CodexHistory([], [])
    assert len(list_sessions(str(tmp_path), home=tmp_path, archived=True).sessions) == 1


def test_nothing_stored(tmp_path: Path) -> None:
    assert list_sessions(str(tmp_path), home=tmp_path / "missing") == CodexHistory([], [])


def test_the_total_of_a_thread(tmp_path: Path) -> None:
    path = whole(tmp_path, tmp_path)
    assert total_usage(FIRST, home=tmp_path) == CodexUsage(250, 0, 0, 1)
    assert total_usage(SECOND, home=tmp_path) is None
    with path.open("a") as file:
        file.write(record("event_msg", 8, type="item_completed", item={"type": "CommandExecution", "o": "z" * 200_000}))
    assert total_usage(FIRST, home=tmp_path) == CodexUsage(250, 0, 0, 1)
    write(tmp_path, SECOND, meta(SECOND, str(tmp_path)))
    assert total_usage(SECOND, home=tmp_path) == CodexUsage()


def test_messages_are_counted_across_the_blocks_of_a_large_file(tmp_path: Path) -> None:
    lines = [message("AgentMessage", 1, "q" * size) for size in (*[1000] * 2999, 3_000_000)]
    write(tmp_path, FIRST, meta(FIRST, str(tmp_path)), *lines)
    (session,) = list_sessions(str(tmp_path), home=tmp_path).sessions
    assert session.message_count == 3000


def test_a_recording_that_grows_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path, FIRST, meta(FIRST, str(tmp_path)), message("AgentMessage", 1, "one"))
    for count in (1, 2, 3):
        for _ in range(2):
            (session,) = list_sessions(str(tmp_path), home=tmp_path).sessions
            assert (session.message_count, session.path) == (count, str(path))
        with path.open("a") as file:
            file.write(message("AgentMessage", 1, "more") + "\n")
    assert list_sessions(str(tmp_path / "elsewhere"), home=tmp_path).sessions == []


@pytest.mark.parametrize("form", ["as Codex writes it", "with spaces", "with a byte order mark"])
def test_what_is_stored_for_the_model_only(tmp_path: Path, form: str) -> None:
    """Prompts and answers that no event displayed; one that was displayed too is read once."""

    def said(role: str, second: int, words: str) -> str:
        return record("response_item", second, type="message", role=role, content=[{"type": "text", "text": words}])

    lines = [
        meta(FIRST, str(tmp_path)),
        said("user", 1, "<environment_context>x</environment_context>"),
        said("user", 2, PROMPT),
        said("assistant", 3, "only for the model"),
        said("assistant", 4, "shown"),
        *([message("AgentMessage", 4, "shown")] if form == "as Codex writes it" else []),
    ]
    if form == "with spaces":
        lines = [json.dumps(json.loads(line)) for line in lines]
    elif form == "with a byte order mark":
        lines[0] = "\ufeff" + lines[0]
    path = write(tmp_path, FIRST, *lines)
    [stored] = list_sessions(tmp_path, home=tmp_path).sessions
    assert (stored.first_prompt, stored.message_count) == (PROMPT, 3)
    read = list(read_stored(StoredSession(agent="codex", session_id=FIRST, path=str(path)), {}))
    assert [getattr(event, "prompt", None) or getattr(event, "text", None) for event in read] == [
        PROMPT,
        "only for the model",
        "shown",
    ]
