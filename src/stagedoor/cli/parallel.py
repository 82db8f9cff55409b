"""``stagedoor parallel``: one prompt on several agents, each in its own git worktree; the branches are kept."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec
from msgspec.structs import replace

from .. import catalog
from ..api import Task
from ..dialects import DIALECTS, Projection, encode
from ..errors import StagedoorError
from ..machine.folders import user_folder
from ..parallel import Tagged, run_parallel
from ..transports.programs import ProgramOverdue, run_program
from ..transports.tasks import TaskOwner
from ..unified import events
from ..unified.events import Event
from ..unified.options import OpenOptions
from ..worktrees import DiffStat, GitFailed, NoRepository, Worktree, add_worktree, is_clean, repository_of
from . import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_USAGE
from .command import BadFlag, Parser, add_option_flags, options_from, report
from .run import capabilities_when_asking
from .state import with_audit
from .terminal.output import Cell, EventLines, Style, one_line, plain, style_for, table, width
from .terminal.questions import TerminalQuestions, find_keyboard
from .trust import configured_trust

if TYPE_CHECKING:
    from rich.table import Table

OUTPUT_KEPT = 4000
HEADINGS = ["agent", "status", "changes", "tests", "tools", "tokens", "cost", "time", "branch"]
TICK = 0.125


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor parallel",
        description="Run one prompt on several agents at once. Each works in its own git worktree, which starts from "
        "the current commit; its work is committed to a branch, which is kept. A comparison is printed at the end.",
        examples=(
            "stagedoor parallel 'Fix the login bug' --agents claude,codex --test 'pytest -q'",
            "stagedoor parallel - --agents claude:opus,claude:sonnet --limit 1 < task.md",
        ),
        closing="exit codes: 0 all succeeded · 1 at least one failed · 2 usage · 130 interrupted",
    )
    parser.add_argument("prompt", nargs="+", help="what to do; - reads it from standard input")
    parser.add_argument(
        "--agents", required=True, metavar="NAMES", help="separated by commas: NAME or NAME:MODEL, also the same twice"
    )
    parser.add_argument("--test", metavar="COMMAND", help="run this in each worktree at the end; exit code 0 is a pass")
    parser.add_argument("--test-timeout", type=float, default=600.0, metavar="SECONDS")
    parser.add_argument("--limit", type=int, metavar="N", help="run at most N agents at the same time")
    parser.add_argument("--keep-worktrees", action="store_true", help="keep the folders too, not only the branches")
    parser.add_argument(
        "--json", action="store_true", help="print one event per line, each with its task, then the comparison"
    )
    parser.add_argument("--dialect", choices=tuple(DIALECTS), help="with --json: the vocabulary (default: stagedoor)")
    add_option_flags(parser)
    arguments = parser.parse_intermixed_args(argv)
    agents = [name.strip() for name in arguments.agents.split(",") if name.strip()]
    words = " ".join(arguments.prompt)
    prompt = sys.stdin.read() if words == "-" else words
    if not agents or not prompt.strip() or (arguments.limit is not None and arguments.limit < 1):
        print("stagedoor parallel: a prompt, at least one agent and a limit of at least 1 are needed", file=sys.stderr)
        return EXIT_USAGE
    if arguments.dialect and not arguments.json:
        print("stagedoor parallel: --dialect needs --json", file=sys.stderr)
        return EXIT_USAGE
    try:
        options = with_audit(options_from(arguments))
        for agent in agents:
            catalog.canonical_name(agent.partition(":")[0])
        return asyncio.run(_compare(agents, prompt, options, arguments))
    except NoRepository as fault:
        report("parallel", fault)
        return EXIT_USAGE
    except (StagedoorError, BadFlag, OSError) as fault:
        return report("parallel", fault)


async def _compare(agents: list[str], prompt: str, options: dict[str, Any], arguments: argparse.Namespace) -> int:
    cwd = await asyncio.to_thread(Path(options.pop("cwd", ".")).resolve)
    root = await repository_of(cwd)
    if not await is_clean(root) and not arguments.json:
        print("note: the agents start from HEAD and do not see your uncommitted changes", file=sys.stderr)
    runs = await prepare_runs(agents, prompt, cwd, options, _worktrees_folder())
    terminal = sys.stdout.isatty() and not arguments.json
    view: RunsView = (
        LiveTable(runs)
        if terminal
        else PrintedRuns(print_events(arguments.dialect or "stagedoor") if arguments.json else print_lines(runs))
    )
    interrupted = False
    try:
        interrupted = await _run(runs, view, prompt, arguments)
    finally:
        view.close()
        if not arguments.keep_worktrees:
            await _clear(runs)
    if arguments.json:
        print_comparison(runs)
    else:
        style = style_for(sys.stdout)
        print(f"\n{comparison(runs, style, shutil.get_terminal_size().columns if terminal else None)}")
        _print_details(runs, arguments, style)
    if interrupted:
        return EXIT_INTERRUPTED
    good = all(run.status == "success" and run.tests in ("", "pass") for run in runs)
    return EXIT_SUCCESS if good else EXIT_FAILED


async def _clear(runs: list[AgentRun]) -> None:
    for run in runs:
        try:
            empty = await run.worktree.is_untouched()
            await run.worktree.remove(branch=empty)
            run.branch = "" if empty else run.branch
        except GitFailed as fault:  # the work is on its branch: a folder that stays is only noted
            print(f"note: cannot remove {run.worktree.folder}: {fault}", file=sys.stderr)


async def _run(runs: list[AgentRun], view: RunsView, prompt: str, arguments: argparse.Namespace) -> bool:
    """Whether the user interrupted it."""
    loop, main = asyncio.get_running_loop(), asyncio.current_task()
    assert main is not None
    presses = 0

    def press() -> None:
        nonlocal presses
        presses += 1
        if presses > 1:
            os._exit(EXIT_INTERRUPTED)  # the guards end what is under us
        main.cancel()

    endings: dict[int, asyncio.Task[None]] = {}
    owner = TaskOwner()

    def finish(number: int) -> None:
        run = runs[number]
        test = None if presses or run.status == "interrupted" else arguments.test
        endings[number] = owner.start(run.finish(prompt, test, arguments.test_timeout))

    loop.add_signal_handler(signal.SIGINT, press)
    tasks = [view.with_questions(run) for run in runs]
    try:
        async with view.live(), aclosing(run_parallel(tasks, limit=arguments.limit)) as stream:
            async for tagged in stream:
                run = runs[tagged.number]
                run.see(tagged.event)
                view.show(run, tagged)
                if run.is_over and tagged.number not in endings:
                    finish(tagged.number)
            await asyncio.gather(*endings.values())
    except asyncio.CancelledError:
        if not presses:
            raise
        main.uncancel()
        await owner.close()  # tests that are still running
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    for number, run in enumerate(runs):
        run.end("interrupted")
        run.tests = "interrupted" if run.tests == "running" else run.tests
        if run.changes is None and (number not in endings or endings[number].cancelled()):
            finish(number)
    await asyncio.gather(*(ending for ending in endings.values() if not ending.cancelled()))
    return presses > 0


def _worktrees_folder() -> Path:
    return user_folder("cache") / "stagedoor" / "worktrees"


def _print_details(runs: list[AgentRun], arguments: argparse.Namespace, style: Any) -> None:
    for run in runs:
        if run.why and run.status != "success":
            print(f"{style('bad', run.name)}: {run.why}")
        if run.test_output and run.tests != "pass":
            print(style("dim", "\n".join(f"    {line}" for line in run.test_output.splitlines()[-12:])))
    changed = next((run for run in runs if run.changes and run.changes.files), None)
    if changed is not None:
        print(f"\ncompare: git diff HEAD...{changed.worktree.branch}    merge: git merge {changed.worktree.branch}")
    if arguments.keep_worktrees:
        print("\n".join(f"worktree: {run.worktree.folder}" for run in runs))


# ----------------------------------------------------------------------------------------- one agent among several


class AgentRun:
    """One of the agents: its worktree, and what became of its work."""

    def __init__(self, name: str, task: Task, worktree: Worktree) -> None:
        self.name = name
        self.task = task
        self.worktree = worktree
        self.branch = worktree.branch  # empty when there was nothing to keep
        self.status = "waiting"
        self.doing = ""
        self.why = ""
        self.tokens = 0
        self.cost: float | None = None
        self.tools = 0
        self.changes: DiffStat | None = None
        self.tests = ""
        self.test_output = ""
        self._since = 0.0
        self._took: float | None = None

    @property
    def seconds(self) -> float:
        if self._took is not None:
            return self._took
        return time.monotonic() - self._since if self._since else 0.0

    @property
    def is_over(self) -> bool:
        return self._took is not None

    def see(self, event: Event) -> None:
        match event:
            case events.Init():
                self.status, self._since = "running", time.monotonic()
            case events.TextDelta() | events.Text():
                self.doing = "writing"
            case events.ThinkingDelta() | events.Thinking():
                self.doing = "thinking"
            case events.ToolUse():
                self.tools += 1
                self.doing = f"{event.name} {one_line(event.target, 50)}"
            case events.PermissionRequest():
                self.doing = f"asks: {event.tool_name} {one_line(event.target, 44)}"
            case events.UsageReport():
                self.tokens = event.session.total_tokens or event.total_tokens
                self.cost = event.session.cost_usd
            case events.Error():
                self.why = event.message
            case events.Done():
                self.tokens, self.cost = event.usage.total_tokens or self.tokens, event.cost_usd
                self.end(event.status)
            case _:
                return

    def end(self, status: str) -> None:
        """The first end counts."""
        if self._took is None:
            self._took = self.seconds
            self.status, self.doing = status, ""

    async def finish(self, prompt: str, test: str | None, limit: float) -> None:
        """Commit what was changed, then run the tests on it: what they leave behind is not the agent's work."""
        try:
            self.changes = await self.worktree.keep(f"{one_line(prompt, 60)}\n\nBy {self.name}, through Stagedoor.")
        except GitFailed as fault:
            self.why = self.why or str(fault)
        if test is not None:
            self.tests = "running"
            self.tests, self.test_output = await run_tests(test, self.worktree.cwd, limit)

    def row(self) -> list[Cell]:
        good = self.status == "success"
        passed = self.tests == "pass"
        return [
            ("tool", self.name),
            ("ok" if good else "bad", self.status),
            str(self.changes) if self.changes is not None else "–",
            ("ok" if passed else "bad", self.tests) if self.tests else "–",
            str(self.tools),
            f"{self.tokens:,}" if self.tokens else "–",
            f"${self.cost:.4f}" if self.cost is not None else "–",
            f"{self.seconds:.1f}s",
            self.branch or "–",
        ]


