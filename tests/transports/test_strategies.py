"""The two ways in which a guard knows its tree: each ends all of it, and nobody else."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stagedoor.errors import LaunchError
from stagedoor.transports.guard import darwin, portable, ps_table
from stagedoor.transports.guard.portable import PortableTree, SharedMemory, entry_of
from stagedoor.transports.guard.processes import (
    CHOSEN_BY,
    children,
    descendants,
    end_session,
    has_in_environment,
    processor_ticks,
    started_at,
    strategy,
)
from stagedoor.transports.guard.ps_table import ProcessRow
from tools.torture import KINDS, torture

BOUND = 240.0
NEVER = 10**6
LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="refuses what only Linux has")


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A child of ours that no guard may touch, in a session of its own."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


# ------------------------------------------------------------------------------------------------------ the word itself


@pytest.mark.parametrize(("word", "chosen"), [("portable", "portable"), ("", "linux"), ("linux", "linux")])
@LINUX_ONLY
def test_the_strategy_is_the_machines_own_or_the_one_that_is_named(
    word: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHOSEN_BY, word)
    assert strategy() == chosen


def test_no_program_is_started_by_a_strategy_that_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHOSEN_BY, "luck")
    with pytest.raises(LaunchError, match="'luck': choose linux or portable"):
        strategy()
    monkeypatch.setenv(CHOSEN_BY, "portable")
    monkeypatch.setattr("stagedoor.transports.guard.processes.PLACES", ("/no/such/ps",))
    monkeypatch.setattr(sys, "platform", "freebsd")
    with pytest.raises(LaunchError, match=r"install ps \(procps\)"):
        strategy()
    monkeypatch.setenv(CHOSEN_BY, "linux")
    with pytest.raises(LaunchError, match="works on Linux only"):
        strategy()


@pytest.mark.usefixtures("each_strategy")
def test_we_read_processes_by_the_same_strategy(stranger: subprocess.Popen[bytes]) -> None:
    shell = subprocess.Popen(["/bin/sh", "-c", "sleep 600 & echo; wait"], env={"A": "b c"}, stdout=subprocess.PIPE)
    try:
        assert shell.stdout
        shell.stdout.readline()
        [sleeper] = children(shell.pid)
        assert descendants(shell.pid) == [sleeper]
        assert {shell.pid, sleeper, stranger.pid} <= set(descendants(os.getpid()))
        assert started_at(sleeper) >= started_at(shell.pid) > 0
        assert started_at(NEVER * 5) == 0
        assert has_in_environment(shell.pid, b"A=b c")
        assert not has_in_environment(shell.pid, b"A=c")
        assert processor_ticks(shell.pid) >= 0
    finally:
        for pid in (*children(shell.pid), shell.pid):
            os.kill(pid, signal.SIGKILL)
        shell.communicate()


ABOVE = "from stagedoor.transports.guard.processes import variable_above; print(variable_above('STAGEDOOR_ABOVE'))"
CHAIN = """
import json, os, subprocess, sys
values, last, own = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
env = {name: value for name, value in os.environ.items() if name != "STAGEDOOR_ABOVE"}
if not values:
    sys.exit(subprocess.call([sys.executable, "-c", last], env=env))
first, *rest = values
env |= {"STAGEDOOR_ABOVE": first} if first else {}
sys.exit(subprocess.call([sys.executable, "-c", own, json.dumps(rest), last, own], env=env))
"""


@pytest.mark.usefixtures("each_strategy")
@pytest.mark.parametrize(
    ("values", "seen"),
    [(["first"], "first"), (["first", "", ""], "first"), (["first", "second"], "second"), ([], "")],
    ids=["the program above", "one far above", "the nearest", "nobody"],
)
def test_a_variable_of_a_program_above(values: list[str], seen: str) -> None:
    """Some agents pass little of their environment on to what they start."""
    words = [sys.executable, "-c", CHAIN, json.dumps(values), ABOVE, CHAIN]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == seen


# ------------------------------------------------------------------------------------------------------------- refusal


@LINUX_ONLY
def test_the_portable_guard_is_refused_what_only_linux_has() -> None:
    code = """
