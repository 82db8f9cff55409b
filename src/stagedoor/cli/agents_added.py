"""``stagedoor agents add`` and ``remove``: agents of the user's own, tried out and written into the configuration."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, get_args

from msgspec.structs import replace

from ..drivers.acp.definition import ANY, AcpAgent
from ..drivers.acp.trial import PATIENCE, Trial, try_agent
from ..errors import AgentRefused, BadRequest, ConfigError, StagedoorError
from ..unified.options import Tier
from ..unified.settings import AgentSetting
from . import EXIT_NOT_SIGNED_IN, EXIT_SUCCESS
from .command import BadFlag, Parser, report
from .terminal.output import Style, style_for

SHOWN = 12
"""Choices of a setting that are printed."""


def add(argv: list[str]) -> int:
    """Everything after ``--`` is the command."""
    words, command = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    parser = Parser(
        prog="stagedoor agents add",
        description="Add a program that speaks the Agent Client Protocol as an agent of its own. It is started once in "
        "an empty folder (no prompt is sent), what it offers is printed, and it is written into the configuration. It "
        "then works like any other: run, parallel, serve, doctor, sessions, translate. A tier other than autonomous "
        "needs the agent's own mode that keeps it (--mode).",
        examples=(
            "stagedoor agents add mine -- my-agent --acp",
            "stagedoor agents add mine --mode supervised=ask --mode dry-run=plan -- my-agent --acp",
            "stagedoor agents add mine --env API_BASE=http://127.0.0.1:8080 --install 'npm i -g my-agent' -- my-agent",
        ),
    )
    parser.add_argument("name", help="what it is to be called; then -- and its command line")
    parser.add_argument(
        "--mode", action="append", default=[], metavar="TIER=MODE", help="the agent's own mode that keeps a tier"
    )
    parser.add_argument(
        "--option", action="append", default=[], metavar="ID=VALUE", help="one of the agent's own settings (repeatable)"
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="an environment variable for it (repeatable)"
    )
    parser.add_argument("--install", default="", metavar="COMMAND", help="what installs it, shown where it is missing")
    parser.add_argument("--title", default="", metavar="TEXT", help="its name for people")
    parser.add_argument("--timeout", type=float, default=PATIENCE, metavar="SECONDS", help="for its first answer")
    parser.add_argument("--no-try", dest="trial", action="store_false", help="write it without starting it")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the configuration file (default: yours)")
    arguments = parser.parse_args(words)
    style = style_for(sys.stdout)
    try:
        definition = AcpAgent(
            command=command or _missing_command(),
            env=_pairs("--env", arguments.env),
            modes=_modes(arguments.mode),
            options=_pairs("--option", arguments.option),
            name=arguments.name,
            title=arguments.title,
            install=arguments.install,
        )
        target = _target(arguments.config)
        _check_name(definition.name)
        changed = _with_agent(target, definition)  # what cannot be written is said before anything is started
        trial = asyncio.run(try_agent(definition, patience=arguments.timeout)) if arguments.trial else None
        if trial is not None:
            _check_choices(definition, trial)
            print(_description(definition, trial, style))
            if trial.problem and not trial.not_signed_in:
                raise AgentRefused("the agent opened no session (see problem): mend that, or add it with --no-try")
            if trial.name and not definition.title:
                definition = replace(definition, title=trial.name)
                changed = _with_agent(target, definition)
        from ..whole_file import replace_file

        replace_file(target, changed)
    except (BadFlag, StagedoorError, OSError) as fault:
        return report("agents add", fault)
    print(f"{style('ok', 'added')} agents.{definition.name} in {target}")
    print(_tiers(definition, trial, style))
    return EXIT_NOT_SIGNED_IN if trial is not None and trial.not_signed_in else EXIT_SUCCESS


def remove(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor agents remove",
        description="Take an agent out of the configuration that was added there. Its program stays.",
        examples=("stagedoor agents remove mine",),
    )
    parser.add_argument("name")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the configuration file (default: yours)")
    arguments = parser.parse_args(argv)
    from ..drivers.acp.configured import entries_in
    from ..whole_file import replace_file
    from ..yaml_with_lines import without_entry, yaml_tree

    try:
        target = _target(arguments.config)
        text = target.read_text(encoding="utf-8") if target.exists() else ""
        tree, _ = yaml_tree(text, str(target), ConfigError)
        added = [name for name, _ in entries_in(tree)]
        if arguments.name not in added:
            others = f"; added there: {', '.join(added)}" if added else ""
            raise BadRequest(f"{target} adds no agent {arguments.name!r}{others}")
        replace_file(target, _checked(without_entry(text, "agents", arguments.name, ConfigError), target))
    except (StagedoorError, OSError) as fault:
        return report("agents remove", fault)
    print(f"removed agents.{arguments.name} from {target}")
    return EXIT_SUCCESS


def _missing_command() -> list[str]:
    raise BadFlag("give the agent's command after --, such as: stagedoor agents add mine -- my-agent --acp")


def _pairs(flag: str, words: list[str]) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise BadFlag(f"{flag}: {word!r} must be NAME=VALUE")
        pairs[name] = {"true": True, "false": False}.get(value, value) if flag == "--option" else value
    return pairs


def _modes(words: list[str]) -> dict[Tier, str]:
    modes: dict[Tier, str] = {}
    for word in words:
        name, _, mode = word.partition("=")
        tier = next((tier for tier in get_args(Tier) if tier == name), None)
        if tier is None or not mode:
            raise BadFlag(f"--mode: {word!r} must be TIER=MODE, with a tier of {', '.join(get_args(Tier))}")
        modes[tier] = mode
    return modes


def _target(named: Path | None) -> Path:
    from ..register import config_files
    from ..service.config.load import find

    path = named or (Path(os.environ["STAGEDOOR_CONFIG"]) if os.environ.get("STAGEDOOR_CONFIG") else None)
    return (path or find() or config_files()[0]).resolve()


def _check_name(name: str) -> None:
    from .. import catalog

    taken = (*(one for one in catalog.names() if not catalog.is_configured(one)), *catalog.ALIASES, ANY, "default")
    if name in (*taken, "add", "remove"):
        raise BadRequest(f"{name!r} is taken; give your agent another name")


def _with_agent(target: Path, definition: AcpAgent) -> str:
    """The file's text with the agent in it. Raises ``ConfigError`` when the result would be wrong."""
    from ..drivers.acp.configured import entries_in
    from ..yaml_with_lines import with_entry, without_entry, yaml_tree

    text = target.read_text(encoding="utf-8") if target.exists() else ""
    tree, _ = yaml_tree(text, str(target), ConfigError)
    if definition.name in [name for name, _ in entries_in(tree)]:
        text = without_entry(text, "agents", definition.name, ConfigError)
    described = {
        "acp": list(definition.command), "env": dict(definition.env), "modes": dict(definition.modes),
        "options": dict(definition.options), "title": definition.title, "install": definition.install,
    }  # fmt: skip
    entry = {key: value for key, value in described.items() if value}
    return _checked(with_entry(text, "agents", definition.name, entry, ConfigError), target)


