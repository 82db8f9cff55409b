"""Real CLIs repair the demo repository on a scripted model: ``demo --real`` and ``doctor --deep``. No key, no cost."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from .. import api, catalog
from ..drivers.agent import Presence
from ..errors import ConfigError, StagedoorError
from ..testing import ScriptedModel, edit_file, find_cli, read_file, say, scripted_agents, shell, think
from ..testing.clis import InstallFailed, install_clis, installed_cli
from ..testing.contract.stances import SCENES
from ..testing.contract.trial import Player, Row
from ..testing.script import Script
from ..transports.guard.processes import descendants, has_in_environment
from ..transports.versions import add_proven
from ..understudy.demo import DEMO_FILES, MISTAKE, REPAIR
from ..unified import events
from ..unified.decisions import Allow, Decision
from ..unified.events import Event, PermissionRequest, TextDelta
from ..unified.options import Options
from .demo import PROMPT, DemoRow, scratch_repository
from .state import state_folder
from .terminal.output import EventLines, Style, style_for

BOUND = 180.0
AT_ONCE = 2
LAST_WORDS = "Repaired, and the tests pass."


def script(folder: Path) -> Script:
    """By normalized tools: the model says each in the words of the agent that asks."""
    path = str(folder / "greeting.py")
    line = next(line for line in DEMO_FILES["greeting.py"].splitlines() if MISTAKE in line)
    tests = f"{shlex.quote(sys.executable)} -B -m unittest -q"
    return [
        [think("Let me see the code first."), say("I will look at the greeting.\n"), read_file(path)],
        [say("`nam` is not defined.\n"), edit_file(path, line, line.replace(MISTAKE, REPAIR))],
        [say("Now the tests.\n"), shell(tests)],
        say(LAST_WORDS),
    ]


class CliTrial:
    """What one CLI did in the demo repository."""

    def __init__(self, agent: str) -> None:
        self.row = DemoRow(agent)
        self.events: list[Event] = []
        self.problem = ""
        self.repaired = False
        self.unused: list[str] = []
        self.unavailable: list[str] = []


async def try_cli(
    agent: str, executable: str, scratch: Path, show: Callable[[Event], None] = lambda event: None
) -> CliTrial:
    """Run the CLI in a scratch repository, with a separate home. Every question is answered with yes."""
    trial = CliTrial(agent)
    folder, home = scratch / agent / "greeting", scratch / agent / "home"
    folder.mkdir(parents=True)
    scratch_repository(folder)

    async def allow(request: PermissionRequest) -> Decision:
        return Allow()

    async with ScriptedModel(script(folder)) as model:
        environment = model.environment(agent, home=home, cwd=folder)
        try:
            async with asyncio.timeout(BOUND):
                async for event in api.run(
                    agent,
                    PROMPT,
                    cwd=str(folder),
                    executable=executable,
                    model=environment.model,
                    env=environment.env,
                    inherit_env=False,
                    approval="ask",
                    can_use_tool=allow,
                ):
                    trial.row.see(event)
                    trial.events.append(event)
                    show(event)
        except TimeoutError:
            trial.problem, trial.row.status = f"not done after {BOUND:g} s", "error"
        except (StagedoorError, OSError, ModuleNotFoundError) as fault:
            trial.problem, trial.row.status = str(fault) or type(fault).__name__, "error"
        trial.unused = model.unused()
        trial.unavailable = [name for request in model.requests for name in request.unavailable]
    trial.repaired = REPAIR in (folder / "greeting.py").read_text()
    trial.row.leftovers = _leftovers(home)
    return trial


def _leftovers(home: Path) -> int:
    """How many processes of this trial still run: other trials may run beside it."""
    home_entry = f"HOME={home.resolve()}".encode()
    return sum(has_in_environment(pid, home_entry) for pid in descendants(os.getpid()))


def drift(trial: CliTrial) -> Iterator[str]:
    """Every way in which the CLI did not do what we expect of it."""
    if trial.problem:
        yield trial.problem
        return
    tools = [event for event in trial.events if isinstance(event, events.ToolUse)]
    changes = [event.path for event in trial.events if isinstance(event, events.FileChange)]
    text = "".join(event.text for event in trial.events if isinstance(event, events.Text))
    usage = next((event.usage for event in trial.events if isinstance(event, events.Done)), events.Usage())
    errors = [event.message for event in trial.events if isinstance(event, events.Error)]
    expected = {
        f"it ended with {trial.row.status or 'nothing'}: {'; '.join(errors)}": trial.row.status == "success",
        "its final text did not arrive": LAST_WORDS in text,
        "no shell call was seen": any(tool.name == "shell" for tool in tools),
        "no edit was seen": any(tool.operation == "write" for tool in tools),
        "a tool was not normalized: " + ", ".join(tool.native_name for tool in tools if tool.name == "other"): all(
            t.name != "other" for t in tools
        ),
        "the edit gave no file_change with its path": any(path.endswith("greeting.py") for path in changes),
        "the file on disk was not repaired": trial.repaired,
        "it asked for no permission": trial.row.questions > 0,
        "it reported no usage": usage.total_tokens > 0,
        f"it did not ask the model for: {'; '.join(trial.unused)}": not trial.unused,
        f"it no longer offers: {', '.join(trial.unavailable)}": not trial.unavailable,
        f"it left {trial.row.leftovers} processes running": not trial.row.leftovers,
    }
    yield from (complaint for complaint, holds in expected.items() if not holds)
    for event in trial.events:
        if isinstance(event, events.Unrecognized):
            yield f"a message was not recognized ({event.why}): {event.raw[:200]}"


async def check_cli(present: Presence) -> list[tuple[str, str]]:
    """(mark, text) for ``doctor --deep``."""
    agent = present.agent
    if agent not in scripted_agents():
        return [("note", "nothing to check: it is part of Stagedoor")]
    if not present.drivers:
        return [("note", f"not run: {present.problem}")]
    with tempfile.TemporaryDirectory(prefix="stagedoor-doctor-", ignore_cleanup_errors=True) as scratch:
        trial = await try_cli(agent, present.executable, Path(scratch))
    findings = [("bad", complaint) for complaint in drift(trial)]
    warned = {event.message for event in trial.events if isinstance(event, events.Notice) and event.level != "info"}
    findings += [("note", f"corrected: {message}") for message in sorted(warned)]
    if not any(mark == "bad" for mark, _ in findings):
        counts = f"{trial.row.events} events, {trial.row.tools} tools, {trial.row.questions} questions"
        findings.insert(0, ("ok", f"works as expected: {counts} in {trial.row.total:.1f} s"))
    return [*findings, *await _contract(agent, present.executable)]


async def _contract(agent: str, executable: str) -> list[tuple[str, str]]:
    """The core of the permission contract, with the driver that is used by default. Kept, it proves this version."""
    entry = catalog.agent(agent)
    driver = entry.choose_driver(Options())
    rows: list[Row] = []
    try:
        for scene in SCENES:
            if scene.core:
                rows += await Player(agent, driver, executable).play(scene)
        version = (await entry.versions.check(executable)).version if entry.versions is not None else ""
    except (StagedoorError, OSError, AssertionError) as fault:
        return [("bad", f"the permission contract could not be played: {fault}")]
    table = "\n".join(_table(rows))
    broken = [f"{row.stance}: {complaint}" for row in rows for complaint in row.complaints]
    if broken:
        found = f"version {version} does not keep the permission contract (driver {driver}); do not use it"
        return [("bad", "\n".join([found, *broken, table]))]
    if entry.versions is not None:
        await asyncio.to_thread(add_proven, entry.versions.program, version)
    return [("ok", f"version {version} keeps the core of the permission contract (driver {driver})\n{table}")]


def _table(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each stance, with the deeds grouped by what became of them."""
    width = max((len(row.stance) for row in rows), default=0)
    for row in rows:
        groups: dict[str, list[str]] = {}
        for deed, outcome in row.outcomes.items():
            groups.setdefault(outcome, []).append(deed)
        seen = "; ".join(f"{outcome}: {', '.join(deeds)}" for outcome, deeds in groups.items())
        yield f"{row.stance:{width}}  {seen or row.unsupported}"


