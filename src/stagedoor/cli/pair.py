"""``stagedoor pair``: a one-time code that pairs a phone or a browser with the running server."""

from __future__ import annotations

import io
import sys
from typing import Any

from ..dialects import DIALECTS
from . import EXIT_SUCCESS, EXIT_USAGE
from .command import Parser, report


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor pair",
        description="Pair a device with the running server: shows a link, its QR code and a code to type. It works "
        "once, within five minutes.",
        examples=("stagedoor pair", "stagedoor pair --scope watch --name 'kitchen tablet'"),
    )
    parser.add_argument(
        "--scope",
        choices=("watch", "answer", "run", "admin", "call"),
        default="run",
        help="watch: read only · answer: also answer permission questions · run: also start and steer sessions "
        "(default) · admin: also pair and revoke devices · call: for a model, at the MCP door (/mcp) and nowhere else",
    )
    parser.add_argument("--name", default="", help="a name for the device (default: the name it sends)")
    parser.add_argument(
        "--dialect",
        choices=tuple(DIALECTS),
        default="",
        help="what its event streams speak where a request does not say (default: what the server speaks)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object: code, url, scope, expiresAt, qr (SVG), reachable, fingerprint",
    )
    arguments = parser.parse_args(argv)
    from ..errors import StagedoorError
    from ..register import home

    try:
        from ..server.running import send_request

        body = {"scope": arguments.scope, "name": arguments.name, "dialect": arguments.dialect}
        pairing: dict[str, Any] = send_request(home(), "POST", "/api/pairing", body)
        if arguments.json:
            import msgspec

            print(msgspec.json.encode(pairing).decode())
            return EXIT_SUCCESS
        if sys.stdout.isatty():
            print(drawn(pairing["url"]) if pairing["reachable"] else "")
        print(f"link  {pairing['url']}\ncode  {pairing['code']}\nscope {pairing['scope']}")
        if pairing["fingerprint"]:
            from ..server.certificate import as_people_compare

            print(f"The browser warns about the certificate once. SHA-256 {as_people_compare(pairing['fingerprint'])}")
        if not pairing["reachable"]:
            print(
                "This server listens on this machine only, so there is no QR code: a phone could not reach it. "
                "Start it with: stagedoor serve --lan (other ways: docs/reach.md).",
                file=sys.stderr,
            )
    except (StagedoorError, OSError, ModuleNotFoundError) as fault:
        report("pair", fault)
        return EXIT_USAGE
    return EXIT_SUCCESS


def drawn(url: str) -> str:
    import segno

    out = io.StringIO()
    segno.make(url, error="l", micro=False).terminal(out, compact=True)
    return out.getvalue()
