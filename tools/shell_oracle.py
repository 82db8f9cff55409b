"""A real bash in a jail where programs write down that they ran: what it does is what the judge must have said.

The jail has its own ``PATH``, home and working directory. Most programs there are recorders; those that run others or
write files by an option are the real ones. Where ``strace`` works, every ``execve`` is seen, also by an absolute path.
"""

from __future__ import annotations

import os
import re
import resource
import select
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from stagedoor.permissions.policy import Policy
from stagedoor.permissions.risk.judge import RiskVerdict, judge_command
from stagedoor.permissions.rules import Rule
from stagedoor.permissions.shell.words import HOLE
from stagedoor.unified.events import ToolUse

FORBIDDEN = "evil"
RECORDERS = (
    FORBIDDEN, "git", "npm", "make", "curl", "python3", "rm", "mv", "ssh", "vim", "docker", "rg", "jq", "tree", "file",
    "less", "diff", "stat",
)  # fmt: skip
REAL = (
    "bash", "sh", "env", "nice", "timeout", "nohup", "setsid", "stdbuf", "xargs", "find", "sed", "awk", "sort", "uniq",
    "cat", "head", "tail", "grep", "cut", "tr", "wc", "ls", "tee", "touch", "mkdir", "cp", "printf", "date", "seq",
    "rev",
    "base64", "split", "shuf", "dd", "ln", "tar", "od", "comm", "join", "paste", "tac", "nl", "fold", "sleep",
    "basename",
    "dirname", "realpath", "readlink", "md5sum", "sha256sum", "expr", "id", "uname", "whoami", "hostname", "install",
    "csplit", "truncate", "mktemp", "ionice", "time", "du", "df", "cmp", "column", "xxd", "numfmt", "tsort", "expand",
)  # fmt: skip
LAUNCHERS = frozenset({"bash", "sh", "env", "nice", "timeout", "nohup", "setsid", "stdbuf", "xargs", "find", "ionice"})
WRITERS = frozenset(
    {"tee", "touch", "mkdir", "cp", "split", "dd", "ln", "tar", "install", "csplit", "truncate", "mktemp"}
)
ALLOWED = ("cat", "ls", "git", "head")
ALLOWING = Policy(rules=(Rule(action="allow", command=tuple(f"{name} *" for name in ALLOWED)),))
DENYING = Policy(deny_patterns=(f"{FORBIDDEN} *",), default="allow")
FILES = {"a": "3\n1\n2\n", "b.txt": "x y\n", "src/c.py": "print(1)\n", "run.sh": f"{FORBIDDEN} from a script\n"}
LIMIT = 4.0  # seconds for one line
_END = "stagedoor-end-of-record"
_EXEC = re.compile(r'^\d+ +execve(?:at)?\((?:[^"]*, )?"((?:\\.|[^"\\])*)", \[(.*)\], .*\) = 0$')
_ARGUMENT = re.compile(r'"((?:\\.|[^"\\])*)"(\.\.\.)?')


class Ran(NamedTuple):
    """What happened: the programs with their words, and the files that are not as they were."""

    programs: list[tuple[str, ...]]
    changed: list[str]
    in_time: bool


class Disagreement(NamedTuple):
    """A line of which bash did what the judge had ruled out."""

    line: str
    why: str

    @property
    def row(self) -> str:
        """A row for ``tests/permissions/tricks.txt``."""
        return repr(self.line)


