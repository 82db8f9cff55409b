"""The real command, in a pipe and at a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
import pytest

BOUND = 240.0
LINES, COLUMNS = 40, 110
STAGEDOOR = [sys.executable, "-m", "stagedoor.cli"]
ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]")


class Terminal:
    """A command at a pseudo-terminal. ``text`` is everything it wrote, without colours and cursor movements."""

    def __init__(self, argv: list[str], cwd: Path, env: dict[str, str]) -> None:
        self._descriptor, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**env, "TERM": "xterm-256color"},
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )
        os.close(inside)
        self.raw = ""

    @property
    def text(self) -> str:
        return ESCAPES.sub("", self.raw).replace("\r\n", "\n")

    @property
    def screen(self) -> str:
        """What a person sees at the end: live lines that were painted over are gone."""
        lines, row, column = [""], 0, 0
        for piece in re.findall(r"\x1b\[([0-9;?]*)([@-~])|([\r\n])|([^\x1b\r\n]+)", self.raw):
            count, verb, control, text = piece
            if text:
                lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
                column += len(text)
            elif control == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif control == "\r":
                column = 0
            elif verb == "A":
                row = max(0, row - int(count or 1))
            elif verb == "K":
                lines[row] = ""
        return "\n".join(line.rstrip() for line in lines).strip("\n")

    @property
    def display(self) -> str:
        """What stands on the terminal now, as an emulator shows it."""
        emulator = pyte.Screen(COLUMNS, LINES)
        pyte.Stream(emulator).feed(self.raw)
        return "\n".join(line.rstrip() for line in emulator.display).strip("\n")

    def until_display(self, words: str) -> None:
        """Read until ``words`` stand on the terminal."""
        end = time.monotonic() + BOUND
        while words not in self.display:
            assert time.monotonic() < end, f"{words!r} did not come:\n{self.display}"
            assert self._read(), f"{words!r} did not come before the end:\n{self.display}"

    def until_shown(self, pattern: str) -> None:
        """Read until what stands on the terminal has the pattern in it: for clocks, which may show any time."""
        end = time.monotonic() + BOUND
        while not re.search(pattern, self.display):
            assert time.monotonic() < end, f"{pattern!r} did not come:\n{self.display}"
            assert self._read(), f"{pattern!r} did not come before the end:\n{self.display}"

    def until_turn_ended(self, tokens: int) -> None:
        """Read until the last line of a turn stands there. While the turn runs, a clock comes before its tokens."""
        self.until_shown(rf"(?m)^{tokens:,} tokens · \$[\d.]+ · [\d.]+s")

    def until_gone(self, words: str) -> None:
        """Read until the prompt is last, without ``words`` below it: both are out of sight while lines are printed."""
        end = time.monotonic() + BOUND
        while words in self.display or not self.display.rstrip().endswith("❯"):
            assert time.monotonic() < end, f"{words!r} stays:\n{self.display}"
            assert self._read(), f"{words!r} stays to the end:\n{self.display}"

    def until(self, words: str, *, after: int = 0) -> None:
        """Read until ``words`` have appeared behind the first ``after`` characters."""
        end = time.monotonic() + BOUND
        while words not in self.text[after:]:
            assert time.monotonic() < end, f"{words!r} did not come:\n{self.text}"
            assert self._read(), f"{words!r} did not come before the end:\n{self.text}"

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def end(self) -> int:
        """Read to the end; returns the exit code."""
        end = time.monotonic() + BOUND
        while self._read():
            assert time.monotonic() < end, self.text
        return self.process.wait(BOUND)

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._descriptor)[3] & termios.ECHO)

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._descriptor)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], 1.0)
        if not ready:
            return self.process.poll() is None
        try:
            chunk = os.read(self._descriptor, 65536)
        except OSError:  # Linux says so when the last one inside has gone
            return False
        self.raw += chunk.decode("utf-8", "replace")
        return bool(chunk)


class CommandLine:
    """``run`` in a pipe, ``terminal`` at a terminal; both in a workspace and with a home of their own."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "work"
        self.home = folder / "home"
        self.workspace.mkdir()
        self.home.mkdir()
        kept = {
            name: os.environ[name]
            for name in ("PATH", "TMPDIR", "PYTHONPATH", "COVERAGE_PROCESS_CONFIG")
            if name in os.environ
        }
        self.env = {**kept, "HOME": str(self.home), "LANG": "C.UTF-8", "PYTHONWARNINGS": "error"}
        self._terminals: list[Terminal] = []

    def run(self, *words: str, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*STAGEDOOR, *words],
            cwd=self.workspace,
            env={**self.env, **(env or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=BOUND * 2,
            check=False,
        )

    def terminal(self, *words: str, env: dict[str, str] | None = None) -> Terminal:
        made = Terminal([*STAGEDOOR, *words], self.workspace, {**self.env, **(env or {})})
        self._terminals.append(made)
        return made

    command = shlex.join(STAGEDOOR)

    def shell(self, script: str) -> Terminal:
        """The same through a shell, for redirections."""
        made = Terminal(["bash", "-c", f"exec {script}"], self.workspace, self.env)
        self._terminals.append(made)
        return made

    def repository(self) -> None:
        """Make the workspace a git repository with one commit."""
        who = ["-c", "user.name=T", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
        (self.workspace / "a.txt").write_text("one\n")
        for git in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "First"]):
            subprocess.run(["git", *git], cwd=self.workspace, env=self.env, check=True, capture_output=True)

    def close(self) -> None:
        for terminal in self._terminals:
            terminal.close()


@pytest.fixture
def stagedoor(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    def wait(condition: Callable[[], bool]) -> None:
        end = time.monotonic() + BOUND
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.02)

    return wait