import ctypes, json, os, sys
from stagedoor.transports.guard.portable import refuse_linux_ways
refuse_linux_ways()
outcomes = {}
def attempt(name, action):
    try: action(); outcomes[name] = "done"
    except Exception as fault: outcomes[name] = type(fault).__name__
attempt("file", lambda: open("/proc/self/stat"))
attempt("bytes", lambda: open(b"/proc/self/stat"))
attempt("descriptor", lambda: os.open("/proc/1/stat", os.O_RDONLY))
attempt("list", lambda: os.listdir("/proc"))
attempt("scan", lambda: os.scandir("/proc/self/task"))
attempt("prctl", lambda: ctypes.CDLL(None).prctl)
attempt("other", lambda: os.listdir("/"))
child = os.fork()
if child == 0:
    attempt("prctl of the agent", lambda: ctypes.CDLL(None).prctl)
    os._exit(0 if outcomes["prctl of the agent"] == "done" else 1)
outcomes["agent"] = os.waitpid(child, 0)[1]
print(json.dumps(outcomes))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    refused = dict.fromkeys(("file", "bytes", "descriptor", "list", "scan", "prctl"), "Refused")
    assert json.loads(done.stdout) == {**refused, "other": "done", "agent": 0}


WATCHED = """
import asyncio, json, os, sys
from stagedoor.transports.guard.processes import children
from stagedoor.transports.launch import Launch
from stagedoor.transports.process import ChildProcess
async def main():
    words = ("/bin/sh", "-c", "(setsid sleep 600 &) ; echo up; read line")
    async with await ChildProcess.start(Launch(argv=words, cwd="/", stop=())) as process:
        async for batch in process.batches():
            [keeper] = [pid for pid in children(os.getpid())]
            print(json.dumps([keeper, children(keeper)[0]]), flush=True)
            break
asyncio.run(main())
"""


@LINUX_ONLY
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace (`make sandbox` installs it)")
@pytest.mark.parametrize(("way", "uses_linux"), [("linux", True), ("portable", False)])
def test_the_kernel_sees_no_linux_way_of_the_portable_guard(tmp_path: Path, way: str, uses_linux: bool) -> None:
    """The same question put to somebody else: every open and every prctl of both processes of a guard."""
    argv = [
        "strace",
        "-ff",
        "-qq",
        "-e",
        "trace=open,openat,prctl",
        "-o",
        str(tmp_path / "calls"),
        sys.executable,
        "-c",
    ]
    done = subprocess.run(
        [*argv, WATCHED], env={**os.environ, CHOSEN_BY: way}, capture_output=True, text=True, timeout=BOUND
    )
    assert done.returncode == 0, done.stderr
    calls = [
        line
        for pid in json.loads(done.stdout)
        for line in (tmp_path / f"calls.{pid}").read_text().splitlines()
        if '"/proc' in line or "PR_SET_CHILD_SUBREAPER" in line or "PR_SET_PDEATHSIG" in line
    ]
    assert bool(calls) == uses_linux, calls


# -------------------------------------------------------------------------------------------------------- who is ours?


class Table:
    """A process table as a test writes it."""

    SLACK = 1_000_000

    def __init__(self, *rows: ProcessRow, marked: tuple[int, ...] = ()) -> None:
        self.rows, self.with_mark = rows, set(marked)
        self.questions: list[list[int]] = []

    def read(self) -> list[ProcessRow]:
        return list(self.rows)

    def marked(self, pids: list[int], entry: bytes) -> set[int]:
        self.questions.append(sorted(pids))
        return self.with_mark & set(pids)


def row(
    pid: int, parent: int = 1, session: int | None = None, started: int = 0, *, is_zombie: bool = False
) -> ProcessRow:
    own = pid if session is None else session
    return ProcessRow(NEVER + pid, NEVER + parent, NEVER + own, NEVER + own, NOW + started, 0, is_zombie=is_zombie)


NOW = int(time.time() * 1_000_000) + 3600 * 1_000_000
SECOND = 1_000_000
FIRST = row(10, started=0)

