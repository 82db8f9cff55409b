"""What the many commands of git do to a repository."""

from __future__ import annotations

import re
from itertools import pairwise

from ..shell.wrappers import split_git
from .effects import Finding
from .git_reads import only_reads

_READS_CONFIG = re.compile(r"^(--get|--get-all|--get-regexp|--list|-l|get|list|--show-origin)$")
_LISTS_CONFIG = frozenset({"--list", "-l", "list"})
_HARMLESS_KEYS = re.compile(
    r"^(user\.(name|email)|author\.(name|email)|committer\.(name|email)|color\..+|advice\..+|column\..+|log\.\w+"
    r"|core\.(quotepath|autocrlf|eol|safecrlf|filemode|ignorecase|longpaths|abbrev|precomposeunicode|bare|"
    r"preloadindex|untrackedcache|whitespace|commentchar)|init\.defaultbranch|pull\.(rebase|ff)|push\.(default|"
    r"autosetupremote|followtags)|merge\.(conflictstyle|ff|renames)|diff\.(renames|algorithm|noprefix|context|"
    r"mnemonicprefix|colormoved|wserrorhighlight)|fetch\.(prune|parallel)|rebase\.(autostash|autosquash|updaterefs)|"
    r"(commit|tag)\.gpgsign|commit\.(verbose|status)|gc\.auto|branch\.[\w./-]+\.(merge|remote|rebase|description)|"
    r"branch\.(autosetuprebase|autosetupmerge|sort)|status\.\w+|tag\.sort|stash\.\w+|rerere\.\w+|grep\.\w+|"
    r"http\.(version|postbuffer)|protocol\.version|blame\.\w+|versionsort\.\w+|feature\.\w+|index\.\w+)$",
    re.IGNORECASE,
)
"""Keys by which git runs nothing, goes nowhere else and trusts nobody more. Any other key may."""
_RUNS = re.compile(r"^(--(upload-pack|receive-pack|exec|extcmd|config)(=|$)|--open-files-in-pager|-x.|(ext|fd)::)")


def findings(words: tuple[str, ...]) -> list[Finding]:
    before, command, rest = split_git(words)
    found = [Finding("medium", f"git {option} changes how git works") for option in before if _changes_git(option)]
    for key in _keys_set(before):
        if not _HARMLESS_KEYS.match(key):
            found.append(Finding("high", f"git -c {key} may make git run a program or go elsewhere"))
    if any(option.startswith("--exec-path=") for option in before):
        found.append(Finding("high", "git --exec-path makes git run programs from another folder"))
    if danger := _danger(command, rest):
        return [*found, Finding("high", danger)]
    if command == "" or words[1:] == ("--version",):
        return found
    if command == "config" and _LISTS_CONFIG.intersection(rest) and "--name-only" not in rest:
        return [*found, Finding("medium", "git config shows all settings, and with them what credentials they have")]
    if only_reads(command, rest):
        return found
    if only_reads(command, [word for word in rest if not word.startswith("-")]) and command not in ("branch", "tag"):
        return [*found, Finding("medium", f"git {command} has options that may do more than read")]
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


def _short(rest: list[str], letter: str) -> bool:
    return any(re.fullmatch(r"-[a-zA-Z]*" + letter + r"[a-zA-Z]*", word) for word in rest)


def _keys_set(before: list[str]) -> list[str]:
    pairs = [value for flag, value in pairwise(before) if flag in ("-c", "--config-env")]
    pairs += [word.partition("=")[2] for word in before if word.startswith("--config-env=")]
    return [pair.partition("=")[0] for pair in pairs]


def _danger(command: str, rest: list[str]) -> str:
    everything = {".", "./", ":/", "*", "/"} & set(rest)
    running = [word for word in rest if _RUNS.match(word)]
    if running and (command not in ("commit", "log", "tag", "rebase", "grep") or "-pack" in running[0]):
        return f"git {command} {running[0]} runs the program that is named there"
    match command:
        case "push":
            if any(word.startswith("--force") or word in ("--mirror", "--prune") for word in rest) or _short(rest, "f"):
                return "git push --force overwrites commits of others on the remote"
            if any(re.match(r"^(\w[\w+.-]*://|[\w.-]+@[\w.-]+:|/|\.\.?/|~)", word) for word in rest):
                return "git push sends the work to an address that is none of the repository's remotes"
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
            if {"--global", "--system"} & set(rest) and not any(_READS_CONFIG.match(word) for word in rest):
                return "git config changes settings outside the workspace"
            if any(word.startswith("--get") or _READS_CONFIG.match(word) for word in rest):
                secret = any(
                    re.search(r"extraheader|credential|password|token|proxy|sendemail", word, re.I) for word in rest
                )
                return "git config shows credentials" if secret else ""
            names = [word for word in rest if not word.startswith("-") and word not in ("set", "unset")]
            if not names or not _HARMLESS_KEYS.match(names[0]):
                return f"git config {names[0] if names else ''} may make git run a program or go elsewhere"
        case "difftool" if any(re.match(r"-[a-z]*x|--extcmd", word) for word in rest):
            return "git difftool -x runs the program that is named there"
        case "grep" if any(re.match(r"-O.|--open-files-in-pager=", word) for word in rest):
            return "git grep -O runs the program that is named there"
        case "clone" if any(re.match(r"-[a-zA-Z]*u", word) for word in rest):
            return "git clone -u runs the program that is named there"
        case "clone" | "init" if any(re.match(r"-c|--config|--template", word) for word in rest):
            return f"git {command} takes settings or hooks that may run programs"
        case "worktree" if rest[:1] == ["remove"] and ("--force" in rest or "-f" in rest):
            return "git worktree remove --force deletes uncommitted work"
        case "submodule" if "deinit" in rest and ("-f" in rest or "--force" in rest):
            return "git submodule deinit -f deletes uncommitted work"
        case "lfs" if rest[:1] == ["install"]:
            return "git lfs install changes settings and hooks"
        case (
            "daemon" | "credential" | "credential-store" | "credential-cache" | "cvsserver" | "send-email" | "instaweb"
        ):
            return f"git {command} shares data or credentials"
        case _:
            pass
    return ""
