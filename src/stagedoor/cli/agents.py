"""``stagedoor agents``: what is installed, which version, signed in or not, what each driver can do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping

import msgspec

from .. import catalog
from ..drivers.acp.unproven import MARK
from ..drivers.agent import Presence
from ..errors import NotSupported, StagedoorError
from ..unified.capabilities import Capabilities
from .command import Parser, as_flags, report
from .terminal.output import Cell, Style, style_for, table, terminal_columns, wrapped

SHORT: dict[str, str] = {
    "text_deltas": "streaming", "thinking": "thinking", "plan": "plans", "subagents": "sub-agents",
    "mcp_servers": "MCP", "interrupt": "interrupt", "steer": "steering", "resume": "resume", "fork": "fork",
    "edit_input": "edited input", "max_turns": "turn limit", "max_budget": "budget",
    "structured_output": "output schema", "images": "images", "system_prompt": "system prompt",
    "append_system_prompt": "appended system prompt", "allowed_tools": "allowed tools",
    "disallowed_tools": "disallowed tools", "tool_list": "list of tools", "dry_run": "dry run",
    "supervised": "supervised", "confine": "confine", "exit_codes": "exit codes", "diffs": "diffs",
    "cost": "cost",
}  # fmt: skip

ASKS = {"all": "every call that acts", "some": "what the agent chooses to ask", "none": "nothing"}


def main(argv: list[str]) -> int:
    if argv[:1] in (["add"], ["remove"]):
        from .agents_added import add, remove

        return (add if argv[0] == "add" else remove)(argv[1:])
    parser = Parser(
        prog="stagedoor agents",
        description="List the agents: installed, version, signed in, drivers. With a name: what each driver can do. "
        "add NAME -- COMMAND… adds any program that speaks the Agent Client Protocol, remove NAME takes it away "
        "(stagedoor agents add --help).",
        examples=(
            "stagedoor agents",
            "stagedoor agents codex",
            "stagedoor agents --json",
            "stagedoor agents add mine -- my-agent --acp",
            "stagedoor agents remove mine",
        ),
    )
    parser.add_argument("agent", nargs="*", help="only these agents, with everything they can do")
    parser.add_argument("--json", action="store_true", help="print one JSON object per agent")
    arguments = parser.parse_args(argv)
    style = style_for(sys.stdout)
    try:
        names = [catalog.canonical_name(name) for name in arguments.agent] or list(
            dict.fromkeys((*catalog.names(), *catalog.unproven_names()))
        )
    except NotSupported as fault:
        return report("agents", fault)
    agents = asyncio.run(inspect_agents(names))
    if arguments.json:
        for agent in agents:
            print(msgspec.json.encode(agent).decode())
        return 0
    print(_overview(agents, style))
    missing = {name for name in catalog.unproven_names() if not arguments.agent}
    shown = [agent for agent in agents if agent.installed or agent.agent not in missing]
    for text in [_problems(shown, style), *(_abilities(agent, style) for agent in agents if arguments.agent)]:
        if text:
            print(f"\n{text}")
    return 0


async def inspect_agents(names: Iterable[str]) -> list[Presence]:
    """Every agent, also those whose driver is missing or fails: this never fails."""
    return list(await asyncio.gather(*(_inspect(name) for name in names)))


async def _inspect(name: str) -> Presence:
    try:
        return await catalog.agent(name).inspect(None)
    except ModuleNotFoundError as missing:
        return Presence(agent=name, problem=f"{missing.name} is missing from this installation")
    except (StagedoorError, OSError) as fault:
        return Presence(agent=name, problem=str(fault))


def _overview(agents: Iterable[Presence], style: Style) -> str:
    rows: list[list[Cell]] = [
        [_label(agent), _version(agent), _signed_in(agent), ", ".join(agent.drivers), agent.executable]
        for agent in agents
    ]
    return table(["agent", "version", "signed in", "drivers", "program"], rows, style)


def _label(agent: Presence) -> str:
    return f"{agent.agent} ({MARK})" if agent.agent in catalog.unproven_names() else agent.agent


def _problems(agents: Iterable[Presence], style: Style) -> str:
    """What is wrong and the command that fixes it."""
    lines: list[str] = []
    for agent in agents:
        if agent.problem or not agent.installed:
            problem = "not installed" if agent.fix and not agent.installed else agent.problem or "not installed"
            fix = f"\n    {style('strong', agent.fix)}" if agent.fix else ""
            lines.append(f"{style('bad', _label(agent))}: {problem}{fix}")
    return "\n".join(lines)


def _abilities(agent: Presence, style: Style) -> str:
    """What each of an agent's drivers can do, with notes where a yes or no is not the whole truth."""
    if not agent.drivers:
        return ""
    names = list(agent.drivers)
    rows: list[list[Cell]] = [
        ["asks about", *(ASKS[able.permissions] for able in agent.drivers.values())],
        ["sandbox", *(", ".join(able.sandbox) or "–" for able in agent.drivers.values())],
    ]
    rows += [[word, *(_mark(able, field) for able in agent.drivers.values())] for field, word in SHORT.items()]
    columns = terminal_columns(sys.stdout)
    notes = "\n".join(style("dim", wrapped(f"  {as_flags(note)}", columns)) for note in _notes(agent.drivers))
    return table([agent.title or agent.agent, *names], rows, style) + (f"\n{notes}" if notes else "")


def _notes(drivers: Mapping[str, Capabilities]) -> list[str]:
    """The fine print, with whose it is where the drivers differ."""
    whose: dict[str, list[str]] = {}
    for name, able in drivers.items():
        for field, note in sorted(able.notes.items()):
            whose.setdefault(f"{field}: {note}", []).append(name)
    return [note if len(names) == len(drivers) else f"{', '.join(names)} · {note}" for note, names in whose.items()]


def _mark(able: Capabilities, field: str) -> Cell:
    return ("ok", "✓") if getattr(able, field) else ("dim", "–")


def _version(agent: Presence) -> Cell:
    return ("ok", agent.version or "installed") if agent.installed else ("bad", "not installed")


def _signed_in(agent: Presence) -> Cell:
    if not agent.installed:
        return ""
    if agent.signed_in is None:
        return ("dim", "unknown")
    return ("ok", "yes") if agent.signed_in else ("bad", "no")
