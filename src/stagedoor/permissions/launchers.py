"""Programs that run others as a side line: ``find -exec``, ``git rebase --exec``, ``tar --to-command``, ``ssh``."""

from __future__ import annotations

import itertools
import re

from .git import split as split_git
from .wrappers import Inner, Words, program_of

_NARROWING = re.compile(
    r"^-(name|iname|path|ipath|wholename|regex|iregex|mtime|mmin|ctime|cmin|atime|amin|newer\w*|size|empty|user|group|"
    r"perm|inum|links|samefile|type)$"
)
_EXEC = ("-exec", "-execdir", "-ok", "-okdir")
_GIT_COMMAND_KEYS = re.compile(
    r"(pager|editor|sshcommand|command|cmd|external|textconv|fsmonitor|helper|askpass|alias\.)", re.I
)
_SSH_VALUES = frozenset(
    [
        "-b",
        "-c",
        "-D",
        "-E",
        "-e",
        "-F",
        "-I",
        "-i",
        "-J",
        "-L",
        "-l",
        "-m",
        "-O",
        "-o",
        "-p",
        "-Q",
        "-R",
        "-S",
        "-W",
        "-w",
    ]
)


def nested(words: Words) -> list[Inner]:
    match program_of(words):
        case "find" | "gfind":
            return _find(words)
        case "fd" | "fdfind":
            at = next((n for n, word in enumerate(words) if word in ("-x", "-X", "--exec", "--exec-batch")), None)
            return [Inner(words=words[at + 1 :])] if at is not None else []
        case "git":
            return _git(words)
        case "tar" | "bsdtar" | "gtar":
            return _tar(words)
        case "ssh":
            return _ssh(words)
        case "rsync":
            return [Inner(script=after) for flag, after in itertools.pairwise(words) if flag in ("-e", "--rsh")]
        case "awk" | "gawk" | "mawk" | "nawk":
            return [
                Inner(script=text)
                for word in words[1:]
                for text in re.findall(
                    r'(?:system\s*\(\s*|\|\s*(?:getline\s*)?|print[^"|]*\|\s*)"((?:\\.|[^"\\])*)"', word
                )
            ]
        case "sed" | "gsed":
            scripts = [text for word in words[1:] for text in re.findall(r"(?:^|[\d$;/}])\s*e\s+([^;\n]+)", word)]
            return [Inner(script=text) for text in scripts]
        case "vim" | "vi" | "nvim" | "ex" | "ed":
            return [Inner(script=word.split("!", 1)[1]) for word in words[1:] if re.match(r"^(\+|:)?:?!", word)]
        case _:
            return []


def listed(words: Words) -> str | None:
    """The paths a ``find`` prints, as one that stands for all under each of its roots."""
    if program_of(words) not in ("find", "gfind") or any(
        word.startswith(("-exec", "-ok", "-printf", "-fprint")) for word in words
    ):
        return None
    return "\n".join(f"{root.rstrip('/')}/found" if narrowed(words) else root for root in find_roots(words))


def find_roots(words: Words) -> list[str]:
    roots: list[str] = []
    for word in words[1:]:
        if word in ("-H", "-L", "-P") or re.match(r"^-[DO]", word):
            continue
        if word.startswith("-") or word in ("(", "!", "\\("):
            break
        roots.append(word)
    return roots or ["."]


def narrowed(words: Words) -> bool:
    """Whether a ``find`` picks some of what it meets, rather than everything."""
    tests = [word for word in words if _NARROWING.match(word)]
    everything = any(word in ("*", "**", ".*", "*.*") for word in words)
    return (bool(set(tests) - {"-type"}) and not everything) or "-maxdepth" in words


def _find(words: Words) -> list[Inner]:
    found: list[Inner] = []
    for at, word in enumerate(words):
        if word not in _EXEC:
            continue
        end = next((n for n in range(at + 1, len(words)) if words[n] in (";", "+", "\\;")), len(words))
        for root in find_roots(words):
            path = f"{root.rstrip('/')}/found" if narrowed(words) else root
            inner = words[at + 1 : end]
            found.append(Inner(words=tuple(part.replace("{}", path) for part in inner)))
            if any("{}" in part and part != "{}" for part in inner):  # some finds replace inside a word, some do not
                found.append(Inner(words=inner))
    return found


def _git(words: Words) -> list[Inner]:
    before, command, rest = split_git(words)
    found: list[Inner] = []
    for flag, setting in itertools.pairwise(before):
        key, given, value = setting.partition("=")
        if flag == "-c" and given and (_GIT_COMMAND_KEYS.search(key) or value.startswith("!")):
            found.append(Inner(script=value.removeprefix("!")))
    if command == "rebase":
        found += [Inner(script=after) for flag, after in itertools.pairwise(rest) if flag in ("-x", "--exec")]
        found += [Inner(script=word.partition("=")[2]) for word in rest if word.startswith("--exec=")]
    elif command == "bisect" and rest[:1] == ["run"]:
        found.append(Inner(words=tuple(rest[1:])))
    elif command == "submodule" and "foreach" in rest:
        inner = [word for word in rest[rest.index("foreach") + 1 :] if word not in ("--recursive", "-q")]
        found.append(Inner(script=" ".join(inner)))
    elif command == "config" and rest and rest[-1].startswith("!"):
        found.append(Inner(script=rest[-1][1:]))
    return found


def _tar(words: Words) -> list[Inner]:
    found: list[Inner] = []
    for at, word in enumerate(words[1:], 1):
        option, given, value = word.partition("=")
        if option == "--checkpoint-action" and value.startswith("exec="):
            found.append(Inner(script=value[5:]))
        elif option in ("--to-command", "--use-compress-program", "-I", "--rsh-command"):
            following = words[at + 1] if at + 1 < len(words) else ""
            found.append(Inner(script=value if given else following))
    return found


def _ssh(words: Words) -> list[Inner]:
    at, host = 1, False
    scripts: list[Inner] = []
    while at < len(words):
        word = words[at]
        if word.startswith("-"):
            if word == "-o" and at + 1 < len(words) and "command=" in words[at + 1].lower():
                scripts.append(Inner(script=words[at + 1].partition("=")[2]))
            at += 2 if word in _SSH_VALUES else 1
        elif not host:
            host = True
            at += 1
        else:
            return [*scripts, Inner(script=" ".join(words[at:]))]
    return scripts
