"""The same promises where the other one is another process: killed, overtaken while it lives, asked over the log."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from stagedoor.errors import Fenced, StoreBroken
from stagedoor.service.store import Append, CommandDone, Fence
from stagedoor.unified.decisions import Allow
from tests.service.conformance.engines import Engine, Party, SqliteEngine, question, records, run, view, worker
from tests.service.conformance.party import LONG

ROOT = Path(__file__).parents[3]
WRITTEN = 20
"""Records that are waited for before anything is done to it."""


class Other:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line, "it has ended"
        return line.decode().strip()

    async def lines(self) -> list[str]:
        """All that it still says."""
        assert self.process.stdout is not None
        return (await self.process.stdout.read()).decode().splitlines()

    async def tell(self, order: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(order.encode() + b"\n")
        await self.process.stdin.drain()

    async def told(self, order: str) -> str:
        await self.tell(order)
        return await self.line()


@contextlib.asynccontextmanager
async def other_process(engine: Engine) -> AsyncGenerator[tuple[Other, int]]:
    """It writes; with its epoch."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.service.conformance.party", engine.place, cwd=ROOT,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        other = Other(process)
        epoch = int((await other.line()).removeprefix("epoch "))
        for seq in range(1, WRITTEN + 1):
            assert await other.line() == str(seq)
        yield other, epoch
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def taken_over(party: Party) -> int:
    """By another worker; its epoch."""
    await party.store.mark_worker("w1", revoked=True)
    await party.store.put_worker(worker("w2", until=LONG))
    [owned] = await party.store.claim("w2", "i1", labels=(), limit=9, now=1)
    return owned.epoch


def test_what_one_that_was_killed_had_acknowledged_is_there_and_its_epoch_is_over(engine: Engine) -> None:
    async def main() -> None:
        async with other_process(engine) as (other, epoch):
            other.process.kill()
            last = max([WRITTEN, *(int(line) for line in await other.lines())])
            await other.process.wait()
        async with engine.parties(1) as [party]:
            later = await taken_over(party)
            assert later > epoch
            found = await party.store.records("s1", 0, 1_000_000)
            assert found == records(1, len(found))
            assert len(found) - last in (0, 1)  # the one that it was about to tell of
            with pytest.raises(Fenced):
                await party.store.write(Fence("s1", epoch), Append("s1", records(len(found) + 1, len(found) + 1)))
            await party.store.write(Fence("s1", later), Append("s1", records(len(found) + 1, len(found) + 1)))

    run(main())


def test_one_that_was_overtaken_while_it_lives_stores_nothing_more(engine: Engine) -> None:
    async def main() -> None:
        async with other_process(engine) as (other, _):
            if isinstance(engine, SqliteEngine):  # it cannot come to that: a file has one process
                with pytest.raises(StoreBroken, match="in use by another Stagedoor"):
                    async with engine.parties(1):
                        pass
                return
            await other.tell("stop")
            while await other.line() != "stopped":
                pass
            async with engine.parties(1) as [party]:
                later = await taken_over(party)
                before = await party.store.records("s1", 0, 1_000_000)
                for order in (f"append {len(before) + 1}", "row", "answer", "take"):
                    assert (order, await other.told(order)) == (order, "Fenced")
                assert await party.store.records("s1", 0, 1_000_000) == before
                found = await party.store.session("s1")
                assert found is not None
                assert (found.title, found.worker, found.epoch) == ("", "w2", later)
                assert await party.store.question("s1:r1") == question(1)
                answer = question(1, open=False, decision=Allow(), by="client")
                assert await party.store.answer(answer, fence=Fence("s1", later))
                assert await party.store.take("c1", later)

    run(main())


def test_a_ring_a_command_and_its_outcome_pass_between_processes(engine: Engine) -> None:
    if isinstance(engine, SqliteEngine):
        pytest.skip("a file has one process")

    async def main() -> None:
        async with other_process(engine) as (other, _):
            await other.tell("stop")
            while await other.line() != "stopped":
                pass
            async with engine.parties(1) as [party]:
                epoch = await taken_over(party)
                bell = party.hub.bell("commands:w2")
                await other.tell("ask")
                await bell.rung()
                assert await other.line() == "put"
                assert [one.id for one in await party.store.commands(worker="w2")] == ["c1", "c2"]
                assert await party.store.take("c2", epoch)
                await party.store.write(Fence("s1", epoch), CommandDone("c2", b"done"))
                party.hub.ring("c2")
                assert await other.line() == f"outcome {epoch} done"

                await other.tell("follow")
                last = len(await party.store.records("s1", 0, 1_000_000))
                for seq in range(1, last + 1):
                    assert await other.line() == f"heard {seq}"
                journal = party.journal
                for seq in (last + 1, last + 2):
                    await journal.write(Fence("s1", epoch), Append("s1", records(seq, seq)))
                    assert await other.line() == f"heard {seq}"
                await journal.write(Fence("s1", epoch), view(activity="ended", state="done", last_seq=last + 2))
                assert await other.line() == "end"

    run(main())
