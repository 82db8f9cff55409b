"""Every recorded conversation with a real ACP agent, typed line by line."""

from pathlib import Path

import msgspec
import pytest

from stagedoor.agents.acp import (
    AcpProtocol,
    AcpToolCall,
    AvailableCommandsUpdate,
    PromptResponse,
    RequestFailed,
    RequestPermission,
    SessionUpdate,
    ToolCallUpdate,
    UntypedResponse,
    session_of,
)
from stagedoor.agents.acp.events import KnownEvent
from stagedoor.agents.acp.updates import KnownToolContent
from stagedoor.transports.replay import read_transcript

FOLDER = Path(__file__).parents[2] / "transcripts"
TRANSCRIPTS = sorted([*FOLDER.glob("gemini-0.61.0/7*-acp-*.jsonl"), *FOLDER.glob("opencode-1.18.33/5*-acp-*.jsonl")])

REPLAYED = {"73-acp-load": 62, "79b-acp-load-same-minute-loses-history": 21, "50-acp-main": 80}


def play(path: Path, *, both_sides: bool) -> list[KnownEvent]:
    protocol = AcpProtocol()
    events: list[KnownEvent] = []
    for entry in read_transcript(path.read_bytes()):
        if entry.direction == "in" and both_sides:
            protocol.decode_command(entry.line)
        elif entry.direction == "out":
            received = protocol.receive(entry.line)
            assert received
            for event in received:
                assert isinstance(event, KnownEvent)
                events.append(event)
    return events


def test_the_recordings_are_there() -> None:
    assert len(TRANSCRIPTS) >= 12


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("both_sides", [True, False])
def test_each_line_is_typed(path: Path, both_sides: bool) -> None:
    for event in play(path, both_sides=both_sides):
        match event:
            case SessionUpdate(update=AcpToolCall() | ToolCallUpdate() as call) | RequestPermission(tool_call=call):
                assert all(isinstance(content, KnownToolContent) for content in call.contents())
            case UntypedResponse():
                assert not both_sides
            case _:
                pass


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_every_answer_finds_its_request_and_history_is_marked(path: Path) -> None:
    events = play(path, both_sides=True)
    for event in events:
        if isinstance(event, PromptResponse):
            assert session_of(event)
        if isinstance(event, RequestFailed):
            assert event.method
    updates = [event for event in events if isinstance(event, SessionUpdate)]
    assert sum(event.replayed for event in updates) == REPLAYED.get(path.stem, 0)
    live = [event for event in updates if not event.replayed]
    assert any(isinstance(event.update, AvailableCommandsUpdate) for event in updates)
    assert live


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_every_prefix_can_be_closed(path: Path) -> None:
    lines = read_transcript(path.read_bytes())
    for end in range(0, len(lines), 7):
        protocol = AcpProtocol()
        for entry in lines[:end]:
            if entry.direction == "in":
                protocol.decode_command(entry.line)
            else:
                protocol.receive(entry.line)
        protocol.receive_eof()
        assert protocol.receive_eof() == []


def test_a_whole_permission_request() -> None:
    events = play(FOLDER / "opencode-1.18.33" / "50-acp-main.jsonl", both_sides=True)
    first = next(event for event in events if isinstance(event, RequestPermission))
    fields = msgspec.structs.asdict(first)
    fields.pop("stamp")
    assert fields | {"session_id": "", "options": [], "tool_call": None} == {
        "session_id": "",
        "tool_call": None,
        "options": [],
        "meta": None,
        "request_id": 0,
    }
    assert {option.kind: option.option_id for option in first.options} == {
        "allow_once": "once",
        "allow_always": "always",
        "reject_once": "reject",
    }
    assert first.tool_call.raw_input == {"command": "echo hello-from-bash"}
