"""What a shell script would run, as flat values: the result of reading it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

import msgspec

from .words import HOLE, ansi_c
from .wrappers import is_known_file, program_of

NETWORK = frozenset(
    [
        "curl", "wget", "http", "https", "xh", "aria2c", "fetch", "nc", "ncat", "netcat", "socat", "telnet", "ssh",
        "scp", "sftp", "ftp", "rsync", "lynx", "w3m", "gsutil",
    ]
)  # fmt: skip
DECODERS = frozenset(
    [
        "base64", "base32", "basenc", "xxd", "openssl", "uudecode", "rev", "gpg", "uncompress", "gunzip", "zcat", "od",
        "tr",
    ]
)  # fmt: skip


class Redirect(msgspec.Struct, frozen=True):
    """A file opened by the shell itself for a command."""

    operator: str
    target: str

    @property
    def writes(self) -> bool:
        return ">" in self.operator


class ShellCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One simple command with its words as the program gets them; a NUL stands for what cannot be known."""

    words: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    stdin: str | None = None
    fed_by: tuple[str, ...] = ()  # the programs before it in its pipe
    made_from: tuple[str, ...] = ()  # the programs whose output is part of its words
    cwds: tuple[str | None, ...] = ()
    transparent: bool = False  # a wrapper that does nothing of its own; its inner command follows
    into_file: bool = False  # what runs it writes its output into a file
    through: str = ""  # the command that runs it somewhere else, as somebody else, or in another way

    @property
    def program(self) -> str:
        return program_of(self.words)

    @property
    def writes_file(self) -> bool:
        """Whether its output goes into a file that the shell opens."""
        return self.into_file or any(one.writes and one.target not in NOWHERE for one in self.redirects)

    @property
    def text(self) -> str:
        """The command on one line, to match patterns against and to show."""
        return " ".join([*self.assignments, *(_display(word) for word in self.words)])

    @property
    def whole_text(self) -> str:
        """The same with the files that the shell opens for it, and what it runs through: all that a person saw."""
        opened = [f"{one.operator} {_display(one.target)}" for one in self.redirects if one.target not in NOWHERE]
        words = " ".join([self.text, *opened])
        return f"{words} (through {self.through})" if self.through else words


NOWHERE = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})


class Script(msgspec.Struct, frozen=True):
    """Everything a script would run, what could not be understood, and what is dangerous in its shape alone."""

    commands: tuple[ShellCommand, ...]
    problems: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()

    @property
    def understood(self) -> bool:
        """Whether these commands are surely all it runs: every part of its text is on the list of ``plain``."""
        return not self.problems and not self.alarms


def _display(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'" if not word or any(char.isspace() for char in word) else word


def printed(commands: Sequence[ShellCommand]) -> str | None:
    """What a command prints, where that can be known without running it."""
    if not commands:
        return None
    last = commands[-1]
    if len(commands) > 1 and last.fed_by == ():
        return None
    if not last.words or not is_known_file(last.words[0]):
        return None
    if any(HOLE in word for word in last.words) or any(redirect.writes for redirect in last.redirects):
        return None
    arguments = list(last.words[1:])
    match last.program:
        case "echo":
            flags = ""
            while arguments and arguments[0] in ("-n", "-e", "-E", "-ne", "-en"):
                flags += arguments.pop(0)
            text = " ".join(arguments)
            return ansi_c(text) if "e" in flags else text
        case "printf" if arguments:
            return _printf(arguments)
        case "cat" | "tee" if not arguments or arguments == ["-"]:
            return last.stdin
        case "base64" if last.stdin is not None and {"-d", "-D", "--decode", "-di"} & set(arguments):
            return _decoded(last.stdin)
        case "xxd" if last.stdin is not None and "-r" in " ".join(arguments):
            try:
                return bytes.fromhex("".join(last.stdin.split())).decode(errors="replace")
            except ValueError:
                return None
        case "rev" if last.stdin is not None:
            return last.stdin[::-1]
        case _:
            return None


def _printf(arguments: list[str]) -> str | None:
    form, rest = ansi_c(arguments[0]), arguments[1:]
    if form.count("%") == 0:
        return form
    if form.count("%") - 2 * form.count("%%") != form.count("%s"):
        return None
    parts = form.split("%s")
    rounds = max(1, -(-len(rest) // max(1, len(parts) - 1)))
    values = iter(rest)
    return "".join("".join(part + next(values, "") for part in parts[:-1]) + parts[-1] for _ in range(min(rounds, 64)))


def _decoded(text: str) -> str | None:
    try:
        return base64.b64decode("".join(text.split()) + "==").decode(errors="replace")
    except (binascii.Error, ValueError):
        return None