def comparison(runs: Sequence[AgentRun], style: Style, columns: int | None = None) -> str:
    """One row for each. Where the terminal is too narrow for the branches, they are listed below."""
    empty: set[str] = set() if any(run.tests for run in runs) else {"tests"}

    def columns_without(names: set[str], style: Style) -> str:
        numbers = [n for n, heading in enumerate(HEADINGS) if heading not in names]
        return table([HEADINGS[n] for n in numbers], [[row[n] for n in numbers] for row in rows], style)

    rows = [run.row() for run in runs]
    if columns is None or max(map(width, columns_without(empty, plain).splitlines())) <= columns:
        return columns_without(empty, style)
    branches = [f"branch: {run.branch}" for run in runs if run.branch]
    return "\n".join([columns_without({"branch", *empty}, style), *branches])


async def prepare_runs(
    agents: Sequence[str], prompt: str, cwd: Path, options: Mapping[str, object], folder: Path
) -> list[AgentRun]:
    """A worktree and a task for each. ``agents`` are names, or ``name:model``; one may come more than once."""
    stamp = f"{datetime.now():%m%d-%H%M%S}-{secrets.token_hex(2)}"
    runs: list[AgentRun] = []
    counts: dict[str, int] = {}
    for agent in agents:
        agent_name, _, model = agent.partition(":")
        bare = agent.replace(":", "-").replace("/", "-")
        counts[bare] = counts.get(bare, 0) + 1
        name = bare if counts[bare] == 1 else f"{bare}-{counts[bare]}"
        try:
            worktree = await add_worktree(cwd, folder / f"{cwd.name}-{stamp}" / name, f"stagedoor/{stamp}/{name}")
        except BaseException:
            for run in runs:
                await run.worktree.remove(branch=True)
            raise
        own = configured_trust(catalog.canonical_name(agent_name), {**options, "cwd": str(worktree.cwd)})
        own |= {"model": model} if model else {}
        runs.append(AgentRun(name, Task(agent_name, prompt, cast("OpenOptions", own), name), worktree))
    return runs


