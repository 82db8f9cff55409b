"""Every transcript of a real CLI through its protocol: each line a typed event, or a reviewed ``Unrecognized``.

The goldens name, line by line, the types each line became; ``make bless`` rewrites them for review.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stagedoor import catalog
from stagedoor.agents.acp.protocol import AcpProtocol
from stagedoor.agents.claude.protocol import ClaudeProtocol
from stagedoor.agents.codex.protocol import AppServerProtocol, ExecProtocol
from stagedoor.agents.gemini.protocol import StreamProtocol
from stagedoor.agents.opencode.events import ServerOutput
from stagedoor.agents.opencode.protocol import RunProtocol, ServeProtocol
from stagedoor.wire.jsonl import LineBuffer
from stagedoor.wire.shapes import UnknownMessage

TESTS = Path(__file__).parent.parent
TRANSCRIPTS, GOLDENS = TESTS / "transcripts", TESTS / "goldens" / "native"
BLESS = os.environ.get("STAGEDOOR_BLESS") == "1"

# (agent, mark in the file's name) → protocol; the first mark that occurs decides.
PROTOCOLS: list[tuple[str, str, Callable[[], Any]]] = [
    ("claude", "", ClaudeProtocol),
    ("codex", "-app-", AppServerProtocol),
    ("codex", "", ExecProtocol),
    ("gemini", "-acp-", AcpProtocol),
    ("gemini", "", StreamProtocol),
    ("opencode", "-serve-", ServeProtocol),
    ("opencode", "-acp-", AcpProtocol),
    ("opencode", "", RunProtocol),
    ("copilot", "", AcpProtocol),
    ("qwen", "", AcpProtocol),
    ("kimi", "", AcpProtocol),
]
# Captures of other things than an event stream: session files, listings, paths, whole-answer JSON.
NOT_STREAMS = ("sessionfile", "list", "plain-json", "json-tools", "delete-uuid", "db-path", "debug-paths")
CASES = sorted(path for path in TRANSCRIPTS.rglob("*.jsonl") if not any(word in path.name for word in NOT_STREAMS))


def protocol_of(path: Path) -> Any:
    agent = path.parent.name.split("-")[0]
    drivers = catalog.agent(agent).drivers
    fresh = [name for name in drivers if path.name.startswith(f"recorded-{name}-")]  # by `make record`
    if fresh:
        return drivers[fresh[0]].protocol()
    return next(make for name, mark, make in PROTOCOLS if name == agent and re.match(rf"\d+\w*{mark}", path.name))()


def messages(path: Path, size: int = 2**16) -> Iterator[bytes]:
    """What the CLI wrote: the lines of a raw capture, or the ``out`` side of a two-way log."""
    lines, content = LineBuffer(), path.read_bytes()
    cut = [line for at in range(0, len(content), size) for line in lines.feed(content[at : at + size])] + lines.finish()
    for line in cut:
        assert isinstance(line, bytes)
        try:
            both = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            both = None
        if isinstance(both, dict) and "dir" in both and "line" in both:
            if both["dir"] == "out":
                message = both["line"]
                yield message.encode() if isinstance(message, str) else msgspec.json.encode(message)
        else:
            yield line


def name(event: object) -> str:
    if isinstance(event, UnknownMessage):
        return f"UnknownMessage: {event.why}"
    return type(event).__name__


def replay(path: Path, size: int = 2**16) -> list[list[str]]:
    protocol = protocol_of(path)
    rows = [[name(event) for event in protocol.receive(message)] for message in messages(path, size)]
    return [*rows, [name(event) for event in protocol.receive_eof()]]


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_golden(path: Path) -> None:
    golden = GOLDENS / path.parent.name / f"{path.stem}.json"
    rows = replay(path)
    if BLESS:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    assert rows == json.loads(golden.read_text())


@pytest.mark.parametrize("path", CASES[::7], ids=lambda path: f"{path.parent.name}/{path.stem}")
@pytest.mark.parametrize("size", [13, 1021])
def test_any_chunking_gives_the_same_events(path: Path, size: int) -> None:
    assert replay(path, size) == replay(path)


@pytest.mark.parametrize("make", [make for _, _, make in PROTOCOLS], ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "line", [b"Warning: hi", b'{"type":"new_thing"}', b'{"type":"assistant"}', b'{"a":1}', b"[]", b"\xff\xfe", b"null"]
)
def test_no_line_raises_and_none_is_lost(make: Callable[[], Any], line: bytes) -> None:
    events = make().receive(line)
    if make is ServeProtocol and not line.startswith(b"{"):
        assert [type(event) for event in events] == [ServerOutput]  # its server also prints plain lines
    else:
        assert [event.raw for event in events if isinstance(event, UnknownMessage)] == [line]


def test_few_lines_are_not_recognized() -> None:
    """A reviewed bound: what is not recognized is text the CLI printed in place of JSON, and truncated last lines."""
    counts: Counter[str] = Counter()
    for path in CASES:
        counts.update(path.parent.name for row in replay(path) for event in row if event.startswith("UnknownMessage"))
    assert dict(counts) == REVIEWED


REVIEWED: dict[str, int] = {"claude-2.1.197": 2, "gemini-0.61.0": 3, "qwen-0.24.4": 20}
