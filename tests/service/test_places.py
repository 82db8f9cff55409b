"""Sessions in a repository: whichever machine has them, the files and the conversation of the last turn are there."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stagedoor.drivers.acp.definition import AcpAgent
from stagedoor.errors import BadRequest, NotAllowed, StagedoorError
from stagedoor.service import worker as workers
from stagedoor.service.config.settings import AgentSettings
from stagedoor.service.machines import carrying, lost_rings
from stagedoor.service.machines.places import GitPlace, clone_label, git_place
from stagedoor.service.running import Role
from stagedoor.service.service import Service
from stagedoor.service.views import QueuedPrompt, SessionSpec, SessionView
from stagedoor.service.worker import FILE_NAME, WorkerIdentity
from stagedoor.service.workspaces import start_worktree
from stagedoor.unified.decisions import Allow
from stagedoor.unified.events import Done, Notice, Text, TurnCompleted
from tests.service.test_machines import LONG_LEASE, Site, nothing_runs
from tests.shadow_git.hostile import WHO

OTHER = "other"


def git(folder: Path, *words: str) -> str:
    env = {**WHO, "PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *words], cwd=folder, env=env, check=True, capture_output=True, text=True).stdout


class Repositories(Site):
    """Machines with homes of their own, also for their agents, and a repository that they may clone."""

    def __init__(self, kit: Any, folder: Path) -> None:
        super().__init__(kit, folder)
        self.source = folder / "source"
        self.source.mkdir()
        git(self.source, "init", "--quiet", "-b", "main")
        (self.source / "a.txt").write_text("one\n")
        git(self.source, "add", ".")
        git(self.source, "commit", "--quiet", "-m", "first")
        self.place = f"git:file://{self.source}@main"
        kit.house.plays([{"say": "first"}], [{"say": "second"}], [{"say": "third"}])

    @asynccontextmanager
    async def machine(self, name: str, role: Role = "both", **changes: Any) -> AsyncGenerator[Service]:
        home = self.folder / name
        home.mkdir(exist_ok=True)
        (home / FILE_NAME).write_bytes(msgspec.json.encode(WorkerIdentity(id=f"id of {name}", name=name)))
        settings = self.kit.house.settings()
        own = {"STAGEDOOR_UNDERSTUDY_HOME": str(home / "understudy")}
        argv = (sys.executable, "-m", "stagedoor.understudy", "--script", str(self.kit.house.script))
        agents = {
            "understudy": replace(settings.agents["understudy"], env=own),
            OTHER: AgentSettings(acp=AcpAgent(name=OTHER, command=argv, modes={"supervised": "ask"}, env=own)),
        }
        clone = (f"file://{self.folder}/",)
        settings = replace(settings, home=str(home), lease=LONG_LEASE, clone=clone, agents=agents, database="")
        settings = replace(settings, **changes)
        async with Service(settings, store=self.store, hub=self.hub, role=role) as service:
            if role != "door":
                service.sessions, service.questions = service._own_verbs
            yield service

    def clones(self, name: str) -> list[Path]:
        return sorted((self.folder / name / "places").glob("*/*"))


@pytest.fixture
def site(kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repositories:
    monkeypatch.setattr(workers, "RENEW_EVERY", 1.0)
    monkeypatch.setattr(workers, "HELD", 1.0)
    monkeypatch.setattr(lost_rings, "LOOK_EVERY", float(LONG_LEASE))
    monkeypatch.setattr(carrying, "SETTLED", 0.0)
    return Repositories(kit, tmp_path)


async def kept(service: Service, session_id: str, turn: int) -> None:
    while (carried := await service._store.carried(session_id)) is None or carried.turn < turn:
        await asyncio.sleep(0.01)


def said(received: list[Any]) -> list[str]:
    return [event.text for event in received if isinstance(event, Text)]


def notices(received: list[Any]) -> dict[str, str]:
    return {event.code: event.message for event in received if isinstance(event, Notice)}


WORK = "echo two > a.txt && git -c user.name=x -c user.email=x@x commit -qam work && echo new > 'new file'"


@pytest.mark.parametrize("agent", ["understudy", OTHER])
def test_another_machine_goes_on_with_the_files_and_the_conversation(site: Repositories, agent: str) -> None:
    carries = agent == "understudy"

    async def main() -> None:
        async with site.machine("one") as one, site.machine("two") as two:
            options = {"place": site.place, "keep_open": True, "tier": "autonomous", "agent": agent}
            session, watch = await site.kit.start_session(one, "plain", **options)
            assert (session.place, session.worker) == (site.place, "id of one")
            assert set(session.needs) == {f"agent:{agent}", f"clone:file://{site.folder}/"}
            assert said(await watch.until(TurnCompleted)) == ["first"]
            first = await one.sessions.get(session.id)
            clone = Path(first.cwd)
            assert [clone] == site.clones("one")
            assert (clone / "a.txt").read_text() == "one\n"
            await one.sessions.send(session.id, site.kit.play([{"shell": WORK}], [{"say": "worked"}]))
            await watch.until(TurnCompleted)
            await kept(one, session.id, 2)
            assert (await one.workspaces.diff(session.id)).files == 2

            await site.silence("one")
            await two._running.recover()
            taken = await two.sessions.get(session.id)
            assert taken.worker == "id of two"
            assert taken.epoch > first.epoch
            await two.sessions.send(session.id, "plain")
            heard = await watch.until(TurnCompleted)
            assert said(heard) == (["second"] if carries else ["first"])
            assert "after turn 2" in notices(heard)["taken_over"]
            assert ("conversation_not_carried" in notices(heard)) is not carries
            moved = Path((await two.sessions.get(session.id)).cwd)
            assert [moved] == site.clones("two")
            assert moved != clone
            assert (moved / "a.txt").read_text() == "two\n"
            assert (moved / "new file").read_text() == "new\n"
            assert git(moved, "log", "--format=%s").split() == ["work", "first"]
            assert git(moved, "status", "--porcelain") == '?? "new file"\n'
            assert (await two.workspaces.diff(session.id)).files == 2

            await one._running.recover()
            await one._upkeep.once()
            assert site.clones("one") == []
            await two._upkeep.once()
            assert site.clones("two") == [moved]
            await two.sessions.cancel(session.id)
            await two.sessions.delete(session.id)
            assert site.clones("two") == []
            assert await two._store.carried(session.id) is None
        assert await nothing_runs()

    site.kit.run(main())


def test_a_question_stays_open_and_what_was_cut_is_told(site: Repositories) -> None:
    async def main() -> None:
        async with site.machine("one") as one, site.machine("two") as two:
            session, watch = await site.kit.start_session(one, "plain", place=site.place, keep_open=True)
            await watch.until(TurnCompleted)
            await kept(one, session.id, 1)
            prompt = site.kit.play([{"shell": "touch later"}], [{"say": "done"}])
            await one.sessions.send(session.id, prompt)
            question = await watch.question()
            await site.silence("one")
            await two._running.recover()
            cut = await watch.notice("asleep")
            assert [event.status for event in cut if isinstance(event, TurnCompleted)] == ["interrupted"]
            assert [one.open for one in await two.questions.list(session_id=session.id)] == [True]
            await two.questions.answer(question.id, Allow())
            heard = await watch.until(TurnCompleted)
            assert "after turn 1; what was changed in a later turn is not there" in notices(heard)["taken_over"]
            assert said(heard) == ["second"]  # it is told in a prompt of its own, in the same conversation
            await two.sessions.cancel(session.id)

    site.kit.run(main())


def test_one_that_nobody_began_begins_elsewhere_and_a_clone_that_hangs_can_be_cancelled(site: Repositories) -> None:
    async def main() -> None:
        async with site.machine("one") as one, site.machine("two") as two:
            stuck = site.folder / "stuck"
            shutil.copytree(site.source, stuck)
            (stuck / ".git/HEAD").unlink()
            os.mkfifo(stuck / ".git/HEAD")  # whoever looks waits
            first, _ = await site.kit.start_session(one, "plain", place=f"git:file://{stuck}@main")
            second, _ = await site.kit.start_session(one, "plain", place=f"git:file://{stuck}@main")
            cancelled = await one.sessions.cancel(second.id)
            assert (cancelled.state, cancelled.activity) == ("cancelled", "ended")
            await site.silence("one")
            (stuck / ".git/HEAD").unlink()
            (stuck / ".git/HEAD").write_text("ref: refs/heads/main\n")
            await two._running.recover()
            received = await site.kit.watch(two, first.id).rest()
            assert said(received) == ["first"]
            assert received[-1].status == "success"
            assert [clone.parent.name for clone in site.clones("two")] == [first.id]
        assert await nothing_runs()

    site.kit.run(main())


def test_pictures_that_stayed_on_another_machine_are_named(site: Repositories) -> None:
    async def main() -> None:
        async with site.machine("one") as one, site.machine("two") as two:
            session, watch = await site.kit.start_session(one, "plain", place=site.place, keep_open=True)
            await watch.until(TurnCompleted)
            await kept(one, session.id, 1)
            await one.sessions.send(session.id, site.kit.play([{"shell": "touch later"}], [{"say": "done"}]))
            await watch.question()
            runner = one._running.get(session.id)
            assert runner is not None
            images = tuple(
                str(site.folder / "disk of one" / session.id / "m" / name) for name in ("1-a.png", "2-b.png")
            )
            await runner.post(QueuedPrompt(id="m", session_id=session.id, prompt="plain", at=1, images=images))
            await site.silence("one")
            await two._running.recover()
            [question] = await two.questions.list(session_id=session.id)
            await two.questions.answer(question.id, Allow())
            heard = await watch.until(lambda event: isinstance(event, Text) and event.text == "third")
            [told] = [event for event in heard if isinstance(event, Notice) and event.code == "images_not_sent"]
            assert (told.level, told.message.rpartition(": ")[2]) == ("error", "1-a.png, 2-b.png")
            assert "attached" not in notices(heard)
            await two.sessions.cancel(session.id)

    site.kit.run(main())


def test_it_goes_on_after_it_ended_and_beside_it(site: Repositories) -> None:
    async def main() -> None:
        async with site.machine("one") as one:
            options = {"place": site.place, "tier": "autonomous"}
            session, watch = await site.kit.start_session(one, "plain", **options)
            assert isinstance((await watch.rest())[-1], Done)
            while one._running.get(session.id) is not None:
                await asyncio.sleep(0.01)
            for fork in (False, True):
                later = await one.sessions.resume(session.id, "plain", fork=fork)
                received = await site.kit.watch(one, later.id).rest()
                assert said(received) == ["second"]
                assert (await one.sessions.get(later.id)).place == site.place
            assert len(site.clones("one")) == 3

    site.kit.run(main())


def test_what_cannot_be_brought_is_said(site: Repositories) -> None:
    async def main() -> None:
        async with site.machine("one") as one:
            session, watch = await site.kit.start_session(one, "plain", place=f"git:file://{site.source}@nowhere")
            received = await watch.rest()
            assert isinstance(received[-1], Done)
            assert "has no branch and no tag 'nowhere'" in (await one.sessions.get(session.id)).error
            assert site.clones("one") == []

    site.kit.run(main())


@pytest.mark.parametrize("name", ["ABSOLUTE", "../../victim", "..", "."])
def test_an_id_that_leads_elsewhere_is_refused_and_nothing_is_removed(site: Repositories, name: str) -> None:
    """Others write into a log that is shared."""
    victim = site.folder / "victim"

    async def main() -> None:
        async with site.machine("one") as one:
            places = site.folder / "one" / "places"
            for folder in (victim, places):
                folder.mkdir()
                (folder / "kept").write_text("x")
            session_id = name.replace("ABSOLUTE", str(victim))
            view = SessionView(id=session_id, agent="understudy", cwd="/", place=site.place, base="0" * 40)
            running = one._running
            with pytest.raises(BadRequest, match="cannot be the id of a session"):
                await running.carrying.arrive(running.open_log(view))
            with pytest.raises(BadRequest, match="cannot be the id of a session"):
                running.carrying.begins_in(session_id)
            with pytest.raises(BadRequest, match="cannot be the id of a session"):
                await start_worktree(view, site.folder / "one")
            await running.carrying.forget(session_id)
            await one.workspaces.forget(session_id)
            await one.sessions._forget(session_id)
            assert [(folder / "kept").read_text() for folder in (victim, places)] == ["x", "x"]

    site.kit.run(main())


def test_work_that_is_too_large_is_said_once_and_nothing_is_lost_by_it(
    site: Repositories, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "MOST_WORK", 20_000)

    async def main() -> None:
        async with site.machine("one") as one:
            session, watch = await site.kit.start_session(
                one, "plain", place=site.place, keep_open=True, tier="autonomous"
            )
            await kept(one, session.id, 1)
            for _ in range(2):
                shell = {"shell": "head -c 30000 /dev/urandom > large"}
                await one.sessions.send(session.id, site.kit.play([shell], [{"say": "x"}]))
            await one.sessions.send(session.id, site.kit.play([{"shell": "rm large"}], [{"say": "x"}]))
            await kept(one, session.id, 4)
            await one.sessions.cancel(session.id)
            received = await watch.rest()
            codes = [event.code for event in received if isinstance(event, Notice)]
            assert codes.count("work_not_kept") == 1

    site.kit.run(main())


@pytest.mark.parametrize(
    ("wrong", "fault", "words"),
    [
        ({"place": "git:https://example.org/x@main"}, NotAllowed, "workspaces.clone"),
        ({"place": "git:file:///etc"}, NotAllowed, "workspaces.clone"),
        ({"place": "git:ext::sh -c x"}, BadRequest, "no git place"),
        ({"cwd": "x"}, BadRequest, "leave cwd"),
        ({"worktree": True}, BadRequest, "leave cwd"),
        ({"needs": ("gpu",)}, BadRequest, "gpu"),
    ],
)
def test_what_is_refused_at_once(
    site: Repositories, wrong: dict[str, Any], fault: type[StagedoorError], words: str
) -> None:
    async def main() -> None:
        async with site.machine("one") as one:
            with pytest.raises(fault, match=words):
                await one.sessions.create(SessionSpec(**{"prompt": "x", "place": site.place, **wrong}))

    site.kit.run(main())


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("", None),
        ("host:box", None),
        ("git:https://host/a/b.git@main", GitPlace("https://host/a/b.git", "main")),
        ("git:https://host/a", GitPlace("https://host/a")),
        ("git:git@host:a/b@v1", GitPlace("git@host:a/b", "v1")),
        ("git:git@host:a/b", GitPlace("git@host:a/b")),
        ("git:ssh://git@host/a@feature/x", GitPlace("ssh://git@host/a", "feature/x")),
        ("git:ssh://git@host/a", GitPlace("ssh://git@host/a")),
        ("git:file:///a/b@" + "0" * 40, GitPlace("file:///a/b", "0" * 40)),
        *((place, BadRequest) for place in (
            "git:", "git:@main", "git:/etc/passwd", "git:../x", "git:https://me:secret@host/a", "git:https://me@host/a",
            "git:ext::sh", "git:http://host/a", "git:git://host/a", "git:--upload-pack=x", "git:file:///a/../b",
            "git:https://host/a@-x", "git:https://host/a@x..y", "git:https://host/a@x:y", "git:https://host/a@x y",
            "git:https://host/a@*", "git:https://host/a\n", "git:-oProxyCommand=x@host:a", "git:https://host/%2e%2e/a",
        )),
    ],
)  # fmt: skip
def test_places(place: str, expected: GitPlace | type[BadRequest] | None) -> None:
    if expected is BadRequest:
        with pytest.raises(BadRequest):
            git_place(place)
    else:
        assert git_place(place) == expected


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ((), ""),
        (("clone:https://host/a/b",), "clone:https://host/a/b"),
        (("clone:https://host/",), "clone:https://host/"),
        (("clone:https://host",), ""),
        (("https://host/",), ""),
        (("clone:https://other/", "clone:https://host/a/"), "clone:https://host/a/"),
    ],
)
def test_the_label_by_which_a_machine_may_clone(labels: tuple[str, ...], found: str) -> None:
    assert clone_label(GitPlace("https://host/a/b"), labels) == found