LOOKS: dict[str, tuple[list[Table], set[int]]] = {
    "children and theirs": ([Table(FIRST, row(11, 10), row(12, 11), row(20, 1))], {10, 11, 12}),
    "whoever stands in a session with one of ours": ([Table(FIRST, row(11, 1, 10))], {10, 11}),
    "a child that lost its parent is remembered": (
        [Table(FIRST, row(11, 10)), Table(FIRST, row(11, 1))], {10, 11},
    ),
    "so are its own children, and who is in their session": (
        [Table(FIRST, row(11, 10)), Table(row(11, 1), row(12, 11), row(13, 1, 12))], {11, 12, 13},
    ),
    "the same pid with another start is somebody else": (
        [Table(FIRST, row(11, 10)), Table(FIRST, row(11, 1, started=60 * SECOND))], {10},
    ),
    "ps may be wrong by a second": (
        [Table(FIRST, row(11, 10)), Table(FIRST, row(11, 1, started=SECOND))], {10, 11},
    ),
    "the mark is enough": ([Table(FIRST, row(11), row(12), marked=(NEVER + 11,))], {10, 11}),
    "children of the marked, too": (
        [Table(FIRST, row(11), row(12, 11), row(13, 1, 12), marked=(NEVER + 11,))], {10, 11, 12, 13},
    ),
    "a session goes on when those we knew in it have ended": (
        [Table(FIRST, row(11, 10)), Table(FIRST, row(12, 1, 11))], {10, 12},
    ),
    "what ended is forgotten, and its pid with it": (
        [Table(FIRST, row(11, 10)), Table(FIRST), Table(FIRST), Table(FIRST, row(11, 1))], {10},
    ),
    "the dead are nobody's": ([Table(FIRST, row(11, 10, is_zombie=True))], {10}),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKS)
def test_who_is_ours(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, ours = LOOKS[name]
    tree = PortableTree("mark", members={FIRST.pid: FIRST.started})
    found: list[int] = []
    for table in tables:
        monkeypatch.setattr(portable, "table", table)
        found = tree.rest()
    assert {pid - NEVER for pid in found} == ours


def test_each_stranger_is_asked_for_the_mark_twice_and_once_more_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    before = row(30, started=-7200 * SECOND)
    table = Table(FIRST, row(20), before)
    tree = PortableTree("mark", members={FIRST.pid: FIRST.started})
    monkeypatch.setattr(portable, "table", table)
    for _ in range(4):
        tree.look()
    tree.rest()
    assert table.questions == [[NEVER + 20], [NEVER + 20], [], [], [NEVER + 20]]


def test_where_no_table_can_be_read_only_a_fresh_look_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = PortableTree("mark", members={FIRST.pid: FIRST.started})
    monkeypatch.setattr(portable, "table", Table(FIRST, row(11, 10)))
    tree.look()

    def refuse() -> list[ProcessRow]:
        raise ps_table.NoTable("no process more")

    monkeypatch.setattr(portable.table, "read", refuse)
    assert {pid - NEVER for pid in tree.rest()} == {10, 11}
    monkeypatch.setattr(portable, "FRESH", 0.0)
    assert tree.rest() == []


def test_what_the_guard_remembers_reaches_its_keeper_whole() -> None:
    memory = SharedMemory()
    assert memory.read() == {}
    for known in ({5: NOW, 7: NOW + 1}, {}, {pid: NOW + pid for pid in range(1, 3000)}, {9: 1}):
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                memory.write(known)
            os._exit(0)
        os.waitpid(child, 0)
        assert memory.read() == known


# ------------------------------------------------------------------------------------------------------ real processes


@pytest.mark.usefixtures("each_strategy")
def test_the_end_of_a_session_is_nobody_elses(stranger: subprocess.Popen[bytes]) -> None:
    """Where both processes of a guard were killed, we end what is left ourselves: we, who have other children."""
    code = "import subprocess, time; subprocess.Popen(['sleep', '600']); print(flush=True); time.sleep(600)"
    mark = "0123456789"
    name, _, value = entry_of(mark).decode().partition("=")
    agent = subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE, env={**os.environ, name: value}
    )
    try:
        assert agent.stdout
        agent.stdout.readline()
        until(lambda: children(agent.pid) != [])  # the kernel may pass over one while others come and go
        [below] = children(agent.pid)
        started = started_at(agent.pid)
        end_session(agent.pid, started + 60 * SECOND, "another")
        assert agent.poll() is None
        end_session(agent.pid, started, mark)
        assert agent.wait(BOUND) == -signal.SIGKILL
        until(lambda: started_at(below) == 0)
        assert stranger.poll() is None
    finally:
        agent.kill()
        agent.communicate()


