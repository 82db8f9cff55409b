"""A real CLI repairs the demo repository as a scripted model says: for ``demo --real`` and ``doctor --deep``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from .. import api, catalog
from ..drivers.agent import Presence
from ..errors import StagedoorError
from ..testing import ScriptedModel, edit_file, read_file, say, scripted_agents, shell, think
from ..testing.script import Script
from ..transports.guard import descendants
from ..understudy.demo import DEMO_FILES, MISTAKE, REPAIR
from ..unified import events
from ..unified.decisions import Allow, Decision
from ..unified.events import Event, PermissionRequest
from .demo import PROMPT, Tally, scratch_repository

BOUND = 180.0
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


class Rehearsal:
    """What one CLI did."""

    def __init__(self, agent: str) -> None:
        self.tally = Tally(agent)
        self.events: list[Event] = []
        self.problem = ""
        self.repaired = False
        self.unused: list[str] = []
        self.unavailable: list[str] = []


async def rehearse(
    agent: str, executable: str, scratch: Path, show: Callable[[Event], None] = lambda event: None
) -> Rehearsal:
    """Run the CLI in a scratch repository, with a home of its own. Every question is answered with yes."""
    seen = Rehearsal(agent)
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
                    seen.tally.see(event)
                    seen.events.append(event)
                    show(event)
        except TimeoutError:
            seen.problem, seen.tally.status = f"it was not done after {BOUND:g} s", "error"
        except (StagedoorError, OSError, ModuleNotFoundError) as fault:
            seen.problem, seen.tally.status = str(fault) or type(fault).__name__, "error"
        seen.unused = model.unused()
        seen.unavailable = [name for request in model.requests for name in request.unavailable]
    seen.repaired = REPAIR in (folder / "greeting.py").read_text()
    seen.tally.left = _left(home)
    return seen


def _left(home: Path) -> int:
    """How many processes of this rehearsal are still there: others may run beside it."""
    mark, count = f"HOME={home.resolve()}".encode(), 0
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            count += mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return count


def drift(seen: Rehearsal) -> Iterator[str]:
    """Every way in which the CLI did not do what we expect of it."""
    if seen.problem:
        yield seen.problem
        return
    tools = [event for event in seen.events if isinstance(event, events.ToolUse)]
    changes = [event.path for event in seen.events if isinstance(event, events.FileChange)]
    said = "".join(event.text for event in seen.events if isinstance(event, events.Text))
    usage = next((event.usage for event in seen.events if isinstance(event, events.Done)), events.Usage())
    errors = [event.message for event in seen.events if isinstance(event, events.Error)]
    expected = {
        f"it ended with {seen.tally.status or 'nothing'}: {'; '.join(errors)}": seen.tally.status == "success",
        "its last words did not arrive": LAST_WORDS in said,
        "no shell call was seen": any(tool.name == "shell" for tool in tools),
        "no edit was seen": any(tool.operation == "write" for tool in tools),
        "a call was not normalized: " + ", ".join(tool.native_name for tool in tools if tool.name == "other"): all(
            t.name != "other" for t in tools
        ),
        "the edit gave no file_change with its path": any(path.endswith("greeting.py") for path in changes),
        "the file on disk was not repaired": seen.repaired,
        "it asked for no permission": seen.tally.asked > 0,
        "it reported no usage": usage.total_tokens > 0,
        f"it did not ask the model for: {'; '.join(seen.unused)}": not seen.unused,
        f"it no longer offers: {', '.join(seen.unavailable)}": not seen.unavailable,
        f"it left {seen.tally.left} processes running": not seen.tally.left,
    }
    yield from (complaint for complaint, holds in expected.items() if not holds)
    for event in seen.events:
        if isinstance(event, events.Unrecognized):
            yield f"a message was not recognized ({event.why}): {event.raw[:200]}"


async def check(present: Presence, cwd: Path) -> list[tuple[str, str]]:
    """(mark, text) for ``doctor --deep``."""
    agent = present.agent
    if agent not in scripted_agents():
        return [("note", "nothing to compare: it is part of Stagedoor")]
    if not present.drivers:
        return [("note", f"not run: {present.problem}")]
    with tempfile.TemporaryDirectory(prefix="stagedoor-doctor-", ignore_cleanup_errors=True) as scratch:
        seen = await rehearse(agent, present.executable, Path(scratch))
    found = [("bad", complaint) for complaint in drift(seen)]
    warned = {event.message for event in seen.events if isinstance(event, events.Notice) and event.level != "info"}
    found += [("note", f"it was corrected: {message}") for message in sorted(warned)]
    proven = catalog.agent(agent).package
    version = seen.tally.version or present.version
    if proven and version and version != proven.version:
        found.append(("note", f"version {version}; Stagedoor was tested with {proven.version}"))
    if not any(mark == "bad" for mark, _ in found):
        told = f"{seen.tally.count} events, {seen.tally.tools} tools, {seen.tally.asked} questions"
        found.insert(0, ("ok", f"it does what we expect: {told} in {seen.tally.total:.1f} s"))
    return found
