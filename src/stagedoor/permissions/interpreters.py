"""Code in other languages on the command line: not parsed, but searched for what it says to the system."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from stagedoor.unified.events import Risk

from .effects import Finding, reading
from .paths import Ground, locate
from .script import Command

# The option after which code stands.
TABLE: dict[str, tuple[str, ...]] = {
    "python": ("-c",), "pypy": ("-c",), "node": ("-e", "--eval", "-p", "--print"), "deno": ("eval",),
    "bun": ("-e", "--eval"), "perl": ("-e", "-E", "-ne", "-pe", "-ane", "-pie", "-i"), "ruby": ("-e", "-ne", "-pe"),
    "php": ("-r",), "lua": ("-e",), "osascript": ("-e",), "tclsh": (), "rscript": ("-e",), "Rscript": ("-e",),
    "julia": ("-e",), "powershell": ("-Command", "-c"), "pwsh": ("-Command", "-c"),
}  # fmt: skip
_VERSION = frozenset({"--version", "-V", "-v", "--help", "-h"})
_STRINGS = re.compile(r"""(['"`])((?:\\.|(?!\1).)*)\1""", re.DOTALL)
_BACKTICKS = re.compile(r"(?:%x|\bqx)\s*(?:\(([^)]*)|\[([^\]]*)|\{([^}]*)|/([^/]*))")
_RUNS = re.compile(
    r"system|exec|%x|spawn|popen|subprocess|shell|\.run\b|\bcall\b|check_output|`|\bqx\b|do shell script|child_process"
    r"|Invoke-"
)
_DELETES = re.compile(
    r"rmtree|unlink|os\.remove|rmdir|rmSync|rm_rf|rm_r\b|FileUtils|remove_tree|\.rm\(|Remove-Item|delete\s+file"
)
_HIDDEN = re.compile(
    r"\b(exec|eval|system|popen|compile)\b.*(b64decode|base64|atob|fromhex|urlopen|requests\.|fetch\(|http|rot13|unhexlify)"
    r"|(b64decode|atob|urlopen|fetch\().*\b(exec|eval)\b", re.DOTALL | re.IGNORECASE,
)  # fmt: skip
_SOCKET_SHELL = re.compile(r"socket.*(dup2|/bin/(ba)?sh|pty\.spawn)", re.DOTALL | re.IGNORECASE)


def findings(command: Command, ground: Ground, judge_text: Callable[[str], Risk]) -> list[Finding]:
    name, words = command.program, command.words
    if len(words) == 2 and words[1] in _VERSION and "/" not in words[0]:
        return []
    found = [Finding("medium", f"{name} runs code that was not looked into")]
    pairs = itertools.pairwise(words)
    code = [after for flag, after in pairs if flag in TABLE[name] or (name == "perl" and re.match(r"^-\w*e$", flag))]
    if command.stdin is not None and not any(not word.startswith("-") for word in words[1:] if word not in code):
        code.append(command.stdin)
    for text in code:
        found += _said(name, text, command, ground, judge_text)
    for word in words[1:]:
        if not word.startswith("-") and word not in code:
            found += [f for f in reading(word, command.cwds, ground) if f.risk == "high"]
    return found


def _said(name: str, code: str, command: Command, ground: Ground, judge_text: Callable[[str], Risk]) -> list[Finding]:
    strings = [match.group(2) for match in _STRINGS.finditer(code)][:50]
    strings += [match.group(match.lastindex or 0) for match in _BACKTICKS.finditer(code)][:50]
    found: list[Finding] = []
    if _HIDDEN.search(code):
        found.append(Finding("high", f"{name} runs code that is decoded or downloaded first"))
    if re.search(r"Remove-Item\b.*-Recurse|Format-Volume|Clear-Disk", code, re.IGNORECASE):
        found.append(Finding("high", f"{name} deletes whole trees or disks"))
    if _SOCKET_SHELL.search(code):
        found.append(Finding("high", f"{name} gives a shell to another machine"))
    if _RUNS.search(code):
        for text in [*strings, " ".join(strings)]:
            if text and judge_text(text) == "high":
                found.append(Finding("high", f"{name} is told to run: {text[:80]}"))
                break
    spots = [(text, locate(text, command.cwds, ground)) for text in strings if text]
    if _DELETES.search(code):
        for text, spot in spots:
            if spot.broad or spot.place in ("outside", "system", "device", "protected", "secret"):
                found.append(Finding("high", f"{name} deletes {text}"))
    for text, spot in spots:
        if spot.place in ("secret", "device"):
            found.append(Finding("high", f"{name} names {text}, where credentials are kept or a device"))
    return found
