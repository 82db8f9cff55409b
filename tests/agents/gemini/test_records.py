"""The rules by which a session file is replayed."""

import json

import pytest

from stagedoor.agents.gemini.records import (
    SHELL,
    FileDiff,
    GeminiDiffStat,
    MessageRecord,
    MessageTokens,
    Metadata,
    SessionFileReplay,
    Thought,
    ToolDetails,
    ToolRecord,
    details,
)


def replayed(*records: object) -> SessionFileReplay:
    replay = SessionFileReplay()
    replay.feed([record if isinstance(record, bytes) else json.dumps(record).encode() for record in records])
    return replay


def user(message_id: str, text: str = "hi") -> dict:
    return {"id": message_id, "type": "user", "content": [{"text": text}]}


HEADER = {"sessionId": "s", "projectHash": "h", "startTime": "1", "lastUpdated": "1", "kind": "main"}


@pytest.mark.parametrize(
    ("records", "ids"),
    [
        ([HEADER, user("a"), user("b")], ["a", "b"]),
        ([HEADER, user("a"), user("b"), user("a", "new")], ["a", "b"]),
        ([HEADER, user("a"), {"$set": {"messages": [user("x"), user("y")]}}, user("b")], ["x", "y", "b"]),
        ([HEADER, user("a"), {"$set": {"messages": []}}], []),
        ([HEADER, user("a"), user("b"), user("c"), {"$rewindTo": "b"}], ["a"]),
        ([HEADER, user("a"), user("b"), {"$rewindTo": "unknown"}], []),
        ([HEADER, user("a"), {"something": "new"}, user("b")], ["a", "b"]),
        ([{**HEADER, "messages": [user("a"), user("b")]}], ["a", "b"]),
        ([HEADER, b"{broken", b"", user("a"), b'{"id":[3]}', b"[]", user("b")], ["a", "b"]),
        (
            ["\ufeff".encode() + json.dumps(HEADER).encode(), {**user("a"), "tokens": {"input": 5.0, "output": {}}}],
            ["a"],
        ),
        ([HEADER, b'{"id":"a","type":"user","content":"half \\ud83d"}'], ["a"]),
    ],
)
def test_rules(records: list, ids: list[str]):
    assert [message.id for message in replayed(*records).messages] == ids


def test_metadata_is_merged_and_keeps_its_beginning():
    replay = replayed(
        HEADER,
        {"$set": {"lastUpdated": "2", "summary": "Bug fixed"}},
        {**HEADER, "startTime": "3", "lastUpdated": "3"},
        b"{broken",
    )
    assert replay.metadata == Metadata("s", "h", "1", "3", "main", "Bug fixed")
    assert replay.unreadable == 1


def test_a_message_with_everything():
    call = {"id": "t1", "name": "glob", "args": {"pattern": "*"}, "status": "success", "new_field": 1}
    thought = {"subject": "Looking", "description": "at it", "timestamp": "1"}
    message = {
        "id": "g",
        "timestamp": "1",
        "type": "gemini",
        "content": "Done.",
        "thoughts": [thought],
        "tokens": {"input": 1, "output": 2, "cached": 3, "thoughts": 4, "tool": 5, "total": 15},
        "model": "m",
        "toolCalls": [call],
    }
    replay = replayed(message)
    expected = ToolRecord(id="t1", name="glob", args={"pattern": "*"}, status="success")
    assert replay.messages == [
        MessageRecord(
            id="g",
            type="gemini",
            content="Done.",
            timestamp="1",
            model="m",
            tokens=MessageTokens(1, 2, 3, 4, 5, 15),
            thoughts=[Thought("Looking", "at it", "1")],
            tool_calls=[expected],
        )
    ]
    assert replay.tool("t1") == expected
    assert replay.tool("t2") is None


