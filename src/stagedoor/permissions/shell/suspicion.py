"""Signs by which a script is distrusted: text that runs unseen, variables that bend programs, fork bombs."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from .script import DECODERS, NETWORK
from .words import HOLE, expand_braces, source
from .wrappers import SHELLS, Words

if TYPE_CHECKING:
    from tree_sitter import Node

_INTERPRETERS = frozenset({"python", "node", "perl", "ruby", "php", "lua", "deno", "bun", "osascript", "tclsh"})
# Variables that change what later commands are or do.
SENSITIVE = re.compile(
    r"^(PATH|LD_\w+|DYLD_\w+|BASH_ENV|ENV|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|PS4|IFS|CDPATH|GIT_\w+|PAGER|EDITOR|VISUAL|"
    r"BROWSER|LESSOPEN|LESSCLOSE|PYTHON\w+|PERL5?\w+|RUBY\w+|NODE_OPTIONS|NODE_PATH|JAVA_TOOL_OPTIONS|HOME|SHELL|TERMINFO|"
    r"MANPAGER|SSH_\w+|\w*_proxy|\w*_PROXY|npm_config_\w+|PIP_\w+|MAKEFLAGS|CC|CXX|RUSTC\w*|GOFLAGS)$"
)


RESERVED = frozenset({"{", "}", "!", "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "esac"})


def shell_text(program: str, words: Words, stdin: str | None, *, fed: bool) -> str | None:
    """The text a shell is given to run: by ``-c``, by ``eval``, on its input; ``None`` if this is not such a call."""
    if program == "eval":
        return " ".join(words[1:])
    if program == "trap" and len(words) > 2:
        return words[1]
    if program in (".", "source") and len(words) > 1 and words[1].startswith("/dev/"):
        return HOLE if stdin is None else stdin
    if program not in SHELLS:
        return None
    for at, word in enumerate(words[1:], 1):
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word):
            rest = [after for after in words[at + 1 :] if not re.fullmatch(r"[-+][a-zA-Z]+", after)]
            return rest[0] if rest else HOLE
        if not word.startswith(("-", "+")) and words[at - 1] not in ("-o", "+o", "--rcfile", "--init-file", "-O"):
            return HOLE if word.startswith("/dev/") else None
    if stdin is not None:
        return stdin
    return HOLE if fed else None


def runs_foreign_text(program: str, words: Words, origins: set[str]) -> str:
    """Why a program that takes its code from others is dangerous here; empty when it is not."""
    foreign = origins & (NETWORK | DECODERS)
    if not foreign:
        return ""
    if program in (".", "source"):
        return f"{program} runs what {', '.join(sorted(foreign))} gives it"
    if program in SHELLS | _INTERPRETERS and (
        len(words) == 1 or words[1] in ("-", "-s", "/dev/stdin", "/dev/fd/63") or HOLE in words[-1]
    ):
        return f"{program} runs what {', '.join(sorted(foreign))} gives it"
    return "the program it runs is itself decoded or downloaded text" if HOLE in program else ""


def other_readings(text: str, *, failed: bool) -> list[str]:
    """The same script written so that the grammar sees what it overlooks."""
    others: list[str] = []
    if re.search(
        r"\S\\\n", text
    ):  # it splits a word that goes on in the next line; yet no comment may swallow that line
        others.append(text.replace("\\\n", ""))
    if failed and "((" in text:  # it takes the inner subshell of `((a) && b)` for arithmetic
        others.append(text.replace("((", "( ("))
    return others


def guessed_commands(text: str) -> list[Words]:
    """Commands by punctuation alone, for text that has no grammar."""
    found: list[Words] = []
    for segment in dict.fromkeys(re.split(r"[;&|\n()`]+", text.replace("\\\n", " "))):
        try:
            parts = shlex.split(segment, comments=False)
        except ValueError:
            parts = re.sub(r"[\"'\\]", "", segment).split()
        words = tuple(part for word in parts for part in expand_braces(word) if part not in ("{", "}"))
        if words:
            found.append(words)
    return found


def fork_bomb(name: str, body: Node) -> bool:
    """A function that starts itself more than once, or in the background."""
    calls = [source(call) for call in _descendants(body, "command_name")]
    return calls.count(name) > 1 or (name in calls and "&" in source(body).replace("&&", ""))


def _descendants(node: Node, kind: str) -> list[Node]:
    found = [node] if node.type == kind else []
    for child in node.children:
        found.extend(_descendants(child, kind))
    return found


def most_open(text: str) -> int:
    """How many brackets are open at once where most are."""
    most = count = 0
    for char in text:
        if char in "({":
            count += 1
            most = max(most, count)
        elif char in ")}" and count:
            count -= 1
    return most
