"""What the two processes of a guard do (see ``guard``): ``Guard`` above an agent or ``SeriesGuard`` above our programs,
and above it the ``Keeper``. How they know what is theirs is a matter of their tree (see ``strategies``)."""

from __future__ import annotations

import os
import select
import stat
import sys
import time

from .light import signal, suppress
from .strategies import tree_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from .strategies import Tree

TERM_GRACE = 0.3
KILL_BOUND = 5.0
DYING = 10.0
PR_SET_NO_NEW_PRIVS = 38
SYS_LANDLOCK_CREATE_RULESET, SYS_LANDLOCK_RESTRICT_SELF = 444, 446
SCOPED = b"\0" * 16 + b"\3" + b"\0" * 7
"""A Landlock domain that leaves files alone: only signals and abstract sockets do not get out of it."""
FAREWELL = b"\xff\xff\xff\xff"


class Guard:
    def __init__(self, tree: Tree, control: int, layers: int, cwd: str, folders: list[str], argv: list[str]) -> None:
        self._tree = tree
        self._control = control
        self._layers = layers
        self._cwd = cwd
        self._folders = folders
        self._keeper = os.getppid()
        self._argv = argv
        self._child = 0
        self._inbox = b""

    def run(self) -> None:
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # A handler and not SIG_IGN: an ignored signal would stay ignored in the agent.
            signal.signal(number, _wake)
        if not self._start():
            return
        watch = Watch(self._tree, [self._control, wake_read])
        is_alone = False
        while True:
            ready = watch.wait()
            if is_alone := watch.is_alone(ready):
                break
            if wake_read in ready:
                with suppress(BlockingIOError):
                    if signal.SIGTERM in os.read(wake_read, 4096):
                        break
                if self._reap():
                    self._end_rest()
                    break
            if self._control in ready and not self._obey():
                break
        is_alone = is_alone or os.getppid() != self._keeper
        if is_alone:
            _tell(self._control, "lost")
        self._kill_all()
        if is_alone and _is_cut_off(self._control):  # nobody else is there to do it
            _remove(self._folders)

    def _start(self) -> bool:
        error_read, error_write = os.pipe()
        own = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            self._become_agent(own, error_write)
        os.close(error_write)
        failure = os.read(error_read, 64)
        os.close(error_read)
        if failure:
            _tell(self._control, f"failed {failure.decode()}")
            return False
        # Let go of the agent's pipes, or their other ends would never see the end.
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        _tell(self._control, f"started {self._child}")
        return True

    def _become_agent(self, guard: int, error_write: int) -> None:
        try:
            _become_ordinary(self._tree, guard)
            os.close(self._control)
            os.chdir(self._cwd)
            if self._layers and not os.stat(self._argv[0]).st_mode & stat.S_ISUID:  # noqa: PTH116
                keep_signals_inside()
            os.environb.update(self._tree.environment)
            os.execvpe(self._argv[0], self._argv, os.environ)
        except OSError as error:
            os.write(error_write, str(error.errno).encode())
        finally:
            os._exit(127)

    def _obey(self) -> bool:
        """Carry out what we are told; false when it is time to end everything."""
        try:
            received = os.read(self._control, 4096)
        except ConnectionError:
            return False
        if not received:
            return False
        *lines, self._inbox = (self._inbox + received).split(b"\n")
        for line in lines:
            match line.split():
                case [b"signal", number]:
                    self._signal([self._agent()], int(number))
                case [b"signal-group", number]:
                    self._signal_group(int(number))
                case _:
                    return False
        return True

    def _agent(self) -> int:
        """The agent itself: below our child, where that is a sandbox that would die of a signal meant for it."""
        pid = self._child
        for _ in range(self._layers):
            below = self._tree.children(pid)
            pid = below[0] if below else pid
        return pid

    def _signal_group(self, number: int) -> None:
        """The agent and those of its descendants that have not left its process group. The sandbox is in it too."""
        if self._child and not self._layers:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, number)
            return
        agent = self._agent()
        self._signal(
            [pid for pid in (agent, *self._tree.descendants(agent)) if _group(pid) in (0, _group(agent))], number
        )

    def _signal(self, pids: list[int], number: int) -> None:
        for pid in pids if self._child else ():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _reap(self) -> bool:
        """Collect what has ended; true once the agent itself has."""
        status = _collect(self._child)
        if status is None:
            return False
        self._child = 0
        _tell(self._control, f"exited {os.waitstatus_to_exitcode(status)}")
        return True

    def _end_rest(self) -> None:
        """The agent is over: ask what it left behind to end, for a moment."""
        rest = self._tree.rest()
        for pid in rest:
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + TERM_GRACE
        while rest and time.monotonic() < deadline:
            time.sleep(0.01)
            self._reap()
            rest = self._tree.rest()

    def _kill_all(self) -> None:
        left = _end_tree(self._tree, self._reap)
        if left:
            _tell(self._control, f"left {left}")
        else:
            self._reap()