def _checked(text: str, target: Path) -> str:
    from ..service.config.load import parse

    parse(text, source=str(target), file=target)
    return text


def _check_choices(definition: AcpAgent, trial: Trial) -> None:
    """What is written must be what the agent has; where it let nobody in, that is not known."""
    if trial.problem:
        return
    chosen = [("mode", mode, f" for {tier}") for tier, mode in definition.modes.items()]
    chosen += [(id, str(value), "") for id, value in definition.options.items() if isinstance(value, str)]
    for id, value, what_for in chosen:
        setting = trial.setting(id)
        if setting is None:
            offered = ", ".join(setting.id for setting in trial.settings) or "nothing"
            raise BadRequest(f"the agent has no setting {id!r}; what can be chosen: {offered}")
        ids = [choice.value for choice in setting.choices]
        if ids and value not in ids:
            raise BadRequest(f"the agent has no {id} {value!r}{what_for}: it offers {', '.join(ids)}")


def _description(definition: AcpAgent, trial: Trial, style: Style) -> str:
    """What the agent says of itself, a line for each kind."""
    who = " ".join(part for part in (trial.name or definition.name, trial.version) if part)
    rows = [("agent", who), ("program", trial.executable), ("offers", ", ".join(trial.offers))]
    if trial.sign_in:
        rows.append(("sign in", ", ".join(trial.sign_in)))
    rows += [(setting.id, _choices(setting)) for setting in trial.settings]
    if trial.problem:
        rows.append(("problem", style("bad", trial.problem)))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{style('dim', name.ljust(width))}  {text}" for name, text in rows)


def _choices(setting: AgentSetting) -> str:
    shown = [choice.value for choice in setting.choices[:SHOWN]]
    ids = [f"{value} (now)" if value == setting.value else value for value in shown]
    more = len(setting.choices) - SHOWN
    return ", ".join(ids or [setting.value]) + (f" and {more} more" if more > 0 else "")


def _tiers(definition: AcpAgent, trial: Trial | None, style: Style) -> str:
    """What can be kept, and what is to be done for the rest."""
    modes, name = definition.modes, definition.name
    lines: list[str] = []
    for tier in get_args(Tier):
        if tier in modes:
            lines.append(f"{style('ok', tier)}: by its mode {modes[tier]!r}")
        elif tier == "autonomous":
            lines.append(f"{style('ok', tier)}: its questions are answered with yes")
        else:
            how = "with --confine read-only only" if tier == "dry-run" else "no"
            lines.append(f"{style('bad', tier)}: {how}; nothing says that one of its modes keeps it")
    missing = [tier for tier in ("supervised", "dry-run") if tier not in modes]
    offered = trial.setting("mode") if trial is not None else None
    if missing and offered is not None and offered.choices:
        lines.append(
            f"If you know that one of its modes keeps a tier: stagedoor agents add {name} --mode {missing[0]}=MODE -- …"
        )
    return "\n".join(lines)