# --------------------------------------------------------------------------------------------------- demo --real


def chosen_clis(chosen: str) -> list[str]:
    """Those of a list with commas, or all. Raises for a name that nobody has."""
    names = [name for name in chosen.split(",") if name]
    for name in names:
        if catalog.agent(name).name not in scripted_agents():
            raise ConfigError(f"{name} has no scripted model here; choose from {', '.join(scripted_agents())}")
    return [name for name in scripted_agents() if not names or name in names]


async def run_real_demo(names: Sequence[str], programs: Mapping[str, str]) -> list[DemoRow]:
    """Run these CLIs; the rows of the closing table."""
    style = style_for(sys.stdout)
    places = asyncio.Semaphore(AT_ONCE)
    with tempfile.TemporaryDirectory(prefix="stagedoor-demo-", ignore_cleanup_errors=True) as scratch:

        async def run(name: str) -> CliTrial:
            async with places:
                if name not in programs:
                    missing = CliTrial(name)
                    missing.problem, missing.row.status = "not installed", "not installed"
                    return missing
                return await try_cli(name, programs[name], Path(scratch), _printer(name, style))

        trials = await asyncio.gather(*(run(name) for name in names))
    for trial in trials:
        for complaint in drift(trial):
            print(style("bad", f"{trial.row.agent}: {complaint}"))
    return [trial.row for trial in trials]