class SeriesGuard:
    """Runs short programs one after the other; nothing of one is left when the next begins."""

    def __init__(self, tree: Tree, control: int, folders: list[str]) -> None:
        self._tree = tree
        self._control = control
        self._folders = folders

    def run(self) -> None:
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _wake)
        while (request := self._receive()) is not None and (not request[1] or self._carry_out(*request, wake_read)):
            pass
        _end_tree(self._tree)
        _remove(self._folders)

    def _receive(self) -> tuple[list[bytes], list[int]] | None:
        import _socket  # what ``socket`` is made of; that one takes longer to import than all of this file

        control = _socket.socket(fileno=os.dup(self._control))
        try:
            head, ancillary, _, _ = control.recvmsg(4, _socket.CMSG_SPACE(12))
            if len(head) < 4 or self._is_farewell(head):
                return None
            content = b""
            while len(content) < int.from_bytes(head, "big"):
                part = control.recv(1 << 16)
                if not part:
                    return None
                content += part
        except OSError:
            return None
        finally:
            control.close()
        descriptors = [
            int.from_bytes(sent[at : at + 4], sys.byteorder)
            for level, kind, sent in ancillary
            if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
            for at in range(0, len(sent), 4)
        ]
        return content.split(b"\0"), descriptors

    def _carry_out(self, words: list[bytes], descriptors: list[int], wake_read: int) -> bool:
        """False when it is time to end everything."""
        cwd, count, *rest = words
        argv = rest[: int(count)]
        env = dict(word.split(b"=", 1) for word in rest[int(count) :] if b"=" in word)
        env.update(self._tree.environment)
        error_read, error_write = os.pipe()
        own = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                _become_ordinary(self._tree, own)
                for number, descriptor in enumerate(descriptors):
                    os.dup2(descriptor, number)
                os.chdir(cwd)
                os.execve(argv[0], argv, env)
            except OSError as error:
                os.write(error_write, str(error.errno).encode())
            finally:
                os._exit(127)
        for descriptor in (error_write, *descriptors):
            os.close(descriptor)
        failure = os.read(error_read, 64)
        os.close(error_read)
        watch = Watch(self._tree, [self._control, wake_read])
        while True:
            status = _collect(child)
            if status is not None:
                break
            ready = watch.wait()
            if watch.is_alone(ready):
                return False
            with suppress(BlockingIOError):
                if wake_read in ready and signal.SIGTERM in os.read(wake_read, 4096):
                    return False
            if self._control in ready:
                head = os.read(self._control, 4)
                if not head or self._is_farewell(head):
                    return False
                for pid in self._tree.hold_still():
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
        left = _end_tree(self._tree)
        answer = f"failed {failure.decode()}" if failure else f"exited {os.waitstatus_to_exitcode(status)}"
        with suppress(OSError):
            os.write(self._control, f"{answer}\n".encode())
        return not left

    def _is_farewell(self, head: bytes) -> bool:
        if head != FAREWELL:
            return False
        self._folders = []
        return True


