"""``stagedoor serve``: the server in the foreground, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import errno
import logging
import os
import signal
import socket
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_USAGE
from .parsing import Parser

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ..server.running import Note
    from ..service.service import Service
    from ..service.settings import Settings

EPILOG = """\
examples:
  stagedoor serve                                  this folder, on 127.0.0.1:16180
  stagedoor serve --root ~/code --port 8000        everything under ~/code
  stagedoor serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
  stagedoor pair                                   (in another terminal) let a phone or a browser in

Settings come from config.yaml (stagedoor config path), the environment, and these flags. See docs/serve.md.
exit codes: 0 stopped in order · 2 it could not start (says why)
"""


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor serve",
        description="Run agent sessions for any number of clients, over REST, WebSocket and JSON-RPC, and keep "
        "everything they do.",
        ends=EPILOG,
    )
    parser.add_argument("--host", metavar="ADDRESS", help="listen here (default: 127.0.0.1, this machine only)")
    parser.add_argument("--port", type=int, metavar="N", help="default: 16180; 0 takes a free one")
    parser.add_argument(
        "--root", action="append", metavar="DIR", help="sessions run only under this folder (repeatable; default: here)"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="this configuration, instead of the one found")
    parser.add_argument("--tls-cert", metavar="FILE", help="a certificate (PEM): speak HTTPS")
    parser.add_argument("--tls-key", metavar="FILE", help="its private key (PEM)")
    parser.add_argument(
        "--insecure", action="store_true", help="listen beyond this machine without TLS: tokens can be overheard"
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="on standard error")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    given = parser.parse_args(argv)
    from ..errors import StagedoorError
    from .exits import report

    try:
        return _serve(given)
    except (StagedoorError, OSError, ModuleNotFoundError) as fault:
        report("serve", fault)
        return EXIT_USAGE


def _serve(given: argparse.Namespace) -> int:
    from ..server import logs
    from ..server.app import create_app
    from ..server.listening import open_socket
    from ..service.config import load
    from ..service.service import Service

    loaded = load(
        given.config,
        flags={
            "server.host": given.host,
            "server.port": given.port,
            "server.tls_cert": given.tls_cert,
            "server.tls_key": given.tls_key,
            "workspaces.roots": given.root,
        },
    )
    settings = _checked(loaded.settings, insecure=given.insecure)
    for warning in loaded.warnings:
        print(f"stagedoor serve: {warning}", file=sys.stderr)
    service = Service(settings)
    app = create_app(service)
    try:
        opened = open_socket(settings.host, settings.port)
    except OSError as fault:
        raise OSError(_why_not(fault, settings)) from fault
    with opened:
        logs.set_up(given.log_format, given.log_level)
        return asyncio.run(_run(app, service, opened))


def _checked(settings: Settings, *, insecure: bool) -> Settings:
    from msgspec.structs import replace

    from ..errors import ConfigError
    from ..server.address import is_loopback

    if settings.tls_cert:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(settings.tls_cert, settings.tls_key)
        except OSError as fault:
            raise ConfigError(f"the certificate {settings.tls_cert} and its key cannot be used: {fault}") from fault
    elif not insecure and not is_loopback(settings.host):
        raise ConfigError(
            f"{settings.host} can be reached from other machines, and without TLS anybody between could read the "
            "token and everything the agents say; give --tls-cert and --tls-key (docs/serve.md says how to make "
            "them), put a proxy with TLS in front of 127.0.0.1, or say --insecure"
        )
    if not settings.roots:
        settings = replace(settings, roots=(str(Path.cwd()),))
    for root in settings.roots:
        folder = Path(root).expanduser().resolve()
        if not folder.is_dir():
            raise ConfigError(f"the root {root} is not a folder; make it first, or name another with --root")
        if folder == Path(folder.anchor):
            raise ConfigError("the whole disk is no root for agents; name a folder with --root")
    return settings


def _why_not(fault: OSError, settings: Settings) -> str:
    where = f"{settings.host}:{settings.port}"
    match fault.errno:
        case errno.EADDRINUSE:
            return f"{where} is taken, perhaps by another stagedoor serve; choose another port with --port"
        case errno.EACCES:
            return f"{where} may not be used by you; choose a port above 1023 with --port"
        case errno.EADDRNOTAVAIL:
            return f"this machine has no address {settings.host}; choose another with --host"
        case _ if isinstance(fault, socket.gaierror):
            return f"nobody knows the host {settings.host!r}; choose another with --host"
        case _:
            return f"cannot listen on {where}: {fault.strerror or fault}"


async def _run(app: Starlette, service: Service, opened: socket.socket) -> int:
    from ..server.listening import listening
    from ..server.running import noted

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def leave() -> None:
        if stop.is_set():
            os._exit(EXIT_INTERRUPTED)  # asked twice: the guards end what the agents run
        logging.getLogger("stagedoor.server").info("stopping; once more to stop at once")
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leave)
    address = opened.getsockname()[:2]
    async with listening(app, service.settings, opened) as server:
        with noted(service.home, service.settings, address) as note:
            _greet(app.state.codes, service, note)
            waiting = asyncio.create_task(stop.wait())
            await asyncio.wait([waiting, server.serving], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
    return EXIT_SUCCESS


def _greet(codes: Any, service: Service, note: Note) -> None:
    """Where it is and how to get in. A link that lets somebody in is for a person's eyes, never for a log."""
    if sys.stdout.isatty():
        way_in = f"{note.url}/#pair={codes.new('admin', 'this machine').shown}   (works once, within five minutes)"
    else:
        way_in = "run: stagedoor pair"
    rows = [
        ("open", way_in),
        ("pair", "stagedoor pair   (a phone or another browser)"),
        ("folders", ", ".join(service.settings.roots)),
        ("token", str(service.home / "token")),
    ]
    print(f"Stagedoor listens on {note.url}" + ("" if note.public == note.url else f" and {note.public}"))
    for name, value in rows:
        print(f"  {name:8} {value}")
    print("Ctrl-C stops it.", flush=True)
