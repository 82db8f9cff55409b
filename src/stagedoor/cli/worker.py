"""``stagedoor worker``: this machine runs sessions for servers that share its database."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_USAGE
from .command import Parser, report

if TYPE_CHECKING:
    from ..service.service import Service

EPILOG = """\
examples:
  stagedoor worker --database postgresql://worker@db/stagedoor --root ~/code
  stagedoor worker --database postgresql://worker@db/stagedoor --label gpu --label team:blue --seats 8
  stagedoor workers                                  (at a server) what each machine runs; drain or revoke one

It runs the agents that are installed here, in the folders you name, and listens on no port. See docs/machines.md.
exit codes: 0 stopped · 2 could not start, or was revoked
"""


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor worker",
        description="Run sessions on this machine for the servers that share its database.",
        closing=EPILOG,
    )
    parser.add_argument("--database", metavar="URL", help="the database that all share (postgresql://role@host/name)")
    parser.add_argument("--name", metavar="NAME", help="what this machine is called (default: its host name)")
    parser.add_argument(
        "--label", action="append", metavar="LABEL", help="what sessions may ask for (repeatable), as gpu or team:blue"
    )
    parser.add_argument(
        "--root", action="append", metavar="DIR", help="sessions run only under this folder (repeatable; default: here)"
    )
    parser.add_argument("--seats", type=int, metavar="N", help="agents that run at the same time (default: 32)")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="use this configuration file instead of the default"
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="format of the log on standard error"
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    arguments = parser.parse_args(argv)
    from ..errors import StagedoorError

    try:
        return _work(arguments)
    except (StagedoorError, OSError, ModuleNotFoundError) as fault:
        report("worker", fault)
        return EXIT_USAGE


def _work(arguments: argparse.Namespace) -> int:
    from ..errors import ConfigError
    from ..server import logs
    from ..server.arrivals import raise_descriptor_limit
    from ..service.config.load import load
    from ..service.postgres.address import without_password
    from ..service.service import Service
    from .serve import SECRETS, checked_roots

    loaded = load(
        arguments.config,
        flags={
            "log.database": without_password(arguments.database),
            "machine.name": arguments.name,
            "machine.labels": arguments.label,
            "workspaces.roots": arguments.root,
            "sessions.limits.awake": arguments.seats,
        },
    )
    settings = checked_roots(loaded.settings)
    if not settings.database:
        raise ConfigError("a worker needs a database that a server shares: --database URL, or log.database in its file")
    service = Service(settings, role="worker")
    for name in [name for name in os.environ if name.startswith(SECRETS)]:
        del os.environ[name]  # agents inherit the rest
    for warning in loaded.warnings:
        print(f"stagedoor worker: {warning}", file=sys.stderr)
    raise_descriptor_limit()
    logs.set_up(arguments.log_format, arguments.log_level)
    return asyncio.run(_run(service))


async def _run(service: Service) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_worker() -> None:
        if stop.is_set():
            os._exit(EXIT_INTERRUPTED)  # the second signal: the guards end what the agents run
        logging.getLogger("stagedoor.service").info("stopping (again to stop at once)")
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_worker)
    async with service:
        worker = service.worker
        worker.on_revoked = stop.set
        print(f"Stagedoor works as {worker.identity.name}")
        print(f"  labels   {' '.join(worker.labels)}")
        print(f"  folders  {', '.join(service.settings.roots)}")
        print("Ctrl-C stops it: what runs is ended; open sessions wait until it is back.", flush=True)
        await stop.wait()
        revoked = worker.is_revoked
    return EXIT_USAGE if revoked else EXIT_SUCCESS