@pytest.mark.usefixtures("each_strategy")
def test_no_daemon_that_keeps_its_environment_survives() -> None:
    running, survivors = torture(strategy(), "keeps its environment", 60)
    assert (running >= 30, survivors) == (True, 0)


@LINUX_ONLY
def test_on_linux_no_daemon_survives() -> None:
    assert torture("linux", "clears its environment", 60).survivors == 0


@pytest.mark.skipif(
    "STAGEDOOR_TORTURE" not in os.environ, reason="`make portable` sets it: a thousand daemons take a minute"
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("each_strategy")
def test_a_thousand_daemons(kind: str) -> None:
    """What the portable way does not find is measured here, and said in docs/platforms.md."""
    survivors = torture(strategy(), kind, 1000).survivors
    assert survivors == 0 or (strategy() == "portable" and kind != "keeps its environment")


# ------------------------------------------------------------------------------------------------- the layouts of a Mac


def test_a_row_of_libproc() -> None:
    """``struct proc_bsdinfo`` as Apple's header has it: 136 bytes."""
    numbers = struct.pack("=12I", 1, 2, 3, 4242, 4241, 501, 20, 501, 20, 501, 20, 0)
    names = b"sleep".ljust(16, b"\0") + b"sleep".ljust(32, b"\0")
    content = numbers + names + struct.pack("=5Ii", 7, 4200, 0, 0, 0, -5) + struct.pack("=QQ", 1_763_000_000, 250_001)
    assert len(content) == darwin.BSDINFO.size == 136
    assert darwin.RUSAGE.size == 96
    found = darwin.row_of(content, 4100, 9)
    assert found is not None
    assert (found.pid, found.parent, found.group, found.session) == (4242, 4241, 4200, 4100)
    assert (found.started, found.ticks, found.is_zombie) == (1_763_000_000_250_001, 9, False)
    dead = darwin.row_of(struct.pack("=II", 1, darwin.SZOMB) + content[8:], 0, 0)
    assert dead is not None
    assert dead.is_zombie
    assert darwin.row_of(content[:100], 0, 0) is None


@pytest.mark.parametrize(
    ("content", "environment"),
    [
        (b"\2\0\0\0/bin/sleep\0\0\0\0sleep\x0060\0A=1\0B=2 3\0\0", [b"A=1", b"B=2 3", b"", b""]),
        (b"\1\0\0\0/bin/sleep\0A=1\0", [b""]),  # an argument is no variable
        (b"\1\0\0\0/bin/sleep\0sleep\0", [b""]),  # a program of Apple's: its environment is not shown
        (b"\1", []),
    ],
)
def test_the_environment_in_procargs(content: bytes, environment: list[bytes]) -> None:
    assert darwin.environment_of(content) == environment


@pytest.mark.parametrize(
    ("words", "moment"),
    [
        ("Mon Nov 16 07:57:25 2026", 1_794_815_845), ("Thu Jan  1 00:00:00 1970", 0),
        ("Tue Feb 29 23:59:59 2000", 951_868_799), ("Wed Mar  1 00:00:00 2000", 951_868_800),
        ("Fri Dec 31 12:00:00 2027", 1_830_254_400),
    ],
)  # fmt: skip
def test_the_moment_of_a_start(words: str, moment: int) -> None:
    assert ps_table._moment(words.encode().split()) == moment * SECOND


@pytest.mark.parametrize(
    ("word", "ticks"), [("0:03.25", 325), ("00:00:07", 700), ("1-02:03:04", 9_378_400), ("12:34", 75_400)]
)
def test_processor_time_as_ps_writes_it(word: str, ticks: int) -> None:
    assert ps_table._ticks(word.encode()) == ticks
