"""What well-known programs do with their words."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Callable
from itertools import pairwise

import msgspec

from stagedoor.unified.events import Risk

from ..paths import Ground, locate, resolve
from ..shell.launchers import ANY_OPTION
from ..shell.script import ShellCommand
from ..shell.scripts import awk_parts, is_plain_awk_program, is_plain_sed_script, sed_parts
from ..shell.suspicion import SENSITIVE
from ..shell.words import HOLE
from ..shell.wrappers import SHELLS, as_called_by_name, find_roots, is_known_file, narrowed, split_git
from . import destructive, git, network
from .agents import other_agents
from .destructive import options_and_names
from .effects import Finding, deleting, display_path, protected_finding, reading, writing
from .git_ground import runs_by_looking
from .hostile import hostile, opens_shell
from .inside import inside
from .named import named_files
from .readers import FILE_OPTIONS, READERS, read_call
from .unpacking import copied, patched

# Code in other languages on the command line is not parsed, but searched for what it asks of the system.
INTERPRETERS: dict[str, tuple[str, ...]] = {
    "python": ("-c",), "pypy": ("-c",), "node": ("-e", "--eval", "-p", "--print"), "deno": ("eval",),
    "bun": ("-e", "--eval"), "perl": ("-e", "-E", "-ne", "-pe", "-ane", "-pie", "-i"), "ruby": ("-e", "-ne", "-pe"),
    "php": ("-r",), "lua": ("-e",), "osascript": ("-e",), "tclsh": (), "rscript": ("-e",), "Rscript": ("-e",),
    "julia": ("-e",), "powershell": ("-Command", "-c"), "pwsh": ("-Command",
    "-c"), "pypy3": ("-c",), "ipython": ("-c",),
    **dict.fromkeys(("R", "octave", "luajit", "guile", "racket", "sbcl", "clojure", "clj", "bb", "elixir", "iex", "erl",
                     "ghc", "ghci", "runghc", "ocaml", "scala", "groovy", "jshell", "kotlin", "kotlinc", "swift",
                     "crystal",
                     "dart", "raku", "tsx", "ts-node", "emacs", "emacsclient", "expect", "gnuplot", "janet", "xonsh",
                     "nu",
                     "m4", "gdb", "lldb", "wish", "jruby", "jython", "nodejs", "pdb", "qjs", "bpftrace", "maxima",
                     "gp"),
                    ()),
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
    r"rmtree|delete-directory|delete-file|unlink|os\.remove|rmdir|rmSync|rm_rf|rm_r\b|FileUtils|remove_tree|\.rm\(|Remove-Item|delete\s+file"
)
_LOOKS_LIKE_CODE = re.compile(r"[\s(){};'\"`]")
_SERVES = re.compile(r"-m (http\.server|SimpleHTTPServer|pyftpdlib)|(^| )-S \S+:\d+|-run -e\s*httpd|-run.*httpd")
_HOME_IN_CODE = re.compile(
    r"Path\.home\(|expanduser|homedir\(|Dir\.home|\bHOME\b|USERPROFILE|getpwuid|homeDirectory|\$env:HOME", re.IGNORECASE
)
_SENDS = re.compile(
    r"urlopen|requests\.|fetch\(|https?\.request|Net::HTTP|LWP|axios|curl_|httpx|aiohttp|Invoke-W|socket"
)
_ENVIRONMENT_IN_CODE = re.compile(
    r"os\.environ(?!\s*[\[.])|process\.env(?!\s*[\[.])|\bENV\.(to_|inspect)|getenv\(\)|%ENV\b"
)
_HIDDEN = re.compile(
    r"\b(exec|eval|system|popen|compile)\b.*(b64decode|base64|atob|fromhex|urlopen|requests\.|fetch\(|http|rot13|unhexlify)"
    r"|(b64decode|atob|urlopen|fetch\().*\b(exec|eval)\b|\biex\b.*download|download(string|file).*\biex\b",
    re.DOTALL | re.IGNORECASE,
)  # fmt: skip


def _interpreter_findings(command: ShellCommand, ground: Ground, judge_text: Callable[[str], Risk]) -> list[Finding]:
    name, words = command.program, command.words
    if len(words) == 2 and words[1] in _INTERPRETER_VERSION and "/" not in words[0]:
        return []
    found = [Finding("medium", f"{name} runs code that was not analyzed")]
    pairs = itertools.pairwise(words)
    code = [
        after for flag, after in pairs if flag in INTERPRETERS[name] or (name == "perl" and re.match(r"^-\w*e$", flag))
    ]
    code += [word for word in words[1:] if _LOOKS_LIKE_CODE.search(word) and word not in code]
    if name in ("powershell", "pwsh") and any(re.match(r"^[-/]e(n|c|nc\w*)?$", word, re.IGNORECASE) for word in words):
        found.append(Finding("high", f"{name} runs code that is encoded"))
    if _SERVES.search(" ".join(words[1:])):
        spots = [locate(word, command.cwds, ground) for word in words[1:] if not word.startswith("-")]
        outside = any(spot.broad or spot.place not in ("workspace", "harmless") for spot in spots)
        risk: Risk = "high" if outside or "0.0.0.0" in words else "medium"
        found.append(Finding(risk, f"{name} gives files to whoever connects"))
    if command.stdin is not None and not any(not word.startswith("-") for word in words[1:] if word not in code):
        code.append(command.stdin)
    loaded = " ".join(word for word in words[1:] if re.match(r"-[rMl]\w|--(require|import)=", word))
    for text in code:
        found += _code_findings(name, text, command, ground, judge_text)
        if loaded and opens_shell(f"{loaded} {text}"):
            found.append(Finding("high", f"{name} opens a shell for another machine"))
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
    if opens_shell(code):
        found.append(Finding("high", f"{name} opens a shell for another machine"))
    if _DELETES.search(code) and _HOME_IN_CODE.search(code):
        found.append(Finding("high", f"{name} deletes in the home folder"))
    if _SENDS.search(code) and _ENVIRONMENT_IN_CODE.search(code):
        found.append(Finding("high", f"{name} sends the environment, which often contains credentials"))
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

_SEEKERS: dict[str, str] = {
    **dict.fromkeys(("find", "gfind"), r"-(exec|execdir|ok|okdir|delete|fprint0?|fprintf|fls)"), "env": "",
    **dict.fromkeys(
        ("sed", "gsed"), r"-[a-zA-Z]*[if].*|--(in-place|file).*|(?:.*[^a-zA-Z])?[wWe]\s.*|.*/[a-zA-Z0-9]*[we].*"
    ),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), r"-[fil].*|--(file|include|load).*|(?s:.*[>|].*)|.*system.*"),
    "printenv": "",
}  # fmt: skip
"""Programs that mostly read, and the words with which they do more."""
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


def findings(command: ShellCommand, ground: Ground, judge_text: JudgeText) -> list[Finding]:
    """What is to be said about one simple command; nothing when it only reads inside the workspace."""
    found = hostile(command)
    if (words := as_called_by_name(command.words)) is not None:
        found += findings(msgspec.structs.replace(command, words=words, redirects=()), ground, judge_text)
        found.append(Finding("medium", f"{command.program} is many programs in one, and runs {display_path(words[0])}"))
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
    found += _program(command, ground, judge_text) + _protected(command, ground) + other_agents(command)
    found += _with_these_words(command, ground)
    if command.transparent or command.program in _OWN_WORDS or only_reads(command):
        return found
    return found if any(finding.risk == "high" for finding in found) else [*found, *inside(command, judge_text)]


def _with_these_words(command: ShellCommand, ground: Ground) -> list[Finding]:
    """What is dangerous only with some words, or with some places."""
    name, words = command.program, command.words[1:]
    pattern, reason = destructive.LATER.get(name, (None, ""))
    if pattern is not None and pattern.match(" ".join(words)):
        return [Finding("high", f"{name} {reason}")]
    if destructive.names_program(name, words):
        return [Finding("high", f"{name} runs or loads what is named there")]
    spots = [
        (word, locate(word, command.cwds, ground)) for word in words if not word.startswith("-") and len(word) < 1000
    ]
    wide = [word for word, spot in spots if spot.broad and spot.place != "workspace"]
    if wide and (name in _SERVERS or (name in _READS_TREES and _RECURSIVE[name].search(" ".join(words)))):
        return [Finding("high", f"{name} reads all of {display_path(wide[0])}, with the credentials in it")]
    if name in _VIRTUAL_MACHINES or name.startswith("qemu-system-"):
        parts = [part for word in words for part in re.split(r"[=,:]", word) if part.startswith(("/", "~", "."))]
        for part in parts:
            spot = locate(part, command.cwds, ground)
            if spot.place in ("secret", "device", "protected") or (spot.broad and spot.place != "workspace"):
                return [Finding("high", f"{name} gives a virtual machine access to {display_path(part)}")]
    if name in ("make", "gmake", "cmake", "meson", "ninja"):
        places = [word.partition("=")[2] for word in words if "=" in word]
        places += [after for flag, after in pairwise(words) if flag in ("--prefix", "--destdir")]
        return [
            f
            for place in places
            if place.startswith("/")
            for f in writing(place, command.cwds, ground)
            if f.risk == "high"
        ]
    if name in ("tar", "gtar", "bsdtar", "zip", "7z", "7za") and _REMOVES[name[-3:] if name != "7za" else "7z"].search(
        " ".join(words)
    ):
        return [
            f for word, _ in spots for f in deleting(word, command.cwds, ground, recursive=True, verb=f"{name} deletes")
        ]
    return []


_VIRTUAL_MACHINES = frozenset(
    ["kvm", "qemu-kvm", "lkvm", "krunvm", "crosvm", "cloud-hypervisor", "firecracker", "vfkit", "tart", "virtiofsd"]
)
_SERVERS = frozenset(
    {"http-server", "serve", "httpd", "caddy", "live-server", "miniserve", "darkhttpd", "webfsd", "sftpgo"}
)
_READS_TREES = frozenset({"grep", "egrep", "rg", "ag", "ack", "ugrep", "tar", "gtar", "bsdtar", "zip", "7z"})
_RECURSIVE: dict[str, re.Pattern[str]] = {
    **dict.fromkeys(("grep", "egrep"), re.compile(r"(^| )(-[a-zA-Z]*[rR]|--recursive|--dereference-recursive)")),
    **dict.fromkeys(_READS_TREES - {"grep", "egrep"}, re.compile("")),
}
_REMOVES = {
    "tar": re.compile(r"--remove-files"), "zip": re.compile(r"(^| )-[a-zA-Z]*m[a-zA-Z]*( |$)"
    r"|--move"), "7z": re.compile(r"-sdel"),
}  # fmt: skip
_OWN_WORDS = (frozenset(destructive.TABLE) - destructive.DATABASES - {"op", "gpg", "tar", "zip"}) | {
    "git",
    "find",
    "gfind",
    "test",
    "[",
}
"""Programs whose words are known to be no command, or are taken apart elsewhere."""


def _protected(command: ShellCommand, ground: Ground) -> list[Finding]:
    """Protected files among the words of programs that are not known to leave them alone."""
    name = command.program
    known = name in destructive.TABLE and name not in destructive.DATABASES | {"gpg", "op"}
    if command.transparent or known or name == "git":
        return []
    return [] if only_reads(command) else named_files(command, ground)


def only_reads(command: ShellCommand) -> bool:
    """Whether a program with these words leaves everything as it is, whatever it is given to read."""
    name, words = command.program, command.words[1:]
    if not command.words or not is_known_file(command.words[0]):
        return False
    if name in _SEEKERS:
        return not any(re.fullmatch(_SEEKERS[name], word) for word in words)
    return name in READERS and HOLE not in "".join(words) and not isinstance(read_call(name, words), str)


def _program(command: ShellCommand, ground: Ground, judge_text: JudgeText) -> list[Finding]:
    name, words = command.program, command.words
    if (special := destructive.TABLE.get(name)) is not None:
        return [*special(command, ground), *_program_file(command)]
    if (reason := destructive.ALWAYS.get(name) or destructive.ALWAYS.get(name.partition(".")[0])) is not None:
        return [Finding("high", f"{display_path(name)} {reason}")]
    if command.transparent:
        return [Finding("medium", "nohup may write the file nohup.out")] if name == "nohup" else []
    if name in _TOOLS and len(words) == 2 and words[1] in _VERSION and is_known_file(words[0]):
        return []
    if name == "git":
        found = [*git.findings(words), *_program_file(command), *_git_folder(command, ground)]
        return found or _looked_at(command, ground)
    if (transfer := network.TABLE.get(name)) is not None:
        return [*transfer(command, ground), *_program_file(command)]
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
    if name in ("env", "printenv"):
        return [Finding("medium", f"{name} shows the environment, which often contains credentials")]
    if name in READERS:
        return [*_reads(command, ground), *_program_file(command)]
    return [Finding("medium", f"{display_path(name)} may change things"), *_secrets_named(command, ground)]


def _program_file(command: ShellCommand) -> list[Finding]:
    word = command.words[0]
    return (
        []
        if is_known_file(word)
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


def _reads(command: ShellCommand, ground: Ground) -> list[Finding]:
    """A program that reads: which files, and whether its options were looked at."""
    name, words = command.program, command.words[1:]
    if HOLE in "".join(words) and name not in ANY_OPTION:
        return [Finding("medium", f"{name} gets words that are known only at run time"), *_named(command, ground)]
    call = read_call(name, words)
    if isinstance(call, str):
        return [Finding("medium", f"{name} {display_path(call)} may do more than read"), *_named(command, ground)]
    paths = [*call.operands, *(value for option, value in call.values if option in FILE_OPTIONS or "/" in value)]
    return [found for path in paths for found in reading(path, command.cwds, ground)]


def _named(command: ShellCommand, ground: Ground) -> list[Finding]:
    """Whatever may be a path, read or written: of what a call means nothing is sure."""
    found: list[Finding] = []
    for word, after in pairwise([*command.words, ""]):
        if re.fullmatch(r"-[a-zA-Z]*o|--output(-file)?|--out", word) and after:
            found += writing(after, command.cwds, ground)
        elif match := re.fullmatch(r"(?:-o|--out\w*=)(.+)", word):
            found += writing(match.group(1), command.cwds, ground)
        elif word != command.words[0] and not word.startswith("-"):
            found += reading(word, command.cwds, ground)
    if command.program in ("uniq", "xxd") and len(options_and_names(command.words)[1]) > 1:
        found += writing(command.words[-1], command.cwds, ground)
    return [*found, *_secrets_named(command, ground)]


def _secrets_named(command: ShellCommand, ground: Ground) -> list[Finding]:
    found: list[Finding] = []
    for word in command.words[1:]:
        for part in re.split(r"[=@:]", word) if not word.startswith("-") else [word.partition("=")[2]]:
            if part and locate(part, command.cwds, ground).place == "secret":
                found.append(Finding("high", f"names {display_path(part)}, where credentials are stored"))
    return found


_GIT_SHOWS = frozenset({
    "show", "log", "diff", "grep", "blame", "annotate", "cat-file", "archive", "whatchanged", "format-patch", "stash",
    "difftool", "hash-object", "diff-tree", "diff-index", "diff-files", "range-diff",
})  # fmt: skip
"""What prints the content of files, also of those that only a commit has."""
_GIT_WRITES = frozenset({
    "checkout", "restore", "mv", "rm", "clone", "init", "worktree", "submodule", "checkout-index", "config", "bundle",
    "stash", "sparse-checkout", "update-index", "read-tree", "difftool", "mergetool", "archive", "subtree",
})  # fmt: skip


def _git_folder(command: ShellCommand, ground: Ground) -> list[Finding]:
    before, verb, rest = split_git(command.words)
    names = [word for word in rest if not word.startswith("-")]
    paths = [name for name in names if name.startswith(("/", "~", ".."))]
    new = verb in ("clone", "init", "worktree", "archive")
    found = [f for path in paths for f in (writing if new else reading)(path, command.cwds, ground) if f.risk == "high"]
    if verb in _GIT_SHOWS:
        found += _secrets_named(command, ground)
    if verb in ("apply", "am"):
        found += patched(command, ground)
    if verb in _GIT_WRITES:
        for path in itertools.chain.from_iterable(name.split(",") for name in names):
            spot = locate(path, command.cwds, ground)
            if spot.place == "protected":
                found.append(protected_finding(path, spot, f"git {verb} writes"))
            elif spot.place == "secret" and path:
                found.append(Finding("high", f"git {verb} writes {display_path(path)}, where credentials are stored"))
    if verb == "clone" and len(names) == 1:
        target = posixpath.basename(names[0].rstrip("/")).removesuffix(".git")
        found += [f for f in writing(target or ".", command.cwds, ground) if f.risk == "high"]
    if verb == "mv":
        found += copied(command, ground, names[:-1], names[-1:])
    outputs = [value for flag, value in pairwise(rest) if flag in ("-o", "--output", "--output-directory", "-f")]
    outputs += [word.partition("=")[2] for word in rest if re.match(r"--(output|output-directory|file|prefix)=", word)]
    found += [f for path in outputs for f in writing(path, command.cwds, ground) if f.risk == "high"]
    return found + [
        found
        for flag, value in pairwise(before)
        if flag in ("-C", "--git-dir", "--work-tree")
        for found in reading(value, command.cwds, ground)
    ]


def _looked_at(command: ShellCommand, ground: Ground) -> list[Finding]:
    """What a repository makes git run although the command only reads."""
    if not ground.on_disk or command.words[1:2] in ((), ("--version",), ("--help",), ("help",), ("version",)):
        return []
    inner = [value for flag, value in pairwise(split_git(command.words)[0]) if flag == "-C"]
    for cwd in command.cwds:
        folder = cwd
        for step in inner:
            folder = resolve(step, folder, ground.home)
        why = "is known only at run time" if folder is None else runs_by_looking(folder)
        if why:
            return [Finding("medium", f"git may run a program of the repository's: it {why}")]
    return []


_FIND_TESTS = re.compile(
    r"-(a|and|o|or|not|true|false|print0?|ls|prune|quit|depth|d|xdev|mount|daystart|follow|noleaf|empty|readable|writable|"
    r"executable|nouser|nogroup)|[()!,]|-[HLP]|-O\d"
)
_FIND_VALUES = re.compile(
    r"-(i?name|i?path|i?wholename|i?regex|i?lname|regextype|type|xtype|size|[acm]time|[acm]min|newer\w*|anewer|cnewer|user|group|"
    r"uid|gid|perm|links|inum|samefile|maxdepth|mindepth|fstype|used|printf)"
)


def _find(command: ShellCommand, ground: Ground) -> list[Finding]:
    words = command.words
    found = [f for root in find_roots(words) for f in reading(root, command.cwds, ground)]
    at, ended = 1, False
    while at < len(words):
        word = words[at]
        at += 1
        if _FIND_TESTS.fullmatch(word) or (not ended and not word.startswith("-")):
            ended = ended or not re.fullmatch(r"-[HLP]|-O\d|[^-(!].*", word)
        elif _FIND_VALUES.fullmatch(word):
            at, ended = at + 1, True
        elif word in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((n for n in range(at, len(words)) if words[n] in (";", "+")), len(words))
            if end == at:
                found.append(Finding("medium", "find runs a program that is known only at run time"))
            at, ended = end + 1, True
        elif word == "-delete":
            for root in find_roots(words):
                path = f"{root.rstrip('/')}/found" if narrowed(words) else root
                found += deleting(path, command.cwds, ground, recursive=True, verb="find -delete deletes")
        elif word in ("-fprint", "-fprint0", "-fprintf", "-fls"):
            found += writing(words[at] if at < len(words) else HOLE, command.cwds, ground)
            at += 2 if word == "-fprintf" else 1
        else:
            found.append(Finding("medium", f"find {display_path(word)} may do more than read"))
    return found


def _sed(command: ShellCommand, ground: Ground) -> list[Finding]:
    parts = sed_parts(command.words[1:])
    if parts is None:
        return [Finding("medium", "sed has options that may do more than read"), *_named(command, ground)]
    scripts, names, in_place = parts
    if in_place:
        found = [f for path in names for f in writing(path, command.cwds, ground, verb="sed -i changes")]
        return found or [Finding("medium", "sed -i changes files")]
    found = [f for path in names for f in reading(path, command.cwds, ground)]
    if not all(is_plain_sed_script(script) for script in scripts):
        found.append(Finding("medium", "sed runs a script that may write files or run programs"))
    return found


def _awk(command: ShellCommand, ground: Ground) -> list[Finding]:
    parts = awk_parts(command.words[1:])
    if parts is None:
        return [Finding("medium", "awk has options that may do more than read"), *_named(command, ground)]
    program, names = parts
    found = [f for path in names if "=" not in path for f in reading(path, command.cwds, ground)]
    if not is_plain_awk_program(program):
        found.append(Finding("medium", "awk runs a program that may write files or run programs"))
    return found
