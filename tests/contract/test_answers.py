"""What was answered is what comes out: no order of messages and answers turns a refusal into an approval, or back.

The recordings of real CLIs that hold questions are played with answers left out, messages said twice, and other
messages of the same recording pushed in between, wherever that is.
"""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagedoor.testing.environment import scripted_agents
from stagedoor.unified import events
from stagedoor.unified.events import Event

from .test_unified_replay import CASES, GOLDENS, check, lines_of, replay

QUESTIONED = [
    path
    for path in CASES
    if (golden := GOLDENS / path.parent.name / path.name).exists() and b'"permission_resolved"' in golden.read_bytes()
]
SPARSE = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))


class Played(msgspec.Struct, frozen=True):
    """What became of the questions and calls of a recording."""

    decisions: dict[str, str]
    calls: dict[str, str]
    """Call → its result."""
    call_of: dict[str, str]
    """Question → the call it is about."""
    admitted: bool
    """Whether it was said that something ran though it was denied."""


def played(stream: list[Event]) -> Played:
    check(stream)
    requests = [event for event in stream if isinstance(event, events.PermissionRequest)]
    resolved = [event for event in stream if isinstance(event, events.PermissionResolved)]
    assert [
        event.request_id for event in requests if event.request_id not in {one.request_id for one in resolved}
    ] == []
    return Played(
        {event.request_id: event.decision for event in resolved},
        {event.tool_use_id: event.status for event in stream if isinstance(event, events.ToolResult)},
        {event.request_id: event.tool_use_id or event.request_id for event in requests},
        any(isinstance(event, events.Notice) and event.code == "ran_though_denied" for event in stream),
    )


class Recording(msgspec.Struct, frozen=True):
    path: Path
    lines: list[bytes]
    original: Played
    answers: dict[int, str]
    """The lines that answer a question → which."""
    fillers: list[bytes]
    """What the agent says that decides nothing: text, thoughts, progress."""


@functools.cache
def recording(path: Path) -> Recording:
    lines = lines_of(path.read_bytes())
    original = played(replay(path, lines))
    answers: dict[int, str] = {}
    fillers: list[bytes] = []
    for at, line in enumerate(lines):
        from_client = msgspec.json.decode(line).get("dir") == "in"
        if not from_client and (len(fillers) >= 8 or at % max(1, len(lines) // 60)):
            continue
        without = played(replay(path, lines[:at] + lines[at + 1 :]))
        changed = [name for name, decision in original.decisions.items() if without.decisions.get(name) != decision]
        if from_client and len(changed) == 1:
            answers[at] = changed[0]
        elif not from_client and without == original:
            fillers.append(line)
    return Recording(path, lines, original, answers, fillers)


def test_there_are_recordings_of_every_agent_that_asks() -> None:
    assert {path.parent.name.split("-")[0] for path in QUESTIONED} == {*scripted_agents()}
    assert sum(len(recording(path).answers) for path in QUESTIONED) > 20


@pytest.mark.parametrize("path", QUESTIONED, ids=lambda path: f"{path.parent.name}/{path.stem}")
@SPARSE
@given(choice=st.data())
def test_an_answer_that_was_not_given_is_no(path: Path, choice: st.DataObject) -> None:
    source = recording(path)
    dropped = choice.draw(st.sets(st.sampled_from(sorted(source.answers)))) if source.answers else set()
    now = played(replay(path, [line for at, line in enumerate(source.lines) if at not in dropped]))
    unanswered = {source.answers[at] for at in dropped}
    for question, decision in now.decisions.items():
        if question in unanswered or source.original.decisions.get(question) == "deny":
            assert decision == "deny"


@pytest.mark.parametrize("path", QUESTIONED, ids=lambda path: f"{path.parent.name}/{path.stem}")
@SPARSE
@given(choice=st.data())
def test_other_messages_between_question_and_answer_change_neither(path: Path, choice: st.DataObject) -> None:
    source = recording(path)
    if not source.fillers:
        return
    places = st.tuples(st.integers(0, len(source.lines)), st.sampled_from(source.fillers))
    lines = list(source.lines)
    for at, line in sorted(choice.draw(st.lists(places, min_size=1, max_size=6)), key=lambda one: -one[0]):
        lines.insert(at, line)
    now = played(replay(path, lines))
    for question, decision in source.original.decisions.items():
        assert now.decisions.get(question, "deny") in (decision, "deny")
        call = source.original.call_of[question]
        before, after = source.original.calls.get(call), now.calls.get(call)
        if decision == "allow" and before == "success" and now.decisions.get(question) == "allow":
            assert after != "denied"
        if decision == "deny" and before == "denied":
            assert after != "success" or now.admitted
