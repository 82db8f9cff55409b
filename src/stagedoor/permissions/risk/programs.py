"""What well-known programs do with their words."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Callable
from itertools import pairwise

from stagedoor.unified.events import Risk

from ..paths import Ground, locate
from ..shell.script import ShellCommand
from ..shell.suspicion import SENSITIVE
from ..shell.words import HOLE
from ..shell.wrappers import SHELLS, find_roots, narrowed, split_git
from . import destructive, git, network
from .destructive import options_and_names
from .effects import Finding, deleting, display_path, reading, writing

# Code in other languages on the command line is not parsed, but searched for what it asks of the system.
INTERPRETERS: dict[str, tuple[str, ...]] = {
    "python": ("-c",), "pypy": ("-c",), "node": ("-e", "--eval", "-p", "--print"), "deno": ("eval",),
    "bun": ("-e", "--eval"), "perl": ("-e", "-E", "-ne", "-pe", "-ane", "-pie", "-i"), "ruby": ("-e", "-ne", "-pe"),
    "php": ("-r",), "lua": ("-e",), "osascript": ("-e",), "tclsh": (), "rscript": ("-e",), "Rscript": ("-e",),
    "julia": ("-e",), "powershell": ("-Command", "-c"), "pwsh": ("-Command", "-c"),
}  # fmt: skip
"""The option after which code stands."""
_INTERPRETER_VERSION = frozenset({"--version", "-V", "-v", "--help", "-h"})
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


def _interpreter_findings(command: ShellCommand, ground: Ground, judge_text: Callable[[str], Risk]) -> list[Finding]:
    name, words = command.program, command.words
    if len(words) == 2 and words[1] in _INTERPRETER_VERSION and "/" not in words[0]:
        return []
    found = [Finding("medium", f"{name} runs code that was not analyzed")]
    pairs = itertools.pairwise(words)
    code = [
        after for flag, after in pairs if flag in INTERPRETERS[name] or (name == "perl" and re.match(r"^-\w*e$", flag))
    ]
    if command.stdin is not None and not any(not word.startswith("-") for word in words[1:] if word not in code):
        code.append(command.stdin)
    for text in code:
        found += _code_findings(name, text, command, ground, judge_text)
    for word in words[1:]:
        if not word.startswith("-") and word not in code:
            found += [f for f in reading(word, command.cwds, ground) if f.risk == "high"]
    return found


def _code_findings(
    name: str, code: str, command: ShellCommand, ground: Ground, judge_text: Callable[[str], Risk]
) -> list[Finding]:
    strings = [match.group(2) for match in _STRINGS.finditer(code)][:50]
    strings += [match.group(match.lastindex or 0) for match in _BACKTICKS.finditer(code)][:50]
    found: list[Finding] = []
    if _HIDDEN.search(code):
        found.append(Finding("high", f"{name} runs code that is decoded or downloaded first"))
    if re.search(r"Remove-Item\b.*-Recurse|Format-Volume|Clear-Disk", code, re.IGNORECASE):
        found.append(Finding("high", f"{name} deletes directory trees or disks"))
    if _SOCKET_SHELL.search(code):
        found.append(Finding("high", f"{name} opens a shell for another machine"))
    if _RUNS.search(code):
        for text in [*strings, " ".join(strings)]:
            if text and judge_text(text) == "high":
                found.append(Finding("high", f"{name} runs: {text[:80]}"))
                break
    spots = [(text, locate(text, command.cwds, ground)) for text in strings if text]
    if _DELETES.search(code):
        for text, spot in spots:
            if spot.broad or spot.place in ("outside", "system", "device", "protected", "secret"):
                found.append(Finding("high", f"{name} deletes {text}"))
    for text, spot in spots:
        if spot.place in ("secret", "device"):
            found.append(Finding("high", f"{name} names {text}, a device or a place where credentials are stored"))
    return found


JudgeText = Callable[[str], Risk]

# Programs that only read, and the options with which they do more than that.
_READERS: dict[str, str] = {
    "ls": "", "cat": "", "head": "", "tail": "", "wc": "", "stat": "", "file": r"-C|--compile|-m|--magic-file.*",
    "du": "", "df": "", "tree": r"-o|-R", "grep": "", "egrep": "", "fgrep": "", "zgrep": "", "nl": "", "tac": "",
    "rg": r"--pre(=.*)?|--pre-glob.*|--hostname-bin.*|-z|--search-zip", "ag": r"--pager.*", "cut": "", "tr": "",
    "paste": "", "sort": r"-[a-zA-Z]*o.*|--output.*|--compress-program.*|-T.*|--temporary-directory.*", "column": "",
    "fold": "", "expand": "", "unexpand": "", "comm": "", "join": "", "diff": r"--output.*", "cmp": "", "md5sum": "",
    "sha1sum": "", "sha256sum": "", "sha512sum": "", "cksum": "", "b2sum": "", "od": "", "hexdump": "", "strings": "",
    "rev": "", "jq": r"-n?f|--from-file.*", "realpath": "", "readlink": "", "cd": "", "pushd": "", "popd": "",
    "shasum": "", "less": r"-[a-zA-Z]*[oOk].*|--log-file.*|--lesskey.*|\+.*", "more": r"\+.*", "bat": r"--pager.*",
    "fd": r"-[xX].*|--exec.*", "fdfind": r"-[xX].*|--exec.*", "exa": "", "eza": "", "nm": "", "objdump": "",
    "readelf": "", "size": "", "base64": "", "zcat": "", "numfmt": "", "fmt": "", "look": "", "tsort": "",
    "iconv": r"-o|--output.*", "cloc": r"--out.*|--exec.*", "tokei": "",
}  # fmt: skip
# Programs whose words are not paths.
_INERT: dict[str, str] = {
    "echo": "", "printf": "", "true": "", "false": "", ":": "", "test": "", "[": "", "[[": "", "pwd": "", "seq": "",
    "sleep": "", "basename": "", "dirname": "", "expr": "", "date": r"-s.*|--set.*", "whoami": "", "id": "",
    "uname": "", "arch": "", "nproc": "", "which": "", "whereis": "", "type": "", "uptime": "", "free": "",
    "groups": "", "tty": "", "locale": "", "cal": "", "ps": "", "pgrep": "", "lscpu": "", "lsblk": "", "export": "",
    "declare": "", "local": "", "typeset": "", "readonly": "", "unset": "", "set": "", "shopt": "", "read": "",
    "return": "", "exit": "", "shift": "", "break": "", "continue": "", "wait": "", "jobs": "", "let": "",
    "getopts": "", "tput": "", "getconf": "", "command": "", "hostname": r"[^-].*|-F.*|--file.*|-b", "sw_vers": "",
    "factor": "", "umask": "",
}  # fmt: skip
_GREP_LIKE = frozenset({"grep", "egrep", "fgrep", "zgrep", "rg", "ag", "jq", "fd", "fdfind", "tr", "look"})
_TOOLS = frozenset(
    [
        "python", "pip", "node", "npm", "npx", "yarn", "pnpm", "go", "rustc", "cargo", "java", "javac", "gcc", "g++",
        "clang", "make", "cmake", "docker", "git", "gh", "ruby", "gem", "php", "composer", "dotnet", "swift", "deno",
        "bun", "uv", "poetry", "pytest", "ruff", "mypy", "pyright", "tsc", "eslint", "prettier", "kubectl", "terraform",
        "perl", "bash", "sh", "zsh", "black", "isort", "jest", "vitest", "curl", "wget", "rustup", "mvn", "gradle",
        "ninja", "meson", "hatch", "tox", "nox", "pre-commit", "helm",
    ]
)  # fmt: skip
_VERSION = frozenset({"--version", "-V", "-v", "-version", "version", "--help", "-h"})
_PROGRAM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/usr/sbin", "/sbin"})
_SED_READS = re.compile(
    r"^(\d+|\$|/[^/]*/)?(,(\d+|\$|\+\d+|/[^/]*/))?\s*[pdq=]$|^(\d+(,\d+)?)?s(?P<mark>[/|#,])[^\n]*(?P=mark)[^\n]*(?P=mark)[gpiI0-9]*$|^$"
)


def findings(command: ShellCommand, ground: Ground, judge_text: JudgeText) -> list[Finding]:
    """What is to be said about one simple command; nothing when it only reads inside the workspace."""
    found: list[Finding] = []
    for redirect in command.redirects:
        look = writing if redirect.writes else reading
        found += look(redirect.target, command.cwds, ground)
    for assignment in command.assignments:
        name, _, value = assignment.partition("=")
        if SENSITIVE.match(name):
            found.append(Finding("medium", f"sets {name}, which changes what programs do"))
        if re.search(r"PAGER|EDITOR|COMMAND|ASKPASS|LESSOPEN|^PS4$|VISUAL|BROWSER|BASH_ENV", name) and value:
            found.append(Finding(judge_text(value), f"{name} names a program that will run"))
    if not command.words:
        return found
    if HOLE in command.words[0] or re.search(r"[*?\[]", command.words[0].rstrip("[")):
        return [*found, *_unknown_program(command, ground)]
    return found + _program(command, ground, judge_text)


def _program(command: ShellCommand, ground: Ground, judge_text: JudgeText) -> list[Finding]:
    name, words = command.program, command.words
    if (special := destructive.TABLE.get(name)) is not None:
        return special(command, ground)
    if (reason := destructive.ALWAYS.get(name) or destructive.ALWAYS.get(name.partition(".")[0])) is not None:
        return [Finding("high", f"{display_path(name)} {reason}")]
    if command.transparent:
        return []
    if name in _TOOLS and len(words) == 2 and words[1] in _VERSION and _is_known_file(words[0]):
        return []
    if name == "git":
        return [*git.findings(words), *_program_file(command), *_git_folder(command, ground)]
    if (transfer := network.TABLE.get(name)) is not None:
        return transfer(command, ground)
    if name in INTERPRETERS:
        return _interpreter_findings(command, ground, judge_text)
    if name in SHELLS:
        return [Finding("medium", f"{name} runs a script that was not analyzed")]
    if name in ("find", "gfind"):
        return [*_find(command, ground), *_program_file(command)]
    if name in ("sed", "gsed"):
        return [*_sed(command, ground), *_program_file(command)]
    if name in ("awk", "gawk", "mawk", "nawk"):
        return [*_awk(command, ground), *_program_file(command)]
    if name in ("uniq", "xxd") and len(options_and_names(words)[1]) > 1:
        return writing(words[-1], command.cwds, ground)
    if name in ("uniq", "xxd"):
        return [found for path in options_and_names(words)[1] for found in reading(path, command.cwds, ground)]
    if name in ("env", "printenv"):
        return [Finding("medium", f"{name} shows the environment, which often contains credentials")]
    if name in ("export", "declare", "typeset", "readonly") and any(
        SENSITIVE.match(w.partition("=")[0]) for w in words[1:]
    ):
        return [Finding("medium", f"{name} changes what later programs do")]
    if name in _INERT:
        return [*_more_than_reads(command, _INERT[name]), *_program_file(command)]
    if name in _READERS:
        found = [*_more_than_reads(command, _READERS[name]), *_outputs(command, ground, _READERS[name])]
        return [*found, *_reads(command, ground), *_program_file(command)]
    return [Finding("medium", f"{display_path(name)} may change things"), *_secrets_named(command, ground)]


def _is_known_file(word: str) -> bool:
    return "/" not in word or posixpath.dirname(word) in _PROGRAM_FOLDERS


def _program_file(command: ShellCommand) -> list[Finding]:
    word = command.words[0]
    return (
        []
        if _is_known_file(word)
        else [Finding("medium", f"runs the file {display_path(word)}, which only has the name of a known program")]
    )


def _unknown_program(command: ShellCommand, ground: Ground) -> list[Finding]:
    recursive = any(re.fullmatch(r"-[a-zA-Z]*[rR][a-zA-Z]*|--recursive", word) for word in command.words[1:])
    broad = any(
        locate(word, command.cwds, ground).broad
        for word in command.words[1:]
        if not word.startswith("-") and word != HOLE
    )
    if recursive and broad:
        return [Finding("high", "runs an unknown program on a directory tree")]
    return [Finding("medium", "runs a program that is known only at run time"), *_secrets_named(command, ground)]


def _more_than_reads(command: ShellCommand, unsafe: str) -> list[Finding]:
    pattern = re.compile(unsafe) if unsafe else None
    for word in command.words[1:]:
        if pattern is not None and pattern.fullmatch(word):
            return [Finding("medium", f"{command.program} {display_path(word)} does more than read")]
    return []


def _outputs(command: ShellCommand, ground: Ground, unsafe: str) -> list[Finding]:
    """Where a reading program is told to write."""
    if not re.search(r"-o|--out", unsafe) and "]*o" not in unsafe:
        return []
    found: list[Finding] = []
    for word, after in pairwise([*command.words, ""]):
        if re.fullmatch(r"-[a-zA-Z]*o|--output(-file)?|--out", word) and after:
            found += writing(after, command.cwds, ground)
        elif match := re.fullmatch(r"(?:-o|--output=|--out=)(.+)", word):
            found += writing(match.group(1), command.cwds, ground)
    return found


def _reads(command: ShellCommand, ground: Ground) -> list[Finding]:
    name = command.program
    options, names = options_and_names(command.words)
    pattern_given = any(re.match(r"^-[a-zA-Z]*[ef]|^--(regexp|file)", option) for option in options)
    if name in _GREP_LIKE and not pattern_given:
        names = names[1:]
    if name in ("head", "tail"):
        names = [path for path in names if not path.isdigit()]
    paths = [*names, *(option.partition("=")[2] for option in options if "/" in option.partition("=")[2])]
    return [found for path in paths for found in reading(path, command.cwds, ground)]


def _secrets_named(command: ShellCommand, ground: Ground) -> list[Finding]:
    found: list[Finding] = []
    for word in command.words[1:]:
        for part in re.split(r"[=@:]", word) if not word.startswith("-") else [word.partition("=")[2]]:
            if part and locate(part, command.cwds, ground).place == "secret":
                found.append(Finding("high", f"names {display_path(part)}, where credentials are stored"))
    return found


def _git_folder(command: ShellCommand, ground: Ground) -> list[Finding]:
    before, verb, rest = split_git(command.words)
    names = [word for word in rest if not word.startswith("-")]
    paths = [name for name in names if name.startswith(("/", "~", ".."))]
    new = verb in ("clone", "init", "worktree", "archive")
    found = [f for path in paths for f in (writing if new else reading)(path, command.cwds, ground) if f.risk == "high"]
    return found + [
        found
        for flag, value in pairwise(before)
        if flag in ("-C", "--git-dir", "--work-tree")
        for found in reading(value, command.cwds, ground)
    ]


def _find(command: ShellCommand, ground: Ground) -> list[Finding]:
    words = command.words
    found = [f for root in find_roots(words) for f in reading(root, command.cwds, ground)]
    if "-delete" in words:
        for root in find_roots(words):
            path = f"{root.rstrip('/')}/found" if narrowed(words) else root
            found += deleting(path, command.cwds, ground, recursive=True, verb="find -delete deletes")
    for flag, value in pairwise(words):
        if flag in ("-fprint", "-fprint0", "-fprintf", "-fls"):
            found += writing(value, command.cwds, ground)
        elif flag in ("-exec", "-execdir", "-ok", "-okdir") and not value:
            found.append(Finding("medium", "find runs a program that is known only at run time"))
    return found


def _sed(command: ShellCommand, ground: Ground) -> list[Finding]:
    options, names = options_and_names(command.words)
    in_place = any(re.match(r"^-[a-zA-Z]*i|^--in-place", option) for option in options)
    scripts = [
        after for flag, after in zip(command.words, command.words[1:], strict=False) if flag in ("-e", "--expression")
    ]
    if not scripts:
        scripts, names = names[:1], names[1:]
    else:
        names = [name for name in names if name not in scripts]
    if in_place:
        found = [f for path in names for f in writing(path, command.cwds, ground, verb="sed -i changes")]
        return found or [Finding("medium", "sed -i changes files")]
    found = [f for path in names for f in reading(path, command.cwds, ground)]
    if any(option.startswith(("-f", "--file")) for option in options) or not all(
        _SED_READS.match(part.strip()) for script in scripts for part in script.split(";")
    ):
        found.append(Finding("medium", "sed runs a script that may write files or run programs"))
    return found


def _awk(command: ShellCommand, ground: Ground) -> list[Finding]:
    options, names = options_and_names(command.words)
    program = names[:1]
    found = [f for path in names[1:] if "=" not in path for f in reading(path, command.cwds, ground)]
    if any(option.startswith(("-f", "-i", "--file", "--include", "-l")) for option in options) or any(
        re.search(r"system|getline|>|\||@|\bclose\b", text) for text in program
    ):
        found.append(Finding("medium", "awk runs a program that may write files or run programs"))
    return found
