from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from stagedoor.agents.claude.history import (
    ClaudeHistory,
    ClaudeStoredSession,
    Totals,
    config_folder,
    folder_name,
    list_sessions,
    totals,
)

ID = "0a1b2c3d-1111-4222-8333-44445555666{}"


def user(content: Any, **more: Any) -> dict[str, Any]:
    line = {"type": "user", "message": {"role": "user", "content": content}, "cwd": "/repo", "gitBranch": "main"}
    return {**line, "timestamp": "2026-11-15T06:24:17.199Z", **more}


def assistant(message_id: str = "m1", **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}
    message = {"id": message_id, "model": "claude-x", "content": [{"type": "text", "text": "hi"}], "usage": usage}
    return {"type": "assistant", "message": message, **more}


def write(folder: Path, number: int, lines: list[Any], mtime: int = 1000) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{ID.format(number)}.jsonl"
    path.write_text(
        "".join((line if isinstance(line, str) else json.dumps(line, separators=(",", ":"))) + "\n" for line in lines)
    )
    os.utime(path, (mtime, mtime))
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A working directory, with Claude Code's folder beside it in ``home``."""
    cwd = tmp_path / "repo"
    cwd.mkdir()
    return cwd


def folder_of(project: Path) -> Path:
    return project.parent / "home" / "projects" / folder_name(str(project.resolve()))


def listed(project: Path) -> ClaudeHistory:
    return list_sessions(project, home=str(project.parent / "home"))


def test_a_whole_entry(project: Path) -> None:
    path = write(folder_of(project), 0, [user("Fix it"), assistant(), assistant(), assistant("m2"), user("More")], 5)
    assert listed(project) == ClaudeHistory(
        [
            ClaudeStoredSession(
                session_id=ID.format(0),
                path=str(path),
                title="Fix it",
                updated_ms=5000,
                size=path.stat().st_size,
                cwd="/repo",
                first_prompt="Fix it",
                git_branch="main",
                model="claude-x",
                started_ms=1794723857199,
                message_count=4,
                tokens=40,
            )
        ],
        [],
    )
    assert totals(path) == Totals(4, 20, 10, 6, 4)


@pytest.mark.parametrize(
    ("lines", "title", "first_prompt"),
    [
        ([user("one"), user("two")], "one", "one"),
        ([user([{"type": "text", "text": "listed"}])], "listed", "listed"),
        ([user([{"type": "image"}, {"type": "text", "text": " spaced\nout "}])], "spaced out", "spaced out"),
        ([user("meta", isMeta=True), user("real")], "real", "real"),
        ([user([{"type": "tool_result", "content": "x"}]), user("real")], "real", "real"),
        ([user("<command-name>/init</command-name>"), user("real")], "real", "real"),
        ([user("<command-name>/init</command-name>")], "/init", "/init"),
        ([user("[Request interrupted by user]"), user("real")], "real", "real"),
        ([user("x" * 250)], "x" * 200 + "…", "x" * 200 + "…"),
        ([user("one"), {"type": "last-prompt", "lastPrompt": "the last"}], "the last", "one"),
        ([user("one"), {"type": "ai-title", "aiTitle": "made up"}], "made up", "one"),
        (
            [
                {"type": "custom-title", "customTitle": "old"},
                user("one"),
                {"type": "custom-title", "customTitle": "new"},
            ],
            "new",
            "one",
        ),
        ([user("one"), {"type": "custom-title", "customTitle": 'quo"ted \\ ü'}], 'quo"ted \\ ü', "one"),
        ([user("one"), '{"type": "custom-title", "customTitle": "with spaces"}'], "with spaces", "one"),
        ([user("one"), '{"type":"custom-title","customTitle":"cut of'], "one", "one"),
        (["not json", user("one")], "one", "one"),
        ([user("emoji"), '{"type":"ai-title","aiTitle":"\\ud83d\\ude00"}'], "😀", "emoji"),
    ],
)
def test_titles_and_prompts(project: Path, lines: list[Any], title: str, first_prompt: str) -> None:
    write(folder_of(project), 0, lines)
    (session,) = listed(project).sessions
    assert (session.title, session.first_prompt) == (title, first_prompt)


def test_only_heads_and_tails_of_long_files(project: Path) -> None:
    filler = [assistant(f"m{n}", text="x" * 1000) for n in range(300)]
    branch = user("late", gitBranch="feature")
    path = write(folder_of(project), 0, [user("first"), *filler, branch, {"type": "tag", "tag": "urgent"}])
    (session,) = listed(project).sessions
    assert (session.title, session.git_branch, session.tag, session.model) == ("first", "feature", "urgent", "claude-x")
    assert (session.message_count, session.tokens) == (None, None)
    assert totals(path).message_count == 302


