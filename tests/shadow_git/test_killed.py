"""``kill -9`` in the middle of a git that hangs: no process, no folder and no half-made worktree is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.processes import is_running
from tests.shadow_git.hostile import build_base, run

BOUND = 240.0


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_parallel_leaves_nothing_of_a_worktree_that_hangs(tmp_path: Path) -> None:
    work, pid_file, programs, scratch = (tmp_path / name for name in ("work", "pid", "bin", "scratch"))
    build_base(work)
    before = (run(work, "branch", "-a"), run(work, "worktree", "list"))
    for folder in (programs, scratch, tmp_path / "cache"):
        folder.mkdir()
    real = shutil.which("git")
    (programs / "git").write_text(
        f"""#!/bin/sh
case " $* " in
  *" read-tree "*) trap '' TERM HUP INT; echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; sleep 1000;;
  *) exec {real} "$@";;
esac
"""
    )
    (programs / "git").chmod(0o755)
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(scratch), "HOME": str(tmp_path)}
    env["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    owner = subprocess.Popen(
        [sys.executable, "-m", "stagedoor.cli", "parallel", "hello", "--agents", "understudy,understudy"],
        cwd=work, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(pid_file.exists)
        pid = int(pid_file.read_text())
        assert is_running(pid)
        assert [path.name for path in (work / ".git" / "worktrees").iterdir()] == ["understudy"]
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    wait_until(lambda: not is_running(pid))
    wait_until(lambda: not list(scratch.glob("stagedoor-git-*")))
    wait_until(lambda: not list((work / ".git" / "worktrees").iterdir()))
    assert (run(work, "branch", "-a"), run(work, "worktree", "list")) == before
