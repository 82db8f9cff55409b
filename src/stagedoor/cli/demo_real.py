"""``stagedoor demo --real``: every real CLI on a scripted model, side by side. No key, no network, no cost."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from .. import catalog
from ..testing import find_cli, scripted_agents
from ..testing.clis import InstallFailed, install_clis, installed_cli
from ..unified.events import Event, TextDelta
from .demo import Tally
from .lines import Lines, Style, style_for
from .rehearsal import Rehearsal, drift, rehearse
from .state import state_folder

AT_ONCE = 2


async def perform_real(chosen: Sequence[str], *, fetch: bool = True) -> list[Tally]:
    """Run the chosen CLIs (all without a choice); the tallies for the closing table."""
    style = style_for(sys.stdout)
    names = [name for name in scripted_agents() if not chosen or name in chosen]
    programs = await asyncio.to_thread(_programs, names, fetch=fetch)
    places = asyncio.Semaphore(AT_ONCE)
    with tempfile.TemporaryDirectory(prefix="stagedoor-demo-", ignore_cleanup_errors=True) as scratch:

        async def one(name: str) -> Rehearsal:
            async with places:
                if name not in programs:
                    missing = Rehearsal(name)
                    missing.problem, missing.tally.status = "not installed", "not installed"
                    return missing
                return await rehearse(name, programs[name], Path(scratch), _shown(name, style))

        seen = await asyncio.gather(*(one(name) for name in names))
    for rehearsal in seen:
        for complaint in drift(rehearsal):
            print(style("bad", f"{rehearsal.tally.agent}: {complaint}"))
    return [rehearsal.tally for rehearsal in seen]


def _shown(name: str, style: Style) -> Callable[[Event], None]:
    lines = Lines(style, thinking=False)
    width = max(map(len, scripted_agents()))

    def show(event: Event) -> None:
        if isinstance(event, TextDelta):
            return  # lines of several agents would run into each other
        for line in lines.show(event).strip("\n").splitlines():
            print(f"{style('tool', f'{name:{width}}')} │ {line}", flush=True)

    return show


def _programs(names: Sequence[str], *, fetch: bool) -> dict[str, str]:
    """Where each CLI is; those found nowhere are installed into Stagedoor's own folder."""
    found = {name: str(program) for name in names if (program := find_cli(name)) is not None}
    missing = tuple(name for name in names if name not in found)
    if not missing or not fetch:
        return found
    folder = state_folder() / "clis"
    try:
        install_clis(folder, missing)  # all at once: npm suffers no other in its folder
    except (InstallFailed, OSError) as failure:
        first, *rest = [line for line in str(failure).splitlines() if line.strip() and "complete log" not in line]
        print(f"not installed: {' '.join([first, *rest[-1:]])}", file=sys.stderr)
        for name in missing:
            print(f"  by hand: {catalog.agent(name).install}", file=sys.stderr)
        return found
    os.environ["STAGEDOOR_CLIS"] = str(folder)  # where there is no Node.js, it came with them
    return found | {name: path for name in missing if (path := installed_cli(folder, name)) is not None}
