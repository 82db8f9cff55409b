"""Who is let in where several share a log: workers with a code, devices with one that counts at every door."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from stagedoor.errors import NotAllowed, StoreBroken, WorkerAway
from stagedoor.server.access.pairing import PairingCodes
from stagedoor.server.problems import RefusedRequest
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.postgres import grant, log_in
from stagedoor.service.service import Service
from stagedoor.service.views import OneTimeCode, SessionSpec
from stagedoor.service.worker import FILE_NAME
from tools.postgres import empty_database

from .conformance.engines import run, worker


class Site:
    """A database whose doors and workers have roles of their own."""

    def __init__(self, folder: Path) -> None:
        self.owner = empty_database()
        self.roles = {kind: f"sd_{kind}_{os.getpid()}" for kind in ("door", "worker")}
        self.folder = folder
        self.sql(*(f"CREATE ROLE {name} LOGIN" for name in self.roles.values()))
        run(grant(self.owner, doors=[self.roles["door"]], workers=[self.roles["worker"]]))

    def sql(self, *statements: str, role: str = "") -> None:
        async def carry_out() -> None:
            db = await asyncpg.connect(self.url(role) if role else self.owner)
            try:
                for statement in statements:
                    await db.execute(statement)
            finally:
                await db.close()

        asyncio.run(carry_out())

    def url(self, kind: str) -> str:
        parts = urlsplit(self.owner)
        return parts._replace(netloc=f"{self.roles[kind]}@{parts.netloc.rpartition('@')[2]}").geturl()

    def service(self, name: str, role: Any, code: str = "") -> Service:
        home = self.folder / name
        home.mkdir(exist_ok=True)
        settings = Settings(
            home=str(home), database=self.url(role), machine_name=name, roots=(str(self.folder),),
            agents={"understudy": AgentSettings()}, default_agent="understudy",
        )  # fmt: skip
        service = Service(settings, role=role)
        service.worker.code = code
        return service

    def clear(self) -> None:
        self.sql(*(f"DROP OWNED BY {name}; DROP ROLE {name}" for name in self.roles.values()))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    try:
        yield site
    finally:
        site.clear()


def test_a_machine_comes_in_with_a_code_once_and_is_gone_when_revoked(site: Site) -> None:
    async def main() -> None:
        async with site.service("door", "door") as door:
            with pytest.raises(NotAllowed, match=r"\(box\) is not enrolled: run stagedoor workers enrol"):
                await site.service("box", "worker").start()
            with pytest.raises(NotAllowed, match="the code is wrong, used or older than an hour"):
                await site.service("box", "worker", "AAAA-BBBB-CCCC-DDDD").start()
            assert await door.machines.list() == []
            code = await door.machines.enrol(by="laptop")
            async with site.service("box", "worker", code):
                pass
            async with site.service("box", "worker", code) as again:  # it is known by now; the code is not looked at
                assert [one.name for one in await door.machines.list()] == ["box"]
                with pytest.raises(NotAllowed, match="not enrolled"):
                    await site.service("other", "worker", code).start()
                left = asyncio.Event()
                again.worker.on_revoked = left.set
                [machine] = await door.machines.list()
                await door.machines.revoke(machine.id)
                await left.wait()
            with pytest.raises(NotAllowed, match="was revoked"):
                await site.service("box", "worker", await door.machines.enrol(by="laptop")).start()
            (site.folder / "box" / FILE_NAME).unlink()  # as a new one
            async with site.service("box", "worker", await door.machines.enrol(by="laptop")):
                assert [one.name for one in await door.machines.list()] == ["box"]

    run(main())


def test_the_role_of_workers_lets_nobody_in(site: Site) -> None:
    """It may write its own row, and nobody is fooled by what it writes there."""

    async def main() -> None:
        door, stranger = log_in(site.url("door"))[0], log_in(site.url("worker"))[0]
        async with AsyncExitStack() as stack:
            for store in (door, stranger):
                await store.open()
                stack.push_async_callback(store.close)
            assert (await stranger.put_worker(worker("w1", until=2**53))).enrolled is False
            assert await door.workers() == []
            admission = stranger.admission
            code = OneTimeCode(digest=hashlib.sha256(b"X").digest(), scope="admin")
            forged = OneTimeCode(digest=code.digest, scope="worker")
            for attempt in (
                admission.put_code(code, 60), admission.put_code(forged, 60), admission.take_code(code.digest),
                admission.void_codes("laptop"),
            ):  # fmt: skip
                with pytest.raises(StoreBroken, match="permission denied"):
                    await attempt
            assert not await admission.enrol("w1", "X")

    run(main())
    row = "INSERT INTO stagedoor.workers VALUES('w1','i1',9007199254740992,false,false,'{}')"
    body = '{"id":"w1","name":"w1","incarnation":"i1","until":9007199254740992,"labels":["agent:understudy"]}'
    site.sql(row.replace("{}", body), role="worker")
    for statement in ("INSERT INTO stagedoor.enrolled VALUES('w1')", "SELECT * FROM stagedoor.codes"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            site.sql(statement, role="worker")

    async def nothing_goes_there() -> None:
        async with site.service("door", "door") as door:
            with pytest.raises(WorkerAway):
                await door.sessions.create(SessionSpec(prompt="x", agent="understudy"))
            assert await door.machines.list() == []

    run(nothing_goes_there())


def test_a_machine_is_revoked_whatever_its_own_row_says(site: Site) -> None:
    """``w1`` calls itself otherwise in its row, and ``w2`` has none: it was let in and has not come yet."""
    site.sql("INSERT INTO stagedoor.enrolled VALUES('w1'), ('w2')", role="door")
    body = '{"id":"w9","incarnation":"i1","until":9007199254740992}'
    site.sql(f"INSERT INTO stagedoor.workers VALUES('w1','i1',9007199254740992,false,false,'{body}')", role="worker")

    async def main() -> None:
        door, box = log_in(site.url("door"))[0], log_in(site.url("worker"))[0]
        async with AsyncExitStack() as stack:
            for store in (door, box):
                await store.open()
                stack.push_async_callback(store.close)
            assert await door.workers() == [worker("w1", until=2**53)]
            assert await door.mark_worker("w1", revoked=True) == worker("w1", until=2**53, revoked=True)
            assert await door.mark_worker("w2", draining=True) is None
            assert await door.mark_worker("w2", revoked=True) == worker("w2", "", until=0, revoked=True)
            assert await door.mark_worker("w9", revoked=True) is None
            for store in (door, box):
                assert await store.put_worker(worker("w2")) == worker("w2", revoked=True)
            assert await door.workers() == [worker("w1", until=2**53, revoked=True)]

    run(main())


def test_a_pairing_code_counts_once_at_every_door(site: Site) -> None:
    async def main() -> None:
        stores = [log_in(site.url("door"))[0] for _ in range(2)]
        async with AsyncExitStack() as stack:
            for store in stores:
                await store.open()
                stack.push_async_callback(store.close)
            doors = [PairingCodes(shared=store.admission) for store in stores]
            code = await doors[0].invite("answer", "phone", by="laptop", dialect="")
            tries = await asyncio.gather(
                *(doors[n % 2].use(code.display.lower(), f"address {n}") for n in range(8)), return_exceptions=True
            )
            [won] = [one for one in tries if not isinstance(one, BaseException)]
            assert (won.scope, won.name, won.by) == ("answer", "phone", "laptop")
            assert [type(one) for one in tries if one is not won] == [RefusedRequest] * 7
            void = await doors[0].invite("run", by="laptop")
            kept = await doors[0].invite("run", by="tablet")
            await doors[1].void("laptop")
            with pytest.raises(RefusedRequest):
                await doors[0].use(void.display, "one")
            assert (await doors[1].use(kept.display, "one")).by == "tablet"
            old = OneTimeCode(digest=hashlib.sha256(b"OLD").digest(), scope="run")
            await stores[0].admission.put_code(old, 0)
            assert await stores[1].admission.take_code(old.digest) is None

    run(main())
