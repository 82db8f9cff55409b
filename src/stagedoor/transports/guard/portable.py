"""How a guard knows its tree where there is no sub-reaper: POSIX, and the process table (see ``ps_table``, ``darwin``).

A process is ours if one of these holds, and each is enough:

- its parent is ours, or the guard itself;
- it is in a process session in which one of ours is: nobody enters a session from outside, and groups lie in sessions;
- the mark of the agent is in its environment, which every child inherits unless it is taken away;
- it was ours when we looked before: remembered by its pid *and* the moment of its start.

So the table is read again and again while the agent lives, because a child that loses its parent keeps only the other
three. What clears its environment, leaves its session and loses its parent between two looks is not found. No name is
ever looked at, and a pid with another start than the remembered one is nobody of ours.

The keeper does not look. The guard writes what it remembers into memory that both share, for the keeper to go on from.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .ps_table import ProcessRow

if sys.platform == "darwin":
    from . import darwin as table
else:
    from . import ps_table as table

MARK = b"STAGEDOOR_MARK_"
SHORTEST, LONGEST = 0.02, 0.25
SHARE = 5
"""A look takes at most one part in so many of one processor, unless the next would be later than ``LONGEST``."""
FRESH = 2.0
"""How old a look may be for its sessions to be still the same: no machine gives out all its pids in that time."""
HOLD = 2.0
SWEEPS = 50
NOBODY = -1
MOST = 1 << 14


def entry_of(mark: str) -> bytes:
    return MARK + mark.encode() + b"=1"


class PortableTree:
    """``root``: everything below this process is ours; ``members``: so are these, by pid and start."""

    adopts = False

    def __init__(self, mark: str, *, root: int = NOBODY, members: dict[int, int] | None = None) -> None:
        self._entry = entry_of(mark)
        name, _, value = self._entry.partition(b"=")
        self.environment = {name: value}
        """Each guard has a name of its own for it: one below another must not take its mark away."""
        self.bells: tuple[int, ...] = ()
        self.pause: float | None = SHORTEST
        self._quiet = SHORTEST
        self._root = root
        self._own = {os.getpid()}
        self._members = members or {}
        self._memory: SharedMemory | None = None
        self._lifeline = (-1, -1)
        self._sessions: set[int] = set()
        self._looked = 0.0
        self._unmarked: dict[int, tuple[int, int]] = {}
        self._created = time.monotonic()
        self._since = min([_now(), *self._members.values()]) - 2 * table.SLACK

    # ------------------------------------------------------------------------------------------- keeper, guard, agent

    def keep(self) -> None:
        if sys.platform == "linux":
            refuse_linux_ways()
        self._root = os.getpid()
        self._memory = SharedMemory()
        self._lifeline = os.pipe()

    def guard(self, keeper: int) -> None:
        if sys.platform == "linux":
            refuse_linux_ways()
        lifeline, held_by_keeper = self._lifeline
        os.close(held_by_keeper)
        self.bells = (lifeline,)
        self._root = os.getpid()
        self._own = {self._root, keeper}

    def belong(self, guard: int) -> None:
        if os.getppid() != guard:
            os._exit(1)

    def inherit(self, guard: int) -> None:
        if self._memory is not None:
            self._members = self._memory.read()

    # --------------------------------------------------------------------------------------------------------- looking

    def look(self) -> None:
        used = _processor_time()
        before = self._members
        with contextlib.suppress(OSError):
            self._find(thorough=False)
        self._quiet = min(self._quiet * 1.5, LONGEST) if before == self._members else SHORTEST
        cost = _processor_time() - used
        self.pause = min(max(self._quiet, SHARE * cost), max(LONGEST, cost))

    def rest(self) -> list[int]:
        try:
            return [row.pid for row in self._find(thorough=True) if not row.is_zombie]
        except OSError:  # no process more can be started, perhaps because of them: what we saw a moment ago is true
            return list(self._members) if time.monotonic() - self._looked < FRESH else []

    def hold_still(self) -> list[int]:
        """Stop all of them, until no look finds another: one that stands still cannot go away and leave children."""
        held: dict[int, int] = {}
        deadline = time.monotonic() + HOLD
        while time.monotonic() < deadline:
            try:
                rows = [row for row in self._find(thorough=True) if not row.is_zombie]
            except OSError:
                break
            fresh = [row for row in rows if held.get(row.pid) != row.started]
            if not fresh:
                return [row.pid for row in rows]
            for row in fresh:
                held[row.pid] = row.started
                with contextlib.suppress(OSError):
                    os.kill(row.pid, signal.SIGSTOP)
        return self.rest()

    def children(self, pid: int) -> list[int]:
        return children(pid)

    def descendants(self, pid: int) -> list[int]:
        return descendants(pid)

    def _find(self, *, thorough: bool) -> list[ProcessRow]:
        """Read the table and remember who of it is ours. ``thorough``: ask again who was not marked before."""
        rows = {row.pid: row for row in table.read() if row.pid not in self._own}
        foreign = {0, os.getsid(0)}  # a child is in the guard's own session, too, for the moment before it leaves
        ours = {pid for pid, row in rows.items() if row.parent == self._root or self._is_known(row)}
        sessions = self._sessions - foreign if time.monotonic() - self._looked < FRESH else set[int]()
        # One that has a leader whom we do not know is another by that number.
        sessions = {session for session in sessions if session not in rows or session in ours}
        _spread(rows, ours, sessions, foreign)
        self._since = min(self._since, _now() - int((time.monotonic() - self._created) * 1_000_000) - 2 * table.SLACK)
        others = [row for row in rows.values() if row.pid not in ours and self._may_be_marked(row, thorough=thorough)]
        if found := table.marked([row.pid for row in others], self._entry):
            ours |= found
            _spread(rows, ours, sessions, foreign)
        self._unmarked = {pid: seen for pid, seen in self._unmarked.items() if pid in rows and pid not in ours}
        self._sessions = {rows[pid].session for pid in ours}
        self._looked = time.monotonic()
        members = {pid: rows[pid].started for pid in ours}
        if members != self._members:
            self._members = members
            if self._memory is not None:
                self._memory.write(members)
        return [rows[pid] for pid in ours]

    def _is_known(self, row: ProcessRow) -> bool:
        started = self._members.get(row.pid)
        return started is not None and abs(started - row.started) <= table.SLACK

    def _may_be_marked(self, row: ProcessRow, *, thorough: bool) -> bool:
        """Each is asked twice: on its way from one program to the next it shows no environment."""
        if row.is_zombie or row.started < self._since:
            return False
        started, times = self._unmarked.get(row.pid, (row.started, 0))
        if started != row.started:
            times = 0
        self._unmarked[row.pid] = (row.started, times + 1)
        return thorough or times < 2


def _spread(rows: dict[int, ProcessRow], ours: set[int], sessions: set[int], foreign: set[int]) -> None:
    """Add to ``ours`` whoever has a parent in it, or stands in a session with one of it."""
    more = ours
    while more:
        inside = (sessions | {rows[pid].session for pid in ours}) - foreign
        more = {pid for pid, row in rows.items() if pid not in ours and (row.parent in ours or row.session in inside)}
        ours |= more


def _processor_time() -> float:
    """Used by this process and by each ``ps`` it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _now() -> int:
    return int(time.time() * 1_000_000)