async def run_tests(command: str, cwd: Path, limit: float) -> tuple[str, str]:
    """``pass`` or what went wrong, and the end of what was printed. Everything the command started is ended."""
    try:
        done = await run_program(["/bin/sh", "-c", command], cwd=str(cwd), timeout=limit, together=True)
    except ProgramOverdue:
        return f"not done in {limit:g}s", ""
    verdict = "pass" if done.code == 0 else f"fail ({done.code})"
    return verdict, done.out.decode("utf-8", "replace")[-OUTPUT_KEPT:]


# ------------------------------------------------------------------------------------ what is shown while they run


class RunsView(Protocol):
    """Shows several agents while they run."""

    @property
    def show(self) -> Callable[[AgentRun, Tagged], None]: ...
    def with_questions(self, run: AgentRun) -> Task: ...
    def live(self) -> AbstractAsyncContextManager[None]: ...
    def close(self) -> None: ...


class PrintedRuns:
    """A view that only prints; it cannot ask."""

    def __init__(self, show: Callable[[AgentRun, Tagged], None]) -> None:
        self.show = show

    @asynccontextmanager
    async def live(self) -> AsyncGenerator[None]:
        yield

    def with_questions(self, run: AgentRun) -> Task:
        return run.task

    def close(self) -> None:
        return


