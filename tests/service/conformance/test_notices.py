"""What is to be told to receivers: each of them by one process, and by another when that one is gone."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from stagedoor.service.store import Forget, Secret, Sweep
from stagedoor.service.views import Command, NoticeRow
from tests.service.conformance.engines import Engine, run, view

NOTICES = [NoticeRow(id=f"n{n}", session_id=f"s{n}", at=n, body=b"{}") for n in (1, 2, 3)]
LONG = 3600.0


def test_each_receiver_is_told_by_one(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(2) as (first, second):
            await first.store.write(view("s1"), view("s2"), *reversed(NOTICES))
            assert await second.store.notices(2) == NOTICES[1:]
            wanted = [(notice.id, receiver) for notice in NOTICES for receiver in ("hook", "phone")]
            claims = await asyncio.gather(
                *(party.store.claim_deliveries(name, wanted, LONG) for name, party in (("a", first), ("b", second)))
            )
            assert (claims[0] | claims[1], claims[0] & claims[1]) == (set(wanted), set())
            again = await asyncio.gather(
                *(first.store.claim_deliveries(name, wanted, LONG) for name in ("a", "b", "c"))
            )
            assert again == [set(), set(), set()]
            assert [one.taken for one in await first.store.notices(0)] == [("hook", "phone")] * 3

    run(main())


def test_what_one_had_that_is_gone_is_told_by_another(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(2) as (first, second):
            await first.store.write(*NOTICES)
            wanted = {("n1", "hook"), ("n1", "phone"), ("n2", "hook")}
            assert await first.store.claim_deliveries("a", wanted, LONG) == wanted
            await first.store.finish_deliveries([("n1", "hook")])
            assert await first.store.claim_deliveries("a", (), 0.0) == set()  # what it has is free from now on
            assert [one.taken for one in await second.store.notices(0)] == [("hook",), (), ()]
            assert await second.store.claim_deliveries("b", wanted, LONG) == wanted - {("n1", "hook")}
            await first.store.finish_deliveries([("n2", "hook")])  # it was told, whoever did
            assert await second.store.claim_deliveries("b", (), 0.0) == set()
            assert await first.store.claim_deliveries("a", wanted, LONG) == {("n1", "phone")}
            assert await first.store.claim_deliveries("a", {("unknown", "hook")}, LONG) == set()

    run(main())


def test_notices_go_with_their_session_and_with_time(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(1) as [party]:
            await party.store.write(*NOTICES)
            await party.store.claim_deliveries("a", {(one.id, "hook") for one in NOTICES}, LONG)
            await party.store.write(Forget("s3"))
            await party.store.write(Sweep(2))
            assert await party.store.notices(0) == [replace(NOTICES[1], taken=("hook",))]
            await party.store.write(NOTICES[1], NOTICES[0])  # one that is there stays as it is
            assert [(one.id, one.taken) for one in await party.store.notices(0)] == [("n1", ()), ("n2", ("hook",))]

    run(main())


def test_secrets_are_no_settings(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(2) as (first, second):
            await first.store.write(Secret("key", b"1", first=True), Secret("other", b"\0"))
            await second.store.write(Secret("key", b"2", first=True), Secret("other", None), Secret("third", b"3"))
            assert await first.store.secrets() == {"key": b"1", "third": b"3"}
            await first.store.write(Secret("key", b"4"))
            assert (await second.store.secrets())["key"] == b"4"
            assert await first.store.setting("key") is None

    run(main())


def test_a_secret_that_somebody_wrote_anew_is_not_removed_for_its_old_value(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(2) as (first, second):
            await first.store.write(Secret("phone", b"old"), Secret("other", b"old"))
            await second.store.write(Secret("phone", b"new"))
            await first.store.write(Secret("phone", None, stored=b"old"), Secret("other", None, stored=b"old"))
            assert await second.store.secrets() == {"phone": b"new"}
            await first.store.write(Secret("phone", None, stored=b"new"), Secret("gone", None, stored=b"new"))
            assert await second.store.secrets() == {}

    run(main())


def test_what_nobody_waits_for_any_more_is_swept_by_kind(engine: Engine) -> None:
    async def main() -> None:
        async with engine.parties(1) as [party]:
            rows = [("read", 1, True), ("read", 1, False), ("read", 9, True), ("send", 1, True)]
            for number, (kind, at, done) in enumerate(rows):
                await party.store.put_command(Command(id=f"c{number}", kind=kind, at=at, done=done))
            await party.store.write(Sweep(5, kinds=("read", "diff")))
            assert [one.id for one in await party.store.commands(open_only=False)] == ["c2", "c3"]

    run(main())
