"""Terminal pictures for the docs, from real output: ``python -m tools.terminal_pictures [NAME …]`` writes docs/images.

Each command runs at a pseudo-terminal in a scratch folder; what stands on its screen at the end is drawn by rich.
Times, versions of Python and scratch paths are replaced, so that the same behaviour gives the same picture.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from stagedoor.cli.demo import scratch_repository
from stagedoor.testing.clis import find_cli

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH, WIDE, HEIGHT, BOUND = 112, 400, 60, 120.0
AGENTS = ("claude", "codex", "gemini", "opencode")
PIECES = re.compile(r"\x1b\[([0-9;?]*)([@-~])|\x1b[@-_]|([\r\n])|([^\x1b\r\n]+)")

RUN_SCRIPT = """
- - think: "A greeting that does not work, and a test for it."
  - say: "## Plan\\n\\n1. Read `greeting.py`\\n2. Repair it\\n3. Run the tests\\n"
  - read_file: greeting.py
- - say: "`nam` is not defined; the parameter is called **name**.\\n"
  - edit_file: {path: greeting.py, old: '{nam}', new: '{name}'}
- shell: python3 -B -m unittest -q 2>&1 | tail -1
- say: "Repaired, and the tests pass."
"""


@dataclass(frozen=True)
class Shot:
    """``words`` run, ``typed`` is what the picture shows; ``answers`` are the keys for the questions, in order."""

    words: tuple[str, ...]
    typed: str
    answers: str = ""
    question: str = "allow?"
    needs_clis: bool = False
    steps: tuple[tuple[str, str], ...] = ()
    """In place of ``answers``: keys to type when these words have come. The picture is what stands there after the
    last ones."""


SHOTS: dict[str, Shot] = {
    "demo": Shot(("demo", "--yes"), "stagedoor demo"),
    "run": Shot(
        ("run", "understudy", "--approval", "ask", RUN_SCRIPT), 'stagedoor run AGENT "Repair the greeting"', "yyy"
    ),
    "chat": Shot(
        ("chat", "understudy", "--approval", "ask"),
        "stagedoor chat AGENT",
        steps=(
            ("❯", "show me what you can do\r"),
            ("allow?", "y"),
            ("allow?", "y"),
            ("[2m480 tokens", "Now look at @gree"),
            ("@test_greeting.py", ""),
        ),
    ),
    "agents": Shot(("agents",), "stagedoor agents", needs_clis=True),
    "doctor": Shot(("doctor",), "stagedoor doctor", needs_clis=True),
}


def picture(name: str) -> str:
    """The SVG of one shot, taken now."""
    shot = SHOTS[name]
    with tempfile.TemporaryDirectory(prefix="stagedoor-shot-") as scratch:
        folder = Path(scratch) / "greeting"
        folder.mkdir()
        scratch_repository(folder)
        raw = _played(shot, folder, _environment(Path(scratch)))
        shown = screen(raw) if not shot.steps else emulated(raw)
        lines = [_steady(line, Path(scratch)) for line in shown]
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(f"\x1b[2m$\x1b[0m \x1b[1m{shot.typed}\x1b[0m"))
    for line in lines:
        console.print(Text.from_ansi(line), overflow="fold")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title=shot.typed), flags=re.DOTALL)  # no network
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


def words_in(svg: str) -> str:
    """The text of a picture, without its drawing."""
    text = re.sub(r"<[^>]+>", "\n", svg.partition("</defs>")[2].partition("</style>")[0] or svg)
    return "\n".join(line.replace("&#160;", " ").rstrip() for line in text.splitlines() if line.strip())


def _environment(scratch: Path) -> dict[str, str]:
    home = scratch / "home"
    home.mkdir()
    folders = [str(found.parent) for found in map(find_cli, AGENTS) if found]
    return {
        "PATH": os.pathsep.join(dict.fromkeys([*folders, *os.environ["PATH"].split(os.pathsep)])),
        "HOME": str(home),
        "STAGEDOOR_UNDERSTUDY_HOME": str(home / "understudy"),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "TMPDIR": str(scratch),
    }


def _played(shot: Shot, folder: Path, env: dict[str, str]) -> str:
    descriptor, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDE, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "stagedoor.cli", *shot.words],
        cwd=folder,
        env=env,
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
    )
    os.close(inside)
    raw, keys, end = "", list(shot.answers), time.monotonic() + BOUND
    steps, typed_at = list(shot.steps), 0
    try:
        while time.monotonic() < end:
            ready, _, _ = select.select([descriptor], [], [], 1.0)
            if not ready:
                continue
            try:
                chunk = os.read(descriptor, 65536)
            except OSError:  # Linux says so when the last one inside has gone
                break
            if not chunk:
                break
            raw += chunk.decode("utf-8", "replace")
            while steps and steps[0][0] in raw[typed_at:]:
                _words, typed = steps.pop(0)
                if not steps:
                    process.kill()
                typed_at = len(raw)
                os.write(descriptor, typed.encode())
            questions = raw.count(shot.question)
            while keys and questions > len(shot.answers) - len(keys):
                os.write(descriptor, keys.pop(0).encode())
    finally:
        if process.poll() is None and time.monotonic() >= end:
            process.kill()
        process.wait()
        os.close(descriptor)
    if not raw.strip() or "Traceback (most recent call last)" in raw:
        raise SystemExit(f"`stagedoor {shot.words[0]}` failed, which is no picture:\n{raw}")
    return raw


def screen(raw: str) -> list[str]:
    """The lines that stand on the terminal at the end, with their colours: what was painted over is gone."""
    rows: list[list[tuple[str, str]]] = [[]]
    row = column = 0
    style = ""
    for count, verb, control, text in PIECES.findall(raw):
        if text:
            line = rows[row]
            line += [("", " ")] * (column - len(line))
            line[column : column + len(text)] = [(style, char) for char in text]
            column += len(text)
        elif control == "\n":
            row += 1
            rows += [[] for _ in range(row + 1 - len(rows))]
        elif control == "\r":
            column = 0
        elif verb == "A":
            row = max(0, row - int(count or 1))
        elif verb == "K":
            rows[row] = rows[row][:column] if count in ("", "0") else []
        elif verb == "m":
            style = "" if count in ("", "0") else f"{style}\x1b[{count}m"
    lines = ["".join(_painted(line)).rstrip() for line in rows]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def emulated(raw: str) -> list[str]:
    """The same for a program that moves the cursor at will."""
    import pyte

    codes = {"red": "31", "green": "32", "brown": "33", "blue": "34", "magenta": "35", "cyan": "36"}
    emulator = pyte.Screen(WIDE, HEIGHT)  # as wide as its terminal: no path of today breaks a line
    pyte.Stream(emulator).feed(raw)
    lines: list[str] = []
    for number in range(HEIGHT):
        row = [emulator.buffer[number][column] for column in range(WIDE)]
        styled = [
            (
                "".join(
                    f"\x1b[{code}m"
                    for code in (
                        "1" if char.bold else "",
                        "7" if char.reverse else "",
                        codes.get(char.fg, "2" if char.fg == "brightblack" else ""),
                    )
                    if code
                ),
                char.data,
            )
            for char in row
        ]
        while styled and styled[-1] == ("", " "):
            styled.pop()
        # A tool's time is shown only when it was long.
        lines.append(re.sub(r"(✓.*?) \d+\.\ds$", r"\1", "".join(_painted(styled))))
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _painted(line: list[tuple[str, str]]) -> list[str]:
    painted: list[str] = []
    before = ""
    for style, char in line:
        if style != before:
            painted.append(f"\x1b[0m{style}")
            before = style
        painted.append(char)
    return [*painted, "\x1b[0m" if before else ""]


def _steady(line: str, scratch: Path) -> str:
    """The line with everything replaced that differs from run to run and machine to machine."""
    rules: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
        (re.escape(str(Path(sys.executable))), "python3"),
        (r"/\S+/node_modules/\S+/bin/", "~/.local/bin/"),
        *((re.escape(str(found.parent)), "~/.local/bin") for found in map(find_cli, AGENTS) if found),
        (re.escape(str(scratch / "home")), "~"),
        (re.escape(str(scratch)), "~"),
        (r"\x1b\[2m \d+\.\ds", "\x1b[2m"),  # a tool's time is shown only when it was long
        (r"\b\d+\.(\d+)s\b", lambda match: f"0.{'1'.ljust(len(match[1]), '0')}s"),
        (r"Python 3\.\d+\.\d+", "Python 3.11"),
        (r"─{40,}", "─" * 22),  # a column was as wide as the paths that were replaced
    ]
    for pattern, instead in rules:
        line = re.sub(pattern, instead, line)
    return line


def main(names: list[str]) -> None:
    IMAGES.mkdir(exist_ok=True)
    for name in names or SHOTS:
        (IMAGES / f"{name}.svg").write_text(picture(name), encoding="utf-8")
        print(f"docs/images/{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
