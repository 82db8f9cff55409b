"""What one event costs on each driver, beside Claude Code's: pieces of text, and pieces mixed with calls.

    python -m bench.drivers [--pieces 8000]

Protocol, dictionary, grammar and header, from the bytes of a line to the unified event. Processor time, not the clock.
``<`` marks what falls short.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from stagedoor import catalog
from stagedoor.replay import side_of
from stagedoor.unified.events import Event, Init, TextDelta, stamp
from stagedoor.unified.grammar import Grammar

RECORDINGS = Path(__file__).parent.parent / "tests" / "transcripts"
BOUND = 2.0
RUNS = 9


class RecordedDriver(msgspec.Struct, frozen=True):
    agent: str
    driver: str
    path: str
    piece: bytes
    """What a line has that brings a piece of the answer."""
    call: bytes
    """The id of a call in that recording."""


DRIVERS = (
    RecordedDriver(
        "claude", "stream", "claude-2.1.197/07-partial-messages.jsonl", b"text_delta", b"toolu_fake00000041"
    ),
    RecordedDriver(
        "codex", "app-server", "codex-0.166.0/109j-app-untrusted-ro-accept.jsonl", b"agentMessage/delta",
        b"call_fake00000002",
    ),
    RecordedDriver(
        "opencode", "acp", "opencode-1.18.33/50-acp-main.jsonl", b"agent_message_chunk", b"call_90_0"
    ),
    RecordedDriver(
        "opencode", "serve", "opencode-1.18.33/40-serve-main.jsonl", b"message.part.delta", b"call_159_0"
    ),
)  # fmt: skip
QUESTIONS = (b"requestApproval", b"request_permission", b"permission.asked", b"HTTP ", b"control_request")
"""What a line has that is no part of a call's own course."""
ENDS = (b'"tool_result"', b"item/completed", b'"status":"completed"')
"""What the last line of a call has."""
PIECES_PER_CALL = 8


class Rig:
    """A session in the middle of an answer: from the bytes of a line to the unified event with its header."""

    def __init__(self, case: RecordedDriver) -> None:
        driver: Any = catalog.agent(case.agent).drivers[case.driver]
        self._agent = case.agent
        self._protocol, self._dictionary, self._grammar = driver.protocol(), driver.dictionary(), Grammar(Init())
        self.piece = b""
        self.call: list[bytes] = []
        for line in (RECORDINGS / case.path).read_bytes().splitlines():
            side, message = side_of(line)
            if not isinstance(message, bytes):
                continue
            over = bool(self.call) and any(mark in self.call[-1] for mark in ENDS)
            if side == "out" and case.call in message and not over and not any(mark in message for mark in QUESTIONS):
                self.call.append(message)
            if self.piece:
                continue
            if side == "in":
                self._protocol.decode_command(message)
                continue
            self.feed(message)
            if case.piece in message and self._grammar.flows:
                self.piece = message
        if not self.piece or not self.call:
            raise SystemExit(f"{case.path}: no piece of an answer, or no call {case.call!r}")

    def feed(self, message: bytes, number: int = 0) -> list[Event]:
        return [
            stamp(ordered, self._agent, "s", number, 1, 1)
            for native in self._protocol.receive(message)
            for event in self._dictionary.translate(native)
            for ordered in self._grammar.accept(event, 1)
        ]


def piece_cost(case: RecordedDriver, pieces: int) -> float:
    """Microseconds for a piece of the answer."""
    rig = Rig(case)
    begun = time.process_time()
    for number in range(pieces):
        [event] = rig.feed(rig.piece, number)
        if type(event) is not TextDelta:
            raise SystemExit(f"{case.path}: that line is no piece of an answer")
    return (time.process_time() - begun) / pieces * 1e6


def mix_cost(case: RecordedDriver, pieces: int) -> float:
    """Microseconds for an event of one mix that is the same for all: pieces of text, and a call now and then."""
    rig, count = Rig(case), 0
    rounds = [
        [rig.piece] * PIECES_PER_CALL + [line.replace(case.call, b"call_%d" % number) for line in rig.call]
        for number in range(pieces // PIECES_PER_CALL)
    ]
    begun = time.process_time()
    for lines in rounds:
        for line in lines:
            count += len(rig.feed(line))
    return (time.process_time() - begun) / count * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pieces", type=int, default=8_000)
    options = parser.parse_args()
    pieces: dict[str, list[float]] = {case.path: [] for case in DRIVERS}
    mixes: dict[str, list[float]] = {case.path: [] for case in DRIVERS}
    for _ in range(RUNS):  # by turns: a busy machine is busy for all of them
        for case in DRIVERS:
            pieces[case.path].append(piece_cost(case, options.pieces))
            mixes[case.path].append(mix_cost(case, options.pieces))
    rows = [(case, min(pieces[case.path]), min(mixes[case.path])) for case in DRIVERS]
    _, piece, mix = rows[0]
    print("one event of each driver, µs (and × Claude Code's)")
    for case, of_piece, of_mix in rows:
        short = "   bound 2 <" if max(of_piece / piece, of_mix / mix) > BOUND else ""
        print(
            f"  {case.agent + ' ' + case.driver:18} a piece {of_piece:5.1f} ({of_piece / piece:.1f} ×)"
            f"   pieces and calls {of_mix:5.1f} ({of_mix / mix:.1f} ×){short}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
