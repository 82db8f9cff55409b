"""What the many commands of git do to a repository."""

from __future__ import annotations

import re

from ..shell.wrappers import split_git
from .effects import Finding

_READ_ONLY = frozenset(
    [
        "status", "log", "diff", "show", "rev-parse", "describe", "ls-files", "ls-tree", "cat-file", "blame",
        "annotate", "shortlog", "rev-list", "name-rev", "merge-base", "whatchanged", "count-objects", "for-each-ref",
        "show-ref", "diff-tree", "diff-index", "diff-files", "check-ignore", "check-attr", "var", "grep", "version",
        "help", "cherry", "range-diff", "show-branch", "verify-commit", "verify-tag",
    ]
)  # fmt: skip
# Flags that make a reading command write a file or run a program.
_UNSAFE = re.compile(
    r"^(--output(=|$)|--ext-diff$|--textconv$|-O|--open-files-in-pager|--exec|--upload-pack|--no-index$|--filters$|"
    r"--show-signature$|--web$|-w$)"
)
_LISTING: dict[str, re.Pattern[str]] = {
    "branch": re.compile(r"^(-a|-r|-v|-vv|-l|--list|--all|--remotes|--show-current|--contains|--merged|--no-merged|"
                         r"--sort=.*|--format=.*|--column.*|--no-color)$"),
    "tag": re.compile(r"^(-l|--list|-n\d*|--sort=.*|--format=.*|--contains|--points-at)$"),
    "remote": re.compile(r"^(-v|--verbose|get-url)$"),
    "stash": re.compile(r"^(list|show)$"),
    "worktree": re.compile(r"^list$"),
    "reflog": re.compile(r"^(show|-n\d*|--all|-\d+)$"),
    "config": re.compile(r"^(--get|--get-all|--get-regexp|--list|-l|get|list|--show-origin)$"),
    "submodule": re.compile(r"^status$"),
    "notes": re.compile(r"^(list|show)$"),
    "bisect": re.compile(r"^log$"),
}  # fmt: skip
_RUNS_CODE = re.compile(
    r"(hookspath|sshcommand|pager|editor|fsmonitor|askpass|gitproxy|alias\.|\.cmd|\.command|textconv|driver|helper|"
    r"filter\.|diff\.external|uploadpack|receivepack|gpg.*program|insteadof)", re.IGNORECASE
)  # fmt: skip


def findings(words: tuple[str, ...]) -> list[Finding]:
    before, command, rest = split_git(words)
    found = [Finding("medium", f"git {option} changes how git works") for option in before if _changes_git(option)]
    if any(option in ("-c", "--config-env") for option in before) and _RUNS_CODE.search(" ".join(before)):
        found.append(Finding("high", "git -c sets a program that git will run"))
    if any(option.startswith("--exec-path=") for option in before):
        found.append(Finding("high", "git --exec-path makes git run programs from another folder"))
    if danger := _danger(command, rest):
        return [*found, Finding("high", danger)]
    if command == "" or words[1:] == ("--version",):
        return found
    unsafe = [word for word in rest if _UNSAFE.match(word)]
    if command in _READ_ONLY and not unsafe:
        return found
    if command in _LISTING and _only_lists(command, rest):
        return found
    if unsafe:
        return [*found, Finding("medium", f"git {command} {unsafe[0]} does more than read")]
    return [*found, Finding("medium", f"git {command} changes the repository")]


def _changes_git(option: str) -> bool:
    return option.startswith("-") and option not in (
        "-C",
        "--no-pager",
        "--version",
        "--help",
        "-P",
        "--literal-pathspecs",
    )


def _only_lists(command: str, rest: list[str]) -> bool:
    listing = _LISTING[command]
    if command in ("stash", "submodule", "worktree", "notes", "bisect"):
        return bool(rest) and bool(listing.match(rest[0])) and not any(_UNSAFE.match(word) for word in rest)
    if command == "config":
        return any(listing.match(word) for word in rest) and not any(
            word in ("--unset", "--add", "--edit", "-e", "--replace-all", "set", "unset") for word in rest
        )
    if command == "remote":
        return not rest or bool(listing.match(rest[0]))
    if command == "reflog":
        return not rest or not {"expire", "delete", "drop"} & set(rest)
    flags = [word for word in rest if word.startswith("-")]
    names = [word for word in rest if not word.startswith("-")]
    return all(listing.match(flag) for flag in flags) and (not names or bool(flags))


def _short(rest: list[str], letter: str) -> bool:
    return any(re.fullmatch(r"-[a-zA-Z]*" + letter + r"[a-zA-Z]*", word) for word in rest)


def _danger(command: str, rest: list[str]) -> str:
    everything = {".", "./", ":/", "*", "/"} & set(rest)
    match command:
        case "push":
            if any(word.startswith("--force") or word in ("--mirror", "--prune") for word in rest) or _short(rest, "f"):
                return "git push --force overwrites commits of others on the remote"
            if "--delete" in rest or _short(rest, "d") or any(re.match(r"^[+:]\S", word) for word in rest):
                return "git push deletes or overwrites a remote branch"
        case "reset" if {"--hard", "--merge", "--keep"} & set(rest):
            return "git reset --hard discards uncommitted work"
        case "clean" if _short(rest, "f") or "--force" in rest:
            if not (_short(rest, "n") or "--dry-run" in rest):
                return "git clean deletes untracked files"
        case "checkout" | "restore" | "switch":
            if everything or "-f" in rest or "--force" in rest or "--discard-changes" in rest:
                return f"git {command} discards uncommitted work"
        case "stash" if rest[:1] and rest[0] in ("clear", "drop"):
            return f"git stash {rest[0]} deletes stashed work"
        case "branch" if _short(rest, "D") or ("--force" in rest and "--delete" in rest):
            return "git branch -D deletes a branch even if it was not merged"
        case "filter-branch" | "filter-repo" | "replace":
            return f"git {command} rewrites history"
        case "reflog" if {"expire", "delete", "drop"} & set(rest):
            return "git reflog expire deletes what could restore lost commits"
        case "gc" | "prune" if any(word.startswith("--prune") or word == "--expire=now" for word in rest):
            return f"git {command} --prune deletes what could restore lost commits"
        case "update-ref" if "-d" in rest:
            return "git update-ref -d deletes a reference"
        case "rm" if everything:
            return "git rm deletes all files"
        case "config":
            if {"--global", "--system"} & set(rest) and not any(_LISTING["config"].match(word) for word in rest):
                return "git config changes settings outside the workspace"
            if any(_RUNS_CODE.search(word) for word in rest) and not any(_LISTING["config"].match(w) for w in rest):
                return "git config sets a program that git will run"
        case "daemon" | "credential" | "send-email":
            return f"git {command} shares data or credentials"
        case _:
            pass
    return ""
