"""Every filter that git itself would take from a repository's configuration is blanked: git is the oracle."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stagedoor.errors import UntrustedProject
from stagedoor.trust.git_filters import filter_names, without_filters

ENV = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "GIT_CONFIG_NOSYSTEM": "1"}
CONFIGS = {
    "plain": '[filter "one"]\n\tclean = X\n',
    "case and spaces": '  [FiLter   "Two Words"] ; comment\n  clean=X\n',
    "on one line": '[filter "three"] clean = X\n',
    "dots": "[filter.four]\n\tclean = X\n",
    "escapes": '[filter "a\\"b\\\\c"]\n\tclean = X\n',
    "process": '[filter "five"]\n\tprocess = X\n',
    "two": '[core]\n\tbare = false\n[filter "six"] clean = X\n[filter "seven"]\nclean=X\n',
    "included": '[include]\n\tpath = more\n[filter "eight"]\n\tclean = X\n',
    "included twice": "[include] path = chain\n",
    "included by a condition": '[includeIf "gitdir:**"]\n\tpath = "more" # here\n',
    "behind a comment": '# [filter "no"]\n[filter "nine"]\n\tclean = X ; [x]\n',
    "windows": '[filter "ten"]\r\n\tclean = X\r\n',
}


def repository(folder: Path, config: str) -> Path:
    subprocess.run(["git", "init", "-q", str(folder)], check=True, env=ENV)
    git = folder / ".git"
    with (git / "config").open("a", newline="") as file:
        file.write(config)
    (git / "more").write_text('[filter "of more"]\n\tclean = X\n')
    (git / "chain").write_text("[include]\npath = more\n")
    return folder


def by_git(folder: Path, **env: str) -> dict[str, str]:
    listed = subprocess.run(
        ["git", "config", "--list", "--includes", "-z"], cwd=folder, env=ENV | env, capture_output=True, check=True
    ).stdout.decode()
    pairs = [line.partition("\n") for line in listed.split("\0") if line.startswith("filter.")]
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_git_runs_no_filter(tmp_path: Path, name: str) -> None:
    folder = repository(tmp_path / "repository", CONFIGS[name])
    assert "X" in by_git(folder).values()
    assert set(by_git(folder, **without_filters(str(folder), {})).values()) <= {"", "false"}


def test_a_worktree_has_the_filters_of_its_repository(tmp_path: Path) -> None:
    folder = repository(tmp_path / "main", CONFIGS["plain"])
    git = ("git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@x")
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True, env=ENV)
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "tree")], check=True, env=ENV)
    (folder / ".git" / "worktrees" / "tree" / "config.worktree").write_text('[filter "own"] clean = X\n')
    assert filter_names(tmp_path / "tree") == {"one", "own"}


def test_variables_of_the_caller_stay(tmp_path: Path) -> None:
    folder = repository(tmp_path / "repository", CONFIGS["plain"])
    env = without_filters(str(folder), {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "a.b", "GIT_CONFIG_VALUE_0": "c"})
    assert (env["GIT_CONFIG_COUNT"], env["GIT_CONFIG_KEY_1"]) == ("6", "core.fsmonitor")
    assert without_filters(str(tmp_path), {}) == {}


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    folder = repository(tmp_path / "repository", "[include] path = loop\n")
    (folder / ".git" / "loop").write_text("[include] path = loop\n")
    with pytest.raises(UntrustedProject, match="too deeply"):
        filter_names(folder)
    (folder / ".git" / "loop").write_text("#" * 1_000_001)
    with pytest.raises(UntrustedProject, match="too large"):
        filter_names(folder)
