"""Commands of git that only read are low where git runs nothing of the repository's: held against a real git on the
corpus of hostile repositories."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stagedoor.permissions.paths import Ground
from stagedoor.permissions.policy import built_in
from stagedoor.permissions.risk.judge import judge_command
from stagedoor.unified.events import ToolUse
from tests.shadow_git.hostile import WHO, build, build_base, run

READS = ("status", "status -s", "diff", "diff HEAD", "log -1 -p", "show HEAD", "blame a.txt", "ls-files", "branch")


def risk(line: str, folder: Path) -> str:
    return judge_command(line, cwd=Ground(str(folder), on_disk=True)).risk


def test_what_is_low_runs_nothing(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    quiet = [work for work in build(tmp_path, marks) if risk("git status", work) == "low"]
    assert {work.parent.name for work in quiet} == {"editors", "nested", "aliases"}
    env = {**os.environ, **WHO, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0"}
    for work in quiet:
        for line in READS:
            assert risk(f"git {line}", work) == "low", line
            subprocess.run(["git", *line.split()], cwd=work, env=env, check=False, capture_output=True, timeout=240)
        assert [mark.name for mark in marks.glob(f"{work.parent.name}.*")] == []


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("remote.origin.url=https://example.com/x.git", "low"),
        ("branch.main.merge=refs/heads/main", "low"),
        ("core.hooksPath=.husky/_", "low"),
        ("core.fsmonitor=false", "low"),
        ("core.fsmonitor=true", "medium"),
        ("core.fsmonitor=./x", "medium"),
        ("diff.x.textconv=x", "medium"),
        ("something.new=x", "medium"),
    ],
)
def test_a_setting(tmp_path: Path, setting: str, expected: str) -> None:
    work = tmp_path / "work"
    build_base(work)
    run(work, "config", *setting.split("=", 1))
    lines = ("git status", "git log --oneline", "cd sub && git diff", "git -C sub status", "bash -c 'git show HEAD'")
    assert {line: risk(line, work) for line in lines} == dict.fromkeys(lines, expected)
    assert risk("git --version", work) == "low"


def test_a_dry_run_refuses_it_and_says_why(tmp_path: Path) -> None:
    work = tmp_path / "work"
    build_base(work)
    inner = work / "vendor"
    run(work, "init", "-q", "--bare", str(inner))
    call = ToolUse(tool_use_id="x", name="shell", operation="execute", input={"command": "cd vendor && git status"})
    dry = built_in(tier="dry-run")
    ground = Ground(str(work), on_disk=True)
    assert dry.decide(call, ground).action == "allow"
    run(inner, "config", "core.fsmonitor", "./x")
    ruling = dry.decide(call, ground)
    assert (ruling.action, ruling.reasons) == (
        "deny",
        ("git may run a program of the repository's: it has the setting core.fsmonitor",),
    )


def plant(program: Path, mark: Path) -> Path:
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\n: >> '{mark}'\nexit 0\n")
    program.chmod(0o755)
    return program


def bare_with_a_dangling_head(work: Path, mark: Path) -> str:
    inner = work / "docs"
    for name in ("objects", "refs"):
        (inner / name).mkdir(parents=True)
    (inner / "HEAD").symlink_to("refs/heads/none")
    kind = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n"
    (inner / "config").write_text(f"{kind}\tfsmonitor = {plant(work / 'x', mark)}\n")
    return "docs"


def hook_of_a_linked_worktree(work: Path, mark: Path) -> str:
    run(work, "config", "core.hooksPath", ".husky")
    run(work, "worktree", "add", "-q", "linked")
    plant(work / "linked" / ".husky" / "post-index-change", mark)
    (work / "linked" / "below").mkdir()
    touch_all(work / "linked")
    return "linked/below"


def hook_in_another_work_tree(work: Path, mark: Path) -> str:
    other = work.parent / "other"
    run(work.parent, "clone", "-q", str(work), str(other))
    run(work, "config", "core.hooksPath", "h")
    run(work, "config", "core.worktree", str(Path("..", "..", "other")))
    plant(other / "h" / "post-index-change", mark)
    touch_all(other)
    return "."


def repository_in_another_work_tree(work: Path, mark: Path) -> str:
    inner = work.parent / "other" / "inner"
    build_base(inner)
    run(inner, "config", "core.fsmonitor", str(plant(work.parent / "x", mark)))
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=inner, check=True, capture_output=True, text=True).stdout
    run(work, "update-index", "--add", "--cacheinfo", f"160000,{head.strip()},inner")
    run(work, "config", "core.worktree", str(Path("..", "..", "other")))
    return "."


def empty_git_folder(work: Path, mark: Path) -> str:
    run(work, "config", "core.fsmonitor", str(plant(work.parent / "x", mark)))
    (work / "sub" / ".git").mkdir(parents=True)
    return "sub"


def ignored_settings_of_a_worktree(work: Path, mark: Path) -> str:
    run(work, "config", "core.hooksPath", "h")
    (work / ".git" / "config.worktree").write_text("[core]\n\thooksPath = nothing\n")
    plant(work / "h" / "post-index-change", mark)
    touch_all(work)
    return "."


def git_file_with_a_blank(work: Path, mark: Path) -> str:
    inner = work / "sub"
    for name in ("there", " there"):
        run(work, "init", "-q", str(inner / name))
    run(inner / " there", "config", "core.fsmonitor", str(plant(work.parent / "x", mark)))
    (inner / ".git").write_text("gitdir:  there/.git\n")
    return "sub"


def repository_in_a_shared_index(work: Path, mark: Path) -> str:
    inner = work / "inner"
    build_base(inner)
    run(inner, "config", "core.fsmonitor", str(plant(work.parent / "x", mark)))
    run(work, "add", "inner")
    run(work, "update-index", "--split-index")
    return "."


def touch_all(folder: Path) -> None:
    """Makes git write the index when it looks: its files are as they were, and newer."""
    for file in folder.rglob("*.txt"):
        os.utime(file, (1_000_000_000, 1_000_000_000))


@pytest.mark.parametrize(
    "planted",
    [
        bare_with_a_dangling_head, hook_of_a_linked_worktree, hook_in_another_work_tree,
        repository_in_another_work_tree, empty_git_folder, ignored_settings_of_a_worktree, git_file_with_a_blank,
        repository_in_a_shared_index,
    ],
)  # fmt: skip
def test_what_git_runs_is_never_low(tmp_path: Path, planted: Callable[[Path, Path], str]) -> None:
    work, mark = tmp_path / "work", tmp_path / "mark"
    build_base(work)
    folder = planted(work, mark)
    lines = (f"cd {folder} && git status --short", f"git -C {folder} status --short")
    assert {line: risk(line, work) for line in lines} == dict.fromkeys(lines, "medium")
    mark.unlink(missing_ok=True)
    env = {**os.environ, **WHO, "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(["git", "status", "--short"], cwd=work / folder, env=env, check=False, timeout=240)
    assert mark.exists(), "git itself runs what was planted"


def test_an_ordinary_worktree_and_submodule_are_low(tmp_path: Path) -> None:
    work, library = tmp_path / "work", tmp_path / "library"
    build_base(work)
    build_base(library)
    run(work, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "library")
    run(work, "worktree", "add", "-q", "linked")
    lines = ("git status", "cd library && git status", "cd linked && git diff", "git -C linked log")
    assert {line: risk(line, work) for line in lines} == dict.fromkeys(lines, "low")
