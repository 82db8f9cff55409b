"""``stagedoor doctor``: what is wrong on this machine, and the exact command that fixes it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from . import EXIT_FAILED, EXIT_NOT_INSTALLED, EXIT_NOT_SIGNED_IN, EXIT_SUCCESS
from .command import Parser, report

if TYPE_CHECKING:
    from ..drivers.agent import Presence
    from .terminal.output import Style

MARKS = {"ok": ("ok", "✓"), "bad": ("bad", "✗"), "note": ("dim", "·")}


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor doctor",
        description="Show what is installed, what it can do, what is wrong and how to fix it.",
        examples=("stagedoor doctor", "stagedoor doctor codex", "stagedoor doctor --deep"),
        closing="exit codes: 0 no problem · 1 a problem · 3, 4 a named agent is not installed, not signed in",
    )
    parser.add_argument("agent", nargs="*", help="only these agents")
    parser.add_argument(
        "--deep",
        action="store_true",
        help="run each real CLI on the scripted model: what has changed, and whether this version keeps the rules",
    )
    arguments = parser.parse_args(argv)
    from .. import catalog
    from ..errors import NotSupported
    from .agents import inspect_agents
    from .terminal.output import style_for

    style = style_for(sys.stdout)
    try:
        names = [catalog.canonical_name(name) for name in arguments.agent] or list(catalog.names())
    except NotSupported as fault:
        return report("doctor", fault)
    agents = asyncio.run(inspect_agents(names))
    failed = False
    if not arguments.agent:
        for mark, text in _surroundings():
            failed |= mark == "bad"
            _print(mark, text, style)
    for agent in agents:
        for mark, text in _findings(agent):
            failed |= mark == "bad"
            _print(mark, text, style)
    if arguments.deep:
        failed |= _deep(agents, style)
    if arguments.agent:
        if any(not agent.installed for agent in agents):
            return EXIT_NOT_INSTALLED
        if any(agent.signed_in is False for agent in agents):
            return EXIT_NOT_SIGNED_IN
    return EXIT_FAILED if failed else EXIT_SUCCESS


def _print(mark: str, text: str, style: Style) -> None:
    role, sign = MARKS[mark]
    first, *rest = text.split("\n")
    print(f"{style(role, sign)} {first}", *(f"    {line}" for line in rest), sep="\n", flush=True)


def _surroundings() -> Iterator[tuple[str, str]]:
    from .. import __version__
    from ..permissions.audit import verify
    from .state import audit_path, state_folder

    yield "ok", f"stagedoor {__version__} on Python {sys.version.split()[0]}"
    if shutil.which("git"):
        yield "ok", "git is installed: stagedoor parallel can give each agent a worktree"
    else:
        yield "bad", "git is not installed: stagedoor parallel needs it\ninstall git with your package manager"
    yield _guard()
    yield asyncio.run(_confinement())
    yield from _off_the_path()
    for module, package, use in (
        ("tree_sitter_bash", "tree-sitter-bash", "the shell parser that rates commands"),
        ("h11", "h11", "the scripted model"),
    ):
        if importlib.util.find_spec(module):
            yield "ok", f"{package} is installed: {use} works"
        else:
            yield "bad", f"{package} is not installed: {use} needs it\npip install {package}"
    folder = state_folder()
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(nearest, os.W_OK):
        yield (
            "bad",
            f"cannot write {folder}: permission denied\nset STAGEDOOR_STATE_HOME to a folder that you can write",
        )
    log = audit_path()
    if log.exists():
        checked = verify(log)
        if checked.ok:
            yield "ok", f"the audit log is complete and unchanged: {checked.entries} decisions in {log}"
        else:
            yield "bad", f"the audit log was changed: line {checked.first_bad_line}: {checked.why}\n{log}"


def _guard() -> tuple[str, str]:
    """How what an agent has started is known and ended."""
    from ..errors import LaunchError
    from ..transports.guard.processes import CHOSEN_BY, strategy

    try:
        if (chosen := strategy()) == "linux":
            return "ok", "nothing that an agent starts is left running: guarded by the kernel (linux)"
    except LaunchError as fault:
        return "bad", f"no agent can be started: {fault}"
    named = f", as {CHOSEN_BY} says" if os.environ.get(CHOSEN_BY) else ""
    return "note", (
        f"what an agent starts is found in the process table ({chosen}{named})\n"
        "what clears its environment and leaves its parent and its session at once may be left running"
    )


def _off_the_path(env: Mapping[str, str] = os.environ) -> Iterator[tuple[str, str]]:
    """Programs are installed, but whatever starts us (launchd, cron, an editor) does not look where they are."""
    from .. import catalog
    from ..transports.executables import INSTALLED_BY

    on_path = {os.path.realpath(folder) for folder in env.get("PATH", os.defpath).split(os.pathsep) if folder}
    for folder, manager in INSTALLED_BY.items():
        names = [name for name in ("node", *catalog.names()) if os.access(Path(folder) / name, os.X_OK)]
        if names and os.path.realpath(folder) not in on_path:
            where = f"{', '.join(names)} found in {folder} ({manager}), which is not on the PATH"
            yield "note", f"{where}\nadd it to the PATH of whatever starts stagedoor"


async def _confinement() -> tuple[str, str]:
    """Which means there is to confine an agent; each is really tried."""
    from ..errors import NotSupported
    from ..transports.confinement.mechanism import choose

    try:
        return "ok", f"confine works, by {await choose()}"
    except NotSupported as missing:
        return "note", f"confine does not work here: {missing}"


def _findings(agent: Presence) -> Iterator[tuple[str, str]]:
    name = agent.title or agent.agent
    if not agent.installed:
        fix = f"\n{agent.fix}" if agent.fix else ""
        why = "" if agent.fix else f": {agent.problem}"
        yield "note", f"{name} is not installed{why}{fix}"
        return
    where = f" ({agent.executable})" if agent.executable else ""
    if agent.problem:
        yield "bad", f"{name} {agent.version}{where}: {agent.problem}" + (f"\n{agent.fix}" if agent.fix else "")
    else:
        signed = {True: "signed in", False: "not signed in", None: "signed in or not is only known after a model call"}
        fix = f"\n{agent.fix}" if agent.fix and agent.signed_in is False else ""
        yield (
            ("bad" if agent.signed_in is False else "ok"),
            f"{name} {agent.version}{where}: {signed[agent.signed_in]}{fix}",
        )
    yield from _not_proven(agent)
    for driver, able in agent.drivers.items():
        from .agents import ASKS, SHORT

        can = [word for field, word in SHORT.items() if getattr(able, field)]
        yield "note", f"  {driver}: asks about {ASKS[able.permissions]}; {', '.join(can)}"
    yield from _unrecognized(agent.agent)


def _not_proven(agent: Presence) -> Iterator[tuple[str, str]]:
    from .. import catalog

    versions = catalog.agent(agent.agent).versions
    if versions is not None and agent.version and (notice := versions.judge(agent.version).notice):
        yield "note", f"  {notice}"


def _unrecognized(agent: str) -> Iterator[tuple[str, str]]:
    from .state import unrecognized_counts

    for version, count in sorted(unrecognized_counts().get(agent, {}).items()):
        messages = f"{count} message{'' if count == 1 else 's'} of version {version} so far"
        yield "note", f"  not recognized: {messages} (stagedoor run {agent} … --json shows them)"


def _deep(agents: list[Presence], style: Style) -> bool:
    from .scripted_clis import check_cli

    failed = False
    for agent in agents:
        if not agent.installed:
            continue
        for mark, text in asyncio.run(check_cli(agent)):
            failed |= mark == "bad"
            _print(mark, f"{agent.title or agent.agent}, deep: {text}", style)
    return failed
