"""Somebody who uses a log in a process of its own.

    python -m tests.service.conformance.party PLACE

Owns session ``s1`` and writes to it without end, and says each number once it is stored. A line on its input makes it
stop: it says ``stopped``, and then what became of what it was told to do (a line each): ``append N``, ``row``,
``answer``, ``take``, ``follow``, ``ask``.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing

from stagedoor.errors import StoreError
from stagedoor.service.store import Append, Fence
from stagedoor.service.views import Command
from stagedoor.unified.decisions import Allow
from tests.service.conformance.engines import Party, engine_at, question, records, view, worker

LONG = 10**15


def say(*words: object) -> None:
    print(*words, flush=True)


async def write(party: Party, epoch: int, stopped: asyncio.Event) -> int:
    seq = 0
    while not stopped.is_set():
        seq += 1
        await party.journal.write(Fence("s1", epoch), Append("s1", records(seq, seq)))
        say(seq)
    return seq


async def follow(party: Party) -> None:
    async with aclosing(party.journal.follow("s1", 0)) as batches:
        async for batch in batches:
            for record in batch:
                say("heard", record.seq)
    say("end")


async def ask(party: Party) -> None:
    """As a door: leave a command for whoever has the session, ring, and wait for what comes of it."""
    bell = party.hub.bell("c2")
    await party.store.put_command(Command(id="c2", kind="x", session_id="s1", key="k"))
    party.hub.ring("commands:w2")
    say("put")
    while (command := await party.store.command("c2")) is None or not command.done:
        await bell.rung()
    say("outcome", command.taken_epoch, command.outcome.decode())


async def told(party: Party, order: str, epoch: int) -> None:
    name, _, number = order.partition(" ")
    try:
        match name:
            case "append":
                rows = records(int(number), int(number))
                await party.store.write(Fence("s1", epoch), Append("s1", rows))
            case "row":
                await party.store.write(Fence("s1", epoch), view(title="late"))
            case "answer":
                answer = question(1, open=False, decision=Allow(), by="client", who="late")
                await party.store.answer(answer, fence=Fence("s1", epoch))
            case "take":
                await party.store.take("c1", epoch)
            case "follow":
                return await follow(party)
            case _:
                return await ask(party)
    except StoreError as fault:
        say(type(fault).__name__)
    else:
        say("stored")


async def main(place: str) -> None:
    async with engine_at(place).parties(1) as [party]:
        await party.store.write(view(), question(1))
        await party.store.put_command(Command(id="c1", kind="x", session_id="s1"))
        await party.store.put_worker(worker("w1", until=LONG))
        [owned] = await party.store.claim("w1", "i1", labels=(), limit=1, now=1)
        say("epoch", owned.epoch)
        stopped = asyncio.Event()
        writing = asyncio.create_task(write(party, owned.epoch, stopped))
        await asyncio.to_thread(sys.stdin.readline)
        stopped.set()
        await writing
        say("stopped")
        while order := await asyncio.to_thread(sys.stdin.readline):
            await told(party, order.strip(), owned.epoch)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
