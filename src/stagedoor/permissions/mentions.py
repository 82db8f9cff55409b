"""``@path`` in a prompt: some agents put the file's text into the prompt themselves, and ask nobody.

What a rule forbids to read is not to be read that way either. Such a mention is sent as text (a space after the ``@``),
and the agent has to use its tool, which is judged like any other call. Agents differ in what they take for a path
(quotes, escapes, line ranges, folders with all that is in them), so every reading that any of them could have is looked
at, and one that is forbidden is enough.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

MOST_FILES = 20_000
"""That are looked at for one mention; where there are more, it is not expanded."""
LONGEST = 4096
_TOKEN = re.compile(r'(?:"[^"]*"|\\.|[^\s"\\])+|"[^"]*', re.DOTALL)
_ENDS = re.compile(r"""[,;:!?()\[\]{}<>'"`.#|*，。、？！；：]""")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_TOO_MANY = "it stands for more files than can be checked"


class DefusedPrompt(msgspec.Struct, frozen=True):
    """The prompt as it may be sent, and what in it was turned into text, with the reason."""

    text: str
    refused: tuple[tuple[str, str], ...] = ()


def defuse(prompt: str, cwd: str, home: str | None, forbids: Callable[[str], str]) -> DefusedPrompt:
    """``forbids`` says why a path may not be read, or nothing. It reads the disk: call it in a thread."""
    mentions = _Mentions(cwd, home, forbids)
    out: list[str] = []
    refused: dict[str, str] = {}
    start = 0
    for match in re.finditer("@", prompt):
        place = match.end()
        token = _TOKEN.match(prompt, place)
        if token is None:
            continue
        why = mentions.why_not(token[0][:LONGEST])
        if why:
            refused[token[0][:200]] = why
            out += [prompt[start:place], " "]
            start = place
    out.append(prompt[start:])
    return DefusedPrompt("".join(out), tuple(refused.items()))


class _Mentions:
    def __init__(self, cwd: str, home: str | None, forbids: Callable[[str], str]) -> None:
        self._cwd = cwd
        self._home = home
        self._forbids = forbids
        self._reasons: dict[str, str] = {}

    def why_not(self, token: str) -> str:
        if token not in self._reasons:
            reasons = (self._why_not_this(reading) for reading in dict.fromkeys(_readings(token)))
            self._reasons[token] = next((reason for reason in reasons if reason), "")
        return self._reasons[token]

    def _why_not_this(self, reading: str) -> str:
        if not reading.strip() or "\0" in reading:
            return ""
        path = self._absolute(reading)
        return self._why_not_there(path) if os.path.lexists(path) else ""

    def _why_not_there(self, path: str) -> str:
        real = os.path.realpath(path)
        if why := self._forbids(path) or self._forbids(real):
            return why
        if Path(real).is_dir():
            for count, file in enumerate(_files(real)):
                if count >= MOST_FILES:
                    return _TOO_MANY
                if why := self._forbids(file) or self._forbids(path + file[len(real) :]):
                    return why
        return ""

    def _absolute(self, path: str) -> str:
        if self._home is not None and (path == "~" or path.startswith("~/")):
            path = self._home + path[1:]
        return posixpath.normpath(posixpath.join(self._cwd, path))


def _readings(token: str) -> Iterator[str]:
    """Every path that some agent could take the word behind an ``@`` for."""
    for text in (token, token.replace('"', ""), *re.findall(r'"([^"]*)"?', token)):
        for plain in (text, _ESCAPED.sub(r"\1", text)):
            yield plain
            yield plain.removeprefix("file://")
            yield plain.partition(":")[2].removeprefix("//")  # a resource of a tool server
            for end in _ENDS.finditer(plain):
                yield plain[: end.start()]
                yield plain[: end.end()]


def _files(folder: str) -> Iterator[str]:
    for where, _, names in os.walk(folder):
        for name in names:
            yield posixpath.join(where, name)
