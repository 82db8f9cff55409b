"""A session's workspace: git's word, the diff since it began, files that never leave it, and what is touched."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import subprocess
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stagedoor.errors import BadRequest, NotAllowed, SessionNotFound
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.service import Service
from stagedoor.service.views import SessionSpec, SessionView
from stagedoor.service.workspaces import Workspaces
from stagedoor.service.workspaces import files as reading
from stagedoor.service.workspaces import git as tracking
from stagedoor.service.workspaces.files import FileEntry, FileText, Listing
from stagedoor.service.workspaces.git import ChangedFile, GitStatus, WorkspaceDiff
from stagedoor.service.workspaces.watch import FileTouched, Touched
from stagedoor.shadow_git.reading import LARGEST_NEW_FILE

BOUND = 240.0


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=T", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(["git", *who, *words], cwd=folder, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for name in ("changed", "gone", "kept", "staged"):
        (folder / f"{name}.txt").write_text(f"{name}\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "inner.txt").write_text("inner\n")
    (folder / ".gitignore").write_text("ignored\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "First")
    return folder


def workspaces(folder: Path, base: str = "") -> Workspaces:
    async def get(session_id: str) -> SessionView:
        return SessionView(id=session_id, agent="understudy", cwd=str(folder), base=base)

    return Workspaces(get, folder.parent / "kept")


def change(folder: Path) -> None:
    (folder / "changed.txt").write_text("other\n")
    (folder / "gone.txt").unlink()
    (folder / "staged.txt").write_text("in the index\n")
    git(folder, "add", "staged.txt")
    (folder / "new ü.txt").write_text("new\n")
    (folder / "sub" / "new.txt").write_text("new\n")
    (folder / "ignored").write_text("x\n")


def test_status_tells_branch_and_files(repository: Path) -> None:
    change(repository)
    report = asyncio.run(workspaces(repository).git_status("s"))
    assert replace(report, files=tuple(sorted(report.files, key=lambda item: item.path))) == GitStatus(
        repository=True,
        branch="main",
        commit=git(repository, "rev-parse", "HEAD"),
        clean=False,
        files=(
            ChangedFile(path="changed.txt", change="modified"),
            ChangedFile(path="gone.txt", change="deleted"),
            ChangedFile(path="new ü.txt", change="untracked"),
            ChangedFile(path="staged.txt", change="modified", staged=True),
            ChangedFile(path="sub/new.txt", change="untracked"),
        ),
    )


def test_status_of_a_folder_inside_is_of_that_folder(repository: Path) -> None:
    change(repository)
    git(repository, "mv", "sub/inner.txt", "sub/outer.txt")
    report = asyncio.run(workspaces(repository / "sub").git_status("s"))
    assert report.files == (
        ChangedFile(path="outer.txt", change="renamed", staged=True, old_path="inner.txt"),
        ChangedFile(path="new.txt", change="untracked"),
    )


def test_status_tells_how_far_it_is_from_upstream(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(repository), "clone")
    git(repository, "commit", "-q", "--allow-empty", "-m", "Theirs")
    clone = tmp_path / "clone"
    for name in ("One", "Two"):
        git(clone, "commit", "-q", "--allow-empty", "-m", name)
    git(clone, "fetch", "-q")
    report = asyncio.run(workspaces(clone).git_status("s"))
    assert (report.upstream, report.ahead, report.behind, report.clean) == ("origin/main", 2, 1, True)


def test_where_there_is_no_repository_or_no_commit(tmp_path: Path) -> None:
    async def main() -> None:
        assert await workspaces(tmp_path).git_status("s") == GitStatus()
        assert await tracking.standing(tmp_path) == ("", "")
        with pytest.raises(BadRequest, match="is not in a git repository; git init there"):
            await workspaces(tmp_path).diff("s")
        with pytest.raises(BadRequest, match="no longer exists"):
            await workspaces(tmp_path / "gone").git_status("s")

    asyncio.run(main())
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "a").write_text("one\n")
    report = asyncio.run(workspaces(tmp_path).git_status("s"))
    assert report == GitStatus(
        repository=True, branch="main", clean=False, files=(ChangedFile(path="a", change="untracked"),)
    )
    made = asyncio.run(workspaces(tmp_path).diff("s"))
    assert replace(made, diff="") == WorkspaceDiff(
        base="4b825dc642cb6eb9a060e54bf8d69288fbee4904", files=1, insertions=1
    )


def test_the_diff_has_all_that_happened_since_the_session_began(repository: Path) -> None:
    branch, base = asyncio.run(tracking.standing(repository))
    assert (branch, base) == ("main", git(repository, "rev-parse", "HEAD"))
    (repository / "kept.txt").write_text("committed since\n")
    git(repository, "commit", "-q", "-am", "Second")
    change(repository)
    index = git(repository, "ls-files", "--stage")
    report = asyncio.run(workspaces(repository, base).diff("s"))
    lines = [line for line in report.diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert lines == [
        "-changed", "+other", "-gone", "-kept", "+committed since", "+new", "-staged", "+in the index", "+new",
    ]  # fmt: skip
    assert replace(report, diff="") == WorkspaceDiff(base=base, files=6, insertions=5, deletions=4)
    assert git(repository, "ls-files", "--stage") == index, "the index is the user's"
    item = asyncio.run(workspaces(repository, base).diff("s", path="sub"))
    assert (item.files, item.insertions) == (1, 1)
    assert "--- /dev/null\n+++ b/sub/new.txt\n@@ -0,0 +1 @@\n+new\n" in item.diff


def test_what_was_not_committed_before_the_session_is_not_told_as_its_own(repository: Path) -> None:
    change(repository)
    objects = git(repository, "count-objects")

    async def main() -> tuple[WorkspaceDiff, WorkspaceDiff]:
        branch, base = await workspaces(repository).standing("s", repository)
        assert branch == "main"
        own = workspaces(repository, base)
        nothing = await own.diff("s")
        (repository / "new ü.txt").write_text("newer\n")
        (repository / "newest.txt").write_text("newest\n")
        return nothing, await own.diff("s")

    nothing, report = asyncio.run(main())
    assert nothing == WorkspaceDiff(base=report.base)
    lines = [line for line in report.diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert (lines, report.files) == (["-new", "+newer", "+newest"], 2)
    assert git(repository, "count-objects") == objects, "the repository is the user's"
    asyncio.run(workspaces(repository).forget("s"))
    assert list((repository.parent / "kept").iterdir()) == []


@pytest.mark.parametrize("before", [0, 1, 3000])
def test_a_repository_without_a_commit_stands_as_it_is(before: int, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    git(work, "init", "-q", "-b", "main")
    for number in range(before):
        (work / f"{number}.txt").write_text("before\n")
    with (work / "large.bin").open("wb") as file:
        file.truncate(LARGEST_NEW_FILE + 1)

    async def main() -> WorkspaceDiff:
        _, base = await workspaces(work).standing("s", work)
        (work / "new.txt").write_text("since\n")
        git(work, "add", "*.txt")
        git(work, "commit", "-q", "-m", "First")
        return await workspaces(work, base).diff("s")

    report = asyncio.run(main())
    assert (report.files, report.insertions) == (1, 1)
    assert "+since" in report.diff


def test_a_clean_folder_stands_at_its_commit(repository: Path) -> None:
    report = asyncio.run(workspaces(repository).standing("s", repository))
    assert report == ("main", git(repository, "rev-parse", "HEAD"))
    assert not (repository.parent / "kept").exists()


def test_too_much_to_be_kept_stands_at_the_commit(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "MOST_KEPT", 10)
    change(repository)
    report = asyncio.run(workspaces(repository).standing("s", repository))
    assert report == ("main", git(repository, "rev-parse", "HEAD"))


def test_a_long_diff_is_cut_at_a_line_and_says_so(repository: Path) -> None:
    (repository / "long.txt").write_text("a line of some length\n" * 10_000)
    report = asyncio.run(tracking.diff(repository, most=1000))
    assert (report.cut, report.insertions, report.diff[-1:], len(report.diff) <= 1000) == (True, 10_000, "\n", True)


@pytest.mark.parametrize("path", ["../outside", "/etc", ":/", ":(top)kept.txt"])
def test_no_path_leads_the_diff_outside(path: str, repository: Path) -> None:
    (repository / "kept.txt").write_text("changed\n")
    try:
        report = asyncio.run(workspaces(repository / "sub").diff("s", path=path))
    except NotAllowed:
        return
    assert report.diff == ""


def test_nothing_of_the_repository_is_run(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\nexit 1\n")
    program.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "diff.x.textconv", "filter.f.clean", "filter.g.process"):
        git(repository, "config", key, str(program))
    git(repository, "config", "filter.f.required", "true")
    (repository / ".gitattributes").write_text("*.txt diff=x filter=f\n*.bin filter=g\n")
    (repository / "new.bin").write_text("new\n")
    (repository / "changed.txt").write_text("other\n")
    asyncio.run(workspaces(repository).git_status("s"))
    report = asyncio.run(workspaces(repository).diff("s"))
    assert (report.files, ran.exists()) == (3, False)


def test_a_session_tells_what_it_changed_and_nothing_else(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGEDOOR_HOME", str(tmp_path / "home"))
    change(repository)
    prompt = json.dumps({"script": [[{"shell": "echo more >> kept.txt; echo x > made.txt"}], [{"say": "Done."}]]})
    agent = AgentSettings(tier="autonomous", env={"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "understudy")})
    settings = Settings(home=str(tmp_path / "home"), roots=(str(repository),), agents={"understudy": agent})

    async def main() -> WorkspaceDiff:
        async with asyncio.timeout(BOUND), Service(settings) as service:
            view = await service.sessions.create(SessionSpec(prompt=prompt, agent="understudy"))
            async for _ in service.events.follow(view.id, 0):
                pass
            report = await service.workspaces.diff(view.id)
            await service.sessions.delete(view.id)
            return report

    report = asyncio.run(main())
    lines = [line for line in report.diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert (lines, report.files) == (["+more", "+x"], 2)
    assert list((tmp_path / "home" / "snapshots").iterdir()) == []


# ------------------------------------------------------------------------------------------------------------- files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret\n")
    made = tmp_path / "work"
    (made / "sub").mkdir(parents=True)
    (made / "text.txt").write_text("eins\nzwei\ndrei\n")
    (made / "picture").write_bytes(b"\x89PNG\0\xff")
    (made / "latin").write_bytes("ä".encode("latin-1"))
    (made / "inside").symlink_to("text.txt")
    (made / "outside").symlink_to(tmp_path / "secret")
    (made / "sub" / "up").symlink_to("../../secret")
    (made / "loop").symlink_to("loop")
    os.mkfifo(made / "pipe")
    return made


def test_a_listing_tells_links_by_where_they_lead(folder: Path) -> None:
    report = asyncio.run(workspaces(folder).files("s"))
    assert Listing(path="", entries=tuple(replace(item, modified_at=None) for item in report.entries)) == Listing(
        path="",
        entries=(
            FileEntry(name="sub", path="sub", kind="folder"),
            FileEntry(name="inside", path="inside", kind="file", size=15),
            FileEntry(name="latin", path="latin", kind="file", size=1),
            FileEntry(name="loop", path="loop", kind="link"),
            FileEntry(name="outside", path="outside", kind="link"),
            FileEntry(name="picture", path="picture", kind="file", size=6),
            FileEntry(name="pipe", path="pipe", kind="other", size=0),
            FileEntry(name="text.txt", path="text.txt", kind="file", size=15),
        ),
    )
    assert asyncio.run(workspaces(folder).files("s", "sub")).entries == (
        FileEntry(name="up", path="sub/up", kind="link"),
    )


def test_a_long_listing_is_cut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_ENTRIES", 3)
    report = reading.listing(folder)
    assert (len(report.entries), report.cut) == (3, True)


READ: dict[str, tuple[str, dict[str, Any], FileText]] = {
    "text": ("text.txt", {}, FileText(path="text.txt", size=15, content="eins\nzwei\ndrei\n")),
    "through a link": ("inside", {}, FileText(path="text.txt", size=15, content="eins\nzwei\ndrei\n")),
    "a detour": ("sub/../text.txt", {}, FileText(path="text.txt", size=15, content="eins\nzwei\ndrei\n")),
    "a line": (
        "text.txt",
        {"first_line": 2, "last_line": 2},
        FileText(path="text.txt", size=15, content="zwei\n", first_line=2, last_line=2),
    ),
    "from a line on": (
        "text.txt",
        {"first_line": 2},
        FileText(path="text.txt", size=15, content="zwei\ndrei\n", first_line=2, last_line=3),
    ),
    "beyond the end": ("text.txt", {"first_line": 9}, FileText(path="text.txt", size=15)),
    "cut": ("text.txt", {"most": 7}, FileText(path="text.txt", size=15, content="eins\nzw", cut=True)),
    "cut lines": (
        "text.txt",
        {"first_line": 2, "most": 7},
        FileText(path="text.txt", size=15, content="zwei\ndr", first_line=2, last_line=3, cut=True),
    ),
    "binary": (
        "picture",
        {},
        FileText(
            path="picture", size=6, content=base64.b64encode(b"\x89PNG\0\xff").decode(), encoding="base64", binary=True
        ),
    ),
    "another encoding": ("latin", {}, FileText(path="latin", size=1, content="5A==", encoding="base64", binary=True)),
}


@pytest.mark.parametrize("name", READ)
def test_reading(name: str, folder: Path) -> None:
    path, how, report = READ[name]
    assert reading.read(folder, path, **how) == report


def test_a_cut_goes_through_no_character(folder: Path) -> None:
    (folder / "text.txt").write_text("aüü")
    assert reading.read(folder, "text.txt", most=4) == FileText(path="text.txt", size=5, content="aü", cut=True)


REFUSED: dict[str, tuple[str, dict[str, int], type[Exception]]] = {
    "up": ("../secret", {}, NotAllowed),
    "absolute": ("/etc/passwd", {}, NotAllowed),
    "a link": ("outside", {}, NotAllowed),
    "a link inside": ("sub/up", {}, NotAllowed),
    "a sibling with the same beginning": ("../work2/x", {}, NotAllowed),
    "a loop": ("loop", {}, BadRequest),
    "a pipe": ("pipe", {}, BadRequest),
    "a folder": ("sub", {}, BadRequest),
    "a zero byte": ("a\0b", {}, BadRequest),
    "nothing there": ("no.txt", {}, SessionNotFound),
    "too long a name": ("x" * 300, {}, BadRequest),
    "line 0": ("text.txt", {"first_line": 0}, BadRequest),
    "backwards": ("text.txt", {"first_line": 2, "last_line": 1}, BadRequest),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read(name: str, folder: Path) -> None:
    path, how, fault = REFUSED[name]
    with pytest.raises(fault):
        reading.read(folder, path, **how)


@pytest.mark.parametrize("path", ["..", "sub/../..", "text.txt", "no"])
def test_what_is_not_listed(path: str, folder: Path) -> None:
    with pytest.raises((NotAllowed, BadRequest, SessionNotFound)):
        reading.listing(folder, path)


# ---------------------------------------------------------------------------------------------------------- watching


class Watched:
    """What is touched, collected until something is in it."""

    def __init__(self, stream: AsyncGenerator[Touched]) -> None:
        self._stream = stream
        self.files: set[tuple[str, str]] = set()
        self.git = False

    async def look(self) -> None:
        touched = await anext(self._stream)
        self.files |= {(item.path, item.change) for item in touched.files}
        self.git |= touched.git


@asynccontextmanager
async def watching(*places: Workspaces) -> AsyncIterator[list[Watched]]:
    """Followers that miss nothing from here on."""
    async with asyncio.timeout(BOUND), AsyncExitStack() as stack:
        matches: list[Watched] = []
        for place in places:
            stream = await stack.enter_async_context(contextlib.aclosing(place.watch("s")))
            assert await anext(stream) == Touched()
            matches.append(Watched(stream))
        yield matches


@pytest.mark.parametrize("polling", ["", "1"], ids=["events", "polling"])
def test_what_is_touched_is_told(repository: Path, polling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the events of the system's own, and by looking again and again where there are none."""
    monkeypatch.setenv("WATCHFILES_FORCE_POLLING", polling)

    async def main() -> Watched:
        (repository / "node_modules").mkdir()
        async with watching(workspaces(repository)) as (watched,):
            (repository / "node_modules" / "x").write_text("x")
            (repository / "new.txt").write_text("new\n")
            (repository / "gone.txt").unlink()
            await asyncio.to_thread(git, repository, "add", "new.txt")
            expected = {("new.txt", "created"), ("gone.txt", "deleted")}
            while not (expected <= watched.files and (watched.git or polling)):  # a poll counts times in seconds
                await watched.look()
        return watched

    watched = asyncio.run(main())
    assert {path for path, _ in watched.files} == {"new.txt", "gone.txt"}


