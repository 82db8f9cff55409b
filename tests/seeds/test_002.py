"""Document 002 as its own phone uses it: against the real server, with the embedded agent and with a real CLI."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.seeds.client_002 import Phone, check_event, phone

Script = Callable[..., str]
ASK = {"question": {"text": "Which colour?", "options": ["Red", "Blue"]}}


def play(serve: Any, part: Callable[[Phone, Any], Any], **changes: Any) -> Any:
    """``part(phone, server)`` with a server and one phone."""

    async def main() -> Any:
        async with serve(**changes) as server, phone(server.ws_url, server.headers) as client:
            result = await part(client, server)
            for event in client.events:
                check_event(event)
            return result

    return asyncio.run(main())


def _until_complete(names: list[str]) -> list[str]:
    return names[: names.index("agent_complete") + 1]


def test_every_phone_hears_what_runs(serve: Any, script: Script) -> None:
    """§1.1 the hub sends to all; nobody has subscribed to anything."""

    async def part(first: Phone, server: Any) -> None:
        async with phone(server.ws_url, server.headers) as second:
            started = await first.run(script([{"say": "Hello"}, {"shell": "echo made"}], [{"say": "Done"}]))
            session_id = started["sessionId"]
            question = await second.hear("agent_permission")
            await second.respond(question["tool_id"], "yes")
            for client in (first, second):
                await client.hear("agent_complete")
            heard = [_until_complete(client.names(session_id)) for client in (first, second)]
            assert heard[0] == heard[1]
            assert {"agent_init", "agent_message", "agent_tool_call", "agent_permission"} <= set(heard[1])
            async with server.client() as other:  # and what was started at another door
                body = {"prompt": script([{"say": "By REST"}])}
                made = (await other.post("/api/sessions", json=body)).json()["id"]
            for client in (first, second):
                await client.hear("agent_message", lambda payload: payload["session_id"] == made)

    play(serve, part)


def test_a_phone_that_wants_less(serve: Any, script: Script) -> None:
    async def part(first: Phone, server: Any) -> None:
        async with phone(server.ws_url, server.headers) as second:
            await second.call("session/listen", {"to": "subscribed"})
            started = await first.run(script([{"say": "Hello"}]))
            await first.hear("agent_complete")
            await second.call("session/listen", {"to": "all"})
            await first.run(script([{"say": "Again"}]))
            await second.hear("agent_complete")
            assert second.names(started["sessionId"]) == []

    play(serve, part)


def test_the_selected_agent_survives_a_reconnect(serve: Any) -> None:
    """§3.2 agent selection, appendix C "single active agent": a phone loses its connection all the time."""

    async def part(first: Phone, server: Any) -> None:
        assert (await first.select("codex"))["type"] == "codex"
        await first.configure(model="gpt-5")
        async with phone(server.ws_url, server.headers) as again:
            assert (await again.discover())["active"] == "codex"

    play(serve, part)


def test_a_text_answers_the_agents_question(serve: Any, script: Script) -> None:
    """§1.2 ``SendResponse``: by JSON-RPC; the same question by REST in the other half."""

    async def part(client: Phone, server: Any) -> list[str]:
        answers: list[str] = []
        for door in ("rpc", "rest"):
            client.events.clear()
            await client.run(script([ASK], [{"say": "ok"}]))
            question = await client.hear("agent_permission")
            assert (question["tool_name"], question["target"]) == ("question", "Which colour?")
            if door == "rpc":
                await client.respond(question["tool_id"], "blue")
            else:
                async with server.client() as rest:
                    body = {"decision": "allow", "answer": "blue"}
                    answered = await rest.post(f"/api/permissions/{question['request_id']}", json=body)
                    assert answered.status_code == 200, answered.text
            result = await client.hear("agent_tool_result")
            answers.append(result["content"])
            await client.hear("agent_complete")
        return answers

    assert play(serve, part) == ["Blue", "Blue"]


def test_watching_without_a_session_is_a_clear_error(serve: Any) -> None:
    async def part(client: Phone, server: Any) -> str:
        try:
            await client.call("session/subscribe", {"watch": ["git"]})
        except Exception as fault:
            return str(fault)
        return ""

    assert "send the sessionId" in play(serve, part)
