"""A door and two workers, each a process of its own: one is killed in the middle of a turn, and the other goes on with
the files and the conversation of the turn before."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import asyncpg

from tests.machines.world import BOUND, World
from tests.shadow_git.hostile import WHO

WORK = "echo two > a.txt && git -c user.name=x -c user.email=x@x commit -qam work && echo new > new.txt"


def test_a_worker_is_killed_and_another_goes_on(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("one\n")
    env = {**WHO, "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=source, env=env, check=True, capture_output=True)
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"script": [[{"say": "first"}], [{"say": "second"}], [{"say": "third"}]]}))

    async def main() -> None:
        world = World(tmp_path, random.Random(1), workers=2, doors=1, lease=30)
        world.settings = {"workspaces": {"clone": [f"file://{tmp_path}/"]}}
        world.understudy = {"args": ["--script", str(script)]}
        async with asyncio.timeout(BOUND), world.running():
            door = await world.door()

            async def get(path: str) -> Any:
                return (await world.http.get(f"{door.url}/api/sessions/{session}{path}", headers=door.headers)).json()

            async def send(prompt: str) -> None:
                status, _ = await world.post(f"/api/sessions/{session}/messages", {"prompt": prompt})
                assert status < 300

            async def until(path: str, is_so: Any) -> Any:
                while not is_so(answer := await get(path)):
                    await asyncio.sleep(0.1)
                return answer

            async def answer_one() -> None:
                page = await until("/permissions", lambda page: page["permissions"])
                status, _ = await world.post(f"/api/permissions/{page['permissions'][0]['id']}", {"decision": "allow"})
                assert status == 200

            async def kept(turn: int) -> None:
                db = await asyncpg.connect(world.cluster.url())
                try:
                    sql = "SELECT turn FROM stagedoor.carried WHERE session=$1"
                    while (await db.fetchval(sql, session) or 0) < turn:
                        await asyncio.sleep(0.1)
                finally:
                    await db.close()

            async def silence(worker: str) -> None:
                """As if its lease had run out by now."""
                db = await asyncpg.connect(world.cluster.url())
                try:
                    await db.execute("UPDATE stagedoor.workers SET until=1 WHERE id=$1", worker)
                finally:
                    await db.close()

            body = {"agentId": "understudy", "prompt": "plain", "place": f"git:file://{source}@main", "keepOpen": True}
            status, created = await world.post("/api/sessions", body)
            assert status == 201, created
            session = created["id"]
            await kept(1)
            await send(json.dumps({"script": [[{"shell": WORK}], [{"say": "worked"}]]}))
            await answer_one()
            await kept(2)
            await send(json.dumps({"script": [[{"shell": "touch cut"}], [{"say": "never"}]]}))
            asked = (await until("/permissions", lambda page: page["permissions"]))["permissions"][0]["id"]
            before = await get("")
            owner = next(one for one in world.workers if before["worker"] in (one.home / "worker.json").read_text())
            owner.kill()
            await owner.ended()
            await silence(before["worker"])
            after = await until("", lambda view: view["worker"] not in ("", before["worker"]))
            assert after["epoch"] > before["epoch"]
            assert after["place"] == body["place"]
            await until("", lambda view: view["activity"] == "asleep")
            assert [one["id"] for one in (await get("/permissions"))["permissions"]] == [asked]
            await answer_one()
            await kept(4)
            assert (await get("/file?path=a.txt"))["content"] == "two\n"
            assert (await get("/file?path=new.txt"))["content"] == "new\n"
            events = (await get("/events?limit=1000"))["events"]
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
            ends = [event["status"] for event in events if event["type"] == "turn_completed"]
            assert ends == ["success", "success", "interrupted", "success"]
            # The answer was told in a prompt of its own, and the script went on where it stood: it was carried.
            assert [event["text"] for event in events if event["type"] == "text"] == ["first", "worked", "second"]
            codes = [event["code"] for event in events if event["type"] == "notice"]
            assert "taken_over" in codes
            assert "conversation_not_carried" not in codes
            assert (await world.post(f"/api/sessions/{session}/cancel", {}))[0] < 300
            history = await world.account()
            assert history.left_running == []

    asyncio.run(main())
