"""Programs that run others: the shapes in which it is certain which command they run.

What is not such a shape is not understood. ``wrappers`` guesses on, so that a danger inside is still seen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from .plain import NotUnderstood, is_harmless_setting, is_own_name
from .scripts import is_plain_awk, is_plain_sed
from .words import HOLE
from .wrappers import FOLLOWED_SHELLS, SHELLS, WRAPPERS, Inner, Words, find_roots, narrowed, program_of, split_git


class Shape(msgspec.Struct, frozen=True):
    """The options that were looked at: without and with a value, and a pattern for each word before the command."""

    flags: str = ""
    values: str = ""
    before: tuple[str, ...] = ()
    settings: bool = False


_TIME = r"\d+(\.\d+)?[smhd]?"
_SHAPES: dict[str, Shape] = {
    "env": Shape("-i", settings=True),
    "nice": Shape(r"-\d+", "-n"),
    "timeout": Shape("--foreground --preserve-status -v", "-s -k --signal --kill-after", (_TIME,)),
    "gtimeout": Shape("--foreground --preserve-status -v", "-s -k --signal --kill-after", (_TIME,)),
    "nohup": Shape(),
    "setsid": Shape("-w --wait -f"),
    "stdbuf": Shape(r"-[ioe](L|\d+)"),
    "command": Shape("-p"),
    "ionice": Shape(r"-c\d", "-c -n"),
    "xargs": Shape(r"-0 --null -r --no-run-if-empty -t -0r -r0 -[nLP]\d+", "-n -L -P -I"),
    "sudo": Shape("-E -n -H", "-u -g"),
    "doas": Shape("-n", "-u"),
    "npx": Shape("-y --yes -q --no-install", ""),
    "bunx": Shape(),
    "uvx": Shape("", "--from --with --python"),
    "uv": Shape("-q --frozen --locked --no-sync", "--with --python -p --extra --group"),
    "poetry": Shape(),
    "pipenv": Shape(),
    "pdm": Shape(),
    "hatch": Shape(),
    "rye": Shape(),
    "bundle": Shape(),
    "npm": Shape("-y --yes"),
    "pnpm": Shape(),
    "yarn": Shape(),
    "docker": Shape("-i -t -it -ti -d", "-u -w --user --workdir", (r"[\w.-]+",)),
    "podman": Shape("-i -t -it -ti -d", "-u -w --user --workdir", (r"[\w.-]+",)),
    "kubectl": Shape("-i -t -it", "-n -c", (r"[\w./-]+",)),
}
# Commands of the shell itself that change what later words mean, or that run their words.
_SHELL_STATE = frozenset(
    [
        ".", "source", "eval", "exec", "trap", "alias", "unalias", "builtin", "bind", "complete", "compgen", "compopt",
        "declare", "typeset", "local", "readonly", "unset", "read", "mapfile", "readarray", "getopts", "let", "enable",
        "hash", "shopt", "fc", "history", "caller", "coproc", "shift", "return", "suspend", "logout", "newgrp",
        "pushd", "popd", "dirs", "disown", "bg", "fg", "chdir", "time",
        # of zsh and others
        "autoload", "bindkey", "emulate", "functions", "integer", "float", "sched", "setopt", "unsetopt", "vared",
        "zmodload", "zle", "zparseopts", "zformat", "zstyle", "zregexparse", "ztcp", "zsocket", "rehash", "print",
        "limit", "unlimit", "whence", "where", "setvar", "noglob", "nocorrect", "repeat", "comparguments", "compadd",
        "compset", "private", "zpty", "zselect", "zcompile", "ttyctl", "sysopen", "syswrite", "bye", "pushln", "getln",
        "echotc", "echoti", "zstat", "strftime",
    ]
)  # fmt: skip
# Programs none of whose options writes a file or runs a program, so that a file may be called like an option.
ANY_OPTION = frozenset(
    [
        "ls", "cat", "wc", "grep", "egrep", "fgrep", "head", "tail", "echo", "stat", "du", "md5sum", "sha1sum",
        "sha256sum", "sha512sum", "cksum", "cut", "nl", "tac", "basename", "dirname", "realpath", "readlink",
    ]
)  # fmt: skip
_SET = re.compile(r"-[eux]+|\+[eux]+|-[eux]*o|pipefail|errexit|nounset|xtrace")
_SHELL_FLAGS = re.compile(r"-[lexu]*c?[lexu]*|--norc|--noprofile|--login|--posix")
# Options with which git runs a program that they name; git takes any beginning of a long one.
_GIT_RUNS = (
    "--upload-pack", "--receive-pack", "--exec", "--ext-diff", "--open-files-in-pager", "--extcmd", "--tool-help",
    "--to-cmd", "--cc-cmd", "--header-cmd", "--smtp-server", "--sendmail-cmd", "--config", "--template", "--tool",
    "--gpg-sign", "--textconv", "--filters", "--show-signature", "--editor", "--msg-filter", "--gui",
)  # fmt: skip
_GIT_SHORT = {
    "grep": "O", "rebase": "x", "difftool": "xtg", "mergetool": "tg", "clone": "uc", "fetch": "", "am": "S",
    "instaweb": "*", "help": "*", "web--browse": "*",
}  # fmt: skip
_GIT_LAUNCHES = frozenset(
    [
        "filter-branch", "submodule", "bisect", "difftool", "mergetool", "instaweb", "send-email", "daemon", "shell",
        "cvsserver", "upload-pack", "receive-pack", "upload-archive", "remote-ext", "remote-fd", "hook", "maintenance",
        "credential", "for-each-repo", "gui", "gitk", "citool", "web--browse", "merge-index", "merge-one-file",
        "archimport", "svn", "p4", "quiltimport", "config",
    ]
)  # fmt: skip
_TAR_RUNS = ("--to-command", "--use-compress-program", "--checkpoint-action", "--rsh-command", "--info-script",
             "--new-volume-script", "--rmt-command")  # fmt: skip


# Options by which other programs run one; of a long one, programs take any beginning.
_RUNNING: dict[str, tuple[str, ...]] = {
    "sort": ("--compress-program",),
    "split": ("--filter",),
    "rg": ("--pre", "--hostname-bin"),
    "man": ("-P", "--pager", "-H", "--html"),
    "ag": ("--pager",),
    "bat": ("--pager",),
    "zip": ("-TT", "--unzip-command"),
    "install": ("--strip-program",),
    "wget": ("--use-askpass", "--config", "-e", "--execute"),
    "make": ("--eval", "-E"),
    "cargo": ("--config",),
    **dict.fromkeys(
        ("gcc", "g++", "cc", "c++", "clang", "clang++", "gfortran", "ld", "gold", "lld"),
        ("-wrapper", "-fplugin", "-fpass-plugin", "-specs", "-B", "-load", "-plugin", "--plugin"),
    ),
    "hg": ("--config", "--ssh", "-e", "--remotecmd"),
    "sl": ("--config", "--ssh", "-e", "--remotecmd"),
    "svn": ("--config-option", "--config-dir", "--diff-cmd", "--diff3-cmd", "--merge-cmd", "--editor-cmd"),
    "bzr": ("-O",),
    "brz": ("-O",),
    "fossil": ("--ssh-command", "--command"),
    "jj": ("--config", "--config-file", "--config-toml", "--tool"),
    "less": ("+", "-k", "--lesskey-src", "--lesskey-file"),
    "more": ("+",),
    "vim": ("-c", "+", "-S", "--cmd", "-s"),
    "ex": ("-c", "+"),
    "vi": ("-c", "+"),
    "nvim": ("-c", "+", "-S", "--cmd", "-l"),
}


# Programs that run the program their words name, in more shapes than were looked at.
_LAUNCHERS = frozenset(
    [
        "bwrap", "flatpak-spawn", "dtach", "abduco", "daemonize", "start-stop-daemon", "daemon", "chpst", "setpriv",
        "prlimit", "cpulimit", "numactl", "trickle", "torsocks", "torify", "proxychains", "proxychains4", "tsocks",
        "faketime", "rlwrap", "expect", "entr", "watchexec", "nodemon", "onchange", "chokidar", "concurrently",
        "cross-env", "env-cmd", "dotenv", "dotenvx", "foreman", "honcho", "doppler", "aws-vault", "chamber",
        "envconsul",
        "teller", "nix-shell", "hyperfine", "chronic", "ifne", "mispipe", "pee", "lckdo", "run-one", "run-this-one",
        "ssh-agent", "gpg-agent", "dbus-launch", "xinit", "startx", "xterm", "gnome-terminal", "konsole", "alacritty",
        "kitty", "wezterm", "valgrind", "catchsegv", "eatmydata", "catatonit", "tini", "dumb-init", "s6-setuidgid",
        "softlimit", "envdir", "setlock", "multilog", "unbuffer", "exec-with-piped", "with-contenv", "systemd-inhibit",
        "systemd-cat", "gnome-session-inhibit", "dbus-exec", "sg", "aa-exec", "choom", "uclampset", "coresched",
        "setarch", "i386", "x86_64", "runcon", "cgexec", "lxc-attach", "lxc-execute", "incus", "lxc", "machinectl",
        "distrobox", "toolbox", "singularity", "apptainer", "runc", "crun", "ctr", "nerdctl", "vagrant", "osascript",
        "rofi", "dmenu", "fzf", "sk", "dialog", "git-shell", "slirp4netns", "rootlesskit", "ptyxis", "foot", "urxvt",
    ]
)  # fmt: skip
# The same for programs that do so only with some words.
_LAUNCHING: dict[str, str] = {
    "tmux": r"(new\S*|neww\S*|split\S*|splitw|respawn\S*|send\S*|run\S*|if\S*|pipe\S*|display-popup|popup|set-hook"
    r"|source\S*|bind\S*)",
    "screen": r"-\w*[dDmX]\w*|exec|stuff|-t", "nix": r"run|develop|shell|-c|--command", "guix": r"shell|environment|--",
    "devbox": r"run|shell", "pixi": r"run|exec", "micromamba": r"run", "mamba": r"run", "pipx": r"run",
    "tox": r"exec|--",
    "nox": r"--", "asdf": r"exec", "rbenv": r"exec", "pyenv": r"exec", "nvm": r"exec|run", "volta": r"run",
    "fnm": r"exec",
    "rtx": r"exec|x", "sops": r"exec-\w+", "op": r"run", "perf": r"stat|record|trace|--",
    "gdb": r"-\S*ex\S*|--args|-x|--eval\S*",
    "lldb": r"-o|-O|-s|--", "go": r"-exec\S*|-toolexec\S*|-vettool\S*", "cargo": r"watch|--config\S*",
    "dotnet": r"exec|watch",
    "bazel": r"--run_under\S*", "cmake": r"-E|-P", "npm": r"--script-shell\S*", "flatpak": r"run|enter|--command\S*",
    "emacs": r"-\S*eval\S*|-l|--load\S*|-f|--funcall\S*", "emacsclient": r"-e|--eval", "yt-dlp": r"--exec\S*",

       "nomad": r"exec",

    "socat": r"(?is:.*(exec|system|shell):.*)", "ftp": r"(?s:.*!.*)", "ssh-add": r"-s", "ssh-keygen": r"-[Dw]",
    "aria2c": r"--on-\S+", "curl": r"-K\S*|--config\S*",
    "sqlite3": r"(?s:\s*\.\w.*)",
    "psql": r"(?s:.*\\.*)", "mysql": r"(?s:.*(\\!|system).*)", "m4": r".*", "dc": r"-e|(?s:.*!.*)", "ed": r".*",
    "make": r"\.?SHELL\S*=.*",
}  # fmt: skip
# Code of another language that may run programs, or hides what it does.
_CODE_OPTIONS = re.compile(r"-[a-zA-Z]*[ceEprB]|--eval(=.*)?|--print(=.*)?|eval|-\w*[eE]\W.*|-Command")
_RUNS_PROGRAMS = re.compile(
    r"system|exec|spawn|run-program|:cmd|command|sys\.process|\.!|popen|subprocess|child_process|shell|`|%x|\bqx\b|\bos\.(posix_|start|kill)|\bpty\b|ctypes|cffi|importlib"
    r"|__import__|__builtins__|__dict__|getattr|globals|\beval\b|\bcompile\b|marshal|pickle|runpy|process\.(binding|dlopen)"
    r"|Function\(|constructor|require\(\s*[^'\")]|import\(\s*[^'\")]|\.send\b|instance_eval|Kernel|IO\.|Open3|open\(\s*['\"]\s*\||"
    r"open\(\s*\w+\s*,\s*['\"]\s*(\||-\|)|passthru|proc_open|pcntl|\brun\(|Deno\.(Command|run)|Bun\.|\$\{?\w+\}?\("
    r"|\bFFI\b|do shell|chr\(|"
    r"fromCharCode|b64|base64|unhex|rot13|\\x[0-9a-f]{2}|urlopen|requests\.|https?://",
    re.IGNORECASE,
)
_LANGUAGES = frozenset(
    [
        "python", "pypy", "pypy3", "ipython", "node", "nodejs", "deno", "bun", "perl", "ruby", "jruby", "php", "lua",
        "luajit", "julia", "R", "Rscript", "octave", "guile", "racket", "sbcl", "clojure", "clj", "bb", "elixir",
        "iex", "erl", "ghc", "ocaml", "scala", "groovy", "jshell", "kotlin", "kotlinc", "swift", "crystal", "dart",
        "raku", "tsx", "ts-node", "pwsh", "powershell", "tclsh", "wish", "gnuplot", "janet", "xonsh", "nu",
    ]
)  # fmt: skip


def _check_code(name: str, rest: Words, stdin: str | None) -> None:
    """Code on the command line is not read, but it must not look as if it ran something."""
    codes = [word for word in rest if re.search(r"[\s(){};'\"`]", word)]
    codes += [after for flag, after in pairwise(rest) if _CODE_OPTIONS.fullmatch(flag)]
    if stdin is not None and not any(word for word in rest if not word.startswith("-")):
        codes.append(stdin)
    for code in codes:
        if HOLE in code or _RUNS_PROGRAMS.search(code):
            raise NotUnderstood(f"gives {name} code that may run programs")


def launched(words: Words, stdin: str | None) -> list[Inner] | None:
    """The commands that these words surely run besides themselves; ``None`` for a program that runs no other.

    Raises :class:`NotUnderstood` where that is not sure.
    """
    name = program_of(words)
    rest = words[1:]
    if name in _SHELL_STATE and words[0] == name:
        raise NotUnderstood(f"uses `{name}`, which changes how the rest is read or runs text")
    if name in SHELLS:
        return _shell(name, rest)
    match name:
        case "find" | "gfind":
            return _find_commands(words)
        case "awk" | "gawk" | "mawk" | "nawk":
            if HOLE in "".join(rest) or not is_plain_awk(rest):
                raise NotUnderstood(f"runs a program in {name} that may run others")
        case "sed" | "gsed":
            if HOLE in "".join(rest) or not is_plain_sed(rest):
                raise NotUnderstood(f"runs a script in {name} that may run programs")
        case "git":
            _check_git(words)
        case "tar" | "bsdtar" | "gtar":
            _check_tar(rest)
        case "ssh" | "mosh" | "autossh" | "sshpass" | "rsync" | "scp" | "sftp":
            return _remote(name, words)
        case "test" | "[":
            _check_test(rest)
        case "printf" | "wait":
            if any(word.startswith("-") and word != "--" for word in rest[:1]):
                raise NotUnderstood(f"uses `{name}` to set a variable")
            if _NUMERIC.search("".join(rest[:2])) and re.search(r"[\[$`\0]", "".join(rest[1:])):
                raise NotUnderstood("prints as a number what is none")
        case "exit" | "break" | "continue":
            if any(not word.isdigit() for word in rest):
                raise NotUnderstood(f"uses `{name}` in an unusual way")
        case "fd" | "fdfind":
            if any(word.startswith(("-x", "-X", "--exec")) or HOLE in word for word in rest):
                raise NotUnderstood(f"lets {name} run a program")
        case "jobs" | "ulimit" | "umask":
            if any(not re.fullmatch(r"-[alp]|\d+", word) for word in rest):
                raise NotUnderstood(f"uses `{name}` in an unusual way")
        case "set":
            if not rest or not all(_SET.fullmatch(word) for word in rest):
                raise NotUnderstood("uses `set`, which changes how the rest is read")
        case "export":
            if any(not is_own_name(word.partition("=")[0]) for word in rest) or not rest:
                raise NotUnderstood("uses `export`, which changes what later programs do")
        case _ if name in _LAUNCHERS:
            raise NotUnderstood(f"runs a program through {name}")
        case _ if name in _LAUNCHING and any(re.fullmatch(_LAUNCHING[name], word) for word in (*rest, stdin or "")):
            if name not in WRAPPERS or not any(word in WRAPPERS[name].subcommand for word in rest):
                raise NotUnderstood(f"runs a program through {name}")
            return _wrapped(name, rest, stdin)
        case _ if name in _LANGUAGES:
            _check_code(name, rest, stdin)
        case "busybox" | "toybox":
            raise NotUnderstood(f"runs a program through {name}")
        case _ if name in WRAPPERS:
            return _wrapped(name, rest, stdin)
        case _ if name in _RUNNING:
            for word in rest:
                if HOLE in word or _begins(word, _RUNNING[name]) or _is_short(word, _RUNNING[name]):
                    raise _unusual(name, word)
        case _:
            pass
    return None


_NUMERIC = re.compile(r"%[^%\s]*[diouxXeEfFgGaA*]")
_COMPARISONS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})


def _check_test(rest: Words) -> None:
    for at, word in enumerate(rest):
        if word in ("-v", "-R", "-t"):
            raise NotUnderstood(f"tests with `{word}`, which may run something")
        if word in _COMPARISONS and not all(
            re.fullmatch(r"-?\d+", beside) for beside in (*rest[max(0, at - 1) : at], *rest[at + 1 : at + 2])
        ):
            raise NotUnderstood("compares as a number what is none")


def _unusual(name: str, word: str) -> NotUnderstood:
    return NotUnderstood(f"uses {name} with `{word.replace(HOLE, '…')}`, which was not looked at")


def _wrapped(name: str, rest: Words, stdin: str | None) -> list[Inner] | None:
    wrapper, shape = WRAPPERS[name], _SHAPES.get(name)
    if wrapper.subcommand:
        if not any(word in wrapper.subcommand or HOLE in word for word in rest):
            return None
        if rest[0] not in wrapper.subcommand:
            raise _unusual(name, rest[0])
        rest = rest[1:]
    if shape is None:
        raise NotUnderstood(f"runs a program through {name}")
    if name == "command" and rest[:1] in (("-v",), ("-V",)):
        return None
    flags, values = [re.compile(flag) for flag in shape.flags.split()], shape.values.split()
    at, before, settings, replaced = 0, list(shape.before), list[str](), ""
    while at < len(rest):
        word = rest[at]
        if HOLE in word:
            raise NotUnderstood(f"runs a program through {name} that is known only at run time")
        if word == "--" and not before:
            at += 1
            break
        if word.startswith("-") and len(word) > 1:
            if any(flag.fullmatch(word) for flag in flags):
                at += 1
            elif word in values and at + 1 < len(rest) and HOLE not in rest[at + 1]:
                replaced = rest[at + 1] if name == "xargs" and word == "-I" else replaced
                at += 2
            elif name == "xargs" and word.startswith("-I") and len(word) > 2:
                replaced, at = word[2:], at + 1
            elif word.partition("=")[0] in values and word.startswith("--"):
                at += 1
            else:
                raise _unusual(name, word)
        elif shape.settings and "=" in word:
            if not is_harmless_setting(word):
                raise NotUnderstood(f"sets {word.partition('=')[0]}, which changes what programs do")
            settings.append(word)
            at += 1
        elif before:
            if not re.fullmatch(before[0], word):
                raise _unusual(name, word)
            before.pop(0)
            at += 1
        else:
            break
    inner = rest[at:]
    if not inner:
        if name == "xargs":
            return [Inner(words=("echo", HOLE))]
        if name == "env":
            return None
        raise NotUnderstood(f"uses {name} without a command")
    if name == "xargs":
        inner = _fed(inner, replaced, stdin if at == 0 else None)
    if inner[0].startswith("-") or HOLE in inner[0]:
        raise _unusual(name, inner[0])
    return [Inner(words=inner, assignments=tuple(settings))]


def _fed(inner: Words, replaced: str, stdin: str | None) -> Words:
    """The words of a command with what ``xargs`` adds: known where the text before it in the pipe is."""
    known = None if stdin is None or HOLE in stdin or re.search(r"[\\'\"]", stdin) else tuple(stdin.split())
    if not replaced:
        sure = known and program_of(inner) in ANY_OPTION
        return inner + ((known if sure else (*known, HOLE)) if known else (HOLE,))
    return tuple(word.replace(replaced, HOLE) for word in inner)


def _shell(name: str, rest: Words) -> list[Inner]:
    """Only checked: the reader itself goes on into the text."""
    if name not in FOLLOWED_SHELLS:
        raise NotUnderstood(f"runs {name}, which may read its text in another way")
    at = 0
    while at < len(rest) and rest[at].startswith(("-", "+")):
        word = rest[at]
        if word == "-o" and rest[at + 1 : at + 2] == ("pipefail",):
            at += 2
            continue
        if not _SHELL_FLAGS.fullmatch(word) or word == "-":
            raise _unusual(name, word)
        at += 1
        if not word.startswith("--") and "c" in word:
            if at >= len(rest) or rest[at].startswith(("-", "+")) or HOLE in rest[at]:
                raise NotUnderstood(f"gives {name} a text that is known only at run time")
            return []
    if at >= len(rest) or HOLE in rest[at] or rest[at].startswith("/dev/"):
        raise NotUnderstood(f"lets {name} run its input")
    return []


def _find_commands(words: Words) -> list[Inner] | None:
    found: list[Inner] = []
    at = 1
    while at < len(words):
        word = words[at]
        if HOLE in word:
            raise NotUnderstood("gives find words that are known only at run time")
        if word not in ("-exec", "-execdir", "-ok", "-okdir"):
            at += 1
            continue
        end = next((n for n in range(at + 1, len(words)) if words[n] == ";" or words[n - 1 : n + 1] == ("{}", "+")), 0)
        inner = words[at + 1 : end]
        if not end or not inner or "{}" in inner[0]:
            raise NotUnderstood("lets find run a program that is known only at run time")
        if program_of(inner) in SHELLS | {"awk", "sed", "env", "git"} and any("{}" in part for part in inner):
            raise NotUnderstood(f"lets find give file names to {program_of(inner)} as text or words")
        for root in find_roots(words):
            path = f"{root.rstrip('/')}/found" if narrowed(words) else root
            found.append(Inner(words=tuple(part.replace("{}", path) for part in inner)))
        at = end + 1
    return found


def _begins(word: str, options: Sequence[str]) -> bool:
    stem = word.partition("=")[0]
    return len(stem) > 3 and stem.startswith("--") and any(option.startswith(stem) for option in options)


def _is_short(word: str, options: Sequence[str]) -> bool:
    return any(word.startswith(option) for option in options if not option.startswith("--"))


def _check_git(words: Words) -> None:
    before, command, rest = split_git(words)
    if any(HOLE in word for word in words[1:]):
        raise NotUnderstood("gives git words that are known only at run time")
    for word in before:
        if word.startswith("-") and word not in (
            "-C",
            "--no-pager",
            "-P",
            "--version",
            "--literal-pathspecs",
            "--help",
        ):
            raise _unusual("git", word)
    if command in _GIT_LAUNCHES and not (
        (command == "config" and _reads_config(rest))
        or (command in ("submodule", "bisect") and rest[:1] in (["status"], ["log"], ["start"], ["good"], ["bad"]))
    ):
        raise NotUnderstood(f"uses git {command}, which may run programs")
    short = _GIT_SHORT.get(command, "")
    for word in rest:
        if _begins(word, _GIT_RUNS) or "ext::" in word or (short == "*"):
            raise _unusual(f"git {command}", word)
        if short and re.match(r"^-[A-Za-z]", word) and any(letter in word for letter in short):
            raise _unusual(f"git {command}", word)


def _reads_config(rest: Sequence[str]) -> bool:
    return rest[:1] in (["--get"], ["--get-all"], ["--list"], ["-l"], ["list"], ["get"]) or (
        bool(rest) and re.fullmatch(r"user\.(name|email)", rest[0]) is not None
    )


def _check_tar(rest: Words) -> None:
    for number, word in enumerate(rest):
        cluster = word if number == 0 and not word.startswith("-") else word if re.match(r"-[^-]", word) else ""
        if _begins(word, _TAR_RUNS) or "I" in cluster or "F" in cluster or HOLE in word:
            raise _unusual("tar", word)


_REMOTE_FLAGS = re.compile(
    r"-[qTtnv46NCarzhP]+|-[pil]\S*|--(delete|archive|verbose|recursive|dry-run|progress|exclude(=.*)?)"
)


def _remote(name: str, words: Words) -> list[Inner] | None:
    if name in ("mosh", "autossh", "sshpass"):
        raise NotUnderstood(f"runs a program through {name}")
    at, hosts = 1, 0
    while at < len(words):
        word = words[at]
        if HOLE in word:
            raise NotUnderstood(f"gives {name} words that are known only at run time")
        if word.startswith("-"):
            if not _REMOTE_FLAGS.fullmatch(word):
                raise _unusual(name, word)
            at += 2 if word in ("-p", "-i", "-l") and name == "ssh" else 1
        elif name != "ssh":
            at += 1
        elif hosts:
            return [Inner(script=" ".join(words[at:]))]
        else:
            hosts, at = 1, at + 1
    return None
