"""Patterns for commands and paths, also against text that is only partly known."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from .shell.words import HOLE

Match = Literal["no", "maybe", "yes"]
_ANY = "\1"
_ONE = "\2"
_HOMES = re.compile(r"^(/root|/home/[^/]+|/Users/[^/]+)(?=/|$)")


def match_command(pattern: str, text: str) -> Match:
    """``*`` stands for anything, ``?`` for one character, a backslash takes that back; a last `` *`` may be nothing.

    Where the text has a hole, a ``*`` of the pattern covers it; without one the match is only possible.
    """
    if _command(pattern).fullmatch(text):
        return "yes"
    return "maybe" if HOLE in text and _may_match(pattern, text) else "no"


@cache
def _command(pattern: str) -> re.Pattern[str]:
    optional = ""
    if pattern.endswith(" *"):
        pattern, optional = pattern[:-2], r"(?: .*)?"
    meaning = {_ANY: ".*", _ONE: "."}
    return re.compile(
        "".join(meaning.get(token) or re.escape(token) for token in _tokens(pattern)) + optional, re.DOTALL
    )


def literal(text: str) -> str:
    """The pattern that matches this text and nothing else."""
    return re.sub(r"([*?\\])", r"\\\1", text)


def _tokens(pattern: str) -> list[str]:
    special = {"*": _ANY, "?": _ONE}
    found: list[str] = re.findall(r"\\[*?\\]|.", pattern, re.DOTALL)
    return [token[1] if len(token) == 2 else special.get(token, token) for token in found]


def _may_match(pattern: str, text: str) -> bool:
    """Whether some filling of the holes makes the text match."""
    reachable = {0}
    tokens = _tokens(pattern.removesuffix(" *"))
    if pattern.endswith(" *"):
        tokens.append(_ANY)

    def skipped(states: set[int]) -> set[int]:
        for state in sorted(states):
            while state < len(tokens) and tokens[state] == _ANY:
                state += 1
                states.add(state)
        return states

    reachable = skipped(reachable)
    for char in text:
        following: set[int] = set()
        for state in reachable:
            if char == HOLE:
                following.update(range(state, len(tokens) + 1))
            elif state < len(tokens):
                if tokens[state] == _ANY:
                    following.add(state)
                elif tokens[state] in (_ONE, char):
                    following.add(state + 1)
        reachable = skipped(following)
        if not reachable:
            return False
    return len(tokens) in reachable


def match_path(pattern: str, path: str, workspace: str, *, loosely: bool = False) -> bool:
    """``path`` is absolute, or under ``~``. A pattern without a slash is a file name; one without a leading slash is
    relative to the workspace; ``**`` crosses folders. ``loosely`` ignores case, as some disks do."""
    flags = re.IGNORECASE if loosely else 0
    forms = {path, _HOMES.sub("~", path)}
    if "/" not in pattern and pattern not in ("~", "*", "**"):
        return any(_path(pattern, flags).fullmatch(form.rpartition("/")[2]) for form in forms)
    if not pattern.startswith(("/", "~")):
        pattern = f"{workspace.rstrip('/')}/{pattern.removeprefix('./')}"
    patterns = {pattern, _HOMES.sub("~", pattern)}
    return any(_path(one, flags).fullmatch(form) for one in patterns for form in forms)


@cache
def _path(pattern: str, flags: int) -> re.Pattern[str]:
    parts: list[str] = []
    for part in re.split(r"(/\*\*$|\*\*/|\*\*|\*|\?)", pattern):
        match part:
            case "/**":
                parts.append(r"(?:/.*)?")
            case "**/":
                parts.append(r"(?:.*/)?")
            case "**":
                parts.append(r".*")
            case "*":
                parts.append(r"[^/]*")
            case "?":
                parts.append(r"[^/]")
            case _:
                parts.append(re.escape(part))
    return re.compile("".join(parts), flags | re.DOTALL)
