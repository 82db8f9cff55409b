"""Whatever an agent prints, nothing raises, nothing is lost, and every question is closed in the end."""

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagedoor.agents.acp import (
    AcpProtocol,
    CancelNotification,
    PromptRequest,
    RequestPermission,
    RequestWithdrawn,
    TextContent,
)
from stagedoor.transports.replay import read_transcript

FOLDER = Path(__file__).parents[2] / "transcripts"
RECORDED = [
    json.loads(entry.line)
    for name in ("opencode-1.18.33/50-acp-main.jsonl", "gemini-0.61.0/71-acp-permission-approve-reject.jsonl")
    for entry in read_transcript((FOLDER / name).read_bytes())
    if entry.direction == "out"
]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """A recorded message with one member, anywhere in it, replaced or taken away."""
    message: Any = json.loads(json.dumps(draw(st.sampled_from(RECORDED))))
    place: Any = message
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
            place = place[key]
            continue
        if draw(st.booleans()):
            place[key] = draw(JUNK)
        else:
            del place[key]
        break
    return json.dumps(message).encode("utf-8", "replace")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(spoiled() | st.binary(max_size=40) | JUNK.map(lambda value: json.dumps(value).encode()), max_size=6))
def test_no_message_raises_and_each_gives_something(messages: list[bytes]) -> None:
    protocol = AcpProtocol()
    for message in messages:
        protocol.receive(message)
    protocol.receive_eof()
    live = AcpProtocol()
    live.send(PromptRequest("s", (TextContent("go"),)))
    for message in messages:
        live.receive(message)
    live.receive_eof()
    live.outgoing()
    assert live.receive_eof() == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["ask", "cancel", "end", "eof"]), max_size=12))
def test_every_question_is_closed_once(steps: list[str]) -> None:
    protocol = AcpProtocol()
    questions, closed, number = [], [], 0
    received: list[Any] = []
    for step in steps:
        if not protocol.in_turn("s"):
            turn = protocol.call(PromptRequest("s", (TextContent("go"),)))
        match step:
            case "ask":
                params = {"sessionId": "s", "toolCall": {"toolCallId": "c"}, "options": []}
                request = {"id": number, "method": "session/request_permission", "params": params}
                received += protocol.receive(json.dumps(request).encode())
                questions.append(number)
                number += 1
            case "cancel":
                protocol.send(CancelNotification("s"))
            case "end":
                received += protocol.receive(json.dumps({"id": turn, "result": {"stopReason": "end_turn"}}).encode())
            case _:
                received += protocol.receive_eof()
    received += protocol.receive_eof()
    closed = [event.request.request_id for event in received if isinstance(event, RequestWithdrawn)]
    assert [event.request_id for event in received if isinstance(event, RequestPermission)] == questions
    assert sorted(closed, key=str) == sorted(questions, key=str)
