"""What a confined child can do, tried by a real shell with every means that this machine has; what became of it is
looked at from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagedoor.errors import LaunchError, NotSupported
from stagedoor.transports.confinement.mechanism import CHOSEN_BY, MEANS_OF, Means, choose, trial
from stagedoor.transports.confinement.mounts import mounts_of
from stagedoor.transports.launch import Confinement, EndInput, Launch, Signal
from stagedoor.transports.process import ChildProcess
from tests.processes import SETSID

BOUND = 240.0
EVERY_MEANS: tuple[Means, ...] = MEANS_OF.get(sys.platform, ())
MOUNTS: tuple[Means, ...] = ("bubblewrap", "namespaces")

CONNECT = """python3 -c 'import socket, sys; socket.socket(1).connect(sys.argv[1].replace("@", chr(0)))'"""
COMMIT = "echo a > a && git add a && git -c user.name=a -c user.email=a@b commit -qm"
ATTEMPTS = {
    # what a workspace is for
    "cwd": ": > made",
    "state": ': > "$STATE/made"',
    "temporary": ': > "$TMPDIR/made"',
    "commit": f"{COMMIT} first",
    "null": "echo > /dev/null",
    # every way out
    "write": ': > "$OUTSIDE/made"',
    "append": 'echo more >> "$OUTSIDE/file"',
    "truncate": 'truncate -s 0 "$OUTSIDE/file"',
    "remove": 'rm "$OUTSIDE/file"',
    "rename": 'mv "$OUTSIDE/file" "$OUTSIDE/other"',
    "move out": ': > x; mv x "$OUTSIDE/moved"',
    "make a folder": 'mkdir "$OUTSIDE/folder"',
    "make a link": 'ln -s x "$OUTSIDE/link"',
    "through a link": 'ln -s "$OUTSIDE/file" link && echo more >> link',
    "through a hard link": 'ln "$OUTSIDE/file" hard && echo more >> hard',
    "from a grandchild": 'setsid -w sh -c ": > $OUTSIDE/detached"',
    "home": ': > "$HOME/.bashrc"',
    "system": ': > /var/tmp/made-by-a-confined-child',
    "of another process": ': > "/proc/$OTHER/root$OUTSIDE/made"',
    "of another process's folder": ': > "/proc/$OTHER/cwd/made"',
    "remount": "mount -o remount,rw,bind /",
    "mount": 'mount -t tmpfs none "$OUTSIDE"',
    "namespaces of its own": 'unshare -Urm sh -c "mount -o remount,rw,bind /; : > $OUTSIDE/made"',
    "leave the namespace": 'nsenter -t "$OTHER" -m sh -c ": > $OUTSIDE/made"',
    "core pattern": ": >> /proc/sys/kernel/core_pattern",
    "sysrq": ": >> /proc/sysrq-trigger",
    "a disk": 'mknod disk b 8 0 && : >> disk',
    "kill": 'kill -9 "$OTHER"',
    "look into": 'cat "/proc/$OTHER/environ"',
    "unix socket": f"{CONNECT} $SOCKET",
    "abstract socket": f"{CONNECT} @$ABSTRACT",
    "read what is hidden": 'cat "$HIDDEN/secret"',
    # what lies in a folder that can be written
    "settings": 'echo x > "$STATE/settings.json"',
    "settings replaced": 'mv "$STATE/settings.json" "$STATE/old" && : > "$STATE/settings.json"',
    "planted": ': > "$STATE/hooks/planted"',
    "hook": ": > .git/hooks/pre-commit",
    "git configuration": "echo x >> .git/config",
    "another git folder": "mv .git .git2 && mkdir .git",
    "mode outside": 'chmod 777 "$OUTSIDE/file"',
}  # fmt: skip
WORK = {"cwd", "state", "temporary", "commit", "null"}
"""What must be possible."""
WITHOUT_MOUNTS = {
    "settings",
    "settings replaced",
    "planted",
    "hook",
    "git configuration",
    "another git folder",
    "mode outside",
}
"""What Landlock cannot keep from happening; docs/confine.md says so."""
NOT_IN_READ_ONLY = {"cwd", "commit", "hook", "git configuration", "another git folder"}
SCRIPT = "\n".join(
    f"if ( {command} ) > /dev/null 2>&1; then echo 'done {name.replace(chr(39), '')}'; fi"
    for name, command in ATTEMPTS.items()
)


@pytest.fixture(params=EVERY_MEANS)
def means(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Means:
    chosen: Means = request.param
    if reason := asyncio.run(trial(chosen)):
        pytest.skip(f"{chosen} does not work here: {reason}")
    monkeypatch.setenv(CHOSEN_BY, chosen)
    return chosen


class Ground:
    """A workspace, a state folder, and much that is neither."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cwd, self.state, self.outside, self.home, self.hidden = (
            folder / name for name in ("cwd", "state", "outside", "home", "hidden")
        )
        for place in (self.cwd, self.state, self.outside, self.home, self.hidden):
            place.mkdir()
        (self.outside / "file").write_text("whole")
        (self.outside / "file").chmod(0o600)
        (self.hidden / "secret").write_text("secret")
        (self.state / "settings.json").write_text("{}")
        subprocess.run(["git", "init", "-q", str(self.cwd)], check=True)
        self.other = subprocess.Popen(["sleep", "600"], cwd=self.outside)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.outside / "socket"))
        self.socket.listen()
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind("\0" + folder.name)
        self.abstract.listen()
        self.before = self.snapshot()

    def close(self) -> None:
        self.other.kill()
        self.other.wait()
        self.socket.close()
        self.abstract.close()

    def snapshot(self) -> dict[str, tuple[int, bytes]]:
        """All that must not change."""
        kept = (self.outside, self.home, self.hidden, self.cwd / ".git" / "hooks")
        places = [path for place in kept for path in place.rglob("*")]
        places += [path for path in (self.cwd / ".git" / "config", self.state / "settings.json") if path.exists()]
        return {str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"") for path in places}

    def confinement(self, *, workspace: bool = True) -> Confinement:
        return Confinement(
            workspace=workspace,
            writable=(str(self.state),),
            readonly=(f"{self.state}/settings.json", f"{self.state}/hooks/"),
            hidden=(str(self.hidden),),
        )

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "STATE": str(self.state), "OUTSIDE": str(self.outside),
            "HIDDEN": str(self.hidden), "OTHER": str(self.other.pid), "SOCKET": str(self.outside / "socket"),
            "ABSTRACT": self.folder.name,
        }  # fmt: skip

    async def run(self, *argv: str, workspace: bool = True, cwd: Path | None = None) -> tuple[list[str], int, str]:
        launch = Launch(
            argv=argv,
            cwd=str(cwd or self.cwd),
            stdin="null",
            stop=(),
            confinement=self.confinement(workspace=workspace),
        )
        async with asyncio.timeout(BOUND), await ChildProcess.start(launch, base_env=self.env) as process:
            lines = [line.decode() async for batch in process.batches() for line in batch if isinstance(line, bytes)]
            return lines, await process.wait(), process.stderr_tail


