"""The private home, the stubs a resume leaves, and what the session file adds to the stream."""

import json
from pathlib import Path

import pytest

from stagedoor.agents.gemini import GeminiToolResult, StreamProtocol, ToolDetails, Truncated
from stagedoor.agents.gemini.acp import make_loadable
from stagedoor.agents.gemini.store import (
    DetailedProtocol,
    PrivateHome,
    SessionFile,
    forget_unanswered,
    session_files,
    sweep_stubs,
    user_folder,
    user_settings,
)

A = "aaaaaaaa-1111-4111-8111-111111111111"
TWIN = "aaaaaaaa-2222-4111-8111-111111111111"


def test_a_private_home_has_our_settings_and_their_everything_else(home: Path):
    theirs = home / ".gemini"
    (theirs / "settings.json").write_text('{"mine": true}')
    (theirs / "extensions").mkdir()
    (theirs / "projects.json").write_text("{}")
    (theirs / "projects.json.1.tmp").write_text("litter")
    (home / ".env").write_text("X=1")
    env = {"HOME": str(home)}
    private = PrivateHome(env, b'{"ours": true}')
    mine = Path(private.path) / ".gemini"
    assert user_settings(env) == b'{"mine": true}'
    assert (mine / "settings.json").read_bytes() == b'{"ours": true}'
    assert (mine / "settings.json").stat().st_mode & 0o777 == 0o600
    assert Path(private.path).stat().st_mode & 0o777 == 0o700
    assert {path.name for path in mine.iterdir() if path.exists()} == {
        "settings.json",
        "extensions",
        "projects.json",
        "tmp",
        "history",
    }
    (mine / "tmp" / "written").write_text("x")
    (mine / "oauth_creds.json").write_text("signed in")
    assert (Path(private.path) / ".env").read_text() == "X=1"
    private.remove()
    private.remove()
    assert not Path(private.path).exists()
    assert (theirs / "tmp" / "written").read_text() == "x"
    assert (theirs / "oauth_creds.json").read_text() == "signed in"
    assert (theirs / "settings.json").read_text() == '{"mine": true}'


def test_a_private_home_goes_with_its_owner(home: Path):
    path = PrivateHome({"HOME": str(home)}, b"{}").path
    assert not Path(path).exists()


