"""``stagedoor worker``: this machine runs sessions for servers that share its database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from . import EXIT_SUCCESS, EXIT_USAGE
from .command import Parser
from .servers.foreground import add_flags, checked_roots, prepare_process, run_in_foreground, stopped_by_signals

if TYPE_CHECKING:
    import argparse

    from ..service.service import Service

EPILOG = """\
examples:
  stagedoor worker --database postgresql://worker@db/stagedoor --root ~/code
  stagedoor worker --database postgresql://worker@db/stagedoor --label gpu --label team:blue --seats 8
  stagedoor worker --database postgresql://worker@db/stagedoor --enrol CODE      the first time, with a code
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
        "--enrol", metavar="CODE", default="", help="let this machine in, once: the code of stagedoor workers enrol"
    )
    parser.add_argument("--seats", type=int, metavar="N", help="agents that run at the same time (default: 32)")
    add_flags(parser)
    return run_in_foreground("worker", _work, parser.parse_args(argv))


def _work(arguments: argparse.Namespace) -> int:
    from ..errors import ConfigError
    from ..service.config.load import load
    from ..service.postgres.address import without_password
    from ..service.service import Service

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
    service.worker.code = arguments.enrol
    prepare_process("worker", arguments, loaded.warnings)
    return asyncio.run(_run(service))


async def _run(service: Service) -> int:
    stop = stopped_by_signals("stagedoor.service")
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