@pytest.mark.parametrize(
    ("message", "is_prompt", "is_resumable"),
    [
        (MessageRecord("a", "user", [{"text": "Fix it"}]), True, True),
        (MessageRecord("a", "user", "Fix it"), True, True),
        (MessageRecord("a", "user", [{"text": "/help"}]), True, False),
        (MessageRecord("a", "user", [{"text": "<session_context>\n"}]), False, False),
        (MessageRecord("a", "user", [{"text": "<hook_context>"}]), False, False),
        (MessageRecord("a", "user", [{"functionResponse": {}}]), False, False),
        (MessageRecord("a", "user", None), False, False),
        (MessageRecord("a", "gemini", "Done."), False, True),
        (MessageRecord("a", "gemini", ""), False, False),
        (MessageRecord("a", "gemini", "", thoughts=[Thought("x")]), False, True),
        (MessageRecord("a", "gemini", "", tool_calls=[ToolRecord("t")]), False, True),
        (MessageRecord("a", "info", "text"), False, False),
    ],
)
def test_who_said_it(message: MessageRecord, is_prompt: bool, is_resumable: bool):
    assert (message.is_prompt, message.is_resumable) == (is_prompt, is_resumable)


RAN = "\nProcess Group PGID: 7"


def function_response(output: object) -> list:
    return [{"functionResponse": {"id": "t", "name": "n", "response": {"output": output}}}]


@pytest.mark.parametrize(
    ("name", "output", "display", "code"),
    [
        (SHELL, "Output: hi\nExit Code: 3\nProcess Group PGID: 7", "hi", 3),
        (
            "run_shell_command",
            f"<untrusted_context>\nOutput: hi\nExit Code: 3{RAN}\n</untrusted_context>",
            "hi",
            3,
        ),
        (SHELL, "Output: hi\nProcess Group PGID: 7", "hi", 0),
        (
            "run_shell_command",
            f"Output: (empty)\nExit Code: 127\nSignal: 9\nBackground PIDs: 1, 2{RAN}",
            "",
            127,
        ),
        (
            "run_shell_command",
            "Output: Exit Code: 5\nExit Code: 6\nProcess Group PGID: 7",
            "Exit Code: 5\nExit Code: 6",
            0,
        ),
        (SHELL, "Output: \nExit Code: 5\nExit Code: 2\nProcess Group PGID: 7", "\nExit Code: 5", 2),
        (SHELL, "Command moved to background (PID: 7). Output hidden.", "Command moved", None),
        (SHELL, "Command was cancelled by user before it could complete.", "", None),
        ("run_shell_command", None, None, None),
        ("read_file", "Output: hi\nExit Code: 3\nProcess Group PGID: 7", "hi", None),
    ],
)
def test_exit_codes(name: str, output: object, display: object, code: int | None):
    assert ToolRecord("t", name, result=function_response(output), result_display=display).exit_code == code


DISPLAY = {
    "fileDiff": "--- a\n+++ a\n",
    "fileName": "a",
    "filePath": "/repo/a",
    "originalContent": "",
    "newContent": "x",
    "diffStat": {"model_added_lines": 1, "model_added_chars": 1},
    "isNewFile": True,
}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            ToolRecord("t", "write_file", result=function_response("ok"), status="success", result_display=DISPLAY),
            ToolDetails(
                "t",
                "write_file",
                "success",
                diff=FileDiff("--- a\n+++ a\n", "a", "/repo/a", "", "x", GeminiDiffStat(1), True),
                response={"output": "ok"},
            ),
        ),
        (
            ToolRecord("t", "list_directory", result_display={"summary": "2 items", "files": ["a", "[DIR] b"]}),
            ToolDetails("t", "list_directory", files=("a", "[DIR] b")),
        ),
        (ToolRecord("t", "replace", result_display={"fileDiff": 3}), ToolDetails("t", "replace")),
        (ToolRecord("t", "x", result=[3], result_display=[3]), ToolDetails("t", "x")),
        (ToolRecord("t", "x", result="odd", result_display="text"), ToolDetails("t", "x")),
    ],
)
def test_details(record: ToolRecord, expected: ToolDetails):
    assert details(record) == expected