class Jail:
    def __init__(self, root: Path, *, trace: bool, shell: str) -> None:
        self._root = root
        self._shell = shutil.which(shell) or shell
        self.work = root / "inner" / "work"
        self._home = root / "inner" / "home"
        self._bin = root / "bin"
        self._log = root / "log"
        self._trace = root / "trace" if trace else None
        self._user = 65534 if os.geteuid() == 0 else None  # nobody: the files of this machine are not at stake
        self._bin.mkdir(parents=True)
        stub = self._bin / FORBIDDEN
        stub.write_text(f"#!/bin/sh\nprintf '%s\\0' \"${{0##*/}}\" \"$@\" {_END} >> '{self._log}'\n")
        stub.chmod(0o755)
        for name in RECORDERS:
            if name != FORBIDDEN:
                os.link(stub, self._bin / name)
        for name in REAL:
            if (program := shutil.which(name)) is not None:
                (self._bin / name).symlink_to(program)
        root.chmod(0o755)
        self._before: dict[str, tuple[int, str]] = {}
        self._reset()

    def _reset(self) -> None:
        shutil.rmtree(self._root / "inner", ignore_errors=True)
        self._home.mkdir(parents=True)
        for name, text in FILES.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if self._user is not None:
            for path in [self._root / "inner", *(self._root / "inner").rglob("*")]:
                os.chown(path, self._user, self._user)
        self._before = self._snapshot()

    def _snapshot(self) -> dict[str, tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for path in sorted((self._root / "inner").rglob("*")):
            with suppress(OSError):
                status = path.lstat()
                text = path.read_bytes().decode(errors="replace") if stat.S_ISREG(status.st_mode) else ""
                moment = status.st_mtime_ns if stat.S_ISREG(status.st_mode) else 0
                found[str(path.relative_to(self._root))] = (status.st_mode, f"{moment} {text}")
        return found

    def run(self, line: str) -> Ran:
        """One line in a fresh bash, in a group of its own that is ended after it."""
        self._log.write_bytes(b"")
        self._log.chmod(0o666)
        command = [self._shell, "-c", line]
        if self._trace is not None:
            self._trace.unlink(missing_ok=True)
            options = ["-f", "-qq", "-s", "4096", "-e", "trace=execve,execveat", "-e", "signal=none"]
            command = [shutil.which("strace") or "strace", *options, "-o", str(self._trace), *command]
            if self._user is not None:
                command[1:1] = ["-u", "nobody"]
        in_time = True
        everybody_gone, held_by_all = os.pipe()
        process = subprocess.Popen(
            command,
            cwd=self.work,
            env={"PATH": str(self._bin), "HOME": str(self._home), "LC_ALL": "C.UTF-8", "TMPDIR": str(self._home)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(held_by_all,),
            preexec_fn=_limited,
            user=self._user if self._trace is None else None,
            group=self._user if self._trace is None else None,
            extra_groups=[] if self._user is not None and self._trace is None else None,
        )
        os.close(held_by_all)
        try:
            process.wait(LIMIT)
            select.select([everybody_gone], [], [], LIMIT)  # a process substitution may outlive its bash
        except subprocess.TimeoutExpired:
            in_time = False
        finally:
            os.close(everybody_gone)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        after = self._snapshot()
        changed = sorted(name for name in {*after, *self._before} if after.get(name) != self._before.get(name))
        if changed:
            self._reset()
        return Ran(self._programs(), changed, in_time)

    def _programs(self) -> list[tuple[str, ...]]:
        records = self._log.read_bytes().decode(errors="replace").split(f"\0{_END}\0")
        programs = [tuple(record.split("\0")) for record in records if record]
        if self._trace is not None and self._trace.exists():
            programs.clear()
            for line in self._trace.read_text(errors="replace").splitlines()[1:]:
                if match := _EXEC.match(line):
                    words = [_unescaped(text) for text, _ in _ARGUMENT.findall(match.group(2))]
                    programs.append((Path(_unescaped(match.group(1))).name, *words[1:]))
        return programs


def _unescaped(text: str) -> str:
    """A string as strace writes it: its bytes in C's notation."""
    return text.encode("latin-1", "replace").decode("unicode_escape").encode("latin-1").decode(errors="replace")


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    resource.setrlimit(resource.RLIMIT_CPU, (3, 3))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    probe = subprocess.run(["strace", "-qq", "-e", "trace=execve", "true"], capture_output=True, check=False)
    return probe.returncode == 0


@contextmanager
def jail(*, trace: bool = False, shell: str = "bash") -> Generator[Jail]:
    # As root the lines run as nobody, who must be able to come in.
    folder = tempfile.mkdtemp(prefix="stagedoor-jail-", dir="/tmp" if os.geteuid() == 0 else None)
    try:
        place = Jail(Path(folder), trace=trace, shell=shell)
        if (ran := place.run(FORBIDDEN)).programs != [(FORBIDDEN,)]:
            raise RuntimeError(f"the jail does not record what runs in it: {ran}")
        yield place
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _names(verdict: RiskVerdict) -> set[str]:
    return {Path(command.words[0]).name for command in verdict.commands if command.words}


def _is_said(words: tuple[str, ...], verdict: RiskVerdict) -> bool:
    """Whether the judge spoke of this program with these words; of words that only the run knows, of the program."""
    for command in verdict.commands:
        if not command.words or Path(command.words[0]).name != words[0]:
            continue
        if command.words[1:] == words[1:] or any(
            HOLE in word or re.search(r"[*?\[~]|/found$|^\.$", word) for word in command.words
        ):
            return True
    return False


def _action(policy: Policy, line: str, cwd: str) -> str:
    call = ToolUse(tool_use_id="1", name="shell", operation="execute", target=line, input={"command": line})
    return policy.decide(call, cwd).action


def disagreement(line: str, place: Jail) -> Disagreement | None:
    """What bash does with a line against what the judge and the rules say of it."""
    return disagreement_with(line, place.run(line), place)


def disagreement_with(line: str, ran: Ran, place: Jail) -> Disagreement | None:
    cwd = str(place.work)
    verdict = judge_command(line, cwd=cwd)
    names = {words[0] for words in ran.programs}
    if any(command.program in ("bash", "sh") and _script_file(command.words) for command in verdict.commands):
        return None  # what a file contains, nobody promises to know
    if verdict.understood:
        for words in ran.programs:
            if words[0] != "time" and not _is_said(words, verdict):  # a word of bash, and a program to other shells
                return Disagreement(line, f"understood, but bash ran {words}; said: {sorted(_names(verdict))}")
    if verdict.risk == "low":
        if acting := names & (
            {FORBIDDEN, "npm", "make", "curl", "python3", "rm", "mv", "ssh", "vim", "docker"} | WRITERS
        ):
            return Disagreement(line, f"low, but bash ran {sorted(acting)}")
        if ran.changed:
            return Disagreement(line, f"low, but {ran.changed} changed")
    if (names - {*ALLOWED, *LAUNCHERS} or FORBIDDEN in names) and _action(ALLOWING, line, cwd) == "allow":
        unasked = sorted(names - {*ALLOWED, *LAUNCHERS} - _neutral(verdict))
        if unasked:
            return Disagreement(line, f"allowed by rules for {', '.join(ALLOWED)}, but bash ran {unasked}")
    if FORBIDDEN in names and (action := _action(DENYING, line, cwd)) != "deny":
        return Disagreement(line, f"bash ran {FORBIDDEN}, which a rule denies, and the line was decided as {action}")
    return None


def _script_file(words: tuple[str, ...]) -> bool:
    operands = [word for word in words[1:] if not word.startswith(("-", "+"))]
    return bool(operands) and not any(re.fullmatch(r"-[a-z]*c[a-z]*", word) for word in words)


def _neutral(verdict: RiskVerdict) -> set[str]:
    return {"true", "false", "test", "["} if verdict.understood else set()
