"""A recording tells what the living session told: both at once, and by hand what no good agent does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import stagedoor
from stagedoor import catalog
from stagedoor.replay import translate
from stagedoor.transports.tap import record_lines
from stagedoor.unified.events import (
    Done,
    Error,
    Event,
    Init,
    Notice,
    PermissionRequest,
    PermissionResolved,
    Text,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    stamp,
)

BOUND = 240.0


def replay_events(agent: str, driver: str, lines: list[bytes]) -> list[Event]:
    return list(translate(agent, catalog.agent(agent).drivers[driver], lines))


def bare(events: Iterable[Event]) -> list[Event]:
    """Without what differs between two tellings of the same: headers, clocks, ids of questions, who it was that
    answered."""
    numbers: dict[str, str] = {}
    return [_bare(event, numbers) for event in events]


def _bare(event: Event, numbers: dict[str, str]) -> Event:
    event = stamp(replace(event), agent="", session_id="", seq=0, timestamp=0, turn=event.turn)
    if isinstance(event, PermissionRequest | PermissionResolved):
        number = numbers.setdefault(event.request_id, f"question {len(numbers) + 1}")
        event = replace(event, request_id=number)
    match event:
        case Init():  # how a session was opened is no part of what the agent said
            return replace(event, tier="", approval="", sandbox="")
        case ToolResult() | TurnCompleted() | Done():
            return replace(event, duration_ms=None)
        case PermissionRequest():
            return replace(event, expires_at=None, remembered_as=[])  # a recording remembers nothing
        case PermissionResolved(by="callback"):
            # The session remembers; the agent only hears that this one call is allowed.
            return replace(event, by="client", remember="once")
        case _:
            return event


def test_a_recording_tells_what_the_living_session_told(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    lines: list[bytes] = []

    def record(direction: str, line: bytes) -> None:
        lines.append(json.dumps({"dir": direction, "line": line.decode()}).encode())

    def decide(request: PermissionRequest) -> stagedoor.Allow | stagedoor.Deny:
        if "no" in request.target:
            return stagedoor.Deny()
        return stagedoor.Allow(remember="session" if "often" in request.target else "once")

    scripts = [[[{"shell": "echo often"}], [{"shell": "echo no"}], [{"say": "Done."}]], [[{"say": "Again."}]]]

    async def main() -> list[Event]:
        out: list[Event] = []
        async with asyncio.timeout(BOUND):
            with record_lines(record):
                async with stagedoor.open(
                    "understudy",
                    cwd=str(workspace),
                    env={"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "home")},
                    approval="ask",
                    can_use_tool=decide,
                    watch_files=False,
                ) as session:
                    for script in scripts:
                        out += [event async for event in session.send(json.dumps({"script": script}))]
        return out

    living, replayed = asyncio.run(main()), replay_events("understudy", "acp", lines)
    # A living session's first turn begins with its caller's wish, before the agent is told its mode; and it goes on.
    later = [event for event in replayed if not isinstance(event, Notice | Done)]
    assert bare(later) == bare(event for event in living if not isinstance(event, Notice))
    assert isinstance(replayed[-1], Done)


# ----------------------------------------------------------------------------------------------------------- by hand


def two_way(*rows: tuple[str, dict[str, Any]]) -> list[bytes]:
    return [msgspec.json.encode({"dir": side, "line": json.dumps(message)}) for side, message in rows]


def rpc(number: int, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, **members}


def opening(number: int = 0) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("in", rpc(number, method="session/new", params={"cwd": "/w", "mcpServers": []})),
        ("out", rpc(number, result={"sessionId": "s"})),
    ]


def prompting(number: int, text: str) -> tuple[str, dict[str, Any]]:
    params = {"sessionId": "s", "prompt": [{"type": "text", "text": text}]}
    return "in", rpc(number, method="session/prompt", params=params)


def update(**members: Any) -> tuple[str, dict[str, Any]]:
    return "out", {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": members}}


def agent_text(text: str) -> tuple[str, dict[str, Any]]:
    return update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})


FAILED = rpc(1, error={"code": 500, "message": "down"})
ENDED = {"stopReason": "end_turn"}
QUESTION = (
    "out",
    rpc(
        9,
        method="session/request_permission",
        params={
            "sessionId": "s",
            "toolCall": {"toolCallId": "c", "kind": "execute", "title": "ls", "rawInput": {"command": "ls"}},
            "options": [{"optionId": "y", "kind": "allow_once"}, {"optionId": "a", "kind": "allow_always"}],
        },
    ),
)
FAILING = update(sessionUpdate="tool_call_update", toolCallId="c", status="failed")
CANCEL = ("in", {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}})


def outline(events: list[Event]) -> list[object]:
    """What is told, in order, in few words."""
    found: list[object] = []
    for event in events:
        match event:
            case TurnStarted():
                found.append((event.turn, event.prompt))
            case Error():
                found.append((event.turn, event.message))
            case Text():
                found.append((event.turn, event.text))
            case TurnCompleted():
                found.append((event.turn, event.status))
            case PermissionResolved():
                found.append((event.decision, event.remember, event.by, event.message))
            case ToolUse() | PermissionRequest():
                found.append(event.__struct_config__.tag)
            case ToolResult():
                found.append(event.status)
            case _:
                pass
    return found


CASES: dict[str, tuple[list[tuple[str, dict[str, Any]]], list[object]]] = {
    "a turn that is nothing but an error": (
        [*opening(), prompting(1, "Hi."), ("out", FAILED)],
        [(1, "Hi."), (1, "down"), (1, "error")],
    ),
    "a prompt that waits for the turn before it": (
        [
            *opening(),
            prompting(1, "one"),
            prompting(2, "two"),
            agent_text("1"),
            ("out", rpc(1, result=ENDED)),
            agent_text("2"),
            ("out", rpc(2, result=ENDED)),
        ],
        [(1, "one"), (1, "1"), (1, "success"), (2, "two"), (2, "2"), (2, "success")],
    ),
    "a prompt that nobody answers": (
        [*opening(), prompting(1, "Hi.")],
        [(1, "Hi."), (1, "the agent ended before it finished its turn"), (1, "error")],
    ),
    "an answer for the session": (
        [
            *opening(),
            prompting(1, "Hi."),
            QUESTION,
            ("in", rpc(9, result={"outcome": {"outcome": "selected", "optionId": "a"}})),
            update(sessionUpdate="tool_call_update", toolCallId="c", status="completed"),
            ("out", rpc(1, result=ENDED)),
        ],
        [
            (1, "Hi."),
            "tool_use",
            "permission_request",
            ("allow", "session", "client", ""),
            "success",
            (1, "success"),
        ],
    ),
    "an answer that nobody offered": (
        [
            *opening(),
            prompting(1, "Hi."),
            QUESTION,
            ("in", rpc(9, result={"outcome": {"outcome": "selected", "optionId": "z"}})),
            FAILING,
            ("out", rpc(1, result=ENDED)),
        ],
        [
            (1, "Hi."),
            "tool_use",
            "permission_request",
            ("deny", "once", "client", "the answer could not be read, so it allows nothing"),
            "denied",
            (1, "success"),
        ],
    ),
    "a question without an answer": (
        [*opening(), prompting(1, "Hi."), QUESTION, FAILING, ("out", rpc(1, result=ENDED))],
        [
            (1, "Hi."),
            "tool_use",
            "permission_request",
            ("deny", "once", "interrupt", "the agent waits for no answer any more"),
            "denied",
            (1, "success"),
        ],
    ),
    "a question in an interrupted turn": (
        [*opening(), prompting(1, "Hi."), QUESTION, CANCEL, ("out", rpc(1, result={"stopReason": "cancelled"}))],
        [
            (1, "Hi."),
            "tool_use",
            "permission_request",
            ("deny", "once", "interrupt", "the turn was interrupted"),
            "denied",
            (1, "interrupted"),
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_by_hand(name: str) -> None:
    recording, expected = CASES[name]
    events = replay_events("understudy", "acp", two_way(*recording))
    assert outline(events) == expected
    assert isinstance(events[0], Init)
    assert events[0].cwd == "/w"


def test_without_our_side_the_fate_of_a_call_tells_the_answer() -> None:
    lines = [json.dumps(message).encode() for _, message in (opening()[1], QUESTION, FAILING)]
    assert outline(replay_events("understudy", "acp", lines))[:5] == [
        (1, ""),
        "tool_use",
        "permission_request",
        ("allow", "once", "client", ""),
        "error",
    ]


def test_a_question_waits_for_the_call_it_overtook() -> None:
    call = {"sessionID": "s", "messageID": "m", "type": "tool", "id": "p", "tool": "bash", "callID": "c"}
    running = {"status": "running", "input": {"command": "ls", "description": "look"}}
    question = {"id": "q", "sessionID": "s", "permission": "bash", "patterns": ["ls"], "metadata": {"command": "ls"}}
    rows = [
        ("in", 'POST /session/s/prompt_async {"parts":[{"type":"text","text":"Hi."}]}'),
        ("out", _sse("session.status", sessionID="s", status={"type": "busy"})),
        ("out", _sse("permission.asked", **question, tool={"messageID": "m", "callID": "c"})),
        ("in", 'POST /permission/q/reply {"reply":"reject","message":"No."}'),
        ("out", _sse("message.part.updated", sessionID="s", part={**call, "state": running})),
    ]
    events = replay_events(
        "opencode", "serve", [json.dumps({"dir": side, "line": text}).encode() for side, text in rows]
    )
    kept = [event for event in events if isinstance(event, ToolUse | PermissionRequest | PermissionResolved | Notice)]
    assert [type(event) for event in kept] == [ToolUse, PermissionRequest, PermissionResolved]
    assert [event.input for event in kept if not isinstance(event, PermissionResolved | Notice)] == [
        {"command": "ls", "description": "look"}
    ] * 2
    assert kept[-1] == stamp(
        PermissionResolved(request_id="q", decision="deny", by="client", message="No."),
        *("opencode", "replay", kept[-1].seq, 0, 1),
    )


def _sse(kind: str, **properties: Any) -> str:
    return "sse data: " + json.dumps({"type": kind, "properties": properties})
