"""Verbs that are carried out elsewhere, by rows in the log: a door's side and a worker's, on one log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stagedoor import errors
from stagedoor.errors import BadRequest, StagedoorError, TooMany, UnknownOutcome, WorkerAway
from stagedoor.server.problems import kind_of
from stagedoor.server.rest.idempotency import is_final
from stagedoor.service.identity import fresh_id, ids_from, note_caller
from stagedoor.service.journal import Journal, LocalHub
from stagedoor.service.machines import commands
from stagedoor.service.machines.commands import CommandInbox, CommandOutbox, Placement
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.views import Command, SessionView, WorkerRow

BOUND = 240.0
NOW = 1_000_000_000


class Note(msgspec.Struct, frozen=True):
    text: str
    by: tuple[str, ...] = ()


class Desk:
    """Something with verbs."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.waits: asyncio.Event | None = None

    async def write(self, session_id: str, note: Note, *, times: int = 1) -> Note:
        self.calls.append(f"{session_id} {note.text} {times}")
        return Note(note.text * times, (fresh_id(),))

    async def refuse(self, session_id: str) -> None:
        self.calls.append("refuse")
        raise BadRequest("not this one")

    async def be_full(self, session_id: str) -> None:
        self.calls.append("full")
        raise TooMany("not now")

    async def break_down(self, session_id: str) -> None:
        raise ZeroDivisionError("oh")

    async def look(self, session_id: str, letters: int = 1) -> str:
        return "x" * letters

    async def wait(self, session_id: str) -> str:
        self.calls.append("wait")
        assert self.waits is not None
        await self.waits.wait()
        return "waited"


VERBS = ("write", "refuse", "be_full", "break_down", "look", "wait")


class Office:
    """Two machines on one log; the session ``s`` runs on the first."""

    def __init__(self, store: SqliteStore, grace: float) -> None:
        self.store = store
        self.hub = LocalHub()
        self.journal = Journal(store, self.hub)
        self.desks = {"one": Desk(), "two": Desk()}
        groups: dict[str, tuple[object, tuple[str, ...]]] = {"desk": (Desk(), VERBS)}
        self.outbox = CommandOutbox(self.journal, groups, now=lambda: NOW, looks=("desk.look",), grace=grace)
        self.inboxes = {name: self._inbox(name, desk) for name, desk in self.desks.items()}

    def _inbox(self, name: str, desk: Desk) -> CommandInbox:
        verbs = CommandOutbox(self.journal, {"desk": (desk, VERBS)}, now=lambda: NOW).verbs
        return CommandInbox(self.journal, verbs, lambda: name, now=lambda: NOW)

    async def session(self) -> SessionView:
        view = await self.store.session("s")
        assert view is not None
        return view


def worker(name: str, until: int = NOW * 2, **more: object) -> WorkerRow:
    row = WorkerRow(id=name, name=f"box {name}", incarnation=f"i {name}", until=until, seats=2)
    return msgspec.structs.replace(row, **more)


@asynccontextmanager
async def office(folder: Path, grace: float) -> AsyncIterator[Office]:
    store = SqliteStore(folder / "log.db")
    async with asyncio.timeout(BOUND):
        await store.open()
        made = Office(store, grace)
        try:
            for name in ("one", "two"):
                await store.put_worker(worker(name))
            await store.write(SessionView(id="s", agent="understudy", cwd="/w"))
            await store.claim("one", "i one", labels=(), limit=1, now=NOW)
            yield made
        finally:
            for inbox in made.inboxes.values():
                await inbox.stop()
            await store.close()


def play(folder: Path, work: Callable[[Office], Awaitable[None]], grace: float = 0.0) -> None:
    async def main() -> None:
        async with office(folder, grace) as made:
            await work(made)

    asyncio.run(main())


def test_a_verb_is_carried_out_where_the_session_is_with_its_arguments_and_its_answer(tmp_path: Path) -> None:
    async def work(made: Office) -> None:
        for inbox in made.inboxes.values():
            inbox.start()
        answer = await made.outbox.to_owner("desk.write", await made.session(), "s", Note("ab"), times=2)
        assert (answer.text, len(answer.by)) == ("abab", 1)
        assert (made.desks["one"].calls, made.desks["two"].calls) == (["s ab 2"], [])
        assert await made.outbox.to_machine("desk.write", "two", "x", Note("c")) is not None
        assert made.desks["two"].calls == ["x c 1"]

    play(tmp_path, work)


