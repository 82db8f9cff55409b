"""The stream of real runs, line by line, and the older shapes."""

from pathlib import Path

import msgspec
import pytest

from stagedoor.agents.acp.protocol import AcpProtocol
from stagedoor.agents.gemini import (
    ErrorDetail,
    GeminiContent,
    GeminiDone,
    GeminiError,
    GeminiInit,
    GeminiInterrupt,
    GeminiMessage,
    GeminiResult,
    GeminiRetry,
    GeminiToolCall,
    GeminiToolResult,
    GeminiToolUse,
    ModelStats,
    Stats,
    StreamProtocol,
    Truncated,
)
from stagedoor.agents.gemini.acp import PROFILE
from stagedoor.wire.jsonl import LineBuffer
from stagedoor.wire.shapes import UnknownMessage

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts" / "gemini-0.61.0"
FILES = sorted(TRANSCRIPTS.glob("*.jsonl"))
TWO_WAY = [path for path in FILES if path.read_bytes().startswith((b'{"dir"', b'{"t"'))]
# Other output formats, and listings: text that is no stream. Their lines are preserved, nothing more is asked of them.
NOT_A_STREAM = {
    "02-plain-json",
    "139-text-format",
    "50-list-sessions",
    "51b-list-sessions-again",
    "53-list-none",
    "55-list",
    "55b-list-json",
    "57c-delete-uuid",
    "58e-noretention-list",
    "59-list-repo-b",
    "69c-json-tools",
}
STREAMS = [path for path in FILES if path not in TWO_WAY and path.stem not in NOT_A_STREAM]
# Runs that a signal, a pipe, a hook, or the recorder's impatience cut off.
CUT_OFF = {
    "100-sigint-parent-midtext",
    "101-sigterm-parent-midtext",
    "85-err429",
    "86-err500",
    "89b-connrefused",
    "103-sigterm-child-midtext",
    "104-sigint-group-midtext",
    "106-sigkill-parent-midtext",
    "107-sigint-group-midcmd",
    "108-sigterm-group-midcmd",
    "110-sigterm-parent-midcmd",
    "111-norelaunch-sigint-midtext",
    "113-norelaunch-sigint-midcmd",
    "114-norelaunch-sigterm-midcmd",
    "115-norelaunch-sigkill-midcmd",
    "116-norelaunch-sigint-hang",
    "123-hook-ask-silent-exit0",
    "131-biglines",
}


def lines(path: Path) -> list[bytes]:
    buffer = LineBuffer()
    return [line for line in [*buffer.feed(path.read_bytes()), *buffer.finish()] if isinstance(line, bytes)]


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_every_line_of_every_stream_is_typed(path: Path):
    protocol = StreamProtocol()
    events = [event for line in lines(path) for event in protocol.receive(line)]
    unknown = [event for event in events if isinstance(event, UnknownMessage)]
    cut = path.stem in CUT_OFF
    assert [event.why for event in unknown if not cut] == []
    assert len(unknown) <= 1  # a line cut in half
    if events:
        assert isinstance(events[0], GeminiInit)
        assert [type(event) for event in protocol.receive_eof()] == ([Truncated] if cut else [])
        assert isinstance(events[-1], GeminiResult) != cut


@pytest.mark.parametrize("path", TWO_WAY, ids=lambda path: path.stem)
def test_every_line_over_acp_is_typed(path: Path):
    protocol = AcpProtocol(profile=PROFILE)
    for line in lines(path):
        entry = msgspec.json.decode(line)
        if entry.get("dir") == "in":
            protocol.decode_command(entry["line"].encode())
        elif entry.get("dir") == "out":
            for event in protocol.receive(entry["line"].encode()):
                assert not isinstance(event, UnknownMessage), event


def test_a_whole_run():
    protocol = StreamProtocol()
    events = [event for line in lines(TRANSCRIPTS / "05-shellfail-yolo.jsonl") for event in protocol.receive(line)]
    tool_id = "run_shell_command__run_shell_command_1794723257977_0"
    flash = ModelStats(total_tokens=215, input_tokens=200, output_tokens=15, cached=20, input=180)
    router = ModelStats(total_tokens=105, input_tokens=100, output_tokens=5, cached=10, input=90)
    stats = Stats(320, 300, 20, 30, 270, 785, 1, {"gemini-3.5-flash-lite": router, "gemini-3.8-flash": flash})
    assert [_timeless(event) for event in events] == [
        GeminiInit("dd9eb276-b5b6-40e3-8bec-8f9cb9dca605", "auto"),
        GeminiMessage("user", "[[scenario:shellfail]] go"),
        GeminiToolUse("run_shell_command", tool_id, {"command": "echo oops >&2; exit 3", "description": "fails"}),
        GeminiToolResult(tool_id, "success", "oops"),
        GeminiMessage("assistant", "All ", delta=True),
        GeminiMessage("assistant", "done.", delta=True),
        GeminiResult("success", stats),
    ]


