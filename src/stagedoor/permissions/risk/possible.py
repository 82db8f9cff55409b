"""Commands that the words of a program may make it run.

There is no list of all programs that run others. So a rule that forbids a command is held against every place in the
words of any other program where that command may stand; only programs that surely run nothing they are given are left
out, and words that are prose or patterns. What is found so is possible, never certain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ..shell.script import ShellCommand
from ..shell.suspicion import guessed_commands
from ..shell.words import HOLE
from ..shell.wrappers import WRAPPERS, program_of
from .inside import is_list_of_packages
from .programs import only_reads

_MOST = 256
_MOST_STARTS = 32
_LONGEST = 4_000
_UNREAD = (HOLE,)
_FILES_ONLY = frozenset(
    [
        "rm", "rmdir", "unlink", "cp", "mv", "ln", "chmod", "chown", "chgrp", "touch", "mkdir", "tee", "truncate", "dd",
        "kill", "pkill", "killall", "git", "find", "gfind", "test", "[", "cd", "export", "set", "true", "false",
        "sed", "gsed", "awk", "gawk", "mawk", "nawk", "fd", "fdfind", "tar", "gtar", "bsdtar", "ssh", "scp", "sftp",
    ]
)  # fmt: skip
"""Programs of which it is known elsewhere when they run something, or that never do."""
_PROSE = frozenset({"logger", "notify-send", "say", "slack"})
_VERSIONING = frozenset({"hg", "svn", "jj", "sl", "bzr", "fossil"})
"""Programs that run what their options and settings say, and whose messages are prose."""
_TALKING = re.compile(r"pr|issue|release|gist|label|run|repo|search|api|browse|project|workflow|auth|mr|ci|snippet")
_TESTS = frozenset(
    [
        "pytest", "jest", "vitest", "mocha", "ava", "tap", "rspec", "phpunit", "playwright", "cypress", "go", "cargo",
        "dotnet", "npm", "pnpm", "yarn", "bun", "deno", "node", "python", "npx", "bundle", "uv", "poetry", "gradle",
        "gradlew", "mvn", "mvnw", "swift", "ctest", "mix", "rails", "artisan", "nx", "turbo", "bunx",
    ]
)  # fmt: skip
_FILTER = re.compile(
    r"-k|-t|-g|-run|-bench|-m|-e|--grep|--filter|--tests?|--test-?name-?pattern|--name|--match|-R|--only", re.I
)
"""Options of test programs before a pattern for the names of tests."""
_BEFORE_CODE_TOO = re.compile(r"-[emr]", re.I)
_TESTS_ONLY = frozenset(
    ["pytest", "jest", "vitest", "mocha", "ava", "tap", "rspec", "phpunit", "playwright", "cypress", "ctest"]
)
"""Programs that start no other: behind any other, ``-e``, ``-m`` and ``-r`` may be those of an interpreter."""
_STRINGS = re.compile(r"""(['"`])((?:\\.|(?!\1).)*)\1""", re.DOTALL)
_PIECES = re.compile(r"[=:!({\[,@+|]")
_SCHEDULED = re.compile(r"^\s*(?:@\w+|(?:\S+\s+){4}\S+)\s+(.+)$", re.MULTILINE)
_CALLS = re.compile(
    r"(?:\b(?:exec|system|spawn|run|shell|call|program|command|cmd|bash|sh)\b[\s:(=\[{]*|!\s*)(?=[\w./~])"
)


def possible_commands(command: ShellCommand) -> Iterator[ShellCommand]:
    """The same command with, for each place, only the words from there on; without the command itself. Where there is
    more than is looked at, one of which nothing is known."""
    if command.transparent or _runs_nothing_named(command):
        return
    seen: set[tuple[str, ...]] = {command.words}
    for words in _candidates(command):
        if words is _UNREAD or len(seen) > _MOST:
            yield msgspec.structs.replace(command, words=_UNREAD, assignments=())
            return
        if words and words not in seen and HOLE not in words[0]:
            seen.add(words)
            yield msgspec.structs.replace(command, words=words, assignments=())


def _runs_nothing_named(command: ShellCommand) -> bool:
    name, words = command.program, command.words
    if name in _FILES_ONLY or name in _PROSE or only_reads(command):
        return True
    if name in WRAPPERS and not WRAPPERS[name].subcommand:
        return True  # what it runs is a command of its own, or the line is not understood
    if name in ("gh", "glab", "hub") and len(words) > 1 and _TALKING.fullmatch(words[1]):
        return "--" not in words  # behind it stand options of git
    if name == "man" and not any(word.startswith("-") for word in words[1:]):
        return True
    return is_list_of_packages(command)


def _candidates(command: ShellCommand) -> Iterator[tuple[str, ...]]:
    words = command.words
    for at, word in enumerate(words[1:], 1):
        if (command.program in _TESTS and _is_filter(words, at)) or _is_message(command, at):
            continue
        if len(word) > _LONGEST:
            yield _UNREAD
            continue
        rest = words[at + 1 :]
        if re.search(r"[\s'\"`]", word):
            yield from _in_text(word)
        yield (word, *rest)
        for piece in _PIECES.split(word)[1:]:
            yield (piece, *rest)
            yield (piece,)
            yield tuple(piece.split())
        if re.match(r"-[A-Za-z][\w./~]", word):
            yield (word[2:], *rest)
    if command.stdin is not None and len(command.stdin) > _LONGEST:
        yield _UNREAD
    elif command.stdin is not None:
        yield from _in_text(command.stdin)
        if command.program == "crontab":
            yield from (tuple(match.group(1).split()) for match in _SCHEDULED.finditer(command.stdin))


def _is_filter(words: tuple[str, ...], at: int) -> bool:
    before = words[at - 1]
    if not _FILTER.fullmatch(before) or not re.search(r"\s", words[at]):
        return False
    return not _BEFORE_CODE_TOO.fullmatch(before) or program_of(words) in _TESTS_ONLY


def _is_message(command: ShellCommand, at: int) -> bool:
    return command.program in _VERSIONING and command.words[at - 1] in ("-m", "--message")


def _in_text(text: str) -> Iterator[tuple[str, ...]]:
    """Where commands may begin in a text: at its start, after what ends a command, in each of its strings, after a
    word that runs something."""
    starts = [text, *(match.group(2) for match in _STRINGS.finditer(text))]
    starts += [text[match.end() :] for match in _CALLS.finditer(text)]
    for start in starts[:_MOST_STARTS]:
        yield from guessed_commands(start)
    if len(starts) > _MOST_STARTS:
        yield _UNREAD
