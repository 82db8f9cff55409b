"""``stagedoor rpc``: JSON-RPC 2.0 on stdin and stdout, one message per line."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_USAGE
from .parsing import Parser

if TYPE_CHECKING:
    from ..server.jsonrpc.stdio import Lines
    from ..service.settings import Settings

EPILOG = """\
examples:
  echo '{"jsonrpc":"2.0","id":1,"method":"agent/discover"}' | stagedoor rpc
  stagedoor rpc --root ~/projects
  stagedoor rpc --url http://127.0.0.1:16180        # everything goes to the server that runs there

The sessions are those of this home; when stdin ends, those that run are ended. To leave them running, start
`stagedoor serve` and use --url. The methods are described in docs/jsonrpc.md.
"""


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor rpc",
        description="Speak JSON-RPC 2.0 on stdin and stdout, one message per line, until stdin ends.",
        ends=EPILOG,
    )
    parser.add_argument("--config", type=Path, help="the configuration file (default: as stagedoor config path says)")
    parser.add_argument("--root", action="append", default=[], help="a folder sessions may run in (default: this one)")
    parser.add_argument("--url", help="bridge to a running server instead of working here")
    parser.add_argument(
        "--token-file",
        type=Path,
        help="with --url: a file with the token (default: $STAGEDOOR_TOKEN, else the token of this home)",
    )
    options = parser.parse_args(argv)
    try:
        from ..server.jsonrpc import stdio
        from ..service.config import load
    except ImportError as missing:
        print(f"stagedoor rpc: {missing.name} is missing; pip install 'stagedoor[server]'", file=sys.stderr)
        return EXIT_USAGE
    if options.url is None and options.token_file is not None:
        parser.error("--token-file goes with --url")
    if options.url is not None and not options.url.startswith(("http://", "https://")):
        parser.error(f"--url begins with http:// or https://, not {options.url!r}")
    settings = load(options.config, flags={"workspaces.roots": options.root or None}).settings

    async def speak() -> int:
        async with stdio.standard_streams(settings.limits.body) as lines:
            if options.url is None:
                return await _here(settings, lines)
            return await _elsewhere(options.url, _token(options.token_file, settings), lines)

    try:
        return asyncio.run(_until_told(speak()))
    except BrokenPipeError:
        return EXIT_FAILED


async def _until_told(work: Coroutine[Any, Any, int]) -> int:
    """SIGTERM ends it in order, as Ctrl-C does."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return EXIT_INTERRUPTED


async def _here(settings: Settings, lines: Lines) -> int:
    from msgspec.structs import replace

    from ..server.jsonrpc.stdio import converse
    from ..service.service import Service

    if not settings.roots:
        settings = replace(settings, roots=(str(Path.cwd()),))
    async with Service(settings) as service:
        await converse(service, lines)
    return EXIT_SUCCESS


async def _elsewhere(url: str, token: str, lines: Lines) -> int:
    from ..server.jsonrpc.stdio import bridge

    await bridge(url, token, lines)
    return EXIT_SUCCESS


def _token(file: Path | None, settings: Settings) -> str:
    from ..errors import NotAllowed
    from ..register import home
    from ..server.access.tokens import read_token

    if file is not None:
        return file.read_text(encoding="utf-8").strip()
    if os.environ.get("STAGEDOOR_TOKEN"):
        return os.environ["STAGEDOOR_TOKEN"]
    folder = Path(settings.home) if settings.home else home()
    try:
        return read_token(folder)
    except FileNotFoundError as missing:
        said = f"{folder} has no token, no server has run there; name one with --token-file or $STAGEDOOR_TOKEN"
        raise NotAllowed(said) from missing