def _timeless(event):
    return msgspec.structs.replace(event, printed_at="")


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            b'{"type":"init","timestamp":"2026-11-15T06:00:00.000Z","session_id":"s","model":"auto"}',
            GeminiInit("s", "auto", printed_at="2026-11-15T06:00:00.000Z"),
        ),
        (
            b'{"type":"message","role":"assistant","content":"a\xe2\x80\xa8b","delta":true}',
            GeminiMessage("assistant", "a\u2028b", True),
        ),
        (b'{"type":"message","role":"assistant","content":"half \\ud83d"}', GeminiMessage("assistant", "half \ufffd")),
        (
            b'{"type":"tool_use","tool_name":"x","tool_id":"1","parameters":{"a":[1]}}',
            GeminiToolUse("x", "1", {"a": [1]}),
        ),
        (
            b'{"type":"tool_result","tool_id":"1","status":"error","output":"no","error":{"type":"policy_violation","message":"no"}}',
            GeminiToolResult("1", "error", "no", ErrorDetail("no", "policy_violation")),
        ),
        (b'{"type":"error","severity":"warning","message":"Loop"}', GeminiError("warning", "Loop")),
        (
            b'{"type":"result","status":"success","stats":{"total_tokens":3,"models":{"m":{"total_tokens":3}}}}',
            GeminiResult("success", Stats(total_tokens=3, models={"m": ModelStats(total_tokens=3)})),
        ),
        # the older shapes
        (b'{"type":"content","value":"Analyzing"}', GeminiContent("Analyzing")),
        (
            b'{"type":"tool_call","name":"write_file","args":{"file_path":"a"}}',
            GeminiToolCall("write_file", {"file_path": "a"}),
        ),
        (b'{"type":"done"}', GeminiDone()),
        (b'{"type":"retry","attempt":1,"max_attempts":3,"delay_ms":500}', GeminiRetry(1, 3, 500)),
        (
            b'{"type":"error","status":"error","error":{"code":"INVALID_CHUNK","message":"ended"}}',
            GeminiError(error=ErrorDetail("ended", code="INVALID_CHUNK"), status="error"),
        ),
        (
            b'{"type":"result","status":"cancelled","stats":{"thought_tokens":1,"cache_tokens":2,"tool_tokens":3}}',
            GeminiResult("cancelled", Stats(thought_tokens=1, cache_tokens=2, tool_tokens=3)),
        ),
        # what is neither
        (b'{"type":"hologram"}', UnknownMessage(b'{"type":"hologram"}', "unknown type 'hologram'")),
        (b"[]", UnknownMessage(b"[]", "Expected `object`, got `array`")),
    ],
)
def test_shapes(line: bytes, event: object):
    assert StreamProtocol().receive(line) == [event]


@pytest.mark.parametrize("line", [b"Memory is empty.", b"\xff\xfe", b"{", b'{"type":3}', b'{"type":"init"}', b"null"])
def test_no_line_raises(line: bytes):
    [event] = StreamProtocol().receive(line)
    assert isinstance(event, UnknownMessage)
    assert event.raw == line


def test_the_text_of_both_kinds_of_error():
    assert [GeminiError(message="a").text, GeminiError(error=ErrorDetail("b")).text, GeminiError().text] == [
        "a",
        "b",
        "",
    ]


@pytest.mark.parametrize("end", [b'{"type":"result","status":"success"}', b'{"type":"done"}'])
def test_only_a_result_is_an_end(end: bytes):
    protocol = StreamProtocol()
    protocol.receive(b'{"type":"tool_use","tool_name":"x","tool_id":"1"}')
    protocol.receive(b'{"type":"tool_use","tool_name":"x","tool_id":"2"}')
    protocol.receive(b'{"type":"tool_result","tool_id":"1"}')
    assert protocol.receive_eof() == [Truncated("the output ended without a result event", False, ("2",))]
    protocol.receive(end)
    assert protocol.receive_eof() == []


def test_an_interrupted_turn_says_so():
    protocol = StreamProtocol()
    protocol.send(GeminiInterrupt())
    assert protocol.outgoing() == []
    assert protocol.receive_eof() == [Truncated("the turn was interrupted", True)]


def test_tool_names_are_in_the_ids():
    ids = {
        "run_shell_command__run_shell_command_1794723248310_0": "run_shell_command",
        "write_file__call_1": "write_file",
        "mcp_a__b__mcp_a__b_1794723248310_12": "mcp_a__b",
        "other": None,
    }
    assert {tool_id: PROFILE.tool_name(tool_id) for tool_id in ids} == ids
