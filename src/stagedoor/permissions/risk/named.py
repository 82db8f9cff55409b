"""Files from which something runs later, where a program is told of one by any of its words, its code or its input.

What a program does with a file is known for a few. For all others the name is enough: somebody is asked.
"""

from __future__ import annotations

import re

from ..paths import Ground, locate
from ..protected import protections
from ..shell.script import ShellCommand
from .effects import Finding, display_path, protected_finding

_URL = re.compile(r"^[a-z][a-z0-9+.-]*://(?!/)", re.IGNORECASE)
_CODE = re.compile(r"[\s(){};'\"]")
_NAMES = re.compile(r"[^\s;|&<>()\[\]{}'\"`=,:]+")
_DISK = re.compile(
    r"/dev/((r?disk|sd|hd|vd|xvd|nvme|mmcblk|md|dm-|loop|sg|nbd|zd)\w*|mem|kmem|port|mapper/.*|disk/.*)$"
)
_CHATTY = frozenset({"gh", "glab", "hub", "logger", "notify-send", "say", "mail", "slack"})
"""Programs whose long words are prose."""


def named_files(command: ShellCommand, ground: Ground) -> list[Finding]:
    """A finding for every protected file in the words of a command that does more than read."""
    found: list[Finding] = []
    folder = locate(".", command.cwds, ground)
    if folder.place == "protected":
        found.append(Finding("high", f"{command.program} runs in {display_path(folder.path)}: {folder.why}"))
    for word in command.words[1:]:
        found += _in_word(word, command, ground)
    if command.stdin is not None and command.program not in _CHATTY:
        found += named_in_code(command.stdin, command, ground)
    return found


def _in_word(word: str, command: ShellCommand, ground: Ground) -> list[Finding]:
    if _URL.match(word.partition("=")[2] or word) or _URL.match(word):
        return []
    if _CODE.search(word):
        return [] if command.program in _CHATTY else named_in_code(word, command, ground)
    found: list[Finding] = []
    for part in dict.fromkeys([word, *re.split(r"[=:,@]", word), re.sub(r"^-\w", "", word)]):
        if not part or part.startswith("-") or part in (".", "..", "/"):
            continue
        spot = locate(part, command.cwds, ground)
        if spot.place == "protected":
            found.append(protected_finding(part, spot))
        elif spot.place == "device" and _DISK.match(spot.path):
            found.append(Finding("high", f"names {display_path(part)}, a disk or the memory of this machine"))
        elif spot.place == "secret":
            found.append(Finding("high", f"names {display_path(part)}, where credentials are stored"))
    return found


def named_in_code(text: str, command: ShellCommand, ground: Ground) -> list[Finding]:
    """The same for text of another language: names in it, wherever they stand."""
    name, why = protections(ground.protected).named_in(text)
    if name:
        return [Finding("high", f"{command.program} names {display_path(name)}: {why}")]
    for word in _NAMES.findall(text)[:200]:
        if ("/" in word or "." in word) and locate(word, command.cwds, ground).place == "secret":
            return [Finding("high", f"{command.program} names {display_path(word)}, where credentials are stored")]
    return []
