"""``stagedoor parallel``: one prompt on several agents, each in its own git worktree; the branches are kept."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_USAGE
from .exits import report
from .flags import BadFlag, add_option_flags, options_from
from .parsing import Parser
from .run import DIALECTS
from .state import with_audit

if TYPE_CHECKING:
    from ..parallel import Tagged
    from .race import Entry
    from .views import View


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor parallel",
        description="Run one prompt on several agents at once. Each works in a git worktree of its own, starting from "
        "the commit checked out now; its work is committed to a branch, which is kept. Ends with a comparison.",
        examples=(
            "stagedoor parallel 'Fix the login bug' --agents claude,codex --test 'pytest -q'",
            "stagedoor parallel - --agents claude:opus,claude:sonnet --limit 1 < task.md",
        ),
        ends="exit codes: 0 all succeeded · 1 one failed · 2 usage · 130 interrupted",
    )
    parser.add_argument("prompt", help="what to do; - reads it from standard input")
    parser.add_argument("--agents", required=True, metavar="NAMES", help="by commas; NAME or NAME:MODEL, also twice")
    parser.add_argument("--test", metavar="COMMAND", help="run in each worktree at the end; exit code 0 is a pass")
    parser.add_argument("--test-timeout", type=float, default=600.0, metavar="SECONDS")
    parser.add_argument("--limit", type=int, metavar="N", help="at most so many agents at once")
    parser.add_argument("--keep-worktrees", action="store_true", help="leave the folders too, not only the branches")
    parser.add_argument(
        "--json", action="store_true", help="one event per line, each with its task, then the comparison"
    )
    parser.add_argument("--dialect", choices=DIALECTS, help="with --json: whose vocabulary (default: stagedoor)")
    add_option_flags(parser)
    given = parser.parse_args(argv)
    from .. import catalog
    from ..errors import StagedoorError
    from ..worktrees import NoRepository

    agents = [name.strip() for name in given.agents.split(",") if name.strip()]
    prompt = sys.stdin.read() if given.prompt == "-" else given.prompt
    if not agents or not prompt.strip() or (given.limit is not None and given.limit < 1):
        print("stagedoor parallel: give a prompt, at least one agent, and a limit of at least 1", file=sys.stderr)
        return EXIT_USAGE
    if given.dialect and not given.json:
        print("stagedoor parallel: --dialect says how --json speaks; add --json", file=sys.stderr)
        return EXIT_USAGE
    try:
        options = with_audit(options_from(given))
        for agent in agents:
            catalog.canonical_name(agent.partition(":")[0])
        return asyncio.run(_race(agents, prompt, options, given))
    except NoRepository as fault:
        report("parallel", fault)
        return EXIT_USAGE
    except (StagedoorError, BadFlag, OSError) as fault:
        return report("parallel", fault)


async def _race(agents: list[str], prompt: str, options: dict[str, Any], given: argparse.Namespace) -> int:
    from ..worktrees import is_clean, repository_of
    from .lines import style_for
    from .race import comparison, enter
    from .views import LiveTable, Printed, print_comparison, print_events, print_lines

    cwd = await asyncio.to_thread(Path(options.pop("cwd", ".")).resolve)
    root = await repository_of(cwd)
    if not await is_clean(root) and not given.json:
        print("note: uncommitted changes here are not seen by the agents: they start from HEAD", file=sys.stderr)
    entries = await enter(agents, prompt, cwd, options, _folder())
    terminal = sys.stdout.isatty() and not given.json
    view: View = (
        LiveTable(entries)
        if terminal
        else Printed(print_events(given.dialect or "stagedoor") if given.json else print_lines(entries))
    )
    interrupted = False
    try:
        interrupted = await _run(entries, view, prompt, given)
    finally:
        view.close()
        if not given.keep_worktrees:
            await _clear(entries)
    if given.json:
        print_comparison(entries)
    else:
        style = style_for(sys.stdout)
        print(f"\n{comparison(entries, style, shutil.get_terminal_size().columns if terminal else None)}")
        _closing_words(entries, given, style)
    if interrupted:
        return EXIT_INTERRUPTED
    good = all(entry.status == "success" and entry.tests in ("", "pass") for entry in entries)
    return EXIT_SUCCESS if good else EXIT_FAILED


async def _clear(entries: list[Entry]) -> None:
    from ..worktrees import GitFailed

    for entry in entries:
        try:
            empty = await entry.worktree.is_untouched()
            await entry.worktree.remove(branch=empty)
            entry.branch = "" if empty else entry.branch
        except GitFailed as fault:  # the work is on its branch; a folder that stays is no reason to say nothing of it
            print(f"note: {entry.worktree.folder} could not be removed: {fault}", file=sys.stderr)


async def _run(entries: list[Entry], view: View, prompt: str, given: argparse.Namespace) -> bool:
    """Whether somebody interrupted it."""
    from ..parallel import run_parallel

    loop, main = asyncio.get_running_loop(), asyncio.current_task()
    assert main is not None
    presses = 0

    def pressed() -> None:
        nonlocal presses
        presses += 1
        if presses > 1:
            os._exit(EXIT_INTERRUPTED)  # the guards end what is under us
        main.cancel()

    def finishing(entry: Entry) -> asyncio.Task[None]:
        test = None if entry.status == "interrupted" else given.test
        return asyncio.create_task(entry.finish(prompt, test, given.test_timeout))

    loop.add_signal_handler(signal.SIGINT, pressed)
    endings: dict[int, asyncio.Task[None]] = {}
    tasks = [view.with_questions(entry) for entry in entries]
    try:
        async with view.living(), aclosing(run_parallel(tasks, limit=given.limit)) as stream:
            async for one in stream:
                _see(one, entries, view)
                if entries[one.number].is_over and one.number not in endings:
                    endings[one.number] = finishing(entries[one.number])
            await asyncio.gather(*endings.values())
    except asyncio.CancelledError:
        main.uncancel()
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    for number, entry in enumerate(entries):
        entry.end("interrupted")
        if number not in endings:
            endings[number] = finishing(entry)
    await asyncio.gather(*endings.values())
    return presses > 0


def _see(one: Tagged, entries: list[Entry], view: View) -> None:
    entries[one.number].see(one.event)
    view.show(entries[one.number], one)


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "stagedoor" / "worktrees"


def _closing_words(entries: list[Entry], given: argparse.Namespace, style: Any) -> None:
    for entry in entries:
        if entry.why and entry.status != "success":
            print(f"{style('bad', entry.name)}: {entry.why}")
        if entry.test_output and entry.tests != "pass":
            print(style("dim", "\n".join(f"    {line}" for line in entry.test_output.splitlines()[-12:])))
    changed = next((entry for entry in entries if entry.changes and entry.changes.files), None)
    if changed is not None:
        print(f"\nlook: git diff HEAD...{changed.worktree.branch}    take: git merge {changed.worktree.branch}")
    if given.keep_worktrees:
        print("\n".join(f"worktree: {entry.worktree.folder}" for entry in entries))
