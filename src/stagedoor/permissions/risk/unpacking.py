"""Programs that write files whose names are not among their words: archives, patches, whole folders."""

from __future__ import annotations

import posixpath
import re
from itertools import pairwise
from pathlib import Path

from ..paths import Ground, locate, resolve
from ..protected import protections
from ..shell.script import ShellCommand
from .effects import Finding, display_path, protected_finding, reading, writing

_LARGEST_PATCH = 4_000_000
_BRINGS = "which may bring files that run by themselves later"
_PATCHED = re.compile(
    r"^(?:\+\+\+|---|\*\*\*) (?:(?:Add|Update|Delete) File: |Move to: )?\"?([^\t\n\"]+)|^rename to (.+)|^copy to (.+)",
    re.MULTILINE,
)
_TAR_RUNS = re.compile(
    r"--(to-command|checkpoint-action|use-compress-program|rsh-command|info-script|new-volume-script)|-[IF]"
)
UNPACKERS: dict[str, str] = {
    "unzip": r"-[a-zA-Z]*[lptvzZ][a-zA-Z]*", "7z": r"[ltab]", "7za": r"[ltab]", "7zr": r"[ltab]", "unrar": r"[ltv].*",
    "cpio": r"-[a-zA-Z]*[ot][a-zA-Z]*|--list|--create", "pax": r"-[a-zA-Z]*w[a-zA-Z]*", "ar": r"-?[dmqrtp][a-zA-Z]*",
    "jar": r"-?[ctu][a-zA-Z]*|--(create|list|update).*", "unar": r"-l", "unsquashfs": r"-l+s*", "bsdcpio": r"-[ot].*",
}  # fmt: skip
"""Programs that unpack, and the words with which they do something else."""


def unpacked(command: ShellCommand, ground: Ground) -> list[Finding]:
    """Archives: what is packed is read, where it is unpacked is written."""
    name, words = command.program, command.words[1:]
    found = [Finding("medium", f"{name} packs or unpacks files")]
    into = [value for flag, value in pairwise(command.words) if flag in ("-C", "-d", "--directory", "--cd")]
    into += [word.partition("=")[2] for word in words if word.startswith(("--directory=", "--cd=", "--one-top-level="))]
    into += [word[2:] for word in words if re.match(r"-[Co][^-=]", word) and name != "unzip" and len(word) > 2]
    for folder in into:
        found += writing(folder, command.cwds, ground)
    names = [word for word in words if not word.startswith("-") and word not in into]
    for word in names:
        found += [finding for finding in reading(word, command.cwds, ground) if finding.risk == "high"]
    if name in ("tar", "bsdtar", "gtar"):
        return found + _tar(command, ground, into, names)
    if name == "zip":
        return found + [f for path in names[:1] for f in writing(path, command.cwds, ground) if f.risk == "high"]
    if any(re.fullmatch(UNPACKERS[name], word) for word in words):
        return found
    verbs = 1 if name in ("7z", "7za", "7zr", "unrar", "ar", "jar") else 0
    members = names[verbs + 1 :] if name not in ("cpio", "pax", "bsdcpio") else []
    return found + _extracted(command, ground, into or ["."], members)


def _tar(command: ShellCommand, ground: Ground, into: list[str], names: list[str]) -> list[Finding]:
    words = command.words[1:]
    first = words[:1] if words and "/" not in words[0] else ()
    letters = "".join([*first, *(word for word in words if re.fullmatch(r"-[a-zA-Z]+", word))])
    if any(_TAR_RUNS.match(word) for word in words):
        return [Finding("high", "tar runs a program that one of its options names")]
    archive = [value for flag, value in pairwise(command.words) if flag == "--file" or re.fullmatch(r"-?\w*f", flag)]
    archive += [word.partition("=")[2] for word in words if word.startswith("--file=")]
    extracts = "x" in letters or any(word in ("--extract", "--get") for word in words)
    if not extracts:
        lists = "t" in letters or any(word in ("--list", "--diff", "--compare") for word in words)
        return [] if lists else [f for path in archive for f in writing(path, command.cwds, ground)]
    members = [name for name in names if name not in archive and name != words[0]]
    return _extracted(command, ground, into or ["."], members)


