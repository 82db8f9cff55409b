"""``stagedoor doctor``: what is wrong here, and the exact command that mends it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from . import EXIT_FAILED, EXIT_NOT_INSTALLED, EXIT_NOT_SIGNED_IN, EXIT_SUCCESS
from .parsing import Parser

if TYPE_CHECKING:
    from ..drivers.agent import Presence
    from .lines import Style

MARKS = {"ok": ("ok", "✓"), "bad": ("bad", "✗"), "note": ("dim", "·")}


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor doctor",
        description="Say what is installed, what it can do, what is wrong and how to mend it.",
        examples=("stagedoor doctor", "stagedoor doctor codex", "stagedoor doctor --deep"),
        ends="exit codes: 0 all is well · 1 something is wrong · 3, 4 a named agent is not installed, not signed in",
    )
    parser.add_argument("agent", nargs="*", help="only these")
    parser.add_argument(
        "--deep", action="store_true", help="run each real CLI against the scripted model and report what has changed"
    )
    given = parser.parse_args(argv)
    from .. import catalog
    from ..errors import NotSupported
    from .exits import report
    from .lines import style_for
    from .presence import look

    style = style_for(sys.stdout)
    try:
        names = [catalog.canonical_name(name) for name in given.agent] or list(catalog.names())
    except NotSupported as fault:
        return report("doctor", fault)
    present = asyncio.run(look(names))
    failed = False
    if not given.agent:
        for mark, text in _surroundings():
            failed |= mark == "bad"
            _say(mark, text, style)
    for one in present:
        for mark, text in _findings(one):
            failed |= mark == "bad"
            _say(mark, text, style)
    if given.deep:
        failed |= _deep(present, style)
    if given.agent:
        if any(not one.installed for one in present):
            return EXIT_NOT_INSTALLED
        if any(one.signed_in is False for one in present):
            return EXIT_NOT_SIGNED_IN
    return EXIT_FAILED if failed else EXIT_SUCCESS


def _say(mark: str, text: str, style: Style) -> None:
    role, sign = MARKS[mark]
    first, *rest = text.split("\n")
    print(f"{style(role, sign)} {first}", *(f"    {line}" for line in rest), sep="\n", flush=True)


def _surroundings() -> Iterator[tuple[str, str]]:
    from .. import __version__
    from ..permissions.audit import verify
    from .state import audit_path, state_folder

    yield "ok", f"stagedoor {__version__} on Python {sys.version.split()[0]}"
    if shutil.which("git"):
        yield "ok", "git is here: stagedoor parallel can give each agent a worktree"
    else:
        yield "bad", "git was not found: stagedoor parallel needs it\ninstall git with your package manager"
    for module, extra, what in (
        ("tree_sitter_bash", "", "shell commands are judged by a real parser"),
        ("h11", "testing", "the scripted model can be served"),
    ):
        if importlib.util.find_spec(module):
            yield "ok", what
        else:
            named = f"'stagedoor[{extra}]'" if extra else "stagedoor"
            yield "bad", f"{module} is missing, so that it is not true that {what}\npip install --upgrade {named}"
    folder = state_folder()
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(nearest, os.W_OK):
        yield "bad", f"{folder} cannot be written\nset STAGEDOOR_STATE_HOME to a folder of yours"
    log = audit_path()
    if log.exists():
        checked = verify(log)
        if checked.ok:
            yield "ok", f"the audit log is whole: {checked.entries} decisions in {log}"
        else:
            yield "bad", f"the audit log was changed: line {checked.first_bad_line}: {checked.why}\n{log}"


def _findings(one: Presence) -> Iterator[tuple[str, str]]:
    name = one.title or one.agent
    if not one.installed:
        fix = f"\n{one.fix}" if one.fix else ""
        why = "" if one.fix else f": {one.problem}"
        yield "note", f"{name} is not installed{why}{fix}"
        return
    where = f" ({one.executable})" if one.executable else ""
    if one.problem:
        yield "bad", f"{name} {one.version}{where}: {one.problem}" + (f"\n{one.fix}" if one.fix else "")
    else:
        signed = {True: "signed in", False: "not signed in", None: "sign-in cannot be told without a call"}
        mend = f"\n{one.fix}" if one.fix and one.signed_in is False else ""
        yield ("bad" if one.signed_in is False else "ok"), f"{name} {one.version}{where}: {signed[one.signed_in]}{mend}"
    for driver, able in one.drivers.items():
        from .presence import ASKS, SHORT

        can = [word for field, word in SHORT.items() if getattr(able, field)]
        yield "note", f"  {driver}: asks about {ASKS[able.permissions]}; {', '.join(can)}"
    yield from _not_understood(one.agent)


def _not_understood(agent: str) -> Iterator[tuple[str, str]]:
    from .state import unrecognized_counts

    for version, count in sorted(unrecognized_counts().get(agent, {}).items()):
        said = f"{count} message{'' if count == 1 else 's'} of version {version} so far"
        yield "note", f"  not recognized: {said} (stagedoor run {agent} … --json shows them)"


def _deep(present: list[Presence], style: Style) -> bool:
    from .rehearsal import check

    failed = False
    here = Path.cwd()
    for one in present:
        if not one.installed:
            continue
        for mark, text in asyncio.run(check(one, here)):
            failed |= mark == "bad"
            _say(mark, f"{one.title or one.agent}, deep: {text}", style)
    return failed
