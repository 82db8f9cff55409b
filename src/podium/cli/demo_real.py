"""``podium demo --real``: every real CLI on a scripted model, side by side. No key, no network, no cost."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ..testing import AGENTS, find_cli
from ..testing.cli_install import InstallFailed, install, main_executable
from ..unified.events import Event, TextDelta
from .demo import Tally
from .lines import Lines, Style, style_for
from .rehearsal import Rehearsal, drift, rehearse
from .state import state_folder

AT_ONCE = 2


async def perform_real(chosen: Sequence[str], *, fetch: bool = True) -> list[Tally]:
    """Run the chosen CLIs (all without a choice); the tallies for the closing table."""
    style = style_for(sys.stdout)
    names = [name for name in AGENTS if not chosen or name in chosen]
    places = asyncio.Semaphore(AT_ONCE)
    with tempfile.TemporaryDirectory(prefix="podium-demo-", ignore_cleanup_errors=True) as scratch:

        async def one(name: str) -> Rehearsal:
            async with places:
                executable = await asyncio.to_thread(_program, name, fetch=fetch)
                if executable is None:
                    missing = Rehearsal(name)
                    missing.problem, missing.tally.status = "not installed", "not installed"
                    return missing
                return await rehearse(name, executable, Path(scratch), _shown(name, style))

        seen = await asyncio.gather(*(one(name) for name in names))
    for rehearsal in seen:
        for complaint in drift(rehearsal):
            print(style("bad", f"{rehearsal.tally.agent}: {complaint}"))
    return [rehearsal.tally for rehearsal in seen]


def _shown(name: str, style: Style) -> Callable[[Event], None]:
    lines = Lines(style, thinking=False)
    width = max(map(len, AGENTS))

    def show(event: Event) -> None:
        if isinstance(event, TextDelta):
            return  # lines of several agents would run into each other
        for line in lines.show(event).strip("\n").splitlines():
            print(f"{style('tool', f'{name:{width}}')} │ {line}", flush=True)

    return show


def _program(name: str, *, fetch: bool) -> str | None:
    found = find_cli(name)
    if found is not None or not fetch:
        return str(found) if found is not None else None
    folder = state_folder() / "clis"
    try:
        install(folder, (name,))
    except (InstallFailed, OSError) as failure:
        print(f"{name} could not be installed: {str(failure).splitlines()[0]}", file=sys.stderr)
        return None
    return main_executable(folder, name)