def _extracted(command: ShellCommand, ground: Ground, into: list[str], members: list[str]) -> list[Finding]:
    if members:
        return [f for folder in into for one in members for f in writing(f"{folder}/{one}", command.cwds, ground)]
    for folder in into:
        spot = locate(folder, command.cwds, ground)
        if spot.place == "protected":
            return [protected_finding(folder, spot, f"{command.program} unpacks into")]
        if spot.broad or spot.place == "unknown":
            return [Finding("high", f"{command.program} unpacks into {display_path(folder)} {_BRINGS}")]
    return []


def copied(command: ShellCommand, ground: Ground, sources: list[str], targets: list[str]) -> list[Finding]:
    """Files under the names they will have: those in a folder keep their own."""
    found: list[Finding] = []
    for target in targets:
        spot = locate(target, command.cwds, ground)
        for source in sources:
            name = posixpath.basename(source.rstrip("/"))
            if name not in ("", ".", ".."):
                found += [f for f in writing(f"{target}/{name}", command.cwds, ground) if f.risk == "high"]
            whole = name in (".", "..") or (command.program == "rsync" and source.endswith("/"))
            whole = whole or name.startswith((".*", ".[", ".?"))
            whole = whole or any(re.fullmatch(r"-[a-zA-Z]*T[a-zA-Z]*|--no-target-directory", w) for w in command.words)
            recursive = command.program in ("mv", "rsync") or any(
                re.fullmatch(r"-[a-zA-Z]*[raR][a-zA-Z]*|--recursive|--archive", word) for word in command.words
            )
            if recursive and name.startswith(".") and (why := protections(ground.protected).is_above(name)):
                found.append(Finding("high", f"{command.program} brings {display_path(name)}: {why}"))
            if whole and (spot.broad or spot.place == "unknown"):
                found.append(Finding("high", f"{command.program} copies all of {display_path(source)}, {_BRINGS}"))
    return found


def patched(command: ShellCommand, ground: Ground) -> list[Finding]:
    """``patch``, ``git apply``, ``git am``: the files are named in the patch, which we read where we can."""
    names = [word for word in command.words[1:] if not word.startswith("-")]
    if {"--dry-run", "--check", "--stat", "--numstat", "--summary", "--abort", "--quit", "--skip"} & set(command.words):
        return []
    if not {"--cached"}.isdisjoint(command.words):
        return [Finding("medium", f"{command.program} changes what will be committed")]
    fixed = names[:1] if command.program == "patch" and len(names) != 1 else []
    found = [f for path in fixed for f in writing(path, command.cwds, ground)]
    texts = _patches(command, ground)
    if texts is None:
        return [*found, Finding("high", f"{command.program} applies a patch that could not be read, {_BRINGS}")]
    folders = [word.partition("=")[2] for word in command.words if word.startswith("--directory=")]
    folders += [value for flag, value in pairwise(command.words) if flag in ("-d", "--directory")]
    for text in texts:
        for match in _PATCHED.finditer(text):
            path = next(group for group in match.groups() if group is not None).strip()
            # How many folders are cut off is for an option to say: all readings count.
            parts = path.split("/")
            for at in range(min(len(parts), 4)):
                for folder in folders or ["."]:
                    tail = "/".join(parts[at:])
                    found += [f for f in writing(f"{folder}/{tail}", command.cwds, ground) if f.risk == "high"]
    return found or [Finding("medium", f"{command.program} changes files of the workspace")]


def _patches(command: ShellCommand, ground: Ground) -> list[str] | None:
    if command.stdin is not None:
        return [command.stdin]
    files = [value for flag, value in pairwise(command.words) if flag in ("-i", "--input")]
    files += [word.partition("=")[2] for word in command.words if word.startswith("--input=")]
    files += [redirect.target for redirect in command.redirects if not redirect.writes]
    if not files:
        files = [word for word in command.words[1:] if not word.startswith("-")]
        files = files[1:] if files[:1] in (["apply"], ["am"]) or command.program == "patch" else files
    if not files or not ground.on_disk or len(command.cwds) != 1:
        return None
    texts: list[str] = []
    for file in files:
        path = resolve(file, command.cwds[0], ground.home)
        try:
            if path is None or not Path(path).is_file() or Path(path).stat().st_size > _LARGEST_PATCH:
                return None
            texts.append(Path(path).read_text("utf-8", "replace"))
        except OSError:
            return None
    return texts
