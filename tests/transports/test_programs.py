"""Our own short programs: run to their end, bounded, and gone with whoever wanted them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stagedoor.errors import LaunchError
from stagedoor.transports.guard.processes import descendants
from stagedoor.transports.programs import Finished, ProgramOverdue, Programs, ProgramStopped, run_blocking, run_program
from tests.processes import SETSID, is_running

BOUND = 240.0
SH = "/bin/sh"


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.usefixtures("each_strategy")
@pytest.mark.parametrize(
    ("script", "content", "together", "finished"),
    [
        ("echo out; echo complaint >&2; exit 3", b"", False, Finished(3, b"out\n", b"complaint\n")),
        ("echo out; echo complaint >&2", b"", True, Finished(0, b"out\ncomplaint\n")),
        ("cat", b"x" * 300_000, False, Finished(0, b"x" * 300_000)),
        ("kill -TERM $$", b"", False, Finished(-15)),
        ("echo $A; pwd", b"", False, Finished(0, b"b\n/\n")),
        ("(sleep 1000 &) ; echo done", b"", False, Finished(0, b"done\n")),
    ],
)
def test_a_program_runs_to_its_end(script: str, content: bytes, together: bool, finished: Finished) -> None:
    env = {"PATH": os.environ["PATH"], "A": "b"}
    done = run_blocking([SH, "-c", script], cwd="/", env=env, timeout=BOUND, content=content, together=together)
    assert done == finished
    assert descendants(os.getpid()) == []


@pytest.mark.usefixtures("each_strategy")
def test_one_guard_runs_many_programs_and_leaves_folders_to_us_while_we_live(tmp_path: Path) -> None:
    with Programs([str(tmp_path)]) as programs:
        first = programs.run([SH, "-c", "echo one"], cwd="/", env={}, timeout=BOUND)
        cut = programs.run([SH, "-c", "while :; do echo y; done"], cwd="/", env={}, timeout=BOUND, most=10)
        with pytest.raises(LaunchError, match="NUL"):
            Programs().run([SH, "-c", "echo a\0b"], cwd="/", env={}, timeout=BOUND)
        last = programs.run([SH, "-c", "echo two"], cwd="/", env={}, timeout=BOUND)
    assert (first.out, cut.out, cut.cut, last.out) == (b"one\n", b"y\n" * 5, True, b"two\n")
    assert tmp_path.exists()


@pytest.mark.usefixtures("each_strategy")
def test_what_cannot_be_started_or_takes_too_long_is_an_error() -> None:
    with pytest.raises(LaunchError, match=r"could not start /no/such: No such file"):
        run_blocking(["/no/such"], cwd="/", timeout=BOUND)
    with pytest.raises(LaunchError, match="could not start"):
        run_blocking([SH], cwd="/no/such", timeout=BOUND)
    with pytest.raises(ProgramOverdue, match=r"sleep was not done in 0\.2 seconds and was ended"):
        run_blocking(["/bin/sleep", "1000"], cwd="/", timeout=0.2)
    assert descendants(os.getpid()) == []


@pytest.mark.usefixtures("each_strategy")
def test_a_cancelled_caller_takes_its_program_with_it(tmp_path: Path) -> None:
    started = tmp_path / "started"

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(run_program([SH, "-c", f"touch {started}; sleep 1000"], cwd="/", timeout=BOUND))
            while not started.exists():
                await asyncio.sleep(0.01)
            task.cancel()

    asyncio.run(main())
    assert descendants(os.getpid()) == []


def test_an_owner_that_has_ended_starts_nothing() -> None:
    programs = Programs()
    programs.close()
    with pytest.raises(ProgramStopped):
        programs.run([SH], cwd="/", env={}, timeout=BOUND)


@pytest.mark.usefixtures("each_strategy")
def test_nothing_outlives_us_when_we_are_killed(tmp_path: Path) -> None:
    """The program ignores what can be ignored, and has a child in a process session of its own."""
    folder = tmp_path / "made for it"
    new, pids_file = tmp_path / "pids.new", tmp_path / "pids"
    script = f"trap '' TERM HUP INT; {SETSID} sleep 1000 & echo $! $$ > {new}; mv {new} {pids_file}; wait"
    code = (
        "import sys, os; from stagedoor.transports.programs import Programs\n"
        f"programs = Programs([{str(folder)!r}]); os.mkdir({str(folder)!r})\n"
        f"programs.run(['{SH}', '-c', sys.argv[1]], cwd='/', env=dict(os.environ), timeout=1000)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, script])
    try:
        wait_until(pids_file.exists)
        pids = [int(word) for word in pids_file.read_text().split()]
        assert all(map(is_running, pids))
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    wait_until(lambda: not any(map(is_running, pids)))
    wait_until(lambda: not folder.exists())
