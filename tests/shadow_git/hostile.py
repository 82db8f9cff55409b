"""A corpus of repositories that want to run something. Every planted program leaves a mark that names it.

``python hostile.py FOLDER`` builds them all in FOLDER: each is a folder ``NAME/work`` with its other things beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HOOKS = (
    "applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg",
    "commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-receive", "update",
    "proc-receive", "post-receive", "post-update", "reference-transaction", "push-to-checkout", "pre-auto-gc",
    "post-rewrite", "sendemail-validate", "fsmonitor-watchman", "post-index-change",
)  # fmt: skip
WHO = {
    "GIT_AUTHOR_NAME": "T",
    "GIT_AUTHOR_EMAIL": "t@localhost",
    "GIT_COMMITTER_NAME": "T",
    "GIT_COMMITTER_EMAIL": "t@l",
}


class Ground:
    """One hostile repository in the making. ``work`` is what Stagedoor is pointed at."""

    def __init__(self, folder: Path, marks: Path) -> None:
        self.folder, self.marks = folder, marks
        self.work = folder / "work"
        self.git_dir = self.work / ".git"

    def plant(self, name: str) -> str:
        """A program that leaves the mark ``name`` of this repository; a filter passes on what it is given."""
        program = self.folder / "planted" / name
        program.parent.mkdir(exist_ok=True)
        passes = "cat\n" if name in ("clean", "smudge", "odd", "capital") else ""
        program.write_text(f"#!/bin/sh\n: >> '{self.marks}/{self.folder.name}.{name}'\n{passes}exit 0\n")
        program.chmod(0o755)
        return str(program)

    def settings(self, *lines: str, file: Path | None = None) -> None:
        """Lines like ``filter.x.clean = PROGRAM``; the middle may hold anything."""
        text = ""
        for line in lines:
            name, _, value = line.partition(" = ")
            section, _, rest = name.partition(".")
            middle, _, key = rest.rpartition(".")
            text += f"[{section}{f' {chr(34)}{middle}{chr(34)}' if middle else ''}]\n\t{key} = {value}\n"
        with (file or self.git_dir / "config").open("a") as opened:
            opened.write(text)

    def hooks(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True, parents=True)
        for name in HOOKS:
            shutil.copy2(self.plant(f"hook-{name}"), folder / name)

    def attributes(self, text: str) -> None:
        (self.work / ".gitattributes").write_text(text)

    def everything(self, git_dir: Path) -> None:
        """All plants at once, in one git directory."""
        self.hooks(git_dir / "hooks")
        self.settings(
            f"filter.x.clean = {self.plant('clean')}", f"filter.x.smudge = {self.plant('smudge')}",
            f"core.fsmonitor = {self.plant('fsmonitor')}", f"diff.external = {self.plant('external')}",
            f"diff.x.textconv = {self.plant('textconv')}", f"core.pager = {self.plant('pager')}",
            f"core.sshCommand = {self.plant('ssh')}", f"core.editor = {self.plant('editor')}",
            f"alias.status = !{self.plant('alias')}", file=git_dir / "config",
        )  # fmt: skip


def run(folder: Path, *words: str, content: bytes | None = None, check: bool = True) -> bytes:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {**WHO, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *words], cwd=folder, env=env, check=check, capture_output=True,
        input=content if content is not None else b"", timeout=240,
    )  # fmt: skip
    return done.stdout


def build_base(folder: Path) -> None:
    """Two branches that conflict, a signed commit on top, a changed, a staged, a deleted and a new file."""
    folder.mkdir(parents=True)
    run(folder, "init", "-q", "-b", "main", "--template=")
    for name in ("a.txt", "b.txt", "c.txt", "d.txt"):
        (folder / name).write_text(f"{name}\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "e.txt").write_text("e\n")
    run(folder, "add", ".")
    run(folder, "commit", "-q", "-m", "one")
    run(folder, "branch", "other")
    tree = run(folder, "write-tree").decode().strip()
    parent = run(folder, "rev-parse", "HEAD").decode().strip()
    signed = (
        f"tree {tree}\nparent {parent}\nauthor T <t@l> 1700000000 +0000\ncommitter T <t@l> 1700000000 +0000\n"
        "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----\n\nsigned\n"
    )
    made = run(folder, "hash-object", "-t", "commit", "-w", "--stdin", content=signed.encode()).decode().strip()
    run(folder, "update-ref", "refs/heads/main", made)
    (folder / "a.txt").write_text("changed\n")
    (folder / "b.txt").write_text("staged\n")
    run(folder, "add", "b.txt")
    (folder / "c.txt").unlink()
    (folder / "new.txt").write_text("new\n")


def hooks(ground: Ground) -> None:
    ground.hooks(ground.git_dir / "hooks")


def hooks_path(ground: Ground) -> None:
    ground.hooks(ground.work / "tools")
    ground.settings("core.hooksPath = tools")


def config_hooks(ground: Ground) -> None:
    for event in HOOKS:
        ground.settings(f"hook.h{event}.command = {ground.plant(f'config-{event}')}", f"hook.h{event}.event = {event}")


def filter_clean(ground: Ground) -> None:
    ground.settings(f"filter.x.clean = {ground.plant('clean')}", "filter.x.required = true")
    ground.attributes("* filter=x\n")


def filter_smudge(ground: Ground) -> None:
    ground.settings(f"filter.x.smudge = {ground.plant('smudge')}")
    (ground.git_dir / "info").mkdir(exist_ok=True)
    (ground.git_dir / "info" / "attributes").write_text("* filter=x\n")


def filter_process(ground: Ground) -> None:
    ground.settings(f"filter.x.process = {ground.plant('process')}")
    ground.attributes("* filter=x\n")


def filter_odd_name(ground: Ground) -> None:
    ground.settings(f"filter.a=b.c d.clean = {ground.plant('odd')}", f"FILTER.Y.CLEAN = {ground.plant('capital')}")
    ground.attributes("*.txt filter=Y\nnew.txt filter=a=b.c\n")


def attributes_file(ground: Ground) -> None:
    (ground.folder / "attributes").write_text("* filter=x\n")
    ground.settings(f"filter.x.clean = {ground.plant('clean')}", f"core.attributesFile = {ground.folder}/attributes")


def attributes_everywhere(ground: Ground) -> None:
    ground.settings(f"filter.x.clean = {ground.plant('clean')}", f"diff.x.textconv = {ground.plant('textconv')}")
    (ground.work / "sub" / ".gitattributes").write_text("e.txt filter=x diff=x ident working-tree-encoding=UTF-16\n")
    (ground.work / "sub" / "e.txt").write_bytes("é$Id$\n".encode("utf-16"))


def fsmonitor(ground: Ground) -> None:
    ground.settings(f"core.fsmonitor = {ground.plant('fsmonitor')}")


def fsmonitor_second(ground: Ground) -> None:
    ground.settings(f"core.fsmonitor = {ground.plant('fsmonitor')}", "core.fsmonitorHookVersion = 2")
    ground.settings("core.untrackedCache = true")


def textconv(ground: Ground) -> None:
    ground.settings(f"diff.x.textconv = {ground.plant('textconv')}", "diff.x.cachetextconv = true")
    ground.attributes("*.txt diff=x\n")


def external_diff(ground: Ground) -> None:
    ground.settings(f"diff.external = {ground.plant('external')}")


def diff_driver(ground: Ground) -> None:
    ground.settings(f"diff.x.command = {ground.plant('driver')}")
    ground.attributes("*.txt diff=x\n")


def merge_driver(ground: Ground) -> None:
    ground.settings(f"merge.x.driver = {ground.plant('merge')} %O %A %B", "merge.default = x")
    ground.attributes("*.txt merge=x\n")
    run(ground.work, "stash", "-q")
    for branch, text in (("main", "ours\n"), ("other", "theirs\n")):
        run(ground.work, "checkout", "-q", branch)
        (ground.work / "a.txt").write_text(text)
        run(ground.work, "commit", "-q", "-am", branch)
    run(ground.work, "checkout", "-q", "main")


def pager(ground: Ground) -> None:
    ground.settings(f"core.pager = {ground.plant('pager')}")
    for command in ("status", "diff", "log", "branch", "config"):
        ground.settings(f"pager.{command} = {ground.plant(f'pager-{command}')}")


def signing(ground: Ground) -> None:
    ground.settings(
        f"gpg.program = {ground.plant('gpg')}", "log.showSignature = true", "commit.gpgSign = true",
        f"gpg.ssh.program = {ground.plant('gpg-ssh')}", f"gpg.x509.program = {ground.plant('gpg-x509')}",
        f"gpg.ssh.defaultKeyCommand = {ground.plant('gpg-key')}", "merge.verifySignatures = true",
    )  # fmt: skip


def editors(ground: Ground) -> None:
    ground.settings(f"core.editor = {ground.plant('editor')}", f"sequence.editor = {ground.plant('sequence')}")
    ground.settings("commit.verbose = true")


def _lose_a_blob(ground: Ground) -> None:
    ground.settings(
        "core.repositoryformatversion = 1", "extensions.partialClone = origin", "remote.origin.promisor = true",
        "remote.origin.partialclonefilter = blob:none", "remote.origin.fetch = +refs/heads/*:refs/remotes/origin/*",
    )  # fmt: skip
    for name in ("a.txt", "c.txt", "sub/e.txt"):
        blob = run(ground.work, "rev-parse", f"HEAD:{name}").decode().strip()
        (ground.git_dir / "objects" / blob[:2] / blob[2:]).unlink()


def promisor_ssh(ground: Ground) -> None:
    ground.settings("remote.origin.url = ssh://127.0.0.1/nowhere", f"core.sshCommand = {ground.plant('ssh')}")
    _lose_a_blob(ground)


def promisor_ext(ground: Ground) -> None:
    ground.settings(f"remote.origin.url = ext::{ground.plant('ext')}", "protocol.ext.allow = always")
    _lose_a_blob(ground)


def promisor_upload_pack(ground: Ground) -> None:
    ground.settings(
        f"remote.origin.url = {ground.folder}/elsewhere", f"remote.origin.uploadpack = {ground.plant('uploadpack')}",
        f"uploadpack.packObjectsHook = {ground.plant('packobjects')}", f"core.gitProxy = {ground.plant('proxy')}",
    )  # fmt: skip
    run(ground.folder, "clone", "-q", "--bare", str(ground.work), "elsewhere")
    _lose_a_blob(ground)


def credentials(ground: Ground) -> None:
    ground.settings(
        f"credential.helper = {ground.plant('credential')}", f"core.askPass = {ground.plant('askpass')}",
        "remote.origin.url = http://someone@127.0.0.1:9/x",
    )  # fmt: skip
    _lose_a_blob(ground)


def included(ground: Ground) -> None:
    ground.settings(f"core.fsmonitor = {ground.plant('fsmonitor')}", file=ground.work / "more")
    ground.settings("include.path = ../more")


def included_if(ground: Ground) -> None:
    ground.settings(f"core.fsmonitor = {ground.plant('fsmonitor')}", file=ground.folder / "more")
    for number, condition in enumerate(
        ("gitdir:/", "gitdir/i:**/work/.git", "onbranch:main", "hasconfig:remote.*.url:x")
    ):
        ground.settings(f"includeIf.{condition}.path = {ground.folder}/more", f"remote.r{number}.url = x")


def worktree_settings(ground: Ground) -> None:
    ground.settings("core.repositoryformatversion = 1", "extensions.worktreeConfig = true")
    ground.settings(f"core.fsmonitor = {ground.plant('fsmonitor')}", file=ground.git_dir / "config.worktree")
    ground.hooks(ground.folder / "tools")
    ground.settings(f"core.hooksPath = {ground.folder}/tools", file=ground.git_dir / "config.worktree")


def _add_submodule(ground: Ground) -> Path:
    build_base(ground.folder / "module")
    run(ground.work, "submodule", "--quiet", "add", str(ground.folder / "module"), "s")
    run(ground.work, "commit", "-q", "-m", "a submodule")
    (ground.work / "s" / "a.txt").write_text("changed inside\n")
    return ground.git_dir / "modules" / "s"


def submodule(ground: Ground) -> None:
    ground.everything(_add_submodule(ground))
    (ground.work / "s" / ".gitattributes").write_text("* filter=x diff=x\n")


def submodule_replaced(ground: Ground) -> None:
    module = _add_submodule(ground)
    (ground.work / "s" / ".git").unlink()
    shutil.copytree(module, ground.work / "s" / ".git")
    settings = ground.work / "s" / ".git" / "config"
    lines = settings.read_text().splitlines(keepends=True)
    settings.write_text("".join(line for line in lines if "worktree" not in line))
    ground.everything(ground.work / "s" / ".git")
    (ground.work / "s" / ".gitattributes").write_text("* filter=x diff=x\n")


def submodule_update(ground: Ground) -> None:
    _add_submodule(ground)
    ground.settings(f"submodule.s.update = !{ground.plant('update')}")
    ground.settings(f"submodule.s.update = !{ground.plant('gitmodules')}", file=ground.work / ".gitmodules")
    ground.settings("submodule.recurse = true", "status.submoduleSummary = true", "diff.submodule = diff")
    ground.everything(ground.git_dir / "modules" / "s")
    (ground.work / "s" / ".gitattributes").write_text("* filter=x diff=x\n")


def nested(ground: Ground) -> None:
    build_base(ground.work / "n")
    ground.everything(ground.work / "n" / ".git")
    (ground.work / "n" / ".gitattributes").write_text("* filter=x diff=x\n")


def nested_in_index(ground: Ground) -> None:
    nested(ground)
    head = run(ground.work / "n", "rev-parse", "main").decode().strip()
    run(ground.work, "update-index", "--add", "--cacheinfo", f"160000,{head},n")
    run(ground.work, "commit", "-q", "-m", "nested")


def git_file(ground: Ground) -> None:
    shutil.move(ground.git_dir, ground.work / "inner")
    ground.git_dir.write_text("gitdir: inner\n")
    ground.everything(ground.work / "inner")
    ground.attributes("* filter=x diff=x\n")


def git_file_elsewhere(ground: Ground) -> None:
    shutil.move(ground.git_dir, ground.folder / "inner")
    ground.git_dir.write_text("gitdir: ../inner\n")
    ground.everything(ground.folder / "inner")
    ground.attributes("* filter=x diff=x\n")


def git_link(ground: Ground) -> None:
    shutil.move(ground.git_dir, ground.folder / "inner")
    ground.git_dir.symlink_to(ground.folder / "inner")
    ground.everything(ground.folder / "inner")
    ground.settings(f"core.worktree = {ground.work}", file=ground.folder / "inner" / "config")
    ground.attributes("* filter=x diff=x\n")


def common_elsewhere(ground: Ground) -> None:
    shutil.copytree(ground.git_dir, ground.folder / "inner")
    (ground.git_dir / "commondir").write_text("../../inner\n")
    ground.everything(ground.folder / "inner")
    ground.attributes("* filter=x diff=x\n")


def linked_worktree(ground: Ground) -> None:
    """``work`` is a linked worktree of a hostile repository."""
    shutil.move(ground.work, ground.folder / "main")
    run(ground.folder / "main", "worktree", "add", "-q", "-b", "linked", str(ground.work))
    ground.everything(ground.folder / "main" / ".git")
    (ground.work / "a.txt").write_text("changed\n")
    ground.attributes("* filter=x diff=x\n")


def alternates(ground: Ground) -> None:
    shutil.copytree(ground.git_dir, ground.folder / "inner")
    ground.everything(ground.folder / "inner")
    shutil.rmtree(ground.git_dir / "objects")
    (ground.git_dir / "objects" / "info").mkdir(parents=True)
    (ground.git_dir / "objects" / "info" / "alternates").write_text("../../../inner/objects\n")
    ground.settings(f"core.alternateRefsCommand = {ground.plant('alternaterefs')}")
    ground.settings(f"core.fsmonitor = {ground.plant('fsmonitor')}")


def other_work_tree(ground: Ground) -> None:
    shutil.copytree(ground.work, ground.folder / "elsewhere")
    (ground.folder / "elsewhere" / "secret.txt").write_text("not of this folder\n")
    ground.settings(f"core.worktree = {ground.folder}/elsewhere", f"core.fsmonitor = {ground.plant('fsmonitor')}")


def aliases(ground: Ground) -> None:
    for word in ("st", "status", "diff", "update-index", "write-tree", "read-tree", "cat-file", "diff-index"):
        ground.settings(f"alias.{word} = !{ground.plant(f'alias-{word}')}")


def replacements(ground: Ground) -> None:
    old = run(ground.work, "rev-parse", "HEAD:a.txt").decode().strip()
    new = run(ground.work, "hash-object", "-w", "--stdin", content=b"replaced\n").decode().strip()
    run(ground.work, "replace", old, new)
    ground.settings(f"diff.external = {ground.plant('external')}")


def split_index(ground: Ground) -> None:
    run(ground.work, "update-index", "--split-index", "--untracked-cache", check=False)
    ground.settings("core.splitIndex = true", f"core.fsmonitor = {ground.plant('fsmonitor')}")


def index_extensions(ground: Ground) -> None:
    """An index that says it is watched, and entries that say they need no look."""
    ground.settings(f"core.fsmonitor = {ground.plant('fsmonitor')}")
    run(ground.work, "-c", "core.fsmonitor=true", "update-index", "--assume-unchanged", "d.txt", check=False)
    ground.hooks(ground.git_dir / "hooks")


def sparse(ground: Ground) -> None:
    run(ground.work, "stash", "-q")
    run(ground.work, "sparse-checkout", "set", "--cone", "--sparse-index", "sub")
    ground.settings(f"core.fsmonitor = {ground.plant('fsmonitor')}", file=ground.git_dir / "config.worktree")
    ground.hooks(ground.git_dir / "hooks")
    (ground.work / "sub" / "e.txt").write_text("changed\n")


def maintenance(ground: Ground) -> None:
    ground.settings(
        "gc.auto = 1", "maintenance.auto = true", f"gc.recentObjectsHook = {ground.plant('recent')}",
        f"uploadarchive.x = {ground.plant('archive')}", f"interactive.diffFilter = {ground.plant('difffilter')}",
        f"difftool.x.cmd = {ground.plant('difftool')}", f"web.browser = {ground.plant('browser')}",
        f"trailer.x.command = {ground.plant('trailer')}", "trailer.x.key = X", f"browser.x.cmd = {ground.plant('web')}",
    )  # fmt: skip
    ground.hooks(ground.git_dir / "hooks")


def git_in_the_folder(ground: Ground) -> None:
    """The caller's ``PATH`` leads into the folder, by a relative entry and by an absolute one."""
    shutil.copy2(ground.plant("git"), ground.work / "git")
    ground.settings(f"core.fsmonitor = {ground.plant('fsmonitor')}")


