"""``podium translate``: an agent's native output on stdin, unified events on stdout."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Iterable, Iterator

import msgspec

from .. import catalog
from ..drivers.driver import Driver
from ..errors import NotSupported
from ..unified.events import Event, stamp
from ..unified.grammar import Grammar
from ..unified.options import Options
from ..wire import shapes
from ..wire.jsonl import LineBuffer

CHUNK = 2**16


class Account(msgspec.Struct):
    """Every input line is one of these."""

    lines: int = 0
    translated: int = 0
    absorbed: int = 0
    unrecognized: int = 0
    not_the_agents: int = 0

    def __str__(self) -> str:
        return (
            f"{self.lines} lines: {self.translated} translated, {self.absorbed} without a unified meaning, "
            f"{self.unrecognized} not recognized, {self.not_the_agents} sent to the agent"
        )


class _TwoWay(msgspec.Struct):
    dir: str
    line: str | msgspec.Raw
    t: float = 0.0


def translate(
    agent: str, driver: Driver, lines: Iterable[bytes | shapes.Unrecognized], account: Account
) -> Iterator[Event]:
    """Pure replay of a recording, raw or two-way, up to and including ``done``."""
    protocol, dictionary, grammar = driver.protocol(), driver.dictionary(), Grammar()
    seq = itertools.count(1)

    def stamped(made: Iterable[Event]) -> Iterator[Event]:
        for event in made:
            yield stamp(event, agent=agent, session_id="replay", seq=next(seq), timestamp=0, turn=grammar.turn)

    for line in lines:
        account.lines += 1
        message = _heard(line)
        if message is None:
            account.not_the_agents += 1
            continue
        natives = [message] if isinstance(message, shapes.Unrecognized) else list(protocol.receive(message))
        unknown = any(isinstance(native, shapes.Unrecognized) for native in natives)
        made = [event for native in natives for event in dictionary.translate(native)]
        account.unrecognized += unknown
        account.translated += bool(made) and not unknown
        account.absorbed += not made and not unknown
        for event in made:
            yield from stamped(grammar.accept(event))
    for native in protocol.receive_eof():
        for event in dictionary.translate(native):
            yield from stamped(grammar.accept(event))
    yield from stamped(grammar.end("error" if grammar.in_turn else None))


def _heard(line: bytes | shapes.Unrecognized) -> bytes | shapes.Unrecognized | None:
    """What the agent said in this line of a recording; ``None`` for what was said to it."""
    if isinstance(line, shapes.Unrecognized) or b'"dir"' not in line[:200]:
        return line
    try:
        both = msgspec.json.decode(line, type=_TwoWay)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return line
    if both.dir != "out":
        return None
    return both.line.encode() if isinstance(both.line, str) else bytes(both.line)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="podium translate",
        description="Native lines on stdin (raw, or two-way logs with dir and line) → unified events on stdout.",
        epilog="example: podium translate codex --driver exec --dialect ues < capture.jsonl",
    )
    parser.add_argument("agent", help=", ".join(catalog.AGENTS))
    parser.add_argument("--driver", help="which of the agent's protocols was recorded")
    parser.add_argument("--dialect", default="podium", help="podium, ues, lifecycle, board, notify or chat")
    parser.add_argument("--account", action="store_true", help="say on stderr what became of every line")
    options = parser.parse_args(argv)
    from ..dialects import DIALECTS, encode

    try:
        agent = catalog.agent(options.agent)
        driver = catalog.driver(agent, Options(driver=options.driver or next(iter(agent.drivers))))
        if options.dialect not in DIALECTS:
            raise NotSupported(f"there is no dialect {options.dialect!r}; choose from {', '.join(DIALECTS)}")
    except NotSupported as error:
        print(f"podium translate: {error}", file=sys.stderr)
        return 2
    projection = DIALECTS[options.dialect]()
    account, out = Account(), sys.stdout.buffer
    for event in translate(agent.name, driver, _stdin_lines(), account):
        for line in encode(projection, event):
            out.write(line + b"\n")
    out.flush()
    if options.account:
        print(account, file=sys.stderr)
    return 0


def _stdin_lines() -> Iterator[bytes | shapes.Unrecognized]:
    lines = LineBuffer()
    while chunk := os.read(sys.stdin.fileno(), CHUNK):
        yield from lines.feed(chunk)
    yield from lines.finish()
