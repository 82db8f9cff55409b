"""Whether git would run something of the repository's when it only looks at it: read from its files, without git.

A filter, a monitor, a driver for differences, a pager or a hook that a repository configures runs with ``git status``
and ``git diff``. Closed: settings that were not looked at may run something, and so may what cannot be read.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from ...shadow_git.settings import BadSettings, Settings, last, parse_settings, truth

_SETTINGS_AT_MOST = 1 << 20
_INDEX_AT_MOST = 1 << 26
_NESTED_AT_MOST = 64
_GITLINK = b"\x00\x00\xe0\x00"
_HEAD = re.compile(rb"ref:\s*refs/\S|[0-9a-f]{40}")
_RUN_BY_LOOKING = ("post-index-change", "fsmonitor-watchman", "query-watchman")
_QUIET = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|quotepath|eol"
    r"|autocrlf|safecrlf|longpaths|abbrev|preloadindex|untrackedcache|whitespace|commentchar|hidedotfiles|compression"
    r"|loosecompression|bigfilethreshold|sparsecheckout|sparsecheckoutcone|excludesfile|sharedrepository|multipackindex"
    r"|commitgraph|checkstat|trustctime|splitindex|protecthfs|protectntfs|createobject|fscache|editor|askpass"
    r"|notesref|packedgitlimit|packedgitwindowsize|deltabasecachelimit|maxtreedepth|disambiguate|usereplacerefs)"
    r"|extensions\.(?!partialclone).*|user\..*|author\..*|committer\..*|init\..*|color\..*|column\..*|advice\..*"
    r"|branch\..*|tag\.(?!gpgsign).*|push\..*|pull\..*|fetch\..*|rebase\..*|stash\..*|rerere\..*|gc\..*|pack\..*|index\..*"
    r"|feature\..*|status\.(?!submodulesummary).*|commit\.(?!gpgsign).*|clone\..*|checkout\..*|submodule\..*|lfs\..*"
    r"|remote\.(.*\.)?(url|fetch|push|pushurl|tagopt|prune|prunetags|mirror|skipfetchall|gh-resolved|pushdefault"
    r"|followremotehead|skipdefaultupdate)"
    r"|merge\.(?!.*\.driver).*|mergetool\..*|am\..*|apply\..*|blame\..*|versionsort\..*|transfer\..*|receive\..*|http\..*"
    r"|credential\..*|url\..*|gui\..*|maintenance\..*|pull\..*|worktree\..*|safe\..*|sequence\..*|sendemail\..*|alias\..*"
    r"|diff\.(renames|renamelimit|algorithm|noprefix|mnemonicprefix|context|interhunkcontext|colormoved|colormovedws"
    r"|wserrorhighlight|ignoresubmodules|statgraphwidth|relative|orderfile|indentheuristic|suppressblankempty"
    r"|dirstat|submodule|wordregex)|log\.(?!showsignature).*|format\..*|grep\..*|i18n\..*|notes\..*|bisect\..*"
    r"|protocol\.version|vscode-merge-base|github\..*|hub\..*|gitlab\..*|svn-remote\..*|git-p4\..*",
    re.IGNORECASE,
)
"""Settings by which git runs nothing when it looks: nothing at all, or only when it fetches, commits or merges."""


def runs_by_looking(folder: str) -> str:
    """What of the repository at ``folder`` may run when git reads it, as a half sentence; empty for nothing."""
    try:
        found = (_checked(git_dir, (top, Path(folder)), _NESTED_AT_MOST) for git_dir, top in _found_from(Path(folder)))
        return next((why for why in found if why), "")
    except (OSError, ValueError, struct.error, IndexError):
        return "has settings that cannot be read"


def _found_from(folder: Path) -> Iterator[tuple[Path, Path]]:
    """The git directories that git may find from a folder upward, each with the folder where it was found. The first
    that git surely takes is the last: what it may not take is looked at, too, and so is what it then finds above."""
    real = Path(os.path.realpath(folder))
    for here in (real, *real.parents):
        candidates = [there] if (there := _beside(here)) is not None else []
        # A HEAD that is a link is good for git wherever it leads, and with a commondir the rest may be elsewhere.
        if os.path.lexists(here / "HEAD") and any((here / name).exists() for name in ("objects", "commondir")):
            candidates.append(here)
        for git_dir in candidates:
            yield git_dir, here
            if _is_surely_taken(git_dir):
                return


def _is_surely_taken(git_dir: Path) -> bool:
    head = git_dir / "HEAD"
    if head.is_symlink() or not head.is_file() or not _HEAD.match(_read(head)):
        return False
    return all(os.access(_common(git_dir) / name, os.X_OK) for name in ("objects", "refs"))


def _beside(folder: Path) -> Path | None:
    git = folder / ".git"
    if git.is_dir():
        return git
    if git.is_file():
        content = _read(git)
        if not content.startswith(b"gitdir: "):
            raise ValueError("no file that leads to a git directory")
        return _led_to(folder, content.removeprefix(b"gitdir: "))
    return None


def _common(git_dir: Path) -> Path:
    file = git_dir / "commondir"
    return _led_to(git_dir, _read(file)) if file.is_file() else git_dir


def _led_to(folder: Path, content: bytes) -> Path:
    """Where a file of git's says that something is. Git cuts off the end of the line, and no blank."""
    return Path(os.path.realpath(folder / os.fsdecode(content.rstrip(b"\r\n"))))