@pytest.mark.parametrize(
    ("verb", "kind", "words"),
    [("refuse", BadRequest, "not this one"), ("break_down", StagedoorError, "ZeroDivisionError")],
)
def test_an_error_is_raised_where_it_was_called(
    tmp_path: Path, verb: str, kind: type[StagedoorError], words: str
) -> None:
    async def work(made: Office) -> None:
        made.inboxes["one"].start()
        with pytest.raises(kind, match=words) as fault:
            await made.outbox.to_owner(f"desk.{verb}", await made.session(), "s")
        assert type(fault.value) is kind

    play(tmp_path, work)


def test_a_request_with_a_key_is_carried_out_once_though_it_comes_again_and_its_ids_follow_from_the_key(
    tmp_path: Path,
) -> None:
    async def work(made: Office) -> None:
        made.inboxes["one"].start()
        answers = []
        for _ in range(2):
            with ids_from("a key"):
                answers.append(await made.outbox.to_owner("desk.write", await made.session(), "s", Note("a")))
        assert answers[0] == answers[1]
        assert made.desks["one"].calls == ["s a 1"]
        with ids_from("a key"):
            assert answers[0].by == (fresh_id(),)

    play(tmp_path, work)


def test_a_machine_that_is_away_is_named_and_what_nobody_began_can_be_sent_again(tmp_path: Path) -> None:
    async def work(made: Office) -> None:
        await made.store.renew("one", "i one", NOW - 1)
        with ids_from("a key"), pytest.raises(WorkerAway, match="'box one' is away"):
            await made.outbox.to_owner("desk.write", await made.session(), "s", Note("a"))
        await made.store.renew("one", "i one", NOW * 2)
        made.inboxes["one"].start()
        with ids_from("a key"):
            answer = await made.outbox.to_owner("desk.write", await made.session(), "s", Note("a"))
        assert answer.text == "a"
        assert made.desks["one"].calls == ["s a 1"], "the first one was given up for good"

    play(tmp_path, work)


def test_what_was_begun_in_a_life_that_ended_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "FINISH_WITHIN", 0.0)

    async def work(made: Office) -> None:
        desk = made.desks["one"]
        desk.waits = asyncio.Event()
        made.inboxes["one"].start()
        async with asyncio.TaskGroup() as group:
            calling = group.create_task(_fault_of(made, "desk.wait"))
            while not desk.calls:
                await asyncio.sleep(0)
            await made.inboxes["one"].stop()  # as a machine that dies does
            await made.store.renew("one", "i one", NOW - 1)
            assert [view.id for view in await made.store.claim("two", "i two", labels=(), limit=1, now=NOW)] == ["s"]
            made.inboxes["two"].start()
            fault = await calling
            assert (type(fault), "stopped while it did this" in str(fault)) == (UnknownOutcome, True)
        assert made.desks["two"].calls == []

    play(tmp_path, work)


def test_what_nobody_began_goes_to_whoever_takes_the_session_over(tmp_path: Path) -> None:
    async def work(made: Office) -> None:
        async with asyncio.TaskGroup() as group:
            view = await made.session()
            calling = group.create_task(made.outbox.to_owner("desk.write", view, "s", Note("a")))
            while not await made.store.commands(session_id="s"):
                await asyncio.sleep(0)
            await made.store.renew("one", "i one", NOW - 1)
            await made.store.claim("two", "i two", labels=(), limit=1, now=NOW)
            made.inboxes["two"].start()
            assert (await calling).text == "a"
        assert (made.desks["one"].calls, made.desks["two"].calls) == ([], ["s a 1"])

    play(tmp_path, work, grace=BOUND)


def test_what_nobody_waits_for_any_more_is_not_begun_later(tmp_path: Path) -> None:
    async def work(made: Office) -> None:
        async with asyncio.TaskGroup() as group:
            calling = group.create_task(made.outbox.to_owner("desk.write", await made.session(), "s", Note("a")))
            while not await made.store.commands(session_id="s"):
                await asyncio.sleep(0)
            calling.cancel()
        await made.outbox.close()
        assert await made.store.commands(session_id="s") == []
        made.inboxes["one"].start()
        await made.outbox.to_owner("desk.write", await made.session(), "s", Note("b"))
        assert made.desks["one"].calls == ["s b 1"]

    play(tmp_path, work, grace=BOUND)


