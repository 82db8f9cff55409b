"""Commands inside the words of a program that may run them.

There is no list of all programs that run others, nor of the languages they are told so in. So whatever reads like a
command is judged like one, and what is high is told; a harmless reading says nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache

from stagedoor.unified.events import Risk

from ..shell.script import ShellCommand
from ..shell.suspicion import guessed_commands
from ..shell.words import HOLE
from ..shell.wrappers import SHELLS, program_of
from . import destructive, network
from .effects import Finding, display_path

_MOST = 32
_LONGEST = 4_000
_STRINGS = re.compile(r"""(['"`])((?:\\.|(?!\1).)*)\1""", re.DOTALL)
_DANGEROUS = (
    frozenset(destructive.TABLE) | frozenset(destructive.ALWAYS) | frozenset(network.TABLE) | SHELLS | {"find", "xargs"}
)
_TALKS = frozenset(
    [
        "echo",
        "printf",
        "gh",
        "glab",
        "hub",
        "logger",
        "notify-send",
        "say",
        "mail",
        "slack",
        "man",
        "info",
        "tldr",
        "whatis",
        "apropos",
        "type",
        "which",
        "whereis",
        "hash",
    ]
)
"""Programs whose words are names or prose."""
_LOOKS_UP = frozenset({"man", "info", "tldr", "whatis", "apropos", "type", "which", "whereis", "hash"})
_OTHER_SETTING = re.compile(r"-o.*|--option(=.*)?|--setopt(=.*)?|--hookdir(=.*)?|--config(=.*)?|.*::.*=.*")
"""By which an installer is told what to run beside its packages."""
_LISTS = frozenset(
    [
        "install",
        "add",
        "remove",
        "uninstall",
        "upgrade",
        "update",
        "info",
        "show",
        "search",
        "i",
        "up",
        "get",
        "download",
        "depends",
    ]
)
_INSTALLERS = frozenset(
    [
        "apt",
        "apt-get",
        "aptitude",
        "dnf",
        "yum",
        "apk",
        "pacman",
        "zypper",
        "brew",
        "port",
        "snap",
        "pip",
        "pipx",
        "npm",
        "pnpm",
        "yarn",
        "gem",
        "cargo",
        "go",
        "uv",
        "poetry",
        "conda",
        "mamba",
        "nix-env",
        "guix",
        "flatpak",
        "pkg",
        "choco",
        "scoop",
        "winget",
        "rpm",
        "dpkg",
        "emerge",
        "xbps-install",
        "cpan",
        "luarocks",
        "opam",
        "mix",
        "composer",
    ]
)


def inside(command: ShellCommand, judge_text: Callable[[str], Risk]) -> list[Finding]:
    """The worst of what the words, the assignments and the input of a command may be taken for."""
    words = tuple(word.replace(HOLE, "") for word in command.words)
    if _is_prose(command) or is_list_of_packages(command):
        return []
    texts: dict[str, None] = {}
    sources = [_tails(words), *(_readings(text, 0) for text in (*words[1:], command.stdin or ""))]
    for source in sources:
        for text in source:
            texts.setdefault(text)
            if len(texts) >= _MOST:
                break
    for text in texts:
        if judge_text(text) == "high":
            return [Finding("high", f"{command.program} may run: {display_path(text)}")]
    return []


def _is_prose(command: ShellCommand) -> bool:
    """Those that look something up may have an option that names a program."""
    asks = command.program in _LOOKS_UP and any(word.startswith("-") for word in command.words[1:])
    return command.program in _TALKS and not asks


def is_list_of_packages(command: ShellCommand) -> bool:
    """Whether the words are names of packages: ``apt install curl`` runs no ``curl``."""
    if any(_OTHER_SETTING.fullmatch(word) for word in command.words[1:]):
        return False
    return command.program in _INSTALLERS and not _LISTS.isdisjoint(command.words[1:4])


def _tails(words: tuple[str, ...]) -> Iterator[str]:
    """The words from every one on that is the name of a program worth looking at."""
    for at, word in enumerate(words[1:-1], 1):
        first = re.split(r"[\[({=!:+@,*]", word)[-1]
        if program_of((first,)) in _DANGEROUS:
            yield shlex.join([first, *(after.rstrip("])},;") for after in words[at + 1 :] if after != "--")])


@cache
def _named() -> re.Pattern[str]:
    """The name of a program worth looking at. Made at the first command that is judged: it takes some 20 ms."""
    names = "|".join(map(re.escape, sorted(_DANGEROUS, key=len, reverse=True)))
    return re.compile(rf"(?<![\w.-])({names})(?![\w-])")


def _readings(text: str, depth: int) -> Iterator[str]:
    """What a text may be as a command: itself, its parts, the strings in it."""
    if depth > 2 or len(text) > _LONGEST or not re.search(r"[\s'\"`]", text) or not _named().search(text):
        return
    for words in guessed_commands(text)[:12]:
        yield from _tails(("", *words, ""))
        for word in words:
            yield from _readings(word, depth + 1)
    strings = [match.group(2) for match in _STRINGS.finditer(text)][:12]
    for string in strings:
        if "|" in string:
            yield string  # what a pipe does is in none of its parts
        yield from _readings(string, depth + 1)
    if len(strings) > 1:
        yield from _tails(("", *strings, ""))
