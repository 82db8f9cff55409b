"""``stagedoor trust``: which folders' own settings, hooks, plugins and tool servers may run; and the question of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import EXIT_SUCCESS, EXIT_USAGE
from .command import Parser, report

if TYPE_CHECKING:
    from ..drivers.agent import Agent
    from ..unified.events import ProjectFile
    from .terminal.questions import Keyboard


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor trust",
        description="Trust a folder: when an agent starts there, the project's own settings, hooks, plugins, tool "
        "servers, commands and instructions take part. In a folder that is not trusted they are off. What is trusted "
        "is the whole repository that the folder belongs to, with its worktrees, or a plain folder with all that is "
        "in it.",
        examples=("stagedoor trust", "stagedoor trust ~/projects/mine", "stagedoor trust --list",
                  "stagedoor trust --remove ~/projects/mine"),
    )  # fmt: skip
    parser.add_argument("folder", nargs="?", default=".", metavar="DIR", help="the folder (default: here)")
    doing = parser.add_mutually_exclusive_group()
    doing.add_argument("--list", action="store_true", help="list the folders that are trusted")
    doing.add_argument("--show", action="store_true", help="show what is in the folder that agents would load")
    doing.add_argument("--remove", action="store_true", help="trust the folder no more")
    arguments = parser.parse_args(argv)
    from ..trust.folders import trust_subject

    folder = Path(arguments.folder)
    try:
        if arguments.list:
            return _list()
        if arguments.remove:
            return _remove(folder)
        if not folder.is_dir():
            print(f"stagedoor trust: {folder} is not a folder", file=sys.stderr)
            return EXIT_USAGE
        _show(trust_subject(folder))
        return EXIT_SUCCESS if arguments.show else _add(folder)
    except Exception as fault:
        from ..errors import StagedoorError

        if isinstance(fault, StagedoorError | OSError):
            return report("trust", fault)
        raise


def _list() -> int:
    from ..service.config.load import load
    from ..transcript import clean
    from ..trust.record import TrustRecord

    settings = load().settings
    rows = [(entry.folder, f"by {entry.who}" if entry.who else "") for entry in TrustRecord().folders()]
    rows += [(folder, "in the configuration") for folder in settings.trusted_folders]
    for name, agent in settings.agents.items():
        rows += [(folder, f"in the configuration, for {name}") for folder in agent.trusted_folders]
    for folder, origin in rows:
        print(clean(folder) + (f"  ({clean(origin)})" if origin else ""))
    if not rows:
        print("no folder is trusted: stagedoor trust DIR trusts one", file=sys.stderr)
    return EXIT_SUCCESS


def _show(folder: Path) -> None:
    from .. import catalog
    from ..transcript import clean

    shown = False
    for name in catalog.names():
        agent = catalog.agent(name)
        for file in project_code(agent, folder):
            print(f"{clean(agent.title)} would load {clean(file.path)}: {clean(file.kind)}")
            shown = True
    if not shown:
        print("nothing there that an agent would load by itself")


def _add(folder: Path) -> int:
    from ..transcript import clean
    from ..trust.folders import repository_root
    from ..trust.record import TrustRecord

    entry = TrustRecord().add(folder)
    everything = "" if repository_root(Path(entry.folder)) else ", with everything that is in it"
    print(f"trusted: {clean(entry.folder)}{everything}")
    return EXIT_SUCCESS


def _remove(folder: Path) -> int:
    from ..transcript import clean
    from ..trust.record import TrustRecord

    removed = TrustRecord().remove(folder)
    for entry in removed:
        print(f"no longer trusted: {clean(entry.folder)}")
    if not removed:
        print(f"stagedoor trust: {folder} was not trusted by itself: stagedoor trust --list", file=sys.stderr)
        return EXIT_USAGE
    return EXIT_SUCCESS


# ---------------------------------------------------------------------------------------------- at the start of a run


def project_code(agent: Agent, folder: Path) -> list[ProjectFile]:
    """What the agent would load from the folder by itself, without texts for the model."""
    from ..permissions.ground import home_of
    from ..trust.project import project_places
    from ..unified.options import Options

    return [file for file, _ in project_places(folder, agent.project_paths, home_of(Options())) if not file.is_text]


def configured_trust(agent: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the trust that the configuration gives, unless they have one of their own."""
    from ..errors import ConfigError
    from ..service.config.load import find, load
    from ..trust.folders import is_covered

    if options.get("trust") is not None:
        return dict(options)
    try:
        if find() is None:
            return dict(options)
        settings = load().settings
    except ConfigError as fault:
        print(f"stagedoor: the configuration is not used, so no folder in it is trusted: {fault}", file=sys.stderr)
        return dict(options)
    own = settings.agents[agent].trusted_folders if agent in settings.agents else ()
    covered = is_covered(Path(options.get("cwd", ".")), (*settings.trusted_folders, *own))
    return {**options, "trust": True} if covered else dict(options)


async def ask_for_trust(
    agent: Agent, options: Mapping[str, Any], keyboard: Keyboard, write: Callable[[str], object]
) -> dict[str, Any]:
    """The options with the answer of the person at the terminal, where there is something to ask about."""
    from ..transcript import clean
    from ..trust.folders import trust_subject
    from ..trust.project import MOST_NAMED, described
    from ..trust.record import TrustRecord

    folder = Path(options.get("cwd", "."))
    if options.get("trust") is not None or options.get("tier") == "dry-run" or TrustRecord().covers(folder):
        return dict(options)
    files = project_code(agent, folder)
    if not files:
        return dict(options)
    subject = trust_subject(folder)
    write(f"{clean(str(subject))} contains what {agent.title} would load and run by itself:\n")
    for file in files[:MOST_NAMED]:
        write(f"  {clean(described(file, str(subject)))}\n")
    if len(files) > MOST_NAMED:
        write(f"  and {len(files) - MOST_NAMED} more\n")
    write("Trust it? y (yes, this time) · n (no) · a (always) [n] ")
    keyboard.start()
    try:
        keyboard.forget()
        key = (await keyboard.read_keys())[:1].lower()
    finally:
        keyboard.stop()
    answer = {"y": "yes", "a": "always"}.get(key, "no")
    write(f"{answer}\n")
    if answer == "always":
        TrustRecord().add(folder)
    return {**options, "trust": answer != "no"}
