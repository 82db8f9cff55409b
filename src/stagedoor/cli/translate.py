"""``stagedoor translate``: an agent's native output on stdin, unified events on stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from .. import catalog
from ..errors import ConfigError, NotSupported
from ..replay import Account, Line, translate
from ..replay.recognition import recognized, utf8_chunks
from ..unified.options import Options
from ..wire.jsonl import LineBuffer
from .command import DIALECTS, Parser, report

CHUNK = 2**16


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor translate",
        description="Translate an agent's native lines on stdin (raw, or two-way logs with dir and line) into unified "
        "events on stdout. Which protocol a recording holds is recognized, and said on stderr.",
        examples=(
            "stagedoor translate < capture.jsonl",
            "stagedoor translate codex --driver exec --dialect ues < capture.jsonl",
            "stagedoor translate claude --account < two-way.jsonl",
        ),
    )
    parser.add_argument("agent", nargs="?", help=f"{', '.join(catalog.names())} (default: recognized)")
    parser.add_argument("--driver", help="the protocol of the recording (default: recognized)")
    parser.add_argument("--dialect", default="stagedoor", help=f"the vocabulary of the output: {', '.join(DIALECTS)}")
    parser.add_argument("--account", action="store_true", help="report on stderr what every line became")
    arguments = parser.parse_args(argv)
    from ..dialects import DIALECTS as PROJECTIONS
    from ..dialects import encode

    lines: Iterator[Line] = _stdin_lines()
    try:
        if arguments.dialect not in PROJECTIONS:
            raise NotSupported(f"unknown dialect {arguments.dialect!r}: choose from {', '.join(PROJECTIONS)}")
        if arguments.driver is not None and arguments.agent is None:
            raise NotSupported(f"name the agent whose driver {arguments.driver!r} is, or leave the driver out")
        agent = None if arguments.agent is None else catalog.agent(arguments.agent)
        if agent is not None and arguments.driver is not None:
            name, driver = agent.name, catalog.driver(agent, Options(driver=arguments.driver))
        else:
            recognition, lines = recognized(lines, agent)
            name, driver = recognition.agent, recognition.driver
            print(f"stagedoor translate: {recognition}", file=sys.stderr)
    except (NotSupported, ConfigError) as error:
        return report("translate", error)
    projection = PROJECTIONS[arguments.dialect]()
    account, out = Account(), sys.stdout.buffer
    for event in translate(name, driver, lines, account):
        for line in encode(projection, event):
            out.write(line + b"\n")
    out.flush()
    if arguments.account:
        print(account, file=sys.stderr)
    return 0


def _stdin_lines() -> Iterator[Line]:
    lines = LineBuffer()
    for chunk in utf8_chunks(iter(lambda: os.read(sys.stdin.fileno(), CHUNK), b"")):
        yield from lines.feed(chunk)
    yield from lines.finish()