def test_homes_of_the_dead_are_removed_and_those_of_the_living_kept(home: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    orphan, unlocked = tmp_path / "stagedoor-gemini-orphan", tmp_path / "stagedoor-gemini-unlocked"
    orphan.mkdir()
    (orphan / "lock").touch()
    unlocked.mkdir()
    first = PrivateHome({"HOME": str(home)}, b"{}")
    second = PrivateHome({"HOME": str(home)}, b"{}")
    assert [path.exists() for path in (orphan, unlocked, Path(first.path), Path(second.path))] == [
        False,
        True,
        True,
        True,
    ]


def test_where_the_users_folder_is():
    assert user_folder({"HOME": "/h"}) == Path("/h/.gemini")
    assert user_folder({"HOME": "/h", "GEMINI_CLI_HOME": "/g"}) == Path("/g/.gemini")
    assert user_settings({"HOME": "/nowhere"}) is None


def test_stubs_of_a_resume_are_swept_and_nothing_else(store, conversation, stub, repo, home):
    folder = home / ".gemini"
    real = store("session-2026-11-15T06-00-aaaaaaaa.jsonl", *conversation(A, "06:00"))
    first = store("session-2026-11-15T06-05-aaaaaaaa.jsonl", *stub(A, "06:05"))
    second = store("session-2026-11-15T06-06-aaaaaaaa.jsonl", *stub(A, "06:06"))
    twin = store("session-2026-11-15T06-07-aaaaaaaa.jsonl", *stub(TWIN, "06:07"))
    full = store("session-2026-11-15T06-08-aaaaaaaa.jsonl", *conversation(A, "06:08"))
    assert session_files(folder, str(repo), A) == [real, first, second, full]
    assert sweep_stubs(folder, str(repo), A) == [first, second]
    assert [path.exists() for path in (real, first, second, twin, full)] == [True, False, False, True, True]
    assert sweep_stubs(folder, str(repo), A) == []
    assert sweep_stubs(folder, str(repo), "unknown") == []


def test_an_empty_session_is_left_alone(store, stub, repo, home):
    paths = [store(f"session-2026-11-15T06-0{n}-aaaaaaaa.jsonl", *stub(A, f"06:0{n}")) for n in (1, 2)]
    assert sweep_stubs(home / ".gemini", str(repo), A) == []
    assert all(path.exists() for path in paths)


def test_only_a_session_without_content_is_forgotten(store, conversation, stub, repo, home):
    folder, place = home / ".gemini", str(repo)
    empty = store("session-2026-11-15T06-00-aaaaaaaa.jsonl", *stub(A, "06:00"))
    twin = store("session-2026-11-15T06-01-aaaaaaaa.jsonl", *stub(TWIN, "06:01"))
    assert forget_unanswered(folder, place, A)
    assert [empty.exists(), twin.exists()] == [False, True]
    assert not forget_unanswered(folder, place, A)
    nameless = store("session-2026-11-15T06-01-.jsonl", {})
    assert not forget_unanswered(folder, place, "")
    assert nameless.exists()
    real = store("session-2026-11-15T06-02-aaaaaaaa.jsonl", *conversation(A, "06:02"))
    assert not forget_unanswered(folder, place, A)
    assert real.exists()


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def called(*tool_ids: str) -> dict:
    function_response = [
        {"functionResponse": {"response": {"output": "Output: x\nExit Code: 2\nProcess Group PGID: 1"}}}
    ]
    calls = [
        {
            "id": tool_id,
            "name": "run_shell_command",
            "result": function_response,
            "status": "success",
            "resultDisplay": "x",
        }
        for tool_id in tool_ids
    ]
    return {"id": "g", "type": "gemini", "content": "", "toolCalls": calls}


def more(tool_id: str) -> ToolDetails:
    response = {"output": "Output: x\nExit Code: 2\nProcess Group PGID: 1"}
    return ToolDetails(tool_id, "run_shell_command", "success", 2, response=response)


RESULT_1 = b'{"type":"tool_result","tool_id":"1","status":"success"}'
RESULT_2 = b'{"type":"tool_result","tool_id":"2","status":"success"}'
TEXT = b'{"type":"message","role":"assistant","content":"x"}'


def test_details_come_between_the_results_and_what_follows(tmp_path: Path):
    path = tmp_path / "session.jsonl"
    located: list[Path] = []
    protocol = DetailedProtocol(StreamProtocol(), SessionFile(lambda: located[0] if located else None))
    assert protocol.receive(RESULT_1) == [GeminiToolResult("1", "success")]
    assert protocol.receive(RESULT_2) == [GeminiToolResult("2", "success")]
    assert [type(event).__name__ for event in protocol.receive(TEXT)] == ["GeminiMessage"]  # the file is not there yet
    located.append(path)
    path.write_bytes(lines(called("1"))[:-1])
    assert [type(event).__name__ for event in protocol.receive(TEXT)] == ["GeminiMessage"]  # its line is half written
    path.write_bytes(lines(called("1")))
    assert protocol.receive(TEXT)[0] == more("1")
    assert [type(event).__name__ for event in protocol.receive(TEXT)] == ["GeminiMessage"]  # once
    path.write_bytes(lines(called("1")) + lines(called("1", "2")))
    assert protocol.receive_eof() == [more("2"), Truncated("the output ended without a result event")]
    assert protocol.outgoing() == []


def test_a_record_that_stays_away_costs_ever_fewer_searches_and_is_found_when_the_model_has_spoken(tmp_path: Path):
    path = tmp_path / "session.jsonl"
    searches: list[int] = []

    def locate() -> Path | None:
        searches.append(1)
        return path if path.exists() else None

    protocol = DetailedProtocol(StreamProtocol(), SessionFile(locate))
    protocol.receive(RESULT_1)
    for _ in range(1000):
        assert [type(event).__name__ for event in protocol.receive(TEXT)] == ["GeminiMessage"]
    assert len(searches) == 10
    path.write_bytes(lines(called("1")))
    assert protocol.receive(b'{"type":"result","status":"success"}')[0] == more("1")


def test_calls_of_messages_that_are_replaced_or_taken_back_are_gone(tmp_path: Path):
    path = tmp_path / "session.jsonl"
    file = SessionFile(lambda: path)
    for record, left in (
        (called("1", "2"), ["1", "2"]),
        (called("2", "3"), ["2", "3"]),
        (called("4") | {"id": "h"}, ["2", "3", "4"]),
        ({"$rewindTo": "h"}, ["2", "3"]),
        ({"$set": {"messages": [called("5")]}}, ["5"]),
    ):
        with path.open("ab") as log:
            log.write(lines(record))
        assert [tool_id for tool_id in "12345" if file.tool_details(tool_id)] == left


def test_details_on_demand(tmp_path: Path):
    path = tmp_path / "session.jsonl"
    file = SessionFile(lambda: path)
    assert file.tool_details("1") is None
    path.write_bytes(lines(called("1")))
    assert file.tool_details("1") == more("1")
    assert file.tool_details("2") is None


SIX = 1794722400.0  # 2026-11-15T06:00:00Z


@pytest.mark.parametrize(
    ("names", "now", "renamed"),
    [
        (["session-2026-11-15T05-59-aaaaaaaa.jsonl"], SIX, ["session-2026-11-15T05-59-aaaaaaaa.jsonl"]),
        (["session-2026-11-15T06-00-aaaaaaaa.jsonl"], SIX, ["session-2026-11-15T05-59-aaaaaaaa.jsonl"]),
        (["session-2026-11-15T06-01-aaaaaaaa.jsonl"], SIX + 59, ["session-2026-11-15T05-59-aaaaaaaa.jsonl"]),
        (
            ["session-2026-11-15T05-59-aaaaaaaa.jsonl", "session-2026-11-15T06-00-aaaaaaaa.jsonl"],
            SIX + 59,
            ["session-2026-11-15T05-58-aaaaaaaa.jsonl", "session-2026-11-15T05-59-aaaaaaaa.jsonl"],
        ),
        (["session-2026-11-15T06-00-aaaaaaaa.jsonl"], SIX + 60, ["session-2026-11-15T06-00-aaaaaaaa.jsonl"]),
        ([], SIX, []),
    ],
)
def test_a_session_loaded_in_its_first_minute_gets_an_older_name(
    tmp_path: Path, names: list[str], now: float, renamed: list[str]
):
    for name in names:
        (tmp_path / name).touch()
    make_loadable([tmp_path / name for name in names], now)
    assert sorted(path.name for path in tmp_path.iterdir()) == renamed