def print_events(dialect: str) -> Callable[[AgentRun, Tagged], None]:
    """One JSON object per line."""
    projections: dict[int, Projection] = {}

    def show(run: AgentRun, tagged: Tagged) -> None:
        projection = projections.setdefault(tagged.number, DIALECTS[dialect]())
        for line in encode(projection, tagged.event):
            _print({"number": tagged.number, "task": run.name, "event": msgspec.Raw(line)})

    return show


def print_comparison(runs: Sequence[AgentRun]) -> None:
    rows = [
        {
            "task": run.name,
            "agent": run.task.agent,
            "status": run.status,
            "error": run.why,
            "branch": run.branch or None,
            "base": run.worktree.base,
            "changes": run.changes,
            "tests": run.tests or None,
            "toolUses": run.tools,
            "totalTokens": run.tokens,
            "costUsd": run.cost,
            "durationMs": round(run.seconds * 1000),
        }
        for run in runs
    ]
    _print({"comparison": rows})


def _print(line: dict[str, Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


def print_lines(runs: Sequence[AgentRun]) -> Callable[[AgentRun, Tagged], None]:
    """A line for each thing that happened, with the agent's name before it."""
    lines = {run.name: EventLines(plain, thinking=False) for run in runs}
    width = max(len(run.name) for run in runs)

    def show(run: AgentRun, tagged: Tagged) -> None:
        event = tagged.event
        if isinstance(event, events.TextDelta | events.FileChange):
            return  # whole texts are enough, and diffs can be had from the branch
        text = event.status if isinstance(event, events.Done) else lines[run.name].show(event).strip("\n")
        for line in text.splitlines():
            print(f"{run.name:{width}} │ {line}", flush=True)

    return show


class LiveTable:
    """A table that is redrawn as things happen. Questions are asked one at a time, with the table hidden."""

    def __init__(self, runs: Sequence[AgentRun]) -> None:
        from rich.console import Console

        self._entries = runs
        self._console = Console(highlight=False)
        self._live: Any = None
        self._style = style_for(sys.stdout)
        self._keyboard = find_keyboard()
        self._lock = asyncio.Lock()

    def with_questions(self, run: AgentRun) -> Task:
        if self._keyboard is None:
            return run.task
        options = dict(run.task.options)
        capabilities = capabilities_when_asking(catalog.agent(run.task.agent), options)
        if capabilities is None:
            return run.task
        questions = TerminalQuestions(
            self._keyboard,
            self,
            self._write,
            self._style,
            capabilities=capabilities,
            asker=run.name,
            lock=self._lock,
        )
        return replace(run.task, options={**options, "can_use_tool": questions})

    @asynccontextmanager
    async def live(self) -> AsyncGenerator[None]:
        async def tick() -> None:
            while True:
                if self._live is not None:
                    self._live.update(self._table(), refresh=True)
                await asyncio.sleep(TICK)

        if self._keyboard is not None:
            self._keyboard.start()
        self.resume()
        tasks = TaskOwner()
        tasks.start(tick())
        try:
            yield
        finally:
            await tasks.close()
            self.close()

    def show(self, run: AgentRun, tagged: Tagged) -> None:
        return

    async def wait_until_shown(self, request_id: str) -> None:
        return

    def answered(self, request_id: str) -> None:
        return

    def pause(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def resume(self) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(self._table(), console=self._console, auto_refresh=False, transient=True)
            self._live.start(refresh=True)

    def close(self) -> None:
        self.pause()
        if self._keyboard is not None:
            self._keyboard.stop()

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def _table(self) -> Table:
        from rich.table import Table

        drawn = Table(box=None, pad_edge=False, header_style="bold", expand=False)
        for heading in ("agent", "status", "time", "tokens", "cost", "doing"):
            drawn.add_column(heading, no_wrap=True, overflow="ellipsis")
        for run in self._entries:
            style = {"success": "green", "running": "cyan", "waiting": "dim"}.get(run.status, "red")
            doing = "running the tests" if run.tests == "running" else str(run.changes or "") or run.doing
            cost = f"${run.cost:.4f}" if run.cost is not None else ""
            tokens = f"{run.tokens:,}" if run.tokens else ""
            drawn.add_row(run.name, f"[{style}]{run.status}[/]", f"{run.seconds:.0f}s", tokens, cost, doing)
        return drawn
