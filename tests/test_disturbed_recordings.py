"""What is written in another form says the same: a recording tells the same events, and never less."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stagedoor.replay import Account, translate
from stagedoor.replay.recognition import recognized
from stagedoor.unified.events import Done, Error, Event

TRANSCRIPTS = Path(__file__).parent / "transcripts"
RECORDINGS = [
    "claude-2.1.197/31-can-use-tool.jsonl",
    "codex-0.166.0/04-bash-fail.jsonl",
    "codex-0.166.0/82-app-approve-cmd-decline.jsonl",
    "copilot-1.0.102/04-shell-fail.jsonl",
    "gemini-0.61.0/70-acp-basic.jsonl",
    "kimi-2.1.0/04-shell-fail.jsonl",
    "opencode-1.18.33/19-bash-exit3.jsonl",
    "opencode-1.18.33/50-acp-main.jsonl",
    "qwen-0.24.4/04-shell-fail.jsonl",
]


def with_points(value: Any) -> Any:
    """``3.0`` for ``3``, as some languages write every number."""
    match value:
        case bool():
            return value
        case int():
            return float(value)
        case dict():
            return {key: with_points(one) for key, one in value.items()}
        case list():
            return [with_points(one) for one in value]
        case _:
            return value


def backwards(value: Any) -> Any:
    match value:
        case dict():
            return {key: backwards(one) for key, one in reversed(value.items())}
        case list():
            return [backwards(one) for one in value]
        case _:
            return value


def as_it_is(value: Any) -> Any:
    return value


def rewritten(line: bytes, form: Callable[[Any], Any]) -> bytes:
    try:
        value = json.loads(line)
    except ValueError:
        return line
    if isinstance(value, dict) and isinstance(value.get("line"), str):
        inner = rewritten(value["line"].encode("utf-8", "surrogatepass"), form)
        return json.dumps({**value, "line": inner.decode("utf-8", "surrogatepass")}).encode()
    return json.dumps(form(value)).encode()


def told(lines: list[bytes]) -> tuple[list[Event], Account]:
    recognition, rest = recognized(lines)
    account = Account()
    return list(translate(recognition.agent, recognition.driver, rest, account)), account


@pytest.mark.parametrize("form", [with_points, backwards, as_it_is])
@pytest.mark.parametrize("name", RECORDINGS)
def test_it_tells_the_same(name: str, form: Callable[[Any], Any]) -> None:
    lines = (TRANSCRIPTS / name).read_bytes().splitlines()
    assert told([rewritten(line, form) for line in lines]) == told(lines)


# ---------------------------------------------------------------------------------- what is not as it was recorded

STRANGE: dict[str, Any] = {
    "null": None, "an endless number": 10**400, "a great number": 2**70, "a negative one": -1, "a wide one": 1e308,
    "another word": "no_such_word", "a list": [], "a table": {}, "yes": True, "half a pair": "\udc80",
}  # fmt: skip


def unwrapped(line: bytes) -> tuple[dict[str, Any] | None, Any]:
    """A message, and the line of the recorder around it."""
    try:
        value = json.loads(line)
        if isinstance(value, dict) and isinstance(value.get("line"), str):
            return value, json.loads(value["line"])
    except ValueError:
        return None, None
    return None, value


def wrapped(around: dict[str, Any] | None, message: Any) -> bytes:
    return json.dumps(message if around is None else {**around, "line": json.dumps(message)}).encode()


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    match value:
        case dict():
            members = list(value.items())
        case list():
            members = list(enumerate(value))
        case _:
            members = []
    return [place for key, one in members for place in ((*at, key), *places(one, (*at, key)))]


def with_value(message: Any, place: tuple[Any, ...], new: Any) -> Any:
    copy = json.loads(json.dumps(message))
    inner = copy
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = new
    return copy


def ends_in_order(events: list[Event]) -> bool:
    return [type(event) for event in events].count(Done) == 1 and isinstance(events[-1], Done)


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("name", RECORDINGS)
def test_no_value_of_any_field_breaks_it_or_makes_a_success_of_a_failure(name: str, kind: str) -> None:
    lines = (TRANSCRIPTS / name).read_bytes().splitlines()
    status = told(lines)[0][-1].status  # type: ignore[union-attr]
    chosen = random.Random(f"{name} {kind}")
    for _ in range(4):
        at = chosen.randrange(len(lines))
        around, message = unwrapped(lines[at])
        if not (found := places(message)):
            continue
        place = chosen.choice(found)
        events, _ = told([*lines[:at], wrapped(around, with_value(message, place, STRANGE[kind])), *lines[at + 1 :]])
        assert ends_in_order(events), (at, place)
        msgspec.json.encode(events)
        assert status == "success" or events[-1].status != "success", (at, place)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_that_is_cut_is_no_success(name: str) -> None:
    """Wherever it is cut: in its last line, or in one before."""
    lines = (TRANSCRIPTS / name).read_bytes().splitlines()
    chosen = random.Random(name)
    for at in {len(lines) - 1, *(chosen.randrange(1, len(lines)) for _ in range(8))}:
        whole = lines[at].strip()
        events, _ = told([*lines[:at], whole[: chosen.randrange(2, len(whole) - 1)]])
        assert ends_in_order(events), at
        assert events[-1].status == "error", at  # type: ignore[union-attr]


@pytest.mark.parametrize("name", RECORDINGS)
def test_lines_that_come_twice_or_are_no_text_break_nothing(name: str) -> None:
    lines = (TRANSCRIPTS / name).read_bytes().splitlines()
    status = told(lines)[0][-1].status  # type: ignore[union-attr]
    twice = [line for line in lines for _ in range(2)]
    no_text = [part for line in lines for part in (line, b"\xff\xfe\x00\x80", b'{"type":"\xc3\x28"}')]
    for changed in (twice, no_text, lines + lines):
        events, _ = told(changed)
        assert ends_in_order(events)
        assert status == "success" or events[-1].status != "success"  # type: ignore[union-attr]


@pytest.mark.parametrize(("one", "other"), [(RECORDINGS[0], RECORDINGS[1]), (RECORDINGS[3], RECORDINGS[5])])
def test_two_recordings_in_one_break_nothing(one: str, other: str) -> None:
    first, second = ((TRANSCRIPTS / name).read_bytes().splitlines() for name in (one, other))
    mixed = [line for pair in itertools.zip_longest(first, second) for line in pair if line is not None]
    events, account = told(mixed)
    assert ends_in_order(events)
    assert account.lines == len(mixed)


def test_a_session_that_was_never_opened_is_no_success() -> None:
    rows = [
        ("in", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}),
        (
            "out",
            {
                "jsonrpc": "2.0",
                "id": 1,
                "result": {"protocolVersion": 1, "agentInfo": {"name": "Copilot", "version": "1"}},
            },
        ),
        ("in", {"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": "/w", "mcpServers": []}}),
        ("out", {"jsonrpc": "2.0", "id": 2, "error": {"code": -32000, "message": "Authentication required"}}),
    ]
    events, _ = told([json.dumps({"dir": side, "line": json.dumps(message)}).encode() for side, message in rows])
    errors = [(event.kind, event.message) for event in events if isinstance(event, Error)]
    assert errors == [("authentication_failed", "session/new: Authentication required")]
    assert isinstance(events[-1], Done)
    assert events[-1].status == "error"