@pytest.fixture
def ground() -> Iterator[Ground]:
    """Not under /tmp, which a confined child does not see."""
    with tempfile.TemporaryDirectory(prefix="stagedoor-confine-", dir="/var/tmp") as folder:
        ground = Ground(Path(folder).resolve())
        try:
            yield ground
        finally:
            ground.close()


@pytest.mark.parametrize("level", ["workspace", "read-only"])
def test_nothing_outside_is_changed_by_any_way(ground: Ground, means: Means, level: str) -> None:
    lines, code, complaints = asyncio.run(ground.run("bash", "-c", SCRIPT, workspace=level == "workspace"))
    done = {line.removeprefix("done ") for line in lines}
    allowed = WORK | (set() if means in MOUNTS else WITHOUT_MOUNTS)
    allowed -= NOT_IN_READ_ONLY if level == "read-only" else set()
    # A copy in the workspace is no way out: what counts is the file outside, below.
    copies = {"through a hard link", "a disk"}
    assert (code, complaints, done - copies) == (0, "", allowed)
    assert ground.other.poll() is None
    assert not Path("/var/tmp/made-by-a-confined-child").exists()
    if means in MOUNTS:
        assert ground.snapshot() == ground.before
    else:
        outside = [name for name in ground.before if not name.startswith((str(ground.cwd), str(ground.state)))]
        after = ground.snapshot()
        assert {name: after[name][1] for name in outside} == {name: ground.before[name][1] for name in outside}


