"""How a guard knows its tree on Linux: it is the reaper of every orphan below it (``PR_SET_CHILD_SUBREAPER``), so no
descendant leaves its tree, and ``/proc`` says at any time who is in it."""

from __future__ import annotations

import os

from .light import signal, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SWEEPS = 50
GENERATIONS = 64


def children(pid: int) -> list[int]:
    """The direct children of ``pid``, from all its threads."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 (pathlib is not worth its start-up time here)
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    return found


def descendants(pid: int) -> list[int]:
    """Every process under ``pid``, parents before their children."""
    found = children(pid)
    for child in found:
        found += children(child)  # the list grows while it is walked: breadth first
    return found


def started_at(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def processor_ticks(pid: int) -> int:
    return sum(int(fields[11]) + int(fields[12]) for child in descendants(pid) if (fields := _stat(child)))


def has_in_environment(pid: int, entry: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            return entry in file.read().split(b"\0")
    except OSError:
        return False


def sandboxed(root: int, agent: int, entries: tuple[bytes, ...]) -> dict[int, int]:
    """Who below ``root`` has one of ``entries`` in its environment and a process namespace other than ``agent``'s:
    pid → when it started."""
    home = _process_namespace(agent)
    return {
        pid: started_at(pid)
        for pid in descendants(root)
        if _process_namespace(pid) not in ("", home) and any(has_in_environment(pid, entry) for entry in entries)
    }


def variable_above(pid: int, name: bytes) -> bytes:
    """What ``pid``, or the nearest above it that has it, has in its environment under ``name``."""
    for _ in range(GENERATIONS):
        fields = _stat(pid)
        if not fields:
            break
        with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            for entry in file.read().split(b"\0"):
                if entry.startswith(name + b"="):
                    return entry[len(name) + 1 :]
        pid = int(fields[1])
    return b""


def end_session(leader: int, leader_started: int, mark: str) -> None:
    """Kill what is left of the process session of ``leader``. No mark is needed for that."""
    for _ in range(SWEEPS):
        current = started_at(leader)
        if current not in (0, leader_started):
            return  # the number belongs to another program now
        members = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
        members = [pid for pid in members if (fields := _stat(pid)) and int(fields[3]) == leader and fields[0] != b"Z"]
        if not members:
            return
        for pid in members:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _process_namespace(pid: int) -> str:
    """Empty where there is no such process any more, or it is another user's. What has ended and waits to be collected
    still has one, but no environment."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    except OSError:
        return ""


def _stat(pid: int) -> list[bytes]:
    """The fields of ``/proc/PID/stat`` from the third on: the command's name before them may contain anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


class LinuxTree:
    """Everything below this process."""

    adopts = True
    environment: Mapping[bytes, bytes] = {}
    bells: tuple[int, ...] = ()
    pause: float | None = None

    def __init__(self, mark: str) -> None:
        """It needs no mark."""

    def keep(self) -> None:
        _prctl(PR_SET_CHILD_SUBREAPER, 1)

    def guard(self, keeper: int) -> None:
        _prctl(PR_SET_CHILD_SUBREAPER, 1)  # a fork does not inherit it
        self._tie_to_parent(signal.SIGTERM, keeper)

    def belong(self, guard: int) -> None:
        self._tie_to_parent(signal.SIGKILL, guard)

    def inherit(self, guard: int) -> None:
        """What the dead guard had is below us now."""

    def look(self) -> None:
        """Nothing needs to be remembered."""

    def hold_still(self) -> list[int]:
        """What is born while we kill stays below us."""
        return self.rest()

    def rest(self) -> list[int]:
        return descendants(os.getpid())

    def children(self, pid: int) -> list[int]:
        return children(pid)

    def descendants(self, pid: int) -> list[int]:
        return descendants(pid)

    def _tie_to_parent(self, number: int, parent: int) -> None:
        """This process gets the signal when its parent dies, and ends now if it has died already."""
        _prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)


def _prctl(option: int, value: int) -> None:
    import ctypes  # only here: our own process reads trees too, and has no use for it

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