def test_what_a_door_left_long_ago_is_not_begun(tmp_path: Path) -> None:
    async def work(made: Office) -> None:
        old = Command(id="old", kind="desk.refuse", session_id="s", body=b'{"arguments":{"session_id":"s"},"seed":""}')
        await made.store.write(old)
        made.inboxes["one"].start()
        await made.outbox.to_owner("desk.write", await made.session(), "s", Note("b"))
        assert made.desks["one"].calls == ["s b 1"]
        assert await made.store.commands(session_id="s") == [], "it does not stay for ever"

    play(tmp_path, work)


def test_what_was_refused_for_now_is_tried_again_under_the_same_key(tmp_path: Path) -> None:
    async def work(made: Office) -> None:
        made.inboxes["one"].start()
        for _ in range(2):
            with ids_from("a key"), pytest.raises(TooMany):
                await made.outbox.to_owner("desk.be_full", await made.session(), "s")
        assert made.desks["one"].calls == ["full", "full"]

    play(tmp_path, work)


async def _fault_of(made: Office, verb: str) -> StagedoorError:
    with pytest.raises(StagedoorError) as fault:
        await made.outbox.to_owner(verb, await made.session(), "s")
    return fault.value


@pytest.mark.parametrize(
    ("needs", "changes", "chosen"),
    [
        ((), {}, "two"),  # the first has one session already
        (("agent:claude",), {"one": {"labels": ("agent:claude", "gpu")}}, "one"),
        ((), {"two": {"draining": True}}, "one"),
        ((), {"two": {"until": NOW - 1}}, "one"),
        (("gpu",), {}, "no machine has the labels gpu"),
        (("gpu",), {"one": {"labels": ("gpu",), "until": NOW - 1}}, "away or draining: box one"),
    ],
)
def test_a_new_session_goes_to_the_machine_with_the_labels_and_most_room(
    tmp_path: Path, needs: tuple[str, ...], changes: dict[str, dict[str, object]], chosen: str
) -> None:
    async def work(made: Office) -> None:
        for name, fields in changes.items():
            await made.store.put_worker(worker(name, **fields))  # type: ignore[arg-type]
            if fields.get("draining"):
                await made.store.mark_worker(name, draining=True)
        placement = Placement(made.journal, lambda: NOW)
        try:
            found = (await placement.choose(needs)).id
        except WorkerAway as fault:
            found = str(fault)
        assert chosen in found

    play(tmp_path, work)


HOST = {"place": "host:box", "needs": ("gpu", "host:box")}
GIT = {"place": "git:https://a.example/x", "needs": ("gpu", "clone:https://a.example/")}
BOX = {"labels": ("host:box", "gpu")}
CLONER = {"labels": ("gpu", "clone:https://a.example/")}
AWAY = {"until": NOW - 1}


@pytest.mark.parametrize(
    ("fields", "changes", "chosen"),
    [
        ({}, {}, "one"),
        (HOST, {"one": BOX}, "one"),
        (HOST, {"one": BOX | AWAY}, "one"),  # whoever asks it hears that it is away
        (HOST, {"one": {"labels": ("host:box",)}}, "box one does not have gpu any more"),
        (HOST, {"one": {"labels": ("host:box",)}, "two": BOX}, "two"),  # two homes on one machine
        (HOST, {"one": {"labels": ("host:box",)}, "two": BOX | AWAY}, "box one does not have gpu any more"),
        (HOST, {"one": BOX | AWAY, "two": {"labels": ("host:box",)}}, "one"),
        (HOST | {"activity": "ended"}, {"one": {"labels": ("host:box",)}}, "one"),  # it can be deleted
        (GIT, {"one": CLONER, "two": CLONER}, "one"),
        (GIT, {"one": CLONER | AWAY, "two": CLONER}, "two"),
        (GIT, {"one": {"labels": ("gpu",)}, "two": CLONER}, "two"),
        (GIT, {"one": {"labels": CLONER["labels"][1:]}}, "no machine has the labels gpu"),
        (GIT | {"activity": "ended"}, {"one": {"labels": CLONER["labels"][1:]}}, "one"),
    ],
)
def test_a_session_that_nobody_has_goes_on_where_its_labels_are(
    tmp_path: Path, fields: dict[str, Any], changes: dict[str, dict[str, Any]], chosen: str
) -> None:
    async def work(made: Office) -> None:
        for name, more in changes.items():
            await made.store.put_worker(worker(name, **more))
        view = replace(await made.session(), worker="one", **fields)
        try:
            found = await Placement(made.journal, lambda: NOW).next_of(view)
        except WorkerAway as fault:
            found = str(fault)
        assert chosen in found

    play(tmp_path, work)


