"""JSON-RPC at a door whose only worker is another process: its sessions are followed and answered as the door's own."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from types import SimpleNamespace

from tests.machines.world import BOUND, World
from tests.server.test_jsonrpc import Client, joined, seqs


def test_a_session_of_another_process_is_followed_asked_and_answered(tmp_path: Path) -> None:
    script = json.dumps({"script": [[{"say": "first"}, {"shell": "touch made"}], [{"say": "second"}]]})

    async def part(client: Client, other: Client, world: World) -> None:
        await client.call("session/subscribe")
        ran = await other.call("agent/run", prompt=script)
        session = ran["sessionId"]
        question = await client.hear("permission_changed", lambda params: params["open"])
        assert question["session_id"] == session
        asked = await other.hear("agent_permission")
        assert (await other.call("agent/status"))["waiting"] == 1
        await client.call("permission/answer", id=question["permission"]["id"], decision="allow")
        await client.hear("permission_changed", lambda params: not params["open"])
        await other.hear("agent_complete", lambda params: params["payload"]["turn"] == 1)
        assert asked["payload"]["tool_name"] == "shell"
        assert (world.workers[0].root / "made").exists()
        await other.call("session/send", sessionId=session, prompt="go on")
        await other.hear("agent_complete", lambda params: params["payload"]["turn"] == 2)
        assert (await other.call("agent/stop"))["status"] == "stopped"
        await other.hear("subscription_ended")
        await client.hear("session_changed", lambda params: params["session"]["status"] != "active")
        numbers = seqs(other, session)
        assert numbers == sorted(numbers)

    async def main() -> None:
        world = World(tmp_path, random.Random(1), workers=1, doors=1, lease=30)
        async with asyncio.timeout(BOUND), world.running():
            door = await world.door()
            server = SimpleNamespace(ws_url=door.url.replace("http", "ws", 1), headers=door.headers)
            async with joined(server) as client, joined(server) as other:
                await part(client, other, world)

    asyncio.run(main())
