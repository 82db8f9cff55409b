"""What one event costs on each driver, beside Claude Code's: pieces of text, and whole recorded sessions.

    python -m bench.drivers [--pieces 20000]

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
from stagedoor.replay import side_of, translate
from stagedoor.unified.events import Init, TextDelta, stamp
from stagedoor.unified.grammar import Grammar

RECORDINGS = Path(__file__).parent.parent / "tests" / "transcripts"
BOUND = 2.0
RUNS = 5


class RecordedDriver(msgspec.Struct, frozen=True):
    agent: str
    driver: str
    path: str
    piece: bytes
    """What a line has that brings a piece of the answer."""


DRIVERS = (
    RecordedDriver("claude", "stream", "claude-2.1.197/07-partial-messages.jsonl", b"text_delta"),
    RecordedDriver("codex", "app-server", "codex-0.166.0/109j-app-untrusted-ro-accept.jsonl", b"agentMessage/delta"),
    RecordedDriver("opencode", "acp", "opencode-1.18.33/50-acp-main.jsonl", b"agent_message_chunk"),
    RecordedDriver("opencode", "serve", "opencode-1.18.33/40-serve-main.jsonl", b"message.part.delta"),
)


def piece_cost(case: RecordedDriver, pieces: int) -> float:
    """Microseconds for a piece of the answer, in the middle of a session."""
    driver: Any = catalog.agent(case.agent).drivers[case.driver]
    protocol, dictionary, grammar = driver.protocol(), driver.dictionary(), Grammar(Init())
    piece = b""
    for line in (RECORDINGS / case.path).read_bytes().splitlines():
        side, message = side_of(line)
        if not isinstance(message, bytes):
            continue
        if side == "in":
            protocol.decode_command(message)
            continue
        for native in protocol.receive(message):
            for event in dictionary.translate(native):
                grammar.accept(event, 1)
        if case.piece in message and grammar.flows:
            piece = message
            break
    begun = time.process_time()
    for number in range(pieces):
        for native in protocol.receive(piece):
            for event in dictionary.translate(native):
                if type(event) is not TextDelta or not grammar.flows:
                    raise SystemExit(f"{case.path}: that line is no piece of an answer")
                stamp(event, case.agent, "s", number, 1, 1)
    return (time.process_time() - begun) / pieces * 1e6


def session_cost(case: RecordedDriver) -> float:
    """Microseconds for an event of the whole recorded session, with its calls and questions."""
    driver: Any = catalog.agent(case.agent).drivers[case.driver]
    lines = (RECORDINGS / case.path).read_bytes().splitlines()
    count, begun = 0, time.process_time()
    for _ in range(20):
        count += sum(1 for _ in translate(case.agent, driver, lines))
    return (time.process_time() - begun) / count * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pieces", type=int, default=20_000)
    options = parser.parse_args()
    rows = [
        (case, min(piece_cost(case, options.pieces) for _ in range(RUNS)), min(session_cost(case) for _ in range(RUNS)))
        for case in DRIVERS
    ]
    _, piece, session = rows[0]
    print("one event of each driver, µs (and × Claude Code's)")
    for case, of_piece, of_session in rows:
        short = "   bound 2 <" if of_piece / piece > BOUND else ""
        print(
            f"  {case.agent + ' ' + case.driver:18} a piece {of_piece:5.1f} ({of_piece / piece:.1f} ×)"
            f"   a recorded session {of_session:6.1f} ({of_session / session:.1f} ×){short}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