def bare_here(ground: Ground) -> None:
    """The folder itself is a git directory."""
    for path in list(ground.git_dir.iterdir()):
        shutil.move(path, ground.work / path.name)
    ground.git_dir.rmdir()
    ground.settings("core.bare = false", f"core.worktree = {ground.work}", file=ground.work / "config")
    ground.everything(ground.work)


def conflict(ground: Ground) -> None:
    merge_driver(ground)
    settings = (ground.git_dir / "config").read_text()
    (ground.git_dir / "config").write_text(settings.split("[merge")[0])
    (ground.work / ".gitattributes").unlink(missing_ok=True)
    run(ground.work, "merge", "-q", "other", check=False)
    ground.everything(ground.git_dir)
    ground.attributes("* filter=x diff=x\n")


def unborn(ground: Ground) -> None:
    shutil.rmtree(ground.git_dir)
    run(ground.work, "init", "-q", "--template=")
    ground.everything(ground.git_dir)
    ground.attributes("* filter=x diff=x\n")


def all_of_it(ground: Ground) -> None:
    ground.everything(ground.git_dir)
    config_hooks(ground)
    ground.attributes("* filter=x diff=x\n")


GROUNDS: tuple[Callable[[Ground], None], ...] = (
    hooks, hooks_path, config_hooks, filter_clean, filter_smudge, filter_process, filter_odd_name, attributes_file,
    attributes_everywhere, fsmonitor, fsmonitor_second, textconv, external_diff, diff_driver, merge_driver, pager,
    signing, editors, promisor_ssh, promisor_ext, promisor_upload_pack, credentials, included, included_if,
    worktree_settings, submodule, submodule_replaced, submodule_update, nested, nested_in_index, git_file,
    git_file_elsewhere, git_link, common_elsewhere, linked_worktree, alternates, other_work_tree, aliases, replacements,
    split_index, index_extensions, sparse, maintenance, git_in_the_folder, bare_here, conflict, unborn, all_of_it,
)  # fmt: skip