def test_what_is_no_session_and_what_is_broken(project: Path) -> None:
    folder = folder_of(project)
    write(folder, 0, [user("fine")])
    write(folder, 1, [user("a sub-agent's", isSidechain=True)])
    empty = write(folder, 2, [])
    titleless = write(folder, 3, [{"type": "mode", "mode": "normal"}])
    (folder / "agent-1.jsonl").write_text("{}")
    (folder / "notes.txt").write_text("")
    directory = folder / f"{ID.format(4)}.jsonl"
    directory.mkdir()
    history = listed(project)
    assert [session.title for session in history.sessions] == ["fine"]
    skipped = dict(history.skipped)
    assert set(skipped) == {str(empty), str(titleless), str(directory)}
    assert skipped[str(empty)] == "the file is empty"
    assert skipped[str(titleless)] == "it holds no prompt"


def test_newest_first_and_other_folders_left_out(project: Path) -> None:
    for number in range(3):
        write(folder_of(project), number, [user(f"p{number}")], mtime=number * 10)
    write(folder_of(project).parent / "-elsewhere", 7, [user("elsewhere")], mtime=99)
    assert [session.title for session in listed(project).sessions] == ["p2", "p1", "p0"]
    everything = list_sessions(None, home=str(project.parent / "home"))
    assert [session.title for session in everything.sessions] == ["elsewhere", "p2", "p1", "p0"]
    assert list_sessions(project / "never", home=str(project.parent / "home")) == ClaudeHistory([], [])
    assert list_sessions(None, home="/nonexistent") == ClaudeHistory([], [])


def test_recorded_session_files(project: Path, session_files: list[Path]) -> None:
    folder = folder_of(project)
    folder.mkdir(parents=True)
    for number, path in enumerate(session_files):
        shutil.copy(path, folder / f"{ID.format(number)}.jsonl")
        os.utime(folder / f"{ID.format(number)}.jsonl", (number, number))
    history = listed(project)
    assert history.skipped == []
    rows = [(s.title, s.first_prompt, s.git_branch, s.message_count, s.model) for s in reversed(history.sessions)]
    assert [row[2:] for row in rows] == [("main", 5, "claude-opus-4-8"), ("main", 7, "claude-opus-4-8"),
                                          ("main", 2, "claude-opus-4-8")]  # fmt: skip
    assert rows[0][:2] == ("resumed prompt [[scenario:text]]", "my first prompt [[scenario:bash]]")


def test_the_same_as_the_official_sdk(project: Path, session_files: list[Path], monkeypatch) -> None:
    sdk = pytest.importorskip("claude_agent_sdk")
    folder = folder_of(project)
    folder.mkdir(parents=True)
    for number, path in enumerate(session_files):
        shutil.copy(path, folder / f"{ID.format(number)}.jsonl")
    write(folder, 8, [user("x" * 250), {"type": "tag", "tag": "t"}, {"type": "summary", "summary": "sum"}])
    write(folder, 9, [user("<command-name>/clear</command-name>"), *[assistant(f"m{n}") for n in range(900)]])
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(project.parent / "home"))
    theirs = sdk.list_sessions(directory=str(project), include_worktrees=False)
    ours = list_sessions(project).sessions
    assert len(ours) == len(session_files) + 2
    assert [
        (s.session_id, s.title, s.updated_ms, s.size, s.custom_title, s.first_prompt, s.git_branch, s.cwd, s.tag)
        for s in ours
    ] == [
        (
            s.session_id,
            s.summary,
            s.last_modified,
            s.file_size,
            s.custom_title,
            s.first_prompt,
            s.git_branch,
            s.cwd,
            s.tag,
        )
        for s in theirs
    ]
    assert [s.started_ms for s in ours] == [s.created_at for s in theirs]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/sp ace", "-a-sp-ace"),
        ("/dot.dir.v1", "-dot-dir-v1"),
        ("/under_score", "-under-score"),
        ("/ünïcode-日本", "--n-code---"),
        ("/😀", "---"),
        ("/" + "a" * 250, "-" + "a" * 199 + "-8xstsr"),
    ],
)
def test_folder_names(path: str, name: str) -> None:
    folder = folder_name(path)
    assert folder == name if len(path) < 200 else folder.startswith(name[:200] + "-")


def test_where_claude_code_keeps_its_things() -> None:
    assert config_folder({"CLAUDE_CONFIG_DIR": "/c", "HOME": "/h"}) == "/c"
    assert config_folder({"HOME": "/h"}) == "/h/.claude"


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,  ", " :\t")], ids=["none", "usual", "many"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
def test_spaces_between_the_members_change_nothing(project: Path, separators: tuple[str, str], mark: str) -> None:
    lines = [
        user('Say: "a": 1', cwd=str(project), timestamp="2026-11-15T07:40:00.250Z"),
        assistant("m1"),
        assistant("m2"),
        {"type": "tag", "tag": "chosen"},
        {"type": "custom-title", "customTitle": "Named"},
    ]
    path = write(folder_of(project), 1, lines)
    [usual] = listed(project).sessions
    path.write_text(mark + "".join(json.dumps(line, separators=separators) + "\n" for line in lines))
    [session] = listed(project).sessions
    same = {name: getattr(session, name) for name in session.__struct_fields__ if name not in ("size", "updated_ms")}
    assert same == {name: getattr(usual, name) for name in same}
    assert (session.message_count, session.title, session.tag) == (3, "Named", "chosen")
    assert totals(path) == totals(write(folder_of(project), 2, lines))
