"""Recorded lines with parts of them replaced: whatever a server says, nothing raises and nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stagedoor.agents.codex.commands import Decline, InterruptTurn
from stagedoor.agents.codex.protocol import AppServerProtocol, ExecProtocol
from stagedoor.agents.codex.questions import result

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts" / "codex-0.166.0"
EXEC: list[Any] = []
APP: list[Any] = []
for path in sorted(TRANSCRIPTS.glob("*.jsonl")):
    for line in map(json.loads, path.read_bytes().splitlines()):
        if "dir" not in line:
            EXEC.append(line)
        elif line["dir"] == "out" and len(line["line"]) < 5000:
            APP.append(json.loads(line["line"]))

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def spoiled(draw: st.DrawFn, lines: list[Any]) -> bytes:
    """A recorded line in which one part, however deep, is something else."""

    def spoil(value: Any) -> Any:
        if isinstance(value, dict) and value and draw(st.booleans()):
            key = draw(st.sampled_from(sorted(value)))
            return value | {key: spoil(value[key])}
        if isinstance(value, list) and value and draw(st.booleans()):
            at = draw(st.integers(0, len(value) - 1))
            return [*value[:at], spoil(value[at]), *value[at + 1 :]]
        return draw(VALUES)

    return json.dumps(spoil(draw(st.sampled_from(lines)))).encode()


@settings(max_examples=300, deadline=None)
@given(st.lists(spoiled(EXEC), max_size=5))
def test_exec(lines: list[bytes]) -> None:
    protocol = ExecProtocol()
    assert [len(protocol.receive(line)) for line in lines] == [1] * len(lines)


@settings(max_examples=300, deadline=None)
@given(st.lists(spoiled(APP), max_size=8), st.binary(max_size=20))
def test_app_server(lines: list[bytes], noise: bytes) -> None:
    protocol = AppServerProtocol()
    for line in [*lines, noise]:
        assert len(protocol.receive(line)) == 1
        protocol.decode_command(line)
    for question in list(protocol.open_questions.values()):
        if "CurrentTime" not in type(question).__name__:
            assert result(question, Decline())
        protocol.send(InterruptTurn(question.thread_id))
        protocol.busy(question.thread_id)
    protocol.outgoing()
    protocol.receive_eof()
    assert protocol.open_questions == {}