def build(folder: Path, marks: Path, *names: str) -> list[Path]:
    """Each named repository, or all. Building leaves no mark."""
    base = folder / "base"
    if not base.exists():
        build_base(base)
    marks.mkdir(exist_ok=True)
    made: list[Path] = []
    for make in GROUNDS:
        if names and make.__name__ not in names:
            continue
        ground = Ground(folder / make.__name__, marks)
        ground.folder.mkdir()
        shutil.copytree(base, ground.work, symlinks=True)
        make(ground)
        made.append(ground.work)
    for mark in marks.iterdir():
        mark.unlink()
    return made


def try_plain_git(work: Path, marks: Path) -> list[str]:
    """What anybody would type, until something planted has run."""
    for words in (
        ["status"], ["diff"], ["diff", "HEAD"], ["log", "-1", "-p"], ["-p", "log", "-1"], ["add", "-A"],
        ["commit", "-m", "x"], ["commit", "--amend"], ["show", "HEAD"], ["worktree", "add", "../plain"],
        ["branch", "plain2"],
        ["checkout", "other"], ["merge", "main"], ["submodule", "update", "--force"], ["fetch", "origin"], ["st"],
        ["gc", "--auto"], ["status"],
    ):  # fmt: skip
        program = "./git" if (work / "git").exists() else "git"
        env = {**os.environ, **WHO, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0", "EDITOR": "true"}
        subprocess.run(
            [program, *words],
            cwd=work,
            env=env,
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=240,
        )
        if found := sorted(mark.name for mark in marks.glob(f"{work.parent.name}.*")):
            return found
    return []


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    for made_work in build(place, place / "marks", *sys.argv[2:]):
        print(made_work)
