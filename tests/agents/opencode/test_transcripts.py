"""Every recorded line of ``run`` and ``serve`` is typed; what turns came to is told right."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from stagedoor.agents.opencode.events import (
    MessagePartUpdated,
    OpenCodeError,
    OpenCodeText,
    OpenCodeToolUse,
    PermissionAsked,
    QuestionAsked,
    Runaway,
    RunEvent,
    ServerEvent,
    StepFinish,
    TurnEnded,
)
from stagedoor.agents.opencode.protocol import RunProtocol, ServeProtocol
from stagedoor.transports.replay import Replay, read_transcript
from stagedoor.wire.shapes import UnknownMessage

FOLDER = Path(__file__).parents[2] / "transcripts" / "opencode-1.18.33"
OTHER_COMMANDS = ("81-", "82-", "83-", "85-", "86-")
"""Output of ``session list``, ``db path`` and ``debug paths``, which no driver speaks."""

RUNS = sorted(
    path
    for path in FOLDER.glob("*.jsonl")
    if "-serve-" not in path.name and "-acp-" not in path.name and not path.name.startswith(OTHER_COMMANDS)
)
SERVES = sorted(FOLDER.glob("*-serve-*.jsonl"))


def run_events(name: str) -> list[RunEvent]:
    protocol = RunProtocol()
    lines = [entry.line for entry in read_transcript((FOLDER / f"{name}.jsonl").read_bytes())]
    return [event for line in lines for event in protocol.receive(line)]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_every_line_of_run_is_typed(path: Path) -> None:
    events = run_events(path.stem)
    assert events
    assert not [event for event in events if isinstance(event, UnknownMessage | Runaway)]
    assert all(event.session_id == events[0].session_id for event in events if not isinstance(event, UnknownMessage))  # type: ignore[union-attr]


@pytest.mark.parametrize("path", SERVES, ids=lambda path: path.stem)
def test_every_line_of_serve_is_typed(path: Path) -> None:
    protocol = ServeProtocol()
    events: list[ServerEvent] = []
    for entry in read_transcript(path.read_bytes()):
        if entry.direction == "out":
            events += protocol.receive(entry.line)
    assert not [event for event in events if isinstance(event, UnknownMessage)]
    parts = [event.typed() for event in events if isinstance(event, MessagePartUpdated)]
    assert not [part for part in parts if isinstance(part, UnknownMessage)]
    ended = Counter((event.outcome, event.finish) for event in events if isinstance(event, TurnEnded))
    assert ended == TURNS[path.stem]
    assert (
        len([event for event in events if isinstance(event, PermissionAsked | QuestionAsked)]) == QUESTIONS[path.stem]
    )


TURNS = {
    "40-serve-main": Counter({("completed", "stop"): 5, ("completed", "tool-calls"): 1}),
    # The one without a reason is a shell command of the user's own, which no model is asked about.
    "42-serve-password": Counter(
        {("completed", "stop"): 2, ("completed", "tool-calls"): 1, ("completed", None): 1, ("failed", None): 1}
    ),
}
QUESTIONS = {"40-serve-main": 5, "42-serve-password": 2}


def test_what_runs_came_to() -> None:
    (command,) = [event for event in run_events("02-bash") if isinstance(event, OpenCodeToolUse)]
    assert (command.part.tool, command.part.state.output) == ("bash", "hello-from-bash\n")
    assert command.part.state.metadata["exit"] == 0
    (failed,) = [event for event in run_events("30-http401") if isinstance(event, OpenCodeError)]
    assert (failed.error.name, failed.error.message) == ("APIError", "Incorrect API key provided: fake.")
    assert [event.part.reason for event in run_events("23-length") if isinstance(event, StepFinish)] == ["length"]
    rejected = run_events("12-permission-ask-bash-headless")
    assert [event.part.state.status for event in rejected if isinstance(event, OpenCodeToolUse)] == ["error"]
    synthetic = [event.part.synthetic for event in run_events("38-context-overflow") if isinstance(event, OpenCodeText)]
    assert True in synthetic


def test_a_recorded_run_plays_through_the_replay_transport() -> None:
    async def main() -> list[RunEvent]:
        protocol, events = RunProtocol(), list[RunEvent]()
        async for batch in Replay((FOLDER / "08-parallel.jsonl").read_bytes()).batches():
            for message in batch:
                assert isinstance(message, bytes)
                events += protocol.receive(message)
        return events

    assert asyncio.run(main()) == run_events("08-parallel")