def _checked(git_dir: Path, tops: tuple[Path, ...], budget: int) -> str:
    """``tops``: the folders that may be the top of its work tree, beside those that its settings say."""
    common = _common(git_dir)
    settings: dict[str, list[str]] = {}
    for file in dict.fromkeys((common / "config", git_dir / "config", git_dir / "config.worktree")):
        if file.is_file():
            for name, values in parse_settings(_read(file)).items():
                settings.setdefault(name, []).extend(values)
    if why := _by_settings(settings):
        return why
    # Which of several files counts is a matter of other settings: every value may be the one.
    tops = tuple(dict.fromkeys((*tops, *(git_dir / value for value in settings.get("core.worktree", ())))))
    paths = settings.get("core.hookspath", [])
    if any(path.startswith(("%(", ":(")) for path in paths):
        return "has the setting core.hookspath"
    for hooks in (common / "hooks", *(Path(os.path.expanduser(path)) for path in paths)):  # noqa: PTH111 - as git does
        if any((top / hooks / name).exists() for top in (*tops, git_dir, common) for name in _RUN_BY_LOOKING):
            return "has a hook that runs when git looks at it"
    return _nested(git_dir, common, tops, budget, is_sha1=last(settings, "extensions.objectformat") in ("", "sha1"))


def _by_settings(settings: Settings) -> str:
    for name, values in settings.items():
        if name == "core.fsmonitor":
            if any(truth(value) is not False for value in values):
                return "has the setting core.fsmonitor"
        elif name in ("core.hookspath", "core.worktree", "core.sshcommand", "protocol.allow") or re.fullmatch(
            r"protocol\..*\.allow", name
        ):
            continue  # looked at elsewhere
        elif not _QUIET.fullmatch(name):
            return f"has the setting {name}"
    fetches = any(name.endswith(".promisor") or name == "extensions.partialclone" for name in settings)
    return "fetches missing objects by itself" if fetches else ""


def _nested(git_dir: Path, common: Path, tops: tuple[Path, ...], budget: int, *, is_sha1: bool) -> str:
    """The repositories inside, which git looks into by itself: those of submodules, and those that the index names."""
    others = [(path.parent, path.parent) for path in _configurations(common / "modules")]
    names = [name for index in _indexes(git_dir) for name in _gitlinks(index, is_sha1=is_sha1)]
    for inner in (top / name for top in tops for name in names):
        if (there := _beside(inner)) is not None:
            others.append((there, inner))
    for other, top in dict.fromkeys(others):
        if budget <= 0:
            return "has more repositories inside than were looked at"
        budget -= 1
        if why := _checked(other, (top,), budget // 4):
            return f"has a repository inside that {why}"
    return ""


def _indexes(git_dir: Path) -> Iterator[Path]:
    """The index, and those that it may have most of its entries in."""
    yield git_dir / "index"
    yield from sorted(git_dir.glob("sharedindex.*"))


def _configurations(modules: Path) -> Iterator[Path]:
    if modules.is_dir():
        yield from (path for path in modules.rglob("config") if os.path.lexists(path.parent / "HEAD"))


def _gitlinks(index: Path, *, is_sha1: bool) -> list[str]:
    """The folders that an index has as repositories of their own."""
    if not index.is_file():
        return []
    content = _read(index, _INDEX_AT_MOST)
    if content[:4] != b"DIRC":
        raise ValueError("no index")
    if _GITLINK not in content:
        return []
    if not is_sha1:
        raise ValueError("an index with longer names of objects")
    version, count = struct.unpack(">II", content[4:12])
    found: list[str] = []
    at, before = 12, b""
    for _ in range(count):
        mode = content[at + 24 : at + 28]
        flags = struct.unpack(">H", content[at + 60 : at + 62])[0]
        start = at + 62 + (2 if flags & 0x4000 else 0)
        if version == 4:
            cut, start = _number(content, start)
            end = content.index(b"\0", start)
            name, following = before[: len(before) - cut] + content[start:end], end + 1
        else:
            end = content.index(b"\0", start)
            name, following = content[start:end], at + ((end - at + 8) // 8) * 8
        if mode == _GITLINK:
            found.append(os.fsdecode(name))
        at, before = following, name
    return found


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, as in a pack; and where it ends."""
    value = content[at] & 0x7F
    while content[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (content[at] & 0x7F)
    return value, at + 1


def _read(file: Path, most: int = _SETTINGS_AT_MOST) -> bytes:
    if file.stat().st_size > most:
        raise BadSettings(f"{file} is too large")
    return file.read_bytes()
