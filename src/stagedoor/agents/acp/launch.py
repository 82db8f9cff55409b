"""An ACP agent's command line as a launch value. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence

from stagedoor.errors import LocalProtocolError
from stagedoor.transports.launch import Confinement, EndInput, Launch, Signal


def launch(
    argv: Sequence[str],
    *,
    cwd: str,
    executable: str | None = None,
    env: Mapping[str, str] | None = None,
    unset: Sequence[str] = (),
    confinement: Confinement | None = None,
) -> Launch:
    """``executable`` is the program's full path and takes the place of ``argv[0]``."""
    if not argv or not argv[0]:
        raise LocalProtocolError("the command is empty: name a program that uses the Agent Client Protocol")
    return Launch(
        argv=(executable or argv[0], *argv[1:]),
        cwd=cwd,
        env=env or {},
        unset=tuple(unset),
        stdin="pipe",
        stop=(EndInput(2.0), Signal(signal.SIGTERM, 2.0, group=True)),
        confinement=confinement,
    )
