"""A door whose only worker is another process: whatever is asked of a machine's disk is answered by that machine, and
nothing by the door's own."""

from __future__ import annotations

import asyncio
import shutil
import threading
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stagedoor.errors import BadRequest, NotAllowed, SessionNotFound
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.journal import Journal, LocalHub
from stagedoor.service.machines import watching
from stagedoor.service.machines.openings import OpeningsElsewhere
from stagedoor.service.machines.watching import FolderWatches, watch_elsewhere
from stagedoor.service.service import Service
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.views import AttachedFile, SessionSpec, SessionView
from stagedoor.service.workspaces import Workspaces
from stagedoor.service.workspaces.watch import Touched
from stagedoor.unified.decisions import Allow
from tools.postgres import empty_database

BOUND = 240.0
SAYS = '{"script": [[{"say": "done"}]]}'


async def played(door: Service, spec: SessionSpec) -> SessionView:
    view = await door.sessions.create(spec, who="phone")
    bell = door.sessions.bell()
    try:
        while not (await door.sessions.get(view.id)).ended:
            for question in await door.questions.list(session_id=view.id):
                await door.questions.answer(question.id, Allow(), who="phone")
            await bell.rung()
    finally:
        bell.close()
    return await door.sessions.get(view.id)


def test_what_is_on_the_disk_of_another_machine_is_told_by_that_machine(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(watching, "WAIT", 0.5)
    url = empty_database()
    folders = {name: tmp_path / f"{name}-files" for name in ("box", "door")}

    def settings(name: str) -> Settings:
        folders[name].mkdir()
        (tmp_path / name).mkdir()
        env = {"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / name / "understudy")}
        return Settings(
            home=str(tmp_path / name), database=url, roots=(str(folders[name]),), machine_name=name,
            default_agent="understudy", agents={"understudy": AgentSettings(env=env)}, checkpoints=False,
        )  # fmt: skip

    async def main() -> None:
        async with (
            asyncio.timeout(BOUND),
            Service(settings("box"), role="worker") as worker,
            Service(settings("door"), role="door") as door,
        ):
            folder = folders["box"]
            opened: list[SessionView] = []
            stop = door.sessions.watch_openings(opened.append)
            await asyncio.sleep(0)
            asks = SessionSpec(prompt='{"script": [[{"shell": "touch made"}], [{"say": "done"}]]}', agent="understudy")
            view = await played(door, asks)
            assert (view.place, view.cwd) == ("host:box", str(folder))
            while view.id not in [one.id for one in opened]:
                await asyncio.sleep(0.01)
            # -- what its machine decides by, and what was decided
            (Path(worker.home) / "policy.yaml").write_text("- action: ask\n  kind: execute\n")
            policy = await door.ground.policy()
            assert (policy.machine, "kind: execute" in policy.text) == ("box", True)
            audit = await door.ground.audit(session_id=view.id)
            assert [(one.entry.session, one.who) for one in audit.entries] == [(view.id, "phone")] * audit.total
            assert audit.total > 0
            assert await door.ground.agent_settings("understudy") == await worker.agents.settings("understudy")
            # -- what is trusted there
            trusted = await worker.ground.trust_folder(str(folder), who="me", place="host:box")
            assert (await door.ground.trusted()).folders == [trusted]
            for verb in (partial(door.ground.trust_folder, who="phone"), door.ground.distrust_folder):
                for place in ("", "host:box"):
                    with pytest.raises(BadRequest, match="on its own machine"):
                        await verb(str(folder), place=place)
            await worker.ground.distrust_folder(str(folder))
            assert (await door.ground.trusted()).folders == []
            # -- what its programs keep
            (tmp_path / "link").symlink_to(folder)
            for spelled in (str(folder), f"{folder}/", f"{folder}/../{folder.name}", str(tmp_path / "link")):
                assert [past.session_id for past in await door.stored.sessions(cwd=spelled)] == [view.id], spelled
            with pytest.raises(NotAllowed, match="door-files"):  # it is the door's, and this is another machine's disk
                await door.stored.sessions(cwd=str(folders["door"]))
            await door.sessions.delete(view.id)
            [past] = await door.stored.only_on_disk()
            assert (past.native_id, past.place, past.session_id) == (view.native_id, "host:box", "")
            assert await door.stored.sessions() == [past]
            with pytest.raises(SessionNotFound):
                await door.stored.import_session("understudy", past.native_id, past.cwd, place="host:nowhere")
            taken_in = await door.stored.named(past.native_id, take_in=True)
            assert (taken_in.imported, taken_in.place, taken_in.cwd) == (True, "host:box", str(folder))
            newest = await door.stored.to_continue("last", agent="understudy", cwd=str(folder))
            assert newest.id == taken_in.id
            with pytest.raises(SessionNotFound, match="not found"):
                await door.stored.named("nothing", take_in=True)
            resumed = await door.sessions.resume(taken_in.id, SAYS, who="phone")
            async for _ in door.events.follow(resumed.id, 0):
                pass
            while resumed.id not in [one.id for one in opened]:
                await asyncio.sleep(0.01)
            stop()
            assert [(one.id, one.last_seq) for one in opened] == [(view.id, 0), (resumed.id, 0)]
            # -- its files, as they change
            kept = await door.sessions.create(replace(asks, prompt=SAYS, keep_open=True))
            async with aclosing(door.workspaces.watch(kept.id)) as touches:
                assert (await anext(touches)).files == ()
                (folder / "new.txt").write_text("x")
                names: set[str] = set()
                while "new.txt" not in names:
                    names |= {file.path for file in (await anext(touches)).files}
            picture = AttachedFile(name="dot.txt", content="aGVsbG8=")
            message = await door.sessions.send(kept.id, SAYS, attachments=[picture], who="phone")
            assert "hello" in message.prompt
            await door.sessions.cancel(kept.id)

    asyncio.run(main())


def folder_watches(folder: Path) -> FolderWatches:
    async def get(session_id: str) -> SessionView:
        return SessionView(id=session_id, agent="understudy", cwd=str(folder))

    return FolderWatches(Workspaces(get, folder.parent / "kept"))


def threads_of(folder: Path) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"watch {folder}"]


def test_a_watch_from_a_door_ends_when_the_folder_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a").touch()

    async def main() -> list[str]:
        watches = folder_watches(folder)

        async def ask(*args: Any, **named: Any) -> list[Touched] | None:
            await asyncio.sleep(0)  # a door that never stops asking is cut off by the bound
            return await watches.touched(*args, **named)

        async with asyncio.timeout(BOUND), aclosing(watch_elsewhere(ask, "s")) as touches:
            assert await anext(touches) == Touched()
            shutil.rmtree(folder)
            seen = [file.path async for touched in touches for file in touched.files]
            with pytest.raises(BadRequest, match="no longer exists"):
                await watches.touched("s", watch="another", step=1)
        await watches.stop()
        return seen

    assert asyncio.run(main()) == ["a"]


def test_a_machine_that_stops_or_forgets_a_watch_does_not_say_that_the_folder_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MOST_WATCHES", 1)

    async def main() -> None:
        watches = folder_watches(tmp_path)
        async with asyncio.timeout(BOUND):
            assert await watches.touched("s", watch="one", step=1) == [Touched()]
            waiting = asyncio.create_task(watches.touched("s", watch="one", step=2))
            await asyncio.sleep(0)
            assert await watches.touched("s", watch="two", step=1) == [Touched()]  # there is no room for the first
            assert await waiting == []
            assert await watches.touched("s", watch="one", step=3) == [Touched(git=True, cut=True)]
            await watches.stop()
            for name, step in (("one", 5), ("three", 1)):
                assert await watches.touched("s", watch=name, step=step) in ([], [Touched()])

    asyncio.run(main())


def test_a_watch_that_no_door_asks_for_any_more_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "IDLE", 0.05)

    async def main() -> None:
        watches = folder_watches(tmp_path)
        async with asyncio.timeout(BOUND):
            for name in ("one", "two"):  # the second after the first was swept, too
                assert await watches.touched("s", watch=name, step=1) == [Touched()]
                for thread in threads_of(tmp_path):
                    await asyncio.to_thread(thread.join)
        await watches.stop()

    asyncio.run(main())