def _printer(name: str, style: Style) -> Callable[[Event], None]:
    lines = EventLines(style, thinking=False)
    width = max(map(len, scripted_agents()))

    def show(event: Event) -> None:
        if isinstance(event, TextDelta):
            return  # lines of several agents would run into each other
        for line in lines.show(event).strip("\n").splitlines():
            print(f"{style('tool', f'{name:{width}}')} │ {line}", flush=True)

    return show


def find_or_install(names: Sequence[str], *, install: bool, ask: bool) -> dict[str, str]:
    """Where each CLI is; those that are missing are installed into Stagedoor's state folder."""
    programs = {name: str(program) for name in names if (program := find_cli(name)) is not None}
    missing = tuple(name for name in names if name not in programs)
    folder = state_folder() / "clis"
    if not missing or not install or (ask and not _may_install(missing, folder)):
        return programs
    try:
        install_clis(folder, missing)  # all in one call: two npm processes must not share a folder
    except (InstallFailed, OSError) as failure:
        print(f"{', '.join(missing)}: not installed: {_short(failure)}", file=sys.stderr)
        for name in missing:
            print(f"  run: {catalog.agent(name).install}", file=sys.stderr)
        return programs
    os.environ["STAGEDOOR_CLIS"] = str(folder)  # a Node.js that was installed with them is found there, too
    print(f"stagedoor run, chat and serve use them from now on, where your PATH has no other: {folder}")
    return programs | {name: path for name in missing if (path := installed_cli(folder, name)) is not None}


def _may_install(missing: Sequence[str], folder: Path) -> bool:
    print(f"not installed: {', '.join(missing)}")
    try:
        answer = input(f"Install them with npm into {folder} (several hundred MB, about a minute)? [y/N] ")
    except EOFError:  # Ctrl-D is no yes
        return False
    return answer.strip().lower() in ("y", "yes")


def _short(failure: InstallFailed | OSError) -> str:
    if isinstance(failure, OSError):
        return str(failure)
    lines = [line for line in failure.output.splitlines() if line.strip() and "complete log" not in line]
    return " ".join([f"{failure.command} failed:", *lines[-1:]])
