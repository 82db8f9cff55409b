"""Scripts of ``sed`` and ``awk`` that can only print: what they may contain, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n]|\\[^\n])*/I?)"
_RANGE = rf"(?:{_ADDRESS}(?:\s*,\s*(?:{_ADDRESS}|[+~]\d+))?\s*!?)?"
_SUBSTITUTE = "|".join(
    rf"s{mark}(?:[^{mark}\\\n]|\\[^\n])*{mark}(?:[^{mark}\\\n]|\\[^\n])*{mark}[gpiI0-9]*"
    for mark in (r"/", r"\|", "#", ",", "@", ":")
)
_SED_COMMAND = re.compile(
    rf"\s*{_RANGE}\s*(?:[pdqQ=nNDPhHgGx]|{_SUBSTITUTE}|[aic]\s*\\?[^\n]*|y/[^/\\\n]*/[^/\\\n]*/)?\s*(?:;|\n|\Z)"
)
# Some seds end a pattern at a mark inside brackets, and some do not.
_BRACKETED_MARK = re.compile(r"\[[^\]\n]*[/|#,@:][^\]\n]*\]")
_SED_FLAGS = re.compile(r"-[nErszu]+|--(quiet|silent|regexp-extended|separate|unbuffered|debug|posix)")
_SED_IN_PLACE = re.compile(r"-[nErszu]*i(\.\w+)?|--in-place(=\.\w+)?")


def is_plain_sed_script(script: str) -> bool:
    if _BRACKETED_MARK.search(script):
        return False
    at = 0
    while at < len(script):
        match = _SED_COMMAND.match(script, at)
        if match is None or match.end() == at:
            return False
        at = match.end()
    return True


def sed_parts(words: Sequence[str]) -> tuple[list[str], list[str], bool] | None:
    """The scripts, the files, and whether files are changed; ``None`` where an option was not looked at."""
    scripts: list[str] = []
    names: list[str] = []
    in_place = given = False
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            names += words[at + 1 :]
            break
        if word in ("-e", "--expression", "-ne", "-Ee", "-nEe"):
            if at + 1 >= len(words):
                return None
            scripts.append(words[at + 1])
            given = True
            at += 1
        elif word.startswith("--expression="):
            scripts.append(word.partition("=")[2])
            given = True
        elif _SED_FLAGS.fullmatch(word):
            pass
        elif _SED_IN_PLACE.fullmatch(word):
            in_place = True
        elif word.startswith("-") and word != "-":
            return None
        else:
            names.append(word)
        at += 1
    if not given:
        scripts, names = names[:1], names[1:]
    if "" in scripts:  # BSD's sed takes an empty word after -i for the end of a file name
        return None
    return scripts, names, in_place


def is_plain_sed(words: Sequence[str]) -> bool:
    """Whether ``sed`` with these words runs no program and writes no file but those it changes in place."""
    parts = sed_parts(words)
    return parts is not None and all(is_plain_sed_script(script) for script in parts[0])


_AWK_WORDS = frozenset(
    [
        "print", "printf", "if", "else", "for", "while", "do", "in", "next", "exit", "break", "continue", "delete",
        "BEGIN", "END", "NR", "NF", "FNR", "FS", "OFS", "ORS", "RS", "FILENAME", "length", "substr", "index", "split",
        "sub", "gsub", "match", "sprintf", "tolower", "toupper", "int", "sqrt", "log", "exp", "sin", "cos", "atan2",
        "rand", "srand", "RSTART", "RLENGTH", "SUBSEP",
    ]
)  # fmt: skip
_AWK_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
_AWK_FORBIDDEN = re.compile(
    r"system|getline|close|fflush|func|ENVIRON|PROCINFO|[@`'#]|\\\n|(?<!\|)\|(?!\|)|\|\|\|", re.IGNORECASE
)


def is_plain_awk_program(program: str) -> bool:
    """Whether it has no way to a file or a program.

    Strings and patterns are not told apart from code: what is forbidden may stand nowhere.
    """
    if _AWK_FORBIDDEN.search(program) or (">" in program and "print" in program):
        return False
    return all(name in _AWK_WORDS for name in _AWK_CALL.findall(program))


def awk_parts(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """The program and the files; ``None`` where an option was not looked at."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        if word == "--":
            at += 1
            break
        if word in ("-F", "-v"):
            if at + 1 >= len(words) or (word == "-v" and not re.match(r"[a-z]\w*=", words[at + 1])):
                return None
            at += 2
        elif word.startswith("-F") or re.match(r"-v[a-z]\w*=", word):
            at += 1
        else:
            return None
    return (words[at], list(words[at + 1 :])) if at < len(words) else None


def is_plain_awk(words: Sequence[str]) -> bool:
    parts = awk_parts(words)
    return parts is not None and is_plain_awk_program(parts[0])