@pytest.mark.parametrize(
    ("fields", "changes", "keeper"),
    [
        (HOST, {"one": {"labels": ("host:box",)}}, "one"),
        (HOST, {"one": {"labels": ("host:box",)} | AWAY}, ""),
        (HOST | {"worker": "two"}, {"one": {"labels": ("host:box",)}}, ""),
        (HOST | {"activity": "ended"}, {"one": {"labels": ("host:box",)}}, ""),
        (GIT, {}, "one"),
        (GIT, {"one": AWAY}, "two"),
        (GIT, {"one": AWAY, "two": AWAY}, ""),
    ],
)
def test_a_session_that_no_machine_can_go_on_with_is_ended_where_its_files_are(
    tmp_path: Path, fields: dict[str, Any], changes: dict[str, dict[str, Any]], keeper: str
) -> None:
    async def work(made: Office) -> None:
        for name, more in changes.items():
            await made.store.put_worker(worker(name, **more))
        view = replace(await made.session(), **{"worker": "", **fields})
        assert await Placement(made.journal, lambda: NOW).keeper_of(view) == keeper

    play(tmp_path, work)


def test_a_row_says_who_asked_and_goes_when_it_was_only_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(made: Office) -> None:
        made.inboxes["one"].start()
        note_caller("phone")
        await made.outbox.to_owner("desk.write", await made.session(), "s", Note("a"))
        assert await made.outbox.to_machine("desk.look", "one", "s", letters=5) == "xxxxx"
        monkeypatch.setattr(commands, "MOST_BYTES", 99)
        with pytest.raises(BadRequest, match="the answer has 102 bytes, and at most 99 go to another machine"):
            await made.outbox.to_machine("desk.look", "one", "s", letters=100)
        await made.outbox.close()
        rows = await made.store.commands(open_only=False)
        assert [(row.kind, row.who, row.done) for row in rows] == [("desk.write", "phone", True)]

    play(tmp_path, work)


def test_the_verbs_of_the_service_can_all_travel() -> None:
    """By their annotations alone; nothing is called."""
    from stagedoor.service.machines.ground import MachineGround
    from stagedoor.service.machines.routing import verb_groups
    from stagedoor.service.machines.watching import FolderWatches
    from stagedoor.service.questions import Questions
    from stagedoor.service.sessions import Sessions
    from stagedoor.service.stored import Past
    from stagedoor.service.workspaces import Workspaces
    from stagedoor.service.workspaces.undoing import Undoing

    sessions = Sessions.__new__(Sessions)
    sessions.workspaces, sessions.undoing = Workspaces.__new__(Workspaces), Undoing.__new__(Undoing)
    groups = verb_groups(
        sessions,
        Questions.__new__(Questions),
        MachineGround.__new__(MachineGround),
        Past.__new__(Past),
        FolderWatches.__new__(FolderWatches),
    )
    verbs = CommandOutbox(Journal(None, LocalHub()), groups, now=lambda: 0).verbs  # type: ignore[arg-type]
    for verb in verbs.values():
        msgspec.json.Decoder(verb.arguments)
        msgspec.json.Decoder(verb.answer)
    assert {"sessions.send", "questions.answer", "workspaces.read", "git.push", "undoing.list"} <= verbs.keys()


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, StagedoorError)]


@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
def test_what_a_door_would_try_again_is_tried_again_by_the_machine(kind: type[StagedoorError]) -> None:
    """Else whoever comes again with the same key is told for ever what held only once."""
    assert issubclass(kind, commands.FINAL) == is_final(kind_of(kind("x")).status)
