"""``stagedoor serve``: the server in the foreground, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import EXIT_SUCCESS
from .command import Parser
from .servers.foreground import add_flags, checked_roots, prepare_process, run_in_foreground, stopped_by_signals

if TYPE_CHECKING:
    import argparse

    from starlette.applications import Starlette

    from ..server.running import ServerFile
    from ..service.config.settings import Settings
    from ..service.service import Service

EPILOG = """\
examples:
  stagedoor serve                                  this folder, on 127.0.0.1:16180
  stagedoor serve --lan                            phones in the same network too: makes a certificate, shows a QR
  stagedoor serve --root ~/code --port 8000        everything under ~/code
  stagedoor serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
  stagedoor pair                                   (in another terminal) pair a phone or a browser

Settings come from config.yaml (stagedoor config path), the environment, and these flags. See docs/serve.md.
exit codes: 0 stopped · 2 could not start
"""


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor serve",
        description="Run agent sessions for any number of clients, over REST, WebSocket and JSON-RPC, and store "
        "everything they do.",
        closing=EPILOG,
    )
    parser.add_argument("--host", metavar="ADDRESS", help="listen here (default: 127.0.0.1, this machine only)")
    parser.add_argument(
        "--lan",
        action="store_true",
        help="listen where phones in the same network can reach it, with a certificate of its own (HTTPS); "
        "--host chooses among several addresses of this machine",
    )
    parser.add_argument("--port", type=int, metavar="N", help="default: 16180; 0 chooses a free port")
    parser.add_argument(
        "--database",
        metavar="URL",
        help="keep the log in PostgreSQL (postgresql://role@host/name) instead of a file; its password comes from a "
        "file (docs/machines.md)",
    )
    parser.add_argument(
        "--door",
        action="store_true",
        help="run nothing here: sessions run on the workers that share the database (stagedoor worker)",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="a certificate (PEM): use HTTPS")
    parser.add_argument("--tls-key", metavar="FILE", help="its private key (PEM)")
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="allow other machines to connect without TLS: others on the network can read the tokens",
    )
    add_flags(parser)
    return run_in_foreground("serve", _serve, parser.parse_args(argv))


def _serve(arguments: argparse.Namespace) -> int:
    from ..errors import ConfigError
    from ..server.app import create_app
    from ..server.listening import open_socket
    from ..server.running import public_url
    from ..service.config.load import load
    from ..service.postgres.address import without_password
    from ..service.service import Service

    loaded = load(
        arguments.config,
        flags={
            "server.host": arguments.host,
            "server.port": arguments.port,
            "server.tls_cert": arguments.tls_cert,
            "server.tls_key": arguments.tls_key,
            "workspaces.roots": arguments.root,
            "log.database": without_password(arguments.database),
        },
    )
    settings = loaded.settings
    if arguments.lan:
        settings = _on_the_network(settings, arguments.host or "", insecure=arguments.insecure)
    settings = _checked(settings, insecure=arguments.insecure)
    if arguments.door and not settings.database:
        raise ConfigError("--door needs a database that workers share: --database URL, or log.database in its file")
    service = Service(settings, role="door" if arguments.door else "both")
    prepare_process("serve", arguments, loaded.warnings)
    app = create_app(service)
    try:
        opened = open_socket(settings.host, settings.port)
    except OSError as fault:
        raise OSError(_listen_problem(fault, settings)) from fault
    service.notifications.page = public_url(settings, port=opened.getsockname()[1])
    with opened:
        return asyncio.run(_run(app, service, opened))


def _on_the_network(settings: Settings, address: str, *, insecure: bool) -> Settings:
    from ..errors import ConfigError
    from ..register import home
    from ..server.certificate import lan_settings

    if insecure:
        raise ConfigError("--lan always uses TLS: leave --insecure out")
    return lan_settings(settings, Path(settings.home) if settings.home else home(), address=address)


def _checked(settings: Settings, *, insecure: bool) -> Settings:
    from ..errors import ConfigError
    from ..server.running import is_loopback

    if settings.tls_cert:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(settings.tls_cert, settings.tls_key)
        except OSError as fault:
            raise ConfigError(f"cannot use the certificate {settings.tls_cert} and its key: {fault}") from fault
    elif not insecure and not is_loopback(settings.host):
        raise ConfigError(
            f"{settings.host} can be reached from other machines, and without TLS others on the network can read the "
            "token and everything the agents write: use --lan (which makes a certificate), --tls-cert and --tls-key, "
            "a proxy with TLS in front of 127.0.0.1 (docs/reach.md), or --insecure"
        )
    return checked_roots(settings)


def _listen_problem(fault: OSError, settings: Settings) -> str:
    where = f"{settings.host}:{settings.port}"
    match fault.errno:
        case errno.EADDRINUSE:
            return (
                f"{where} is already in use: if that is your own stagedoor serve, use it (stagedoor pair) or stop it "
                "first; else choose another port with --port"
            )
        case errno.EACCES:
            return f"cannot listen on {where}: permission denied (choose a port above 1023 with --port)"
        case errno.EADDRNOTAVAIL:
            return f"this machine does not have the address {settings.host}: choose another with --host"
        case _ if isinstance(fault, socket.gaierror):
            return f"unknown host {settings.host!r}: choose another with --host"
        case _:
            return f"cannot listen on {where}: {fault.strerror or fault}"


async def _run(app: Starlette, service: Service, opened: socket.socket) -> int:
    from ..server.listening import listening
    from ..server.running import server_file

    stop = stopped_by_signals("stagedoor.server")
    address = opened.getsockname()[:2]
    async with listening(app, service.settings, opened) as server:
        with server_file(service.home, service.settings, address) as note:
            _greet(app.state.codes, service, note)
            server.serving.add_done_callback(lambda serving: stop.set())
            await stop.wait()
    return EXIT_SUCCESS


def _greet(codes: Any, service: Service, note: ServerFile) -> None:
    """The address and how to connect. A link that pairs a device is for a person's eyes, never for a log."""
    from ..server.access.pairing import pairing_link
    from ..server.certificate import as_people_compare, own_fingerprint
    from ..server.running import can_be_reached
    from .pair import drawn

    if sys.stdout.isatty():
        code = codes.new("admin", "this machine")
        opening = f"{note.url}/#pair={code.display}   (works once, within five minutes)"
    else:
        opening = "run: stagedoor pair"
    digest = own_fingerprint(service.settings, service.home)
    reachable = can_be_reached(note.public)
    rows = [
        ("open", opening),
        ("pair", "stagedoor pair   (a phone or another browser)"),
        *([("phones", "cannot reach it; for that: stagedoor serve --lan")] if not reachable else []),
        *([("SHA-256", as_people_compare(digest))] if digest else []),
        ("folders", ", ".join(service.settings.roots)),
        ("token", str(service.home / "token")),
    ]
    print(f"Stagedoor listens on {note.url}" + ("" if note.public == note.url else f" and {note.public}"))
    for name, value in rows:
        print(f"  {name:8} {value}")
    if digest:
        print("Browsers warn about this certificate once: its SHA-256 fingerprint must be the one above.")
        if sys.stdout.isatty():
            link = pairing_link(note.public, codes.new("run").display, digest)
            print(f"{drawn(link)}For a phone (once, within five minutes; stagedoor pair shows another).")
    print("Ctrl-C stops it.", flush=True)
