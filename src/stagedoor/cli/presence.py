"""Who is here: what ``agents`` and ``doctor`` say of each agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from .. import catalog
from ..drivers.agent import Presence
from ..errors import StagedoorError
from ..unified.capabilities import Capabilities
from .lines import Style
from .tables import Cell, table

SHORT: dict[str, str] = {
    "text_deltas": "streaming",
    "thinking": "thinking",
    "plan": "plans",
    "subagents": "sub-agents",
    "mcp_servers": "MCP",
    "interrupt": "interrupt",
    "steer": "steering",
    "resume": "resume",
    "fork": "fork",
    "edit_input": "edited input",
    "max_turns": "turn limit",
    "max_budget": "budget",
    "structured_output": "output schema",
    "images": "images",
    "system_prompt": "system prompt",
    "append_system_prompt": "appended system prompt",
    "allowed_tools": "allowed tools",
    "disallowed_tools": "disallowed tools",
    "dry_run": "dry run",
    "exit_codes": "exit codes",
    "diffs": "diffs",
    "cost": "cost",
}

ASKS = {"all": "every call that acts", "some": "what the agent wants to ask", "none": "nothing"}


async def look(names: Iterable[str]) -> list[Presence]:
    """Every agent, also those whose driver is missing or fails: looking never fails."""
    return list(await asyncio.gather(*(_look(name) for name in names)))


async def _look(name: str) -> Presence:
    try:
        return await catalog.agent(name).inspect(None)
    except ModuleNotFoundError as missing:
        return Presence(agent=name, problem=f"{missing.name} is not part of this installation")
    except (StagedoorError, OSError) as fault:
        return Presence(agent=name, problem=str(fault))


def overview(present: Iterable[Presence], style: Style) -> str:
    rows: list[list[Cell]] = []
    for one in present:
        rows.append([one.agent, _installed(one), _signed_in(one), ", ".join(one.drivers), one.executable])
    return table(["agent", "version", "signed in", "drivers", "program"], rows, style)


def remedies(present: Iterable[Presence], style: Style) -> str:
    """What is wrong and the command that mends it, one line each."""
    wrong = [one for one in present if one.problem or not one.installed]
    return "\n".join(f"{style('bad', one.agent)}: {complaint(one)}{mend(one, style)}" for one in wrong)


def complaint(one: Presence) -> str:
    """The problem; where it can be mended by one command, without the places we looked in."""
    return one.problem.partition("; looked in")[0] if one.fix else one.problem or "not installed"


def mend(one: Presence, style: Style) -> str:
    return f"\n    {style('strong', one.fix)}" if one.fix else ""


def abilities(one: Presence, style: Style) -> str:
    """What each of an agent's drivers can do, with the notes that a yes or no would hide."""
    if not one.drivers:
        return ""
    names = list(one.drivers)
    rows: list[list[Cell]] = [
        ["asks about", *(ASKS[able.permissions] for able in one.drivers.values())],
        ["sandbox", *(", ".join(able.sandbox) or "–" for able in one.drivers.values())],
    ]
    rows += [[word, *(_mark(able, field) for able in one.drivers.values())] for field, word in SHORT.items()]
    told = "\n".join(style("dim", f"  {note}") for note in _notes(one.drivers))
    return table([one.title or one.agent, *names], rows, style) + (f"\n{told}" if told else "")


def _notes(drivers: Mapping[str, Capabilities]) -> list[str]:
    """The fine print, with whose it is where the drivers differ."""
    whose: dict[str, list[str]] = {}
    for name, able in drivers.items():
        for field, note in sorted(able.notes.items()):
            whose.setdefault(f"{field}: {note}", []).append(name)
    return [note if len(names) == len(drivers) else f"{', '.join(names)} · {note}" for note, names in whose.items()]


def _mark(able: Capabilities, field: str) -> Cell:
    return ("ok", "✓") if getattr(able, field) else ("dim", "–")


def _installed(one: Presence) -> Cell:
    return ("ok", one.version or "installed") if one.installed else ("bad", "not installed")


def _signed_in(one: Presence) -> Cell:
    if not one.installed:
        return ""
    if one.signed_in is None:
        return ("dim", "cannot be told")
    return ("ok", "yes") if one.signed_in else ("bad", "no")
