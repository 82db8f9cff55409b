"""Who owns a session: claims, leases, epochs, and commands to the owner; and that nobody else's write is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from stagedoor.errors import Fenced, SequenceConflict, StoreError
from stagedoor.service.store import Append, Change, CommandDone, Fence, Forget, Query, Store, Sweep, Trim
from stagedoor.service.views import Carried, Command
from stagedoor.unified.decisions import Allow
from tests.service.conformance.engines import MESSAGES, Engine, question, records, run, view, worker

NOW = 500


async def claimed(store: Store, worker_id: str = "w1", incarnation: str = "i1", **more: Any) -> dict[str, int]:
    """The epochs of what it got, in that order."""
    terms: dict[str, Any] = {"labels": (), "limit": 100, "now": NOW, **more}
    return {one.id: one.epoch for one in await store.claim(worker_id, incarnation, **terms)}


def test_each_claim_gives_a_new_epoch_and_nothing_is_given_twice(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(2) as (first, second):
            names = [f"s{number}" for number in range(20)]
            ended = view("ended", activity="ended", state="done")
            await first.store.write(ended, *(view(name, created_at=at) for at, name in enumerate(names)))
            for store, name in ((first.store, "w1"), (second.store, "w2")):
                assert await store.put_worker(worker(name)) == worker(name)
            rounds = [(party.store, name) for _ in range(5) for party, name in ((first, "w1"), (second, "w2"))]
            got = await asyncio.gather(*(claimed(store, name, limit=3) for store, name in rounds))
            given = [name for one in got for name in one]
            assert sorted(given) == sorted(names)
            epochs = [epoch for one in got for epoch in one.values()]
            assert len(set(epochs)) == len(names)
            assert min(epochs) > 0
            owners = {
                name: (who, epoch) for (_, who), one in zip(rounds, got, strict=True) for name, epoch in one.items()
            }
            for party in (first, second):
                views = await party.store.sessions(Query(ended=False, limit=100))
                assert {one.id: (one.worker, one.epoch) for one in views} == owners
                assert await party.store.session("ended") == ended

            # Putting a row again changes nothing about who owns it, whatever it says.
            await second.store.write(view("s0", title="new", worker="thief", epoch=10_000))
            who, epoch = owners["s0"]
            assert await first.store.session("s0") == view("s0", title="new", worker=who, epoch=epoch)

    run(main())


FREE: list[tuple[str, dict[str, Any], dict[str, Any], bool]] = [
    # whose it is now and how that one stands; how it is claimed; whether it is given
    ("held by another whose lease is good", {"until": 501}, {}, False),
    ("held by another whose lease is over", {"until": 500}, {}, True),
    ("held by another that is revoked", {"revoked": True}, {}, True),
    ("held by another that is draining", {"draining": True}, {}, False),
    ("held by another that has come again since", {"again": "i2"}, {}, True),
    ("held by another that has come again, and it needs that one", {"again": "i2", "needs": ("host",)}, {}, False),
    ("another one is wanted", {"until": 500}, {"session_id": "s2"}, False),
    ("it and no other is wanted", {"until": 500}, {"session_id": "s1"}, True),
    ("none is wanted", {"until": 500}, {"limit": 0}, False),
    ("it needs what this worker lacks", {"until": 500, "needs": ("gpu",)}, {"labels": ("agent:x",)}, False),
    ("it needs some of what this worker has", {"until": 500, "needs": ("gpu",)}, {"labels": ("gpu", "big")}, True),
    ("it needs more than this worker has", {"until": 500, "needs": ("gpu", "big")}, {"labels": ("gpu",)}, False),
]


@pytest.mark.parametrize(("case", "owner", "terms", "given"), FREE, ids=[row[0] for row in FREE])
def test_what_may_be_claimed(
    engine: Engine, case: str, owner: dict[str, Any], terms: dict[str, Any], given: bool
) -> None:
    async def main() -> None:
        async with engine.parties(1) as [party]:
            store = party.store
            needs = owner.pop("needs", ()) if "needs" in owner else ()
            await store.put_worker(worker("w2"))
            await store.write(view(needs=needs))
            [before] = (await claimed(store, "w2", labels=needs)).values()
            flags = {name: owner[name] for name in ("draining", "revoked") if name in owner}
            if "again" in owner:
                await store.put_worker(worker("w2", owner["again"]))
            await store.renew("w2", "i1", owner.get("until", 1000))
            if flags:
                await store.mark_worker("w2", **flags)
            await store.put_worker(worker("w1"))
            got = await claimed(store, "w1", **terms)
            assert list(got) == (["s1"] if given else [])
            assert all(epoch > before for epoch in got.values())

    owner = dict(owner)
    run(main())


MAY_NOT: list[tuple[str, dict[str, Any], str]] = [
    ("it is unknown", {}, "i1"),
    ("it is draining", {"draining": True}, "i1"),
    ("it is revoked", {"revoked": True}, "i1"),
    ("its own lease is over", {"until": NOW}, "i1"),
    ("another incarnation has its id", {"incarnation": "i2"}, "i1"),
]


@pytest.mark.parametrize(("case", "row", "incarnation"), MAY_NOT, ids=[row[0] for row in MAY_NOT])
def test_a_worker_that_gets_nothing(engine: Engine, case: str, row: dict[str, Any], incarnation: str) -> None:
    async def main() -> None:
        async with engine.parties(1) as [party]:
            await party.store.write(view())
            if row:
                await party.store.put_worker(worker("w1", **row))
            assert await claimed(party.store, "w1", incarnation) == {}

    run(main())


def test_a_worker_and_its_lease(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(2) as (party, other):
            store = party.store
            row = worker("w1", name="box", labels=("gpu", "agent:x"), seats=3, version="1.2", seen_at=7)
            assert await store.mark_worker("w1", draining=True) is None
            assert not await store.renew("w1", "i1", 2000)
            assert await store.put_worker(row) == row
            assert await store.renew("w1", "i1", 2000)
            assert not await store.renew("w1", "i2", 3000)
            assert await other.store.workers() == [replace(row, until=2000)]
            draining = await other.store.mark_worker("w1", draining=True)
            assert draining == replace(row, until=2000, draining=True)
            again = replace(row, incarnation="i2", until=3000, seats=4)
            assert await store.put_worker(again) == replace(again, draining=True)  # a restart does not end that
            assert not await store.renew("w1", "i1", 4000)
            await store.mark_worker("w1", draining=False)
            assert await store.put_worker(again) == again
            revoked = await other.store.mark_worker("w1", revoked=True)
            assert revoked == replace(again, revoked=True)
            assert not await store.renew("w1", "i2", 5000)
            assert await store.put_worker(replace(row, incarnation="i3")) == revoked  # as it is, and not let in
            await store.put_worker(worker("a"))
            assert await store.workers() == [worker("a"), revoked]

    run(main())


def test_what_is_put_for_a_worker_waits_for_its_claim(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(1) as [party]:
            store = party.store
            for name in ("w1", "w2"):
                await store.put_worker(worker(name))
            await store.write(view(worker="w2"))
            assert await claimed(store, "w1") == {}
            assert list(await claimed(store, "w2")) == ["s1"]

    run(main())


def test_an_answer_behind_a_fence(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(2) as (old, new):
            answer = question(1, open=False, decision=Allow(), by="client")
            await old.store.write(view(), question(1))
            await old.store.put_worker(worker("w1"))
            [epoch] = (await claimed(old.store)).values()
            await new.store.put_worker(worker("w1", "i2"))
            [later] = (await claimed(new.store, "w1", "i2")).values()
            for fence in (Fence("s1", epoch), Fence("no", later)):
                with pytest.raises(Fenced):
                    await old.store.answer(answer, fence=fence)
            assert await new.store.question("s1:r1") == question(1)
            assert await new.store.answer(answer, fence=Fence("s1", later))
            assert not await new.store.answer(answer, fence=Fence("s1", later))
            assert await old.store.question("s1:r1") == answer

    run(main())


def test_an_older_incarnation_lets_go_at_once(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(1) as [party]:
            store = party.store
            await store.write(view())
            await store.put_worker(worker("w1", "i1"))
            [first] = (await claimed(store, "w1", "i1")).values()
            assert await claimed(store, "w1", "i1") == {}
            await store.put_worker(worker("w1", "i2"))
            [second] = (await claimed(store, "w1", "i2")).values()
            assert second > first
            with pytest.raises(Fenced, match="another worker has it"):
                await store.write(Fence("s1", first), view(title="late"))

    run(main())


def test_a_write_behind_a_fence_is_whole_or_nothing(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(2) as (first, second):
            store = first.store
            await store.write(view(), view("other"))
            await store.put_worker(worker("w1"))
            await store.put_worker(worker("w2"))
            [epoch] = (await claimed(store, "w1", session_id="s1")).values()
            await store.write(Fence("s1", epoch), Append("s1", records(1, 3)), MESSAGES[0])
            await store.mark_worker("w1", revoked=True)
            [later] = (await claimed(second.store, "w2", session_id="s1")).values()
            late: list[list[Change]] = [
                [Append("s1", records(4, 6))],
                [Append("s1", records(9, 9))],
                [view(title="late"), question(1)],
                [MESSAGES[1], Append("other", records(1, 1))],
            ]
            ours = [first.store.write(Fence("s1", epoch), *changes) for changes in late]
            theirs = [
                second.store.write(Fence("s1", later), Append("s1", records(seq, seq))) for seq in range(4, 7)
            ]  # fmt: skip
            outcomes = await asyncio.gather(*ours, *theirs, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [Fenced] * 4 + [type(None)] * 3
            assert await store.records("s1", 0, 100) == records(1, 6)
            assert await store.session("s1") == view(last_seq=6, updated_at=1006, worker="w2", epoch=later)
            assert [await store.questions(), await store.records("other", 0, 9)] == [[], []]
            assert await store.messages("s1") == MESSAGES[:1]
            with pytest.raises(SequenceConflict, match=r"record 6 .* number 7 is next"):
                await second.store.write(Fence("s1", later), Append("s1", records(6, 6)))
            for name in ("no", "s1"):
                with pytest.raises(Fenced) as fault:
                    await store.write(Fence(name, 0))
                assert isinstance(fault.value, StoreError)
            await second.store.write(Forget("s1"))
            with pytest.raises(Fenced):
                await second.store.write(Fence("s1", later), Append("s1", records(1, 1)))

    run(main())


def test_what_is_released_is_free_and_its_old_owner_fenced(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(1) as [party]:
            store = party.store
            await store.write(view())
            await store.put_worker(worker("w1"))
            [epoch] = (await claimed(store)).values()
            assert not await store.release("s1", epoch + 1)
            assert await store.release("s1", epoch)
            assert not await store.release("s1", epoch)
            found = await store.session("s1")
            assert found is not None
            assert (found.worker, found.epoch > epoch) == ("", True)
            with pytest.raises(Fenced):
                await store.write(Fence("s1", epoch), Append("s1", records(1, 1)))
            await store.write(Fence("s1", found.epoch), view(title="while nobody has it"))
            assert [name for name in await claimed(store)] == ["s1"]
            # A row that comes with an epoch (from another log) lifts those that are given from then on.
            await store.write(view("s2", epoch=90_000), view("s3"))
            assert min((await claimed(store)).values()) > 90_000

    run(main())


def test_commands_and_their_outcomes(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(2) as (door, owner):
            await door.store.write(view(), view("s2"))
            await owner.store.put_worker(worker("w1"))
            [epoch] = (await claimed(owner.store, session_id="s1")).values()
            for_session = Command(id="c1", kind="send", session_id="s1", body=b'{"a":1}', key="k", who="me", at=3)
            of_nobody = Command(id="c2", kind="send", session_id="s2", at=4)
            of_machine = Command(id="c3", kind="files", worker="w1", at=5)
            for command in (for_session, of_nobody, of_machine):
                assert await door.store.put_command(command) == command
            again = replace(for_session, id="c9", body=b"other")
            assert await door.store.put_command(again) == for_session
            assert await door.store.put_command(replace(for_session, key="k2")) == for_session
            await door.store.write(again, replace(of_nobody, kind="other"))  # left as it stands
            assert await door.store.commands() == [for_session, of_nobody, of_machine]
            assert await owner.store.commands(worker="w1") == [for_session, of_machine]
            assert await owner.store.commands(session_id="s2") == [of_nobody]
            assert await door.store.command_with("k") == for_session
            found = [await door.store.command(name) for name in ("c1", "c9")]
            assert [*found, await door.store.command_with(""), await door.store.command_with("no")] == [
                for_session, None, None, None,
            ]  # fmt: skip

            with pytest.raises(Fenced):
                await owner.store.take("c1", epoch + 1)
            assert await owner.store.take("c1", epoch)
            assert not await owner.store.take("c1", epoch)
            assert not await owner.store.take("no", epoch)
            taken = replace(for_session, taken_epoch=epoch)
            assert await door.store.command("c1") == taken
            with pytest.raises(Fenced):
                await owner.store.write(Fence("s1", epoch + 1), CommandDone("c1", b"late"))
            done = (Fence("s1", epoch), Append("s1", records(1, 1)), CommandDone("c1", b"ok"))
            await owner.store.write(*done)
            await owner.store.write(CommandDone("c1", b"again"), CommandDone("c3", b"files"))
            ended = replace(taken, done=True, outcome=b"ok")
            assert await door.store.command_with("k") == ended
            assert await owner.store.commands(worker="w1") == []
            assert await door.store.commands(open_only=False) == [
                ended, of_nobody, replace(of_machine, done=True, outcome=b"files")
            ]  # fmt: skip
            assert not await owner.store.take("c3", 1)
            await door.store.write(Sweep(4))
            assert [one.id for one in await door.store.commands(open_only=False)] == ["c2", "c3"]
            await door.store.write(Forget("s2"))
            assert [one.id for one in await door.store.commands(open_only=False)] == ["c3"]

    run(main())


def test_one_answer_and_no_other(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(2) as parties:
            await parties[0].store.write(view(), question(1))
            answers = [question(1, open=False, decision=Allow(), by="client", who=f"w{n}") for n in range(20)]
            won = await asyncio.gather(*(parties[at % 2].store.answer(answer) for at, answer in enumerate(answers)))
            assert won.count(True) == 1
            for party in parties:
                assert await party.store.question("s1:r1") == answers[won.index(True)]

    run(main())


@pytest.mark.parametrize("removal", [Forget("s1"), Trim("s1", 1)])
def test_what_a_session_carries_is_its_owners_alone_and_goes_with_it(engine: Engine, removal: Change) -> None:
    def carried(turn: int, session_id: str = "s1") -> Carried:
        return Carried(session_id=session_id, turn=turn, at=turn * 10, body=bytes(range(256)) * turn)

    async def main() -> None:
        async with engine.parties(2) as (first, second):
            await first.store.write(view(), view("s2"))
            await first.store.put_worker(worker("w1"))
            epochs = await claimed(first.store)
            assert await second.store.carried("s1") is None
            for turn in (1, 5, 2):
                await first.store.write(Fence("s1", epochs["s1"]), carried(turn), carried(turn, "s2"))
                assert await second.store.carried("s1") == carried(turn)
            with pytest.raises(Fenced):
                await second.store.write(Fence("s1", epochs["s1"] + 50), carried(9))
            assert await first.store.carried("s1") == carried(2)
            await first.store.write(removal)
            assert await second.store.carried("s1") is None
            assert await second.store.carried("s2") == carried(2, "s2")

    run(main())
