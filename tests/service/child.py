"""A server that is meant to be killed: the real service with sessions that work, ask and wait, in a loop.

    python child.py FOLDER SESSIONS [DATABASE]

Prints ``ready`` when it serves, and then a line for everything it has acknowledged: ``created ID``,
``sent ID MESSAGE``, ``answered QUESTION``, ``stored ID SEQ``. Whoever kills it compares these lines with what the next
one finds.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from contextlib import aclosing
from pathlib import Path

from stagedoor.errors import ServiceError
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.service import Service
from stagedoor.service.views import SessionSpec
from stagedoor.unified.decisions import Allow

WORK = [[{"say": "thinking " * 20}], [{"shell": "echo worked"}], [{"say": "worked"}]]


def settings(folder: Path, database: str = "") -> Settings:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    return Settings(
        home=str(folder / "home"),
        roots=(str(workspace),),
        default_agent="understudy",
        database=database,
        agents={"understudy": AgentSettings(env={"STAGEDOOR_UNDERSTUDY_HOME": str(folder / "understudy")})},
    )


def say(*words: object) -> None:
    print(*words, flush=True)


async def follow(service: Service, session_id: str) -> None:
    async with aclosing(service.events.follow(session_id, 0)) as batches:
        async for batch in batches:
            say("stored", session_id, batch[-1].seq)


async def answer(service: Service) -> None:
    """Everything that is asked is allowed, also what was asked before the last crash."""
    while True:
        for question in await service.questions.list():
            try:
                await service.questions.answer(question.id, Allow(), who="child")
            except ServiceError:
                continue
            say("answered", question.id)
        await asyncio.sleep(0.02)


async def work(service: Service, number: int) -> None:
    for turn in itertools.count():
        view = await service.sessions.create(
            SessionSpec(prompt=json.dumps({"script": WORK}), keep_open=number % 2 == 0)
        )
        say("created", view.id)
        following = asyncio.ensure_future(follow(service, view.id))
        for _ in range(turn % 3):
            try:
                message = await service.sessions.send(view.id, json.dumps({"script": WORK}))
            except ServiceError:
                break
            say("sent", view.id, message.id)
        if view.keep_open:
            while (await service.sessions.get(view.id)).activity not in ("idle", "asleep", "ended"):
                await asyncio.sleep(0.02)
            await service.sessions.cancel(view.id)
        await following


async def main(folder: Path, sessions: int, database: str = "") -> None:
    async with Service(settings(folder, database)) as service:
        say("ready")
        await asyncio.gather(answer(service), *(work(service, number) for number in range(sessions)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
