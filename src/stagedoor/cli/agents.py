"""``stagedoor agents``: what is installed, which version, signed in or not, what it can do."""

from __future__ import annotations

import asyncio
import sys

from .parsing import Parser


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor agents",
        description="List the agents: installed, version, signed in, drivers. With a name: what each driver can do.",
        examples=("stagedoor agents", "stagedoor agents codex", "stagedoor agents --json"),
    )
    parser.add_argument("agent", nargs="*", help="only these, with everything they can do")
    parser.add_argument("--json", action="store_true", help="one JSON object per agent")
    given = parser.parse_args(argv)
    import msgspec

    from .. import catalog
    from ..errors import NotSupported
    from .exits import report
    from .lines import style_for
    from .presence import abilities, look, overview, remedies

    style = style_for(sys.stdout)
    try:
        names = [catalog.canonical_name(name) for name in given.agent] or list(catalog.names())
    except NotSupported as fault:
        return report("agents", fault)
    present = asyncio.run(look(names))
    if given.json:
        for one in present:
            print(msgspec.json.encode(one).decode())
        return 0
    print(overview(present, style))
    for text in [remedies(present, style), *(abilities(one, style) for one in present if given.agent)]:
        if text:
            print(f"\n{text}")
    return 0
