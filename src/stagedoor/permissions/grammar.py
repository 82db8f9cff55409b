"""The bash grammar, and what must be done to a text before it can be trusted with it."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Parser, Tree

HOLE = "\0"
LOOPS = ("for_statement", "c_style_for_statement", "while_statement", "until_statement", "select_statement")
BRANCHES = ("if_statement", "case_statement", *LOOPS)
# The grammar takes the brace after these for a word.
_MISREAD_BRACE = re.compile(r"(?:(?<=[\s;&|({])|^)(?:!\s+|coproc\s+(?:\w+\s+)?)+(?=\{\s)")
_RARE = re.compile(r"[^\x04-\x7e]")
_ARMOURED = re.compile(r"\x02([0-9a-f]+)\x03")


def parsed(text: str) -> Tree:
    """Raises ``ImportError`` when the parser is not installed; never on content."""
    return _parser().parse(armoured(text))


def bare(raw: bytes) -> str:
    """The inverse of :func:`armoured`, for a part of the text."""
    return _ARMOURED.sub(lambda match: chr(int(match.group(1), 16)), raw.decode(errors="replace"))


@cache
def _parser() -> Parser:
    # Loaded with the first command that is judged: most programs that import Stagedoor never judge one.
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def armoured(text: str) -> bytes:
    """Text as the parser can bear it: its scanner reads beyond its tables, and crashes, on rare characters.

    A hole becomes a variable nobody has set, so that the parser sees a word.
    """
    text = _MISREAD_BRACE.sub("", text.replace(HOLE, "${_}"))
    return _RARE.sub(lambda match: f"\2{ord(match.group()):x}\3", text).encode()