def test_without_confinement_the_same_attempts_succeed(ground: Ground) -> None:
    """The oracle can fail."""
    launch = Launch(
        argv=("bash", "-c", ": > $OUTSIDE/made; kill -9 $OTHER"), cwd=str(ground.cwd), stdin="null", stop=()
    )

    async def run() -> None:
        async with asyncio.timeout(BOUND), await ChildProcess.start(launch, base_env=ground.env) as process:
            await process.wait()

    asyncio.run(run())
    assert (ground.outside / "made").exists()
    assert ground.other.wait(timeout=240) == -signal.SIGKILL


def test_a_worktree_commits_into_its_repository_and_leaves_its_hooks_alone(ground: Ground, means: Means) -> None:
    git = ["git", "-C", str(ground.cwd), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (
        ["commit", "-q", "--allow-empty", "-m", "first"],
        ["worktree", "add", "-q", str(ground.folder / "tree")],
    ):
        subprocess.run([*git, *words], check=True)
    script = f"{COMMIT} second; : > $1/hooks/x; echo x >> $1/config; :"
    before = ground.snapshot()
    tree = ground.folder / "tree"
    asyncio.run(ground.run("bash", "-c", script, "bash", str(ground.cwd / ".git"), cwd=tree))
    log = subprocess.run(["git", "-C", str(tree), "log", "--format=%s"], check=True, capture_output=True, text=True)
    assert log.stdout.split() == ["second", "first"]
    if means in MOUNTS:
        assert ground.snapshot() == before


def test_a_forged_git_file_opens_no_folder(ground: Ground, means: Means) -> None:
    """It points to a folder that looks like a repository, but does not know this worktree."""
    target = ground.outside / "repository"
    subprocess.run(["git", "init", "-q", "--bare", str(target)], check=True)
    (target / "worktrees" / "x").mkdir(parents=True)
    tree = ground.folder / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {target}/worktrees/x\n")
    asyncio.run(ground.run("bash", "-c", ": > $1/made; :", "bash", str(target), cwd=tree))
    (target / "worktrees" / "x" / "gitdir").write_text("/somewhere/else/.git\n")
    asyncio.run(ground.run("bash", "-c", ": > $1/made; :", "bash", str(target), cwd=tree))
    assert not (target / "made").exists()


def test_a_signal_reaches_the_agent_and_its_code_comes_back(ground: Ground, means: Means) -> None:
    async def ended_by(number: int, *, group: bool) -> tuple[int, list[bytes]]:
        script = (
            "trap 'echo asked; exit 7' INT; trap 'echo told; exit 8' TERM; echo ready; while :; do read -t 60; done"
        )
        launch = Launch(
            argv=("bash", "-c", script), cwd=str(ground.cwd), stop=(EndInput(),), confinement=ground.confinement()
        )
        async with asyncio.timeout(BOUND), await ChildProcess.start(launch, base_env=ground.env) as process:
            lines: list[bytes] = []
            async for batch in process.batches():
                lines += [line for line in batch if isinstance(line, bytes)]
                if lines == [b"ready"]:
                    process.signal(number, group=group)
            return await process.wait(), lines

    assert asyncio.run(ended_by(signal.SIGINT, group=False)) == (7, [b"ready", b"asked"])
    assert asyncio.run(ended_by(signal.SIGTERM, group=True)) == (8, [b"ready", b"told"])


def test_nothing_of_its_tree_is_left_when_it_is_stopped(ground: Ground, means: Means) -> None:
    mark = f"stagedoor-{ground.folder.name}"
    sleeper = f"exec -a {mark} sleep 600"
    script = f"{SETSID} bash -c '{sleeper}' & bash -c 'trap \"\" TERM INT; {sleeper}' & echo ready; wait"

    async def run() -> None:
        launch = Launch(
            argv=("bash", "-c", script),
            cwd=str(ground.cwd),
            confinement=ground.confinement(),
            stop=(Signal(15, 1.0),),
        )
        async with asyncio.timeout(BOUND):
            process = await ChildProcess.start(launch, base_env=ground.env)
            async for _ in process.batches():
                break
            await process.stop()

    asyncio.run(run())
    assert not [line for line in _command_lines() if mark.encode() in line]


def _command_lines() -> Iterator[bytes]:
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            yield (path / "cmdline").read_bytes() if path.name.isdigit() else b""


def test_what_no_means_can_do_is_refused_and_says_what_to_install(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(CHOSEN_BY, "bubblewrap")
    with pytest.raises(NotSupported, match=r"bwrap is not on the PATH.*install bubblewrap"):
        asyncio.run(ground.run("bash", "-c", ": > made"))
    assert not (ground.cwd / "made").exists()
    monkeypatch.setenv(CHOSEN_BY, "hope")
    with pytest.raises(NotSupported, match="choose from bubblewrap, namespaces, landlock"):
        asyncio.run(choose())


def test_a_program_that_only_looks_like_bubblewrap_is_not_believed(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It runs what it is told, and confines nothing."""
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv(CHOSEN_BY, "bubblewrap")
    with pytest.raises(NotSupported, match="a trial ended with code 9"):
        asyncio.run(ground.run("bash", "-c", ": > made"))
    assert not (ground.cwd / "made").exists()


def test_a_workspace_that_holds_the_home_is_refused(ground: Ground, means: Means) -> None:
    with pytest.raises(LaunchError, match="no confinement: choose a folder inside it"):
        asyncio.run(ground.run("true", cwd=ground.folder))
    assert asyncio.run(ground.run("true", cwd=ground.folder, workspace=False))[1] == 0


def test_what_the_child_was_given_in_tmp_is_there_and_nothing_else(ground: Ground, means: Means) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as given, tempfile.TemporaryDirectory(dir="/tmp") as other:
        Path(given, "file").write_text("read me")
        Path(other, "file").write_text("not me")
        script = "cat $GIVEN/file; cat /tmp/$(echo $1)/file 2>/dev/null; : > $GIVEN/made; :"
        launch = Launch(
            argv=("bash", "-c", script, "bash", Path(other).name), cwd=str(ground.cwd), stdin="null", stop=(),
            env={"GIVEN": given}, confinement=ground.confinement(),
        )  # fmt: skip

        async def run() -> list[bytes]:
            async with asyncio.timeout(BOUND), await ChildProcess.start(launch, base_env=ground.env) as process:
                return [line async for batch in process.batches() for line in batch if isinstance(line, bytes)]

        seen = b"".join(asyncio.run(run()))
        assert seen == (b"read me" if means in MOUNTS else b"read menot me")
        assert not Path(given, "made").exists()


def test_the_deepest_word_counts(ground: Ground) -> None:
    """A workspace in a hidden folder is seen, a hidden file in it is not, a state folder in it can be written."""
    cwd = ground.hidden / "cwd"
    (cwd / "state").mkdir(parents=True)
    (cwd / "secret").write_text("")
    confinement = Confinement(workspace=False, writable=(f"{cwd}/state",), hidden=(str(ground.hidden), f"{cwd}/secret"))
    launch = Launch(argv=("true",), cwd=str(cwd), confinement=confinement)
    mounts = mounts_of(launch, ground.env, temp="/nowhere", scratch="", argv=("true",))
    ours = [(mount.path, mount.access) for mount in mounts if mount.path.startswith(f"{ground.hidden}")]
    assert ours == [
        (str(ground.hidden), "hide"),
        (str(cwd), "read"),
        (f"{cwd}/secret", "hide"),
        (f"{cwd}/state", "write"),
    ]


def test_a_workspace_inside_a_state_folder_stays_read_only_or_is_refused(ground: Ground, means: Means) -> None:
    cwd = ground.state / "cwd"
    cwd.mkdir()
    run = ground.run("bash", "-c", ": > made; :", cwd=cwd, workspace=False)
    if means in MOUNTS:
        asyncio.run(run)
    else:
        with pytest.raises(NotSupported, match="Landlock cannot except it"):
            asyncio.run(run)
    assert list(cwd.iterdir()) == []
