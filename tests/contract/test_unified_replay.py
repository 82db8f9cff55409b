"""Every transcript of a real CLI through protocol, dictionary and grammar: goldens, and the promises on every prefix.

``make bless`` rewrites the goldens for review.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagedoor import catalog
from stagedoor.drivers.agent import Driver
from stagedoor.replay import Account, translate
from stagedoor.unified import events
from stagedoor.unified.events import Event, decode, encode
from stagedoor.wire.jsonl import LineBuffer

TESTS = Path(__file__).parent.parent
TRANSCRIPTS, GOLDENS = TESTS / "transcripts", TESTS / "goldens" / "unified"
BLESS = os.environ.get("STAGEDOOR_BLESS") == "1"

# (agent, mark in the file's name) → driver; the first mark that matches decides.
DRIVERS: list[tuple[str, str, str]] = [
    ("claude", "", "stream"),
    ("codex", "-app-", "app-server"),
    ("codex", "", "exec"),
    ("gemini", "-acp-", "acp"),
    ("gemini", "", "stream-json"),
    ("opencode", "-serve-", "serve"),
    ("opencode", "-acp-", "acp"),
    ("opencode", "", "run"),
    ("copilot", "", "acp"),
    ("qwen", "", "acp"),
    ("kimi", "", "acp"),
]
NOT_STREAMS = ("sessionfile", "list", "plain-json", "json-tools", "delete-uuid", "db-path", "debug-paths")
CASES = sorted(path for path in TRANSCRIPTS.rglob("*.jsonl") if not any(word in path.name for word in NOT_STREAMS))


def driver_of(path: Path) -> tuple[str, Driver]:
    agent = path.parent.name.split("-")[0]
    drivers = catalog.agent(agent).drivers
    fresh = [name for name in drivers if path.name.startswith(f"recorded-{name}-")]  # by `make record`
    if fresh:
        return agent, drivers[fresh[0]]
    name = next(name for of, mark, name in DRIVERS if of == agent and re.match(rf"\d+\w*{mark}", path.name))
    return agent, drivers[name]


def lines_of(content: bytes) -> list[bytes]:
    buffer = LineBuffer()
    return [line for line in [*buffer.feed(content), *buffer.finish()] if isinstance(line, bytes)]


def replay(path: Path, lines: list[bytes], account: Account | None = None) -> list[Event]:
    agent, driver = driver_of(path)
    return list(translate(agent, driver, lines, account))


def check(stream: list[Event]) -> None:
    """The grammar's promises."""
    assert isinstance(stream[0], events.Init)
    assert isinstance(stream[-1], events.Done)
    assert sum(isinstance(event, events.Init | events.Done) for event in stream) == 2
    tools: set[str] = set()
    in_turn = False
    for event in stream:
        assert type(getattr(event, "duration_ms", None)) in (type(None), float)
        match event:
            case events.TurnStarted():
                assert not in_turn
                in_turn = True
            case events.TurnCompleted():
                assert in_turn
                assert not tools
                in_turn = False
            case events.ToolUse():
                assert event.tool_use_id not in tools
                tools.add(event.tool_use_id)
            case events.ToolResult():
                tools.remove(event.tool_use_id)
            case _:
                pass
    assert not in_turn


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_golden(path: Path) -> None:
    account = Account()
    stream = replay(path, lines_of(path.read_bytes()), account)
    check(stream)
    from_agent = account.translated + account.absorbed + account.unrecognized
    assert account.lines == from_agent + account.said_to_agent + account.remarks
    text = b"".join(encode(event) + b"\n" for event in stream)
    assert [decode(line) for line in text.splitlines()] == stream
    golden = GOLDENS / path.parent.name / path.name
    if BLESS:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_bytes(text)
    assert text.decode() == golden.read_text()


def prefixes(lines: list[bytes]) -> Iterator[list[bytes]]:
    step = max(1, len(lines) // 40)
    return (lines[:count] for count in range(0, len(lines) + 1, step))


@pytest.mark.parametrize("path", CASES[::3], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_prefix_can_be_closed(path: Path) -> None:
    for prefix in prefixes(lines_of(path.read_bytes())):
        check(replay(path, prefix))


ANYTHING = st.one_of(st.binary(max_size=80), st.sampled_from([b"{}", b"[]", b"null", b'{"type":"x"}', b"Warning"]))


@pytest.mark.parametrize(("agent", "name"), [(agent, name) for agent, _, name in DRIVERS])
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=30, deadline=None
)
@given(garbage=st.lists(ANYTHING, max_size=8))
def test_any_bytes_end_with_exactly_one_done(agent: str, name: str, garbage: list[bytes]) -> None:
    lines = [line for line in garbage if line.strip()]
    account = Account()
    check(list(translate(agent, catalog.agent(agent).drivers[name], lines, account)))
    assert account.lines == len(lines)


def test_the_command_line_never_shows_a_traceback() -> None:
    argv = [sys.executable, "-m", "stagedoor.cli", "translate", "claude", "--account"]
    done = subprocess.run(argv, input=b"\xff\x00\n{\nnull\n" + b"[" * 5000, capture_output=True, check=False)
    assert done.returncode == 1  # nothing in it was understood
    assert done.stdout.count(b'"type":"done"') == 1
    assert b"Traceback" not in done.stderr
    assert b"4 lines: 0 translated, 0 without a unified meaning, 4 not recognized" in done.stderr
