"""``stagedoor translate``: an agent's native output on stdin, unified events on stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from .. import catalog
from ..errors import NotSupported
from ..replay import Account, translate
from ..unified.options import Options
from ..wire import shapes
from ..wire.jsonl import LineBuffer
from .command import DIALECTS, Parser, report

CHUNK = 2**16


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor translate",
        description="Translate an agent's native lines on stdin (raw, or two-way logs with dir and line) into unified "
        "events on stdout.",
        examples=(
            "stagedoor translate codex --driver exec --dialect ues < capture.jsonl",
            "stagedoor translate claude --account < two-way.jsonl",
        ),
    )
    parser.add_argument("agent", help=", ".join(catalog.names()))
    parser.add_argument("--driver", help="the protocol of the recording (default: the first of the agent)")
    parser.add_argument("--dialect", default="stagedoor", help=f"the vocabulary of the output: {', '.join(DIALECTS)}")
    parser.add_argument("--account", action="store_true", help="report on stderr what every line became")
    arguments = parser.parse_args(argv)
    from ..dialects import DIALECTS as PROJECTIONS
    from ..dialects import encode

    try:
        agent = catalog.agent(arguments.agent)
        driver = catalog.driver(agent, Options(driver=arguments.driver or next(iter(agent.drivers))))
        if arguments.dialect not in PROJECTIONS:
            raise NotSupported(f"unknown dialect {arguments.dialect!r}: choose from {', '.join(PROJECTIONS)}")
    except NotSupported as error:
        return report("translate", error)
    projection = PROJECTIONS[arguments.dialect]()
    account, out = Account(), sys.stdout.buffer
    for event in translate(agent.name, driver, _stdin_lines(), account):
        for line in encode(projection, event):
            out.write(line + b"\n")
    out.flush()
    if arguments.account:
        print(account, file=sys.stderr)
    return 0


def _stdin_lines() -> Iterator[bytes | shapes.UnknownMessage]:
    lines = LineBuffer()
    while chunk := os.read(sys.stdin.fileno(), CHUNK):
        yield from lines.feed(chunk)
    yield from lines.finish()
