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
from .parsing import Parser

CHUNK = 2**16


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor translate",
        description="Native lines on stdin (raw, or two-way logs with dir and line) → unified events on stdout.",
        examples=(
            "stagedoor translate codex --driver exec --dialect ues < capture.jsonl",
            "stagedoor translate claude --account < two-way.jsonl",
        ),
    )
    parser.add_argument("agent", help=", ".join(catalog.names()))
    parser.add_argument("--driver", help="which of the agent's protocols was recorded")
    parser.add_argument("--dialect", default="stagedoor", help="stagedoor, ues, lifecycle, board, notify or chat")
    parser.add_argument("--account", action="store_true", help="say on stderr what became of every line")
    options = parser.parse_args(argv)
    from ..dialects import DIALECTS, encode

    try:
        agent = catalog.agent(options.agent)
        driver = catalog.driver(agent, Options(driver=options.driver or next(iter(agent.drivers))))
        if options.dialect not in DIALECTS:
            raise NotSupported(f"there is no dialect {options.dialect!r}; choose from {', '.join(DIALECTS)}")
    except NotSupported as error:
        print(f"stagedoor translate: {error}", file=sys.stderr)
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
