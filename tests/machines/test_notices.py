"""Doors and a worker on one PostgreSQL: what happens on the worker is told once, by whichever door is there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.notify import delivery
from stagedoor.service.notify.receivers import ReceiverBody, SubscriptionBody
from stagedoor.service.service import Service
from stagedoor.service.views import Device, SessionSpec
from tests.service.test_notifications import SECRET, Receiver, verified
from tests.service.test_webpush import KEYS, decrypted
from tools.postgres import empty_database

BOUND = 240.0
SAYS = '{"script": [[{"say": "done"}]]}'


def test_each_is_told_once_by_a_door_that_is_there(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(delivery, "LOOK_EVERY", 0.2)
    monkeypatch.setattr(delivery, "HEAD_START", 0.2)
    url = empty_database()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    env = {"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "understudy")}

    def settings(name: str, **more: Any) -> Settings:
        (tmp_path / name).mkdir(exist_ok=True)
        return Settings(
            home=str(tmp_path / name), database=url, roots=(str(workspace),), machine_name=name, notify_on=("done",),
            default_agent="understudy", agents={"understudy": AgentSettings(env=env)}, checkpoints=False, **more,
        )  # fmt: skip

    async def turn(door: Service) -> str:
        view = await door.sessions.create(SessionSpec(prompt=SAYS, agent="understudy"))
        async for _ in door.events.follow(view.id, 0):
            pass
        return view.id

    async def main() -> None:
        hook, only_there, page, phone = Receiver(200), Receiver(200), Receiver(200), Receiver(201)
        async with (
            asyncio.timeout(BOUND),
            hook.open() as hook_url,
            only_there.open() as worker_url,
            page.open() as page_url,
            phone.open() as phone_url,
        ):
            more = {
                "webhooks": (hook_url,), "webhook_secret": SECRET, "push_hosts": (urlsplit(phone_url).netloc,),
            }  # fmt: skip
            async with (
                Service(settings("box", webhooks=(worker_url,), webhook_secret=SECRET), role="worker"),
                Service(settings("b", **more), role="door") as second,
            ):
                second.notifications.page = "https://b"
                async with Service(settings("a", **more), role="door") as first:
                    first.notifications.page = "https://a"
                    await first.receivers.add(ReceiverBody(kind="ntfy", url=page_url))
                    await first.devices.save(
                        Device(id="d1", name="phone", scopes=("watch",), token_hash="h", created_at=1)
                    )
                    keys = [(await door.receivers.push_state("d1")).public_key for door in (first, second)]
                    assert keys[0] == keys[1]
                    body = SubscriptionBody(endpoint=phone_url, keys=KEYS)
                    await first.receivers.subscribe("d1", "phone", body)
                    session = await turn(first)
                    await asyncio.gather(*(one.wait_for(1) for one in (hook, only_there, page, phone)))
                    told = verified(hook.requests[0])
                    assert told["url"] in (f"https://a/#/s/{session}", f"https://b/#/s/{session}")
                    assert "url" not in verified(only_there.requests[0])  # a worker has no page
                    while first.notifications._under_way or first.notifications._finished:
                        await asyncio.sleep(0.01)  # until the log knows: what a door leaves, another one tells
                # The door that the phone knows is away.
                other = await turn(second)
                await asyncio.gather(*(one.wait_for(2) for one in (hook, only_there, page, phone)))
                assert verified(hook.requests[1])["url"] == f"https://b/#/s/{other}"
                message = json.loads(decrypted(phone.requests[1][2]))
                assert message == {"kind": "done", "session": other}
                # One that was killed in the middle: what it had is told when its time is over, with the same id.
                store = second._store
                hook.answers = [-1]
                await turn(second)
                await asyncio.gather(*(one.wait_for(3) for one in (hook, only_there, page, phone)))
                while len(second.notifications._under_way) > 1 or second.notifications._finished:
                    await asyncio.sleep(0.01)  # until the log knows of the others
                [held] = [row for row in await store.notices(0) if row.id == verified(hook.requests[2])["id"]]
                hook.answers = [200]
                await second.notifications._tasks.close()  # as if it were gone, without a word
                await store.claim_deliveries(second.notifications._me, (), 0.0)
                async with Service(settings("c", **more), role="door"):
                    await hook.wait_for(4)
                assert verified(hook.requests[3])["id"] == held.id
            ids = [verified(one)["id"] for one in hook.requests]
            assert (len(set(ids)), len(ids)) == (3, 4)
            assert [len(one.requests) for one in (only_there, page, phone)] == [3, 3, 3]

    asyncio.run(main())
