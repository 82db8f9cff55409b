"""Questions and answers over REST."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
from msgspec.structs import replace

Script = Callable[..., str]


async def waiting(client: httpx.AsyncClient, session_id: str) -> dict[str, Any]:
    """The first open question of a session."""
    after = 0
    while True:
        polled = (await client.get(f"/api/sessions/{session_id}/poll", params={"after": after})).json()
        after = polled["lastSeq"]
        found = (await client.get(f"/api/sessions/{session_id}/permissions")).json()["permissions"]
        if found:
            return dict(found[0])
        assert not polled["ended"]


async def events_to_the_end(client: httpx.AsyncClient, session_id: str) -> list[dict[str, Any]]:
    """All events of a session that ends."""
    events: list[dict[str, Any]] = []
    while True:
        after = len(events)
        polled = (await client.get(f"/api/sessions/{session_id}/poll", params={"after": after})).json()
        events += polled["events"]
        if polled["ended"]:
            return events


def test_a_question_is_answered_once_from_anywhere(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            for number, (body, status, decided) in enumerate(
                [
                    ({"decision": "allow"}, "success", {"type": "allow", "updatedInput": None, "remember": "once"}),
                    (
                        {"decision": "deny", "message": "not now"},
                        "denied",
                        {"type": "deny", "message": "not now", "interrupt": False},
                    ),
                ]
            ):
                spec = {"prompt": script([{"shell": f"touch made{number}"}], [{"say": "ok"}])}
                session_id = (await client.post("/api/sessions", json=spec)).json()["id"]
                question = await waiting(client, session_id)
                request = question["request"]
                assert (request["toolName"], request["target"]) == ("shell", f"touch made{number}")
                page = {"permissions": [question], "total": 1, "offset": 0, "limit": 500}
                assert (await client.get("/api/permissions")).json() == page
                path = f"/api/permissions/{question['id']}"
                if number:
                    path = f"/api/sessions/{session_id}/permissions/{request['requestId']}"
                first, second = await asyncio.gather(*(client.post(path, json=body) for _ in range(2)))
                assert sorted((first.status_code, second.status_code)) == [200, 409]
                won = first if first.status_code == 200 else second
                assert won.json() == question | {
                    "open": False,
                    "decision": decided,
                    "by": "client",
                    "who": "local",
                    "answerId": won.json()["answerId"],
                    "message": body.get("message", ""),
                    "resolvedAt": won.json()["resolvedAt"],
                    "applied": won.json()["applied"],
                }
                events = await events_to_the_end(client, session_id)
                results = [event for event in events if event["type"] == "tool_result"]
                assert [result["status"] for result in results] == [status]
                assert (server.workspace / f"made{number}").exists() == (status == "success")
                nothing = {"permissions": [], "total": 0, "offset": 0, "limit": 500}
                assert (await client.get("/api/permissions")).json() == nothing
                answered = (await client.get(f"/api/sessions/{session_id}/permissions?open=false")).json()
                assert [one["id"] for one in answered["permissions"]] == [question["id"]]
            both = (await client.get("/api/permissions?open=false")).json()["permissions"]
            for offset, limit in ((0, 1), (1, 1), (2, 1)):
                found = await client.get(f"/api/permissions?open=false&offset={offset}&limit={limit}")
                expected = {"permissions": both[offset : offset + limit], "total": 2, "offset": offset, "limit": limit}
                assert found.json() == expected
            assert (await client.get("/api/permissions?limit=0")).status_code == 400
            audit = (await client.get("/api/audit")).json()
            assert [(one["entry"]["decision"], one["who"]) for one in audit["entries"]] == [
                ("deny", "local"),
                ("allow", "local"),
            ]

    asyncio.run(main())


def test_an_answer_a_crash_has_swallowed_is_found_by_whoever_gave_it(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            body = {"prompt": script([{"shell": "touch made"}], [{"say": "ok"}])}
            session_id = (await client.post("/api/sessions", json=body)).json()["id"]
            path = f"/api/permissions/{(await waiting(client, session_id))['id']}"
            yes, mine, other = {"decision": "allow"}, {"Idempotency-Key": "mine"}, {"Idempotency-Key": "another's"}
            given = await client.post(path, json=yes, headers=mine)
            await events_to_the_end(client, session_id)
            done = await server.service._store.done("local:mine")
            # as a crash between the answer and its acknowledgement leaves it
            started = replace(done, status=0, body=b"")
            await server.service._store.write(started, replace(started, key="local:another's"))
            again = await client.post(path, json=yes, headers=mine)
            assert (again.status_code, again.json()) == (200, given.json() | {"applied": True})
            assert (await client.post(path, json=yes, headers=other)).status_code == 409  # the same words, not the same

    asyncio.run(main())


def test_an_answer_that_makes_no_sense_leaves_the_question_open(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            body = {"prompt": script([{"shell": "touch made"}], [{"say": "ok"}])}
            session_id = (await client.post("/api/sessions", json=body)).json()["id"]
            question = await waiting(client, session_id)
            for body in (
                {},
                {"decision": "perhaps"},
                {"decision": "allow", "message": "why"},
                {"decision": "deny", "remember": "always"},
                {"decision": "allow", "remember": "for ever"},
                {"decision": "deny", "message": 1},
                [],
            ):
                answer = await client.post(f"/api/permissions/{question['id']}", json=body)
                assert (answer.status_code, answer.json()["status"]) == (400, 400), body
            assert await waiting(client, session_id) == question
            await client.post(f"/api/permissions/{question['id']}", json={"decision": "deny", "interrupt": True})
            await events_to_the_end(client, session_id)
            assert not (server.workspace / "made").exists()

    asyncio.run(main())
