"""The database goes away under a server with a stream and a running session, and comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx

from tools.postgres import cluster


async def _events(client: httpx.AsyncClient, session_id: str, received: list[int]) -> None:
    async with client.stream("GET", f"/api/sessions/{session_id}/stream") as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data:") and (seq := json.loads(line[5:]).get("seq")):
                received.append(seq)


def test_requests_are_told_to_come_again_and_streams_go_on(serve: Any, script: Callable[..., str]) -> None:
    async def main() -> None:
        with cluster() as own:
            async with serve(database=own.url()) as server, server.client() as client:
                prompt = script([{"shell": "touch made"}], [{"say": "done"}])
                created = await client.post("/api/sessions", json={"prompt": prompt})
                session_id = created.json()["id"]
                received: list[int] = []
                streaming = asyncio.create_task(_events(client, session_id, received))
                while not (questions := (await client.get("/api/permissions")).json()["permissions"]):
                    await asyncio.sleep(0.02)
                await asyncio.to_thread(own.crash)
                while (refused := await client.get("/api/sessions")).status_code != 503:
                    await asyncio.sleep(0.05)
                assert refused.headers["retry-after"] == "5"
                assert refused.json()["type"] == "urn:stagedoor:problem:log-away"
                ready = await client.get("/readyz")
                assert (ready.status_code, ready.json()["log"]) == (503, "broken")
                assert (await client.get("/healthz")).status_code == 200
                assert not streaming.done()
                await asyncio.to_thread(own.start)
                while (
                    answered := await client.post(f"/api/permissions/{questions[0]['id']}", json={"decision": "allow"})
                ).status_code == 503:
                    await asyncio.sleep(0.05)
                assert answered.status_code == 200, answered.text
                await streaming
                view = (await client.get(f"/api/sessions/{session_id}")).json()
                assert (view["state"], received) == ("done", list(range(1, view["lastSeq"] + 1)))

    asyncio.run(asyncio.wait_for(main(), 300))
