"""Sessions on disk."""

import json

from stagedoor.agents.gemini import GeminiHistory, GeminiStoredSession, list_sessions

A, B = "aaaaaaaa-1111-4111-8111-111111111111", "bbbbbbbb-1111-4111-8111-111111111111"
SIX = 1794722400000  # 2026-11-15T06:00Z


def stored(path, repo, session_id, **more) -> GeminiStoredSession:
    texts = {"title": "Fix the bug", "first_prompt": "Fix the bug", "message_count": 3, "model": "gemini-3.8-flash"}
    times = {"started_ms": SIX, "updated_ms": SIX + 2500, "tokens": 110}
    return GeminiStoredSession(session_id=session_id, cwd=str(repo), path=str(path), **{**texts, **times, **more})


def test_newest_first_without_stubs_sub_agents_and_broken_files(store, conversation, stub, repo, home):
    a = store("session-2026-11-15T06-00-aaaaaaaa.jsonl", *conversation(A, "06:00"), {"$set": {"summary": "Bug fixed"}})
    b = store("session-2026-11-15T06-05-bbbbbbbb.jsonl", *conversation(B, "06:05", "Next\n  thing"))
    store("session-2026-11-15T06-10-aaaaaaaa.jsonl", *stub(A, "06:10"))
    sub = conversation("cccccccc", "06:06")
    store("session-2026-11-15T06-06-cccccccc.jsonl", {**sub[0], "kind": "subagent"}, *sub[1:])
    broken = store("session-2026-11-15T06-07-dddddddd.jsonl", b"\x00\xff not json")
    empty = store("session-2026-11-15T06-08-eeeeeeee.jsonl")
    store("notes.txt", b"not a session")
    why = "no session header: the file is damaged or not a session"
    assert list_sessions(repo, env={"HOME": str(home)}) == GeminiHistory(
        [
            stored(
                b,
                repo,
                B,
                title="Next thing",
                first_prompt="Next\n  thing",
                started_ms=SIX + 300_000,
                updated_ms=SIX + 302_500,
            ),
            stored(a, repo, A, title="Bug fixed"),
        ],
        [(str(broken), why), (str(empty), why)],
    )


def test_the_older_format_is_one_object(store, conversation, repo, home):
    header, _, prompt, _, reply, _ = conversation(A, "06:00")
    whole = json.dumps({**header, "messages": [prompt, reply]}, indent=2).encode()
    path = store("session-2026-11-15T06-00-aaaaaaaa.json", whole)
    assert list_sessions(repo, env={"HOME": str(home)}) == GeminiHistory(
        [stored(path, repo, A, message_count=2, updated_ms=SIX)]
    )


def test_half_a_last_line_does_not_matter(store, conversation, repo, home):
    path = store("session-2026-11-15T06-00-aaaaaaaa.jsonl", *conversation(A, "06:00"), b'{"id":"z","type":"us')
    assert list_sessions(repo, env={"HOME": str(home)}) == GeminiHistory([stored(path, repo, A)])


def test_by_the_registry_when_there_is_no_marker(store, conversation, repo, home):
    path = store("session-2026-11-15T06-00-aaaaaaaa.jsonl", *conversation(A, "06:00"))
    (home / ".gemini/tmp/repo/.project_root").unlink()
    assert list_sessions(repo, env={"HOME": str(home)}) == GeminiHistory()
    (home / ".gemini/projects.json").write_text(json.dumps({"projects": {str(repo): "repo", "/other": "x"}}))
    assert list_sessions(repo, env={"GEMINI_CLI_HOME": str(home)}) == GeminiHistory([stored(path, repo, A)])


def test_other_folders_and_missing_homes(store, conversation, tmp_path, home):
    store("session-2026-11-15T06-00-aaaaaaaa.jsonl", *conversation(A, "06:00"))
    (home / ".gemini/projects.json").write_text("[broken")
    assert list_sessions(tmp_path, env={"HOME": str(home)}) == GeminiHistory()
    assert list_sessions(tmp_path, env={"HOME": str(tmp_path / "nowhere")}) == GeminiHistory()


def test_all_folders(store, conversation, repo, home):
    path = store("session-2026-11-15T06-00-aaaaaaaa.jsonl", *conversation(A, "06:00"))
    other = home / ".gemini/tmp/other/chats"
    other.mkdir(parents=True)
    (home / ".gemini/projects.json").write_text(json.dumps({"projects": {"/other": "other", "/gone": "gone"}}))
    copy = other / "session-2026-11-15T06-05-bbbbbbbb.jsonl"
    copy.write_bytes(b"".join(json.dumps(record).encode() + b"\n" for record in conversation(B, "06:05")))
    later = {"started_ms": SIX + 300_000, "updated_ms": SIX + 302_500}
    assert list_sessions(None, env={"HOME": str(home)}) == GeminiHistory(
        [stored(copy, "/other", B, **later), stored(path, repo, A)]
    )
