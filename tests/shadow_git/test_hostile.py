"""No repository makes anything run: each process that our verbs start on hostile ground is recorded from outside.

``STAGEDOOR_ALL_GROUNDS=1`` tries every verb on every repository (minutes); else each is looked at, and those that
differ most are tried with more.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.shadow_git.hostile import GROUNDS, build, try_plain_git

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ALL = ("look", "track", "swapped", "read", "worktree", "undo", "change")
DEEP = {
    "all_of_it": ALL,
    "submodule_replaced": ("track", "read", "worktree", "undo", "change"),
    "promisor_ssh": ("track", "read", "worktree", "undo"),
    "linked_worktree": ("swapped", "worktree", "change"),
    "worktree_settings": ("worktree",),
    "git_in_the_folder": ("track", "worktree"),
    "filter_smudge": ("worktree",),
    "signing": ("worktree", "change"),
}
OUR_GIT = frozenset(
    {
        "status", "update-index", "diff-index", "diff-tree", "cat-file", "write-tree", "read-tree", "commit-tree",
        "update-ref", "rev-parse", "rev-list", "checkout-index", "ls-files", "reset", "rm",
        "hash-object", "mktree", "for-each-ref", "prune",
    }
)  # fmt: skip
NEEDS_MORE = {
    "pager": "a terminal",
    "credentials": "a server that asks for a password",
    "config_hooks": "a git that has hooks by configuration (2.54)",
}
"""What plain git runs only where there is something that a test has not."""
CALL = re.compile(r'execve(?:at)?\((?:AT_FDCWD, )?"((?:[^"\\]|\\.)*)", \[(.*?)\], \[(.*)\](?:, \w+)?\) += 0$')
WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')


def _plan(works: list[Path]) -> list[str]:
    every = bool(os.environ.get("STAGEDOOR_ALL_GROUNDS"))
    return [f"{','.join(ALL if every else DEEP.get(work.parent.name, ('look',)))}={work}" for work in works]


def _foreign(trace: str, planted: Path) -> list[str]:
    """The started programs that are not: our Python and its guard, or git on a git directory of ours."""
    calls = [line for line in trace.splitlines() if "execve" in line and line.endswith("= 0")]
    assert len(calls) > len(GROUNDS), "nothing was recorded"
    foreign: list[str] = []
    for number, line in enumerate(calls):
        match = CALL.search(line)
        assert match is not None, line
        program, argv, env = match[1], WORD.findall(match[2]), WORD.findall(match[3])
        if number == 0 or (program == sys.executable and argv[1:3] == ["-I", "-S"] and argv[4].startswith("series:")):
            continue
        shadow = [word for word in env if re.fullmatch(r"GIT_DIR=/.*/stagedoor-git-[0-9a-f]{16}", word)]
        ours = argv[1:3] == ["config", "--list"] or (argv[1] == "--no-pager" and argv[2] in OUR_GIT)
        if Path(program).name != "git" or Path(program).is_relative_to(planted) or not shadow or not ours:
            foreign.append(line)
    return foreign


def test_no_repository_makes_anything_run(tmp_path: Path) -> None:
    strace = shutil.which("strace")
    assert strace, "this test records processes with strace; install it (apt-get install strace)"
    marks, trace = tmp_path / "marks", tmp_path / "trace"
    works = build(tmp_path, marks)
    plan = _plan(works)
    recorder = [
        strace,
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-v",
        "-s",
        "65536",
        "-e",
        "trace=execve,execveat",
        "-e",
        "signal=none",
    ]
    done = subprocess.run(
        [*recorder, "-o", str(trace), sys.executable, str(HERE / "verbs.py"), *plan],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    outcomes: list[list[Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(outcomes) == sum(len(part.partition("=")[0].split(",")) for part in plan)
    assert sorted(mark.name for mark in marks.iterdir()) == []
    assert _foreign(trace.read_text(errors="replace"), tmp_path) == []
    # And all the same git is right about them: three or more files differ wherever a repository may be read.
    looked = {name: outcome for name, verb, outcome in outcomes if verb == "look"}
    refused = {name for name, outcome in looked.items() if isinstance(outcome, str)}
    assert refused <= {
        "git_file_elsewhere", "common_elsewhere", "bare_here", "promisor_ssh", "promisor_ext", "promisor_upload_pack",
        "credentials",
    }, looked  # fmt: skip
    undone = {name: outcome for name, verb, outcome in outcomes if verb == "undo"}
    assert {name: outcome for name, outcome in undone.items() if outcome != [True, ["d.txt"], []]} == {}
    worktrees = {
        name: outcome for name, verb, outcome in outcomes if verb == "worktree" and not isinstance(outcome, str)
    }
    assert all(outcome == [False, 3, False] for outcome in worktrees.values()), worktrees


def test_plain_git_runs_what_is_planted(tmp_path: Path) -> None:
    """The corpus bites: without the shadow something runs in each of them."""
    marks = tmp_path / "marks"
    silent = {work.parent.name for work in build(tmp_path, marks) if not try_plain_git(work, marks)}
    assert silent - set(NEEDS_MORE) == set()