def _collect(child: int) -> int | None:
    """Collect what has ended; the status of ``child`` once it has."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def _tell(control: int, line: str) -> None:
    with suppress(OSError):
        os.write(control, line.encode() + b"\n")


def _end_tree(tree: Tree, reap: Callable[[], object] = lambda: _collect(0)) -> int:
    """Kill every process below. Returns how many could not be."""
    deadline = time.monotonic() + KILL_BOUND
    rest = tree.hold_still()
    while rest:
        for pid in rest:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        reap()
        if time.monotonic() > deadline:
            return len(rest)
        time.sleep(0.002)
        rest = tree.rest()
    return 0


class Watch:
    """Waits for one of ``sources``, and looks at the tree as often as that wants to be looked at."""

    def __init__(self, tree: Tree, sources: list[int]) -> None:
        self._tree = tree
        self._sources = sources
        self._looked = time.monotonic()

    def wait(self) -> list[int]:
        left = self._remaining()
        if left == 0:
            self._tree.look()
            self._looked = time.monotonic()
            left = self._remaining()
        ready, _, _ = select.select([*self._sources, *self._tree.bells], [], [], left)
        return ready

    def _remaining(self) -> float | None:
        pause = self._tree.pause
        return None if pause is None else max(0.0, self._looked + pause - time.monotonic())

    def is_alone(self, ready: list[int]) -> bool:
        return any(bell in ready for bell in self._tree.bells)


class Keeper:
    """The parent of the guard. ``parent`` is ours. ``cleared``: a guard that ends in order has seen to the folders."""

    def __init__(self, tree: Tree, guard: int, control: int, parent: int, folders: list[str], *, cleared: bool) -> None:
        self._tree = tree
        self._guard = guard
        self._control = os.dup(control)
        self._parent = parent
        self._folders = folders
        self._cleared = cleared

    def run(self) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):  # the agent's: their other ends would never see the end
            os.dup2(null, number)
        signal.signal(signal.SIGTERM, lambda number, frame: os.kill(self._guard, signal.SIGTERM))
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _wake)
        status = 1
        with suppress(ChildProcessError):
            pid = 0
            while pid != self._guard:
                pid, status = os.waitpid(-1, 0)
        if status:
            self._tree.inherit(self._guard)
        left = _end_tree(self._tree) if status or self._tree.adopts else 0
        if left:
            _tell(self._control, f"left {left}")
        if status:
            _tell(self._control, "lost")
        if self._folders and (status or not self._cleared) and self._is_orphaned():
            _remove(self._folders)

    def _is_orphaned(self) -> bool:
        """Whether we are gone. Our end of the socket closes a moment before we are: on a busy machine, or while our
        interpreter takes itself apart, a long one. If we are not, we remove what is ours at once."""
        deadline = time.monotonic() + DYING
        while os.getppid() == self._parent:
            if time.monotonic() > deadline or not _is_cut_off(self._control):
                return False
            if not any(map(os.path.lexists, self._folders)):
                return False
            time.sleep(0.005)
        return True


def _is_cut_off(control: int) -> bool:
    ready, _, _ = select.select([control], [], [], 0)
    try:
        return bool(ready) and not os.read(control, 4096)
    except OSError:
        return True


def _remove(folders: list[str]) -> None:
    for folder in folders:
        if os.path.lexists(folder):
            import shutil  # only now: it would slow down every start

            shutil.rmtree(folder, ignore_errors=True)


def _become_ordinary(tree: Tree, guard: int) -> None:
    """After a fork: a process session of its own, signals as a program expects them, and no life without its guard."""
    tree.belong(guard)
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _wake(number: int, frame: FrameType | None) -> None:
    """The wake-up descriptor has already told the loop."""


def main(argv: list[str]) -> None:
    """Never returns."""
    word, layers, strategy, mark = argv[1].split(":")
    series = word == "series"
    count = 4 + (0 if series else int(argv[3]))
    control = 0 if series else int(word)
    folders = argv[2:] if series else argv[4:count]
    parent, keeper = os.getppid(), os.getpid()
    tree = tree_of(strategy, mark)
    tree.keep()
    guard = os.fork()
    status = 1
    try:
        if guard:
            Keeper(tree, guard, control, parent, folders, cleared=series).run()
        else:
            tree.guard(keeper)
            if series:
                SeriesGuard(tree, control, folders).run()
            else:
                Guard(tree, control, int(layers), argv[2], folders, argv[count:]).run()
        status = 0
    finally:
        os._exit(status)


def keep_signals_inside() -> None:
    """What a sandbox of mounts and process ids leaves open, where the kernel can close it (Linux 6.12)."""
    import ctypes

    libc = ctypes.CDLL(None)
    ruleset = libc.syscall(SYS_LANDLOCK_CREATE_RULESET, SCOPED, ctypes.c_size_t(len(SCOPED)), 0)
    if ruleset >= 0:
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.syscall(SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
        os.close(ruleset)
