"""Programs that run another program: where the inner command stands among their words."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Sequence

import msgspec

from .words import HOLE

_GIT_VALUE_OPTIONS = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--exec-path")
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
        "-b", "-c", "-D", "-E", "-e", "-F", "-I", "-i", "-J", "-L", "-l", "-m", "-O", "-o", "-p", "-Q", "-R", "-S",
        "-W", "-w",
    ]
)  # fmt: skip


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
    if (
        program_of(words) not in ("find", "gfind")
        or not is_known_file(words[0])
        or any(word.startswith(("-exec", "-ok", "-printf", "-fprint")) for word in words)
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


def split_git(words: tuple[str, ...]) -> tuple[list[str], str, list[str]]:
    """The options before the command, the command, and its own words."""
    before: list[str] = []
    at = 1
    while at < len(words) and words[at].startswith("-"):
        before.append(words[at])
        if words[at] in _GIT_VALUE_OPTIONS and at + 1 < len(words):
            at += 1
            before.append(words[at])
        at += 1
    return before, words[at] if at < len(words) else "", list(words[at + 1 :])


Words = tuple[str, ...]


class Wrapper(msgspec.Struct, frozen=True, kw_only=True):
    """How to find the inner command: options that take a value, words before it, ``NAME=value`` words."""

    values: frozenset[str] = frozenset()
    skip: int = 0
    assignments: bool = False
    subcommand: frozenset[str] = frozenset()
    transparent: bool = True


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    """A command inside another: words, or a script to be parsed."""

    words: Words = ()
    script: str | None = None
    assignments: Words = ()


def _plain(values: str = "", *, skip: int = 0) -> Wrapper:
    return Wrapper(values=frozenset(values.split()), skip=skip)


def _runner(subcommand: str = "", values: str = "", *, skip: int = 0, assignments: bool = False) -> Wrapper:
    return Wrapper(
        values=frozenset(values.split()),
        subcommand=frozenset(subcommand.split()),
        transparent=False,
        skip=skip,
        assignments=assignments,
    )


WRAPPERS: dict[str, Wrapper] = {
    "sudo": _runner(values="-u -g -h -p -C -r -t -U -D -R -T --user --group --host --chdir", assignments=True),
    "doas": _runner(values="-u -C"),
    "pkexec": _runner(values="--user"),
    "su": _runner(values="-c -s -g -G --command --shell"),
    "runuser": _runner(values="-u -g -c -s"),
    "gosu": _runner(skip=1),
    "su-exec": _runner(skip=1),
    "chroot": _runner(values="--userspec --groups", skip=1),
    "nsenter": _runner(values="-t -S -G"),
    "unshare": _runner(values="-S -G"),
    "systemd-run": _runner(values="-p -u --unit -E --slice"),
    "env": Wrapper(values=frozenset({"-u", "-C", "-a", "--unset", "--chdir", "--argv0"}), assignments=True),
    "nice": _plain("-n --adjustment"),
    "ionice": _plain("-c -n -p --class --classdata"),
    "chrt": _plain(skip=1),
    "taskset": _plain(skip=1),
    "timeout": _plain("-s -k --signal --kill-after", skip=1),
    "gtimeout": _plain("-s -k --signal --kill-after", skip=1),
    "nohup": _plain(),
    "setsid": _plain(),
    "stdbuf": _plain("-i -o -e --input --output --error"),
    "unbuffer": _plain(),
    "time": _plain("-f -o --format --output"),
    "command": _plain(),
    "builtin": _plain(),
    "exec": _plain("-a"),
    "coproc": _plain(),
    "noglob": _plain(),
    "nocorrect": _plain(),
    "caffeinate": _plain("-t -w"),
    "busybox": _plain(),
    "toybox": _plain(),
    "watch": _plain("-n --interval"),
    "strace": _runner(values="-e -o -p -s -S -u -E"),
    "ltrace": _runner(values="-e -o -p -s -u"),
    "flock": _runner(values="-w -E --timeout -c --command", skip=1),
    "script": _runner(values="-c --command -E -I -O -B -T"),
    "xargs": _plain("-I -i -n -P -L -s -d -E -a --max-args --max-procs --replace --delimiter --arg-file --max-lines"),
    "parallel": _runner(values="-j -N -n -I --jobs -a --colsep --delay"),
    "xvfb-run": _runner(values="-s -n --server-args"),
    "dbus-run-session": _runner(),
    "setarch": _plain(skip=1),
    "linux32": _plain(),
    "linux64": _plain(),
    "proot": _runner(values="-r -b -w"),
    "fakeroot": _runner(),
    "firejail": _runner(),
    "npx": _runner(values="-p --package"),
    "pnpx": _runner(),
    "bunx": _runner(),
    "uvx": _runner(values="--from --with --python"),
    "uv": _runner("run", values="--with --python --project --directory -p"),
    "poetry": _runner("run"),
    "pipenv": _runner("run"),
    "pdm": _runner("run"),
    "hatch": _runner("run"),
    "rye": _runner("run"),
    "conda": _runner("run", values="-n -p --name --prefix"),
    "bundle": _runner("exec"),
    "npm": _runner("exec x"),
    "pnpm": _runner("exec dlx"),
    "yarn": _runner("exec dlx"),
    "mise": _runner("exec x"),
    "direnv": _runner("exec", skip=1),
    "docker": _runner("exec", values="-u -w -e --user --workdir --env", skip=1),
    "podman": _runner("exec", values="-u -w -e --user --workdir --env", skip=1),
    "kubectl": _runner("exec", values="-n -c --namespace --container", skip=1),
}

SHELLS = frozenset(
    [
        "sh", "bash", "zsh", "dash", "ksh", "mksh", "ash", "fish", "rbash", "csh", "tcsh", "yash", "hush", "rc", "es",
        "nu", "elvish", "pwsh", "powershell", "xonsh", "oil", "osh", "ysh", "ion", "murex", "scsh", "tclsh", "expect",
        "pdksh", "oksh", "loksh", "lksh", "posh", "sash", "rksh", "rzsh", "bosh", "pbosh", "mrsh", "nsh", "brush",
        "nushell", "hilbish", "cmd",
    ]
)  # fmt: skip
FOLLOWED_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
"""The shells that were tried against this reading (``tools/shell_fuzz``); what others make of a text is not known."""
_SCRIPT_OPTIONS = {
    "su": ("-c", "--command"),
    "runuser": ("-c", "--command"),
    "script": ("-c", "--command"),
    "flock": ("-c", "--command"),
    "env": ("-S", "--split-string"),
}
# A program that hands its words on as one script.
_JOINED = frozenset({"watch", "parallel"})


def program_of(words: Sequence[str]) -> str:
    """The name a program is known by: without its folder, its ``.exe`` and its version number."""
    if not words:
        return ""
    name = posixpath.basename(words[0].replace("\\", "/")) if words[0] != "/" else "/"
    name = name.removesuffix(".exe")
    name = re.sub(r"^(bash|zsh|ksh|mksh|dash|yash|fish|tclsh|expect|pwsh)-?\d[\d.]*$", r"\1", name)
    return re.sub(r"^(python|pip|perl|ruby|node|php|lua)[\d.]+$", r"\1", name)


def is_known_file(word: str) -> bool:
    """Whether a name stands for the program that is known by it: any other file may only be called so."""
    folder, separator, _ = word.rpartition("/")
    return "\\" not in word and (not separator or folder in _PROGRAM_FOLDERS)


_PROGRAM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/usr/sbin", "/sbin"})


def as_called_by_name(words: Words) -> Words | None:
    """The same command by the name that is known, where one program is many: ``git-push``, ``cmake -E rm``, ``coreutils
    --coreutils-prog=rm``. Those that only start a program are in ``WRAPPERS``."""
    name = program_of(words)
    if re.fullmatch(r"git-[\w-]+", name):
        return ("git", name.removeprefix("git-"), *words[1:])
    if name == "cmake" and len(words) > 2 and words[1] == "-E":
        return (*_CMAKE_VERBS.get(words[2], (words[2],)), *words[3:])
    if name == "coreutils" and (match := re.fullmatch(r"--coreutils-prog(?:-shebang)?=(.+)", "".join(words[1:2]))):
        return (match.group(1), *words[2:])
    return None


_CMAKE_VERBS: dict[str, Words] = {
    "remove": ("rm",), "remove_directory": ("rm", "-r"), "copy": ("cp",), "copy_if_different": ("cp",),
    "copy_directory": ("cp", "-r"), "copy_directory_if_different": ("cp", "-r"), "rename": ("mv",),
    "make_directory": ("mkdir", "-p"), "create_symlink": ("ln", "-s"), "create_hardlink": ("ln",),
    "touch_nocreate": ("touch",), "cat": ("cat",),
}  # fmt: skip


def is_transparent(words: Sequence[str]) -> bool:
    """Whether a wrapper does nothing of its own, so that its inner command says everything."""
    if not words or not is_known_file(words[0]):
        return False
    wrapper = WRAPPERS.get(program_of(words))
    return wrapper is not None and wrapper.transparent


def changes_nothing(words: Words) -> bool:
    """Whether the inner command of a transparent one is the same as without it, but for its time and its haste."""
    name = program_of(words)
    if name in SHELLS:
        return all(re.fullmatch(r"-[exu]*c?[exu]*|-o|[^-+].*", word, re.DOTALL) for word in words[1:])
    own = itertools.takewhile(lambda word: word.startswith("-"), words[1:])
    return name in _ONLY_TIME or (name in ("env", "command") and not list(own))


_ONLY_TIME = frozenset({"timeout", "gtimeout", "nice", "ionice", "stdbuf", "time"})


def unwrap(words: Words, stdin: str | None = None) -> list[Inner]:
    """The commands a wrapper would run; more than one where its options can be read in two ways."""
    name = program_of(words)
    wrapper = WRAPPERS.get(name)
    if wrapper is None:
        return []
    rest = words[1:]
    if wrapper.subcommand:
        at = next((n for n, word in enumerate(rest) if not word.startswith("-")), None)
        if at is None or rest[at] not in wrapper.subcommand:
            return []
        rest = rest[at + 1 :]
    if name == "command" and rest[:1] and rest[0] in ("-v", "-V"):
        return []
    found = [Inner(script=script) for script in _scripts(name, rest)]
    for strict in (True, False):
        inner = _after_options(name, wrapper, rest, stdin, guess_values=not strict)
        if inner is not None and inner not in found:
            found.append(inner)
    return found


def _scripts(name: str, rest: Words) -> list[str]:
    options = _SCRIPT_OPTIONS.get(name, ())
    scripts: list[str] = []
    for option in options:
        for at, word in enumerate(rest):
            if word == option and at + 1 < len(rest):
                scripts.append(" ".join(rest[at + 1 :]) if name == "env" else rest[at + 1])
            elif word.startswith(option + "=") and option.startswith("--"):
                scripts.append(word[len(option) + 1 :])
            elif not option.startswith("--") and word.startswith(option) and len(word) > 2:
                scripts.append(word[2:])
    return scripts


def _after_options(name: str, wrapper: Wrapper, rest: Words, stdin: str | None, *, guess_values: bool) -> Inner | None:
    at = 0
    assignments: list[str] = []
    skip = wrapper.skip
    replaced = "{}" if name == "parallel" else ""
    while at < len(rest):
        word = rest[at]
        if word == "--":
            at += 1
            if skip == 0:
                break
            continue
        if word.startswith("-") and len(word) > 1:
            takes_value = word in wrapper.values
            if name == "xargs" and word.startswith("-I"):
                replaced = word[2:] or (rest[at + 1] if at + 1 < len(rest) else "{}")
            if takes_value or (guess_values and "=" not in word):
                at += 1
            at += 1
            continue
        if wrapper.assignments and re.match(r"^\w+=", word):
            assignments.append(word)
            at += 1
            continue
        if skip == 0:
            break
        skip -= 1
        at += 1
    inner = rest[at:]
    if not inner:
        return None
    if name == "coproc" and "{" in inner:
        inner = inner[inner.index("{") + 1 :]
    if name in ("xargs", "parallel"):
        given = tuple(stdin.split()) if stdin is not None and HOLE not in stdin else (HOLE,)
        if replaced:
            inner = tuple(part for word in inner for part in (given if word == replaced else (word,)))
            inner = tuple(word.replace(replaced, HOLE) for word in inner)
        else:
            inner = inner + given
    if name in _JOINED:
        return Inner(script=" ".join(inner), assignments=tuple(assignments))
    return Inner(words=inner, assignments=tuple(assignments))