def test_a_worktree_tells_of_its_commits_too(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other")

    async def main() -> Watched:
        async with watching(workspaces(tmp_path / "tree")) as (watched,):
            (tmp_path / "tree" / "new.txt").write_text("x")
            await asyncio.to_thread(git, tmp_path / "tree", "add", "new.txt")
            while not (watched.git and watched.files):
                await watched.look()
        return watched

    assert {path for path, _ in asyncio.run(main()).files} == {"new.txt"}


def test_one_watch_serves_all_who_follow_a_folder_and_ends_with_the_last(tmp_path: Path) -> None:
    def watches() -> list[threading.Thread]:
        return [item for item in threading.enumerate() if item.name == f"watch {tmp_path}"]

    async def main() -> None:
        place = workspaces(tmp_path)
        async with watching(place, place, place) as (first, second, slow):
            assert len(watches()) == 1
            for name, followers in (("a", (first, second)), ("b", (first, second)), ("c", (first, second, slow))):
                (tmp_path / name).write_text("x")
                for watched in followers:
                    while (name, "created") not in watched.files:
                        await watched.look()
            assert slow.files == first.files == {("a", "created"), ("b", "created"), ("c", "created")}
        async with asyncio.timeout(BOUND):
            for thread in watches():
                await asyncio.to_thread(thread.join)
        async with watching(place) as (again,):
            (tmp_path / "d").write_text("x")
            while ("d", "created") not in again.files:
                await again.look()

    asyncio.run(main())


def test_a_folder_that_goes_away_ends_the_watch(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "work").mkdir()
        async with watching(workspaces(tmp_path / "work")) as (watched,):
            (tmp_path / "work" / "x").write_text("x")
            while not watched.files:
                await watched.look()
            shutil.rmtree(tmp_path / "work")
            with contextlib.suppress(StopAsyncIteration):
                while True:
                    await watched.look()
        with pytest.raises(BadRequest, match="no longer exists"):
            await anext(workspaces(tmp_path / "work").watch("s"))

    asyncio.run(main())


def test_touched_has_wire_names() -> None:
    assert msgspec.to_builtins(Touched(files=(FileTouched(path="a", change="created"),))) == {
        "files": ({"path": "a", "change": "created"},), "git": False, "cut": False,
    }  # fmt: skip