def test_a_session_of_another_machine_that_opens_again_is_told_from_its_end_on(tmp_path: Path) -> None:
    def view(name: str, last_seq: int, **fields: Any) -> SessionView:
        return SessionView(id=name, agent="understudy", cwd="/", worker="box", last_seq=last_seq, **fields)

    looks: list[tuple[list[SessionView], list[tuple[str, int]]]] = [
        ([view("old", 9, activity="ended"), view("open", 5), view("in", 4, activity="ended", imported=True)],
         [("open", 5)]),
        ([view("new", 2), view("taken in", 7, activity="ended", imported=True), view("short", 3, activity="ended"),
          view("never began", 0, activity="ended")],
         [("never began", 0), ("new", 0), ("short", 0)]),
        ([view("old", 11), view("taken in", 8, imported=True), view("open", 6)], [("old", 9), ("taken in", 7)]),
        ([view("old", 12, activity="ended"), view("new", 4, activity="ended")], []),
        ([view("old", 13), replace(view("ours", 1), worker="door")], [("old", 12)]),
    ]  # fmt: skip

    async def main() -> None:
        store = SqliteStore(tmp_path / "log.db")
        await store.open()
        try:
            openings = OpeningsElsewhere(Journal(store, LocalHub()), lambda: "door")
            ends: dict[str, int | None] | None = None
            for written, expected in looks:
                for one in written:
                    await store.write(one)
                told: list[SessionView] = []
                ends = await openings._look(ends, told.append)
                assert sorted((one.id, one.last_seq) for one in told) == expected
        finally:
            await store.close()

    asyncio.run(main())
