"""``stagedoor translate``: an agent's native output on stdin, unified events on stdout."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from .. import catalog
from ..errors import BadRequest, ConfigError, NotSupported
from ..replay import Account, Line, translate
from ..replay.recognition import recognized, utf8_chunks
from ..unified import events
from ..unified.events import Event
from ..unified.options import Options
from ..wire.jsonl import LineBuffer
from . import EXIT_FAILED, EXIT_SUCCESS
from .command import DIALECTS, Parser, report

CHUNK = 2**16


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor translate",
        description="Translate an agent's native lines on stdin (raw, or two-way logs with dir and line) into unified "
        "events on stdout. Which protocol a recording holds is recognized, and said on stderr. Events that Stagedoor "
        "has printed are read too, for another --dialect.",
        examples=(
            "stagedoor translate < capture.jsonl",
            "stagedoor translate codex --driver exec --dialect ues < capture.jsonl",
            "stagedoor translate claude --account < two-way.jsonl",
        ),
        closing="exit codes: 0 translated · 1 nothing could be understood · 2 usage, or no protocol was recognized",
    )
    parser.add_argument("agent", nargs="?", help=f"{', '.join(catalog.names())} (default: recognized)")
    parser.add_argument("--driver", help="the protocol of the recording (default: recognized)")
    parser.add_argument("--dialect", default="stagedoor", help=f"the vocabulary of the output: {', '.join(DIALECTS)}")
    parser.add_argument("--account", action="store_true", help="report on stderr what every line became")
    arguments = parser.parse_args(argv)
    from ..dialects import DIALECTS as PROJECTIONS
    from ..dialects import encode

    lines: Iterator[Line] = _stdin_lines()
    account = Account()
    read_events: Iterator[Event]
    try:
        if arguments.dialect not in PROJECTIONS:
            raise NotSupported(f"unknown dialect {arguments.dialect!r}: choose from {', '.join(PROJECTIONS)}")
        if arguments.driver is not None and arguments.agent is None:
            raise NotSupported(f"name the agent whose driver {arguments.driver!r} is, or leave the driver out")
        if arguments.agent is not None and arguments.agent not in catalog.names() and Path(arguments.agent).is_file():
            raise BadRequest(f"recordings are read from standard input: stagedoor translate < {arguments.agent}")
        agent = None if arguments.agent is None else catalog.agent(arguments.agent)
        first = next(lines, None)
        if first is None:
            raise BadRequest("there is nothing on standard input: stagedoor translate < capture.jsonl")
        lines = itertools.chain([first], lines)
        if _is_own(first):
            print("stagedoor translate: recognized as Stagedoor's own events", file=sys.stderr)
            read_events = _own_events(lines)
        elif agent is not None and arguments.driver is not None:
            driver = catalog.driver(agent, Options(driver=arguments.driver))
            read_events = translate(agent.name, driver, lines, account)
        else:
            recognition, lines = recognized(lines, agent)
            if not recognition.points and agent is None:
                raise BadRequest(
                    "no protocol was recognized: is this the output of an agent? To read it as that of one all the "
                    "same, name the agent: stagedoor translate AGENT --driver DRIVER"
                )
            print(f"stagedoor translate: {recognition}", file=sys.stderr)
            read_events = translate(recognition.agent, recognition.driver, lines, account)
        projection, out = PROJECTIONS[arguments.dialect](), sys.stdout.buffer
        for event in read_events:
            for line in encode(projection, event):
                out.write(line + b"\n")
        out.flush()
    except (NotSupported, ConfigError, BadRequest) as error:
        return report("translate", error)
    if arguments.account:
        print(account, file=sys.stderr)
    if account.unrecognized and not (account.translated or account.absorbed):
        print("stagedoor translate: nothing in this recording could be understood", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_SUCCESS


def _is_own(line: Line) -> bool:
    """Whether it is an event as ``stagedoor run --json`` prints it: it has its session and its number."""
    if not isinstance(line, bytes):
        return False
    try:
        return bool(events.decode(line).seq) and b'"sessionId"' in line
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _own_events(lines: Iterator[Line]) -> Iterator[Event]:
    for number, line in enumerate(lines, 1):
        try:
            yield events.decode(line if isinstance(line, bytes) else line.raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
            raise BadRequest(f"line {number} is not one of Stagedoor's events: {fault}") from None


def _stdin_lines() -> Iterator[Line]:
    lines = LineBuffer()
    for chunk in utf8_chunks(iter(lambda: os.read(sys.stdin.fileno(), CHUNK), b"")):
        yield from lines.feed(chunk)
    yield from lines.finish()
