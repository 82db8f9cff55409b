"""``stagedoor pair``: a one-time code that lets a phone or a browser into the server that runs."""

from __future__ import annotations

import io
import sys
from typing import Any
from urllib.parse import urlsplit

from . import EXIT_SUCCESS, EXIT_USAGE
from .parsing import Parser


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor pair",
        description="Let a device into the running server: shows a link, its QR code and a code to type. It works "
        "once, within five minutes.",
        examples=("stagedoor pair", "stagedoor pair --scope watch --name 'kitchen tablet'"),
    )
    parser.add_argument(
        "--scope",
        choices=("watch", "answer", "run", "admin"),
        default="run",
        help="watch: only look · answer: and decide permission questions · run: and start and steer sessions "
        "(default) · admin: and let others in",
    )
    parser.add_argument("--name", default="", help="what the device is called (else what it says itself)")
    parser.add_argument("--json", action="store_true", help="one JSON object: code, url, scope, expiresAt, qr (SVG)")
    given = parser.parse_args(argv)
    from ..errors import StagedoorError
    from ..register import home
    from .exits import report

    try:
        from ..server.address import is_loopback
        from ..server.running import ask

        pairing: dict[str, Any] = ask(home(), "POST", "/api/pairing", {"scope": given.scope, "name": given.name})
        if given.json:
            import msgspec

            print(msgspec.json.encode(pairing).decode())
            return EXIT_SUCCESS
        if sys.stdout.isatty():
            print(_drawn(pairing["url"]))
        print(f"link  {pairing['url']}\ncode  {pairing['code']}\nmay   {pairing['scope']}")
        if is_loopback(urlsplit(str(pairing["url"])).hostname or ""):
            print(
                "This server listens on this machine only. For a phone, start it with --host and a certificate "
                "(docs/serve.md).",
                file=sys.stderr,
            )
    except (StagedoorError, OSError, ModuleNotFoundError) as fault:
        report("pair", fault)
        return EXIT_USAGE
    return EXIT_SUCCESS


def _drawn(url: str) -> str:
    import segno

    out = io.StringIO()
    segno.make(url, error="l", micro=False).terminal(out, compact=True)
    return out.getvalue()
