"""What a place in a shell script can see: variables, arguments, aliases, and the folder it may be in."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import msgspec

from ..paths import resolve
from .script import ShellCommand, printed
from .words import HOLE, MAX_READINGS
from .wrappers import SHELLS, Words, program_of

_WELL_KNOWN = {"HOME": "~", "IFS": " ", "TMPDIR": "/tmp", "SHELL": "/bin/sh", "BASH": "/bin/bash"}
MAX_VALUE = 4096
MAX_FILE = 50_000
_READS_SCRIPTS = SHELLS | {"source", "."}
Folders = tuple[str | None, ...]


class Scope:
    """Every value a variable may hold and every folder the shell may be in; ``None`` is one that cannot be known."""

    def __init__(self, cwd: str | None) -> None:
        self.variables: dict[str, list[str]] = {}
        self.arguments: Words | None = ()
        self.aliases: dict[str, str] = {}
        self.cwds: Folders = (cwd,)
        self._visited: list[str | None] = [cwd]
        self._files: dict[str, str] = {}

    def values_of(self, name: str) -> Sequence[str]:
        if name in self.variables:
            return self.variables[name]
        if name in ("@", "*"):
            return [HOLE] if self.arguments is None else [" ".join(self.arguments)]
        if name.isdecimal() and name.isascii() and name != "0":
            if self.arguments is None:
                return [HOLE]
            position = int(name[:6])
            return [self.arguments[position - 1] if 0 < position <= len(self.arguments) else ""]
        if name == "PWD":
            return [cwd or HOLE for cwd in self.cwds]
        return [_WELL_KNOWN.get(name, HOLE)]

    def saved(
        self,
    ) -> tuple[dict[str, list[str]], Words | None, dict[str, str], Folders, list[str | None], dict[str, str]]:
        """Everything as it is, for :meth:`restore`."""
        return (
            dict(self.variables),
            self.arguments,
            dict(self.aliases),
            self.cwds,
            list(self._visited),
            dict(self._files),
        )

    def restore(
        self,
        saved: tuple[dict[str, list[str]], Words | None, dict[str, str], Folders, list[str | None], dict[str, str]],
    ) -> None:
        self.variables, self.arguments, self.aliases, self.cwds, self._visited, self._files = saved

    def mark(self) -> tuple[Folders, int]:
        return self.cwds, len(self._visited)

    def unsure_since(self, mark: tuple[Folders, int]) -> None:
        """Which ``cd`` worked since then is not known: the shell may be where any of them led, or where it was."""
        before, visited = mark
        self.cwds = merged((*before, *self._visited[visited:]), self.cwds)

    def separators(self) -> str:
        """Where unquoted values are split."""
        return " \t\n" + "".join(value for value in self.variables.get("IFS", ()) if value != HOLE)

    def assign(self, name: str, values: list[str], *, certain: bool) -> None:
        if not certain:
            values = list(dict.fromkeys([*self.variables.get(name, [HOLE]), *values]))
        followed = len(values) <= MAX_READINGS and all(len(value) <= MAX_VALUE for value in values)
        self.variables[name] = values if followed else [HOLE]

    def builtin(self, program: str, words: Words) -> None:
        """What a command of the shell itself changes here."""
        match program:
            case "cd" | "pushd" | "chdir":
                targets = [word for word in words[1:] if not re.fullmatch(r"-[PLe@]+|--", word)]
                self._change_to(targets[0] if targets else "~")
            case "popd":
                self._change_to("-")
            case "alias":
                for word in words[1:]:
                    name, given, value = word.partition("=")
                    if given:
                        self.aliases[name] = value
            case "read" | "mapfile" | "readarray" | "getopts":
                for word in words[1:]:
                    self.variables[word] = [HOLE]
            case "printf" if words[1:2] == ("-v",):
                self.variables.update({word: [HOLE] for word in words[2:3]})
            case "export" | "declare" | "local" | "typeset" | "readonly":
                for word in words[1:]:
                    name, given, value = word.partition("=")
                    if given and name.isidentifier():
                        self.variables[name] = [value]
            case "set" if "--" in words:
                self.arguments = words[words.index("--") + 1 :]
            case "shift":
                self.arguments = None
            case _:
                pass

    @contextmanager
    def inner_shell(self, program: str, text: str, words: Words, assignments: Words) -> Generator[None]:
        """The arguments and variables that a shell started with ``text`` sees."""
        arguments, variables = self.arguments, dict(self.variables)
        if text in words and program != "eval":
            self.arguments = words[words.index(text) + 2 :]
        for assignment in assignments:
            name, _, value = assignment.partition("=")
            self.variables[name] = [value]
        yield
        self.arguments = arguments
        if program != "eval":
            self.variables = variables

    def written_by(self, command: ShellCommand) -> None:
        """Remember the text of a file that the script itself writes: it may run it later."""
        text = printed([msgspec.structs.replace(command, redirects=(), fed_by=())])
        for redirect in command.redirects:
            if (
                redirect.writes
                and text is not None
                and (path := resolve(redirect.target, command.cwds[-1])) is not None
            ):
                before = self._files.get(path, "") if ">>" in redirect.operator else ""
                self._files[path] = f"{before}\n{text}"[:MAX_FILE]

    def script_run_by(self, words: Words) -> str | None:
        """The text of a script that was written before and is now run by its name."""
        names = (
            [word for word in words[1:] if not word.startswith("-")][:1] if program_of(words) in _READS_SCRIPTS else []
        )
        names += words[:1] if "/" in words[0] else []
        paths = (resolve(name, cwd) for name in names for cwd in self.cwds)
        return next((self._files[path] for path in paths if path is not None and path in self._files), None)

    def _change_to(self, target: str) -> None:
        if target == "-":  # where no `cd` before it has worked, the environment says which folder that is
            self.cwds = tuple(dict.fromkeys((None, *self._visited)))[:MAX_READINGS]
            return
        known = None if HOLE in target else target
        self.cwds = tuple(dict.fromkeys(None if known is None else resolve(known, cwd) for cwd in self.cwds))
        self._visited.extend(self.cwds)


def merged(before: Folders, after: Folders) -> Folders:
    together = tuple(dict.fromkeys([*after, *before]))
    return together if len(together) <= MAX_READINGS else (None,)