class SharedMemory:
    """What the guard remembers, for its keeper. Two places in turn: the guard may be killed while it writes."""

    def __init__(self) -> None:
        self._half = 8 + MOST * 16
        self._map = mmap.mmap(-1, 1 + 2 * self._half)

    def write(self, members: dict[int, int]) -> None:
        latest = sorted(members.items(), key=lambda item: -item[1])[:MOST]
        content = b"".join(number.to_bytes(8, "big") for pair in latest for number in pair)
        turn = 1 - self._map[0]
        start = 1 + turn * self._half
        self._map[start : start + 8 + len(content)] = len(content).to_bytes(8, "big") + content
        self._map[0] = turn

    def read(self) -> dict[int, int]:
        start = 1 + self._map[0] * self._half
        length = int.from_bytes(self._map[start : start + 8], "big")
        content = self._map[start + 8 : start + 8 + length]
        numbers = [int.from_bytes(content[at : at + 8], "big") for at in range(0, length, 8)]
        return dict(zip(numbers[::2], numbers[1::2], strict=True))


class Refused(RuntimeError):
    """The portable way reached for what only Linux has."""


def refuse_linux_ways() -> None:
    """From now on this process can neither read ``/proc`` nor call ``prctl``, and there is no way back: what the
    portable strategy is seen to do on Linux, it does without Linux's own means. What it forks is not meant."""
    own = os.getpid()

    def refuse(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir") and os.getpid() == own:
            path = arguments[0]
            text = path.decode("utf-8", "replace") if isinstance(path, bytes) else str(path)
            if text == "/proc" or text.startswith("/proc/"):
                raise Refused(f"the portable guard must not read {text}")
        elif event == "ctypes.dlsym" and arguments[1] == "prctl" and os.getpid() == own:
            raise Refused("the portable guard must not call prctl")

    sys.addaudithook(refuse)


# ------------------------------------------------------------------------------------------------------ for ourselves


def children(pid: int) -> list[int]:
    return [row.pid for row in table.read() if row.parent == pid]


def descendants(pid: int) -> list[int]:
    return [row.pid for row in _below(pid)]


def processor_ticks(pid: int) -> int:
    try:
        guards = os.getsid(pid)  # where the guard and its ps are, which work though the agent rests
    except OSError:
        return 0
    return sum(row.ticks for row in _below(pid) if row.session != guards)


def started_at(pid: int) -> int:
    return next((row.started for row in table.read() if row.pid == pid), 0)


def has_in_environment(pid: int, entry: bytes) -> bool:
    return bool(table.marked([pid], entry))


def variable_above(pid: int, name: bytes) -> bytes:
    """What ``pid``, or the nearest above it that shows it, has in its environment under ``name``."""
    parents = {row.pid: row.parent for row in table.read()}
    above: list[int] = []
    while pid in parents and pid not in above:
        above.append(pid)
        pid = parents[pid]
    values = table.values_of(above, name)
    return next((values[one] for one in above if one in values), b"")


def end_session(leader: int, leader_started: int, mark: str) -> None:
    """Kill what is left of ``leader``, its session, its children and whatever has the mark."""
    tree = PortableTree(mark, members={leader: leader_started} if leader_started else {})
    rest = tree.hold_still()
    for _ in range(SWEEPS):
        for pid in rest:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not rest:
            return
        rest = tree.rest()


def _below(pid: int) -> list[ProcessRow]:
    rows = table.read()
    found = [row for row in rows if row.parent == pid]
    for row in found:
        found += [child for child in rows if child.parent == row.pid]
    return found
