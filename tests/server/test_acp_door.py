"""``WS /acp``, message by message: rights, errors, and questions that an editor and others see at the same time."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from websockets.asyncio.client import connect

from stagedoor.server.acp.outbox import FULL, MOST, Outbox
from stagedoor.server.acp.questions import decision_of, options_of
from stagedoor.server.acp.session import MOST_UNSAVED
from stagedoor.service.store import Query
from stagedoor.service.views import SessionSpec
from stagedoor.testing.clis import path_with_node, proven_packages
from stagedoor.unified.decisions import Allow, Deny
from stagedoor.unified.events import PermissionRequest
from tools.clis import FOLDER, editor_packages

ROOT = Path(__file__).resolve().parents[2]
SDK = editor_packages(Path(os.environ.get("STAGEDOOR_CLIS") or ROOT / FOLDER)) / "@agentclientprotocol" / "sdk"
NEEDS_NEWER_NODE = next((agent for agent, package in proven_packages().items() if package.node), None)
NODE = shutil.which("node", path=path_with_node(agent=NEEDS_NEWER_NODE))  # one that has WebSocket
CAN_RUN_TYPESCRIPT = NODE is not None and SDK.exists()
Json = dict[str, Any]
Script = Callable[..., str]


class Wire:
    """The client's side of the protocol, as plain as it is: every message that came is in ``received``."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._next = 0
        self.received: list[Json] = []

    async def send(self, message: Json | str) -> None:
        await self._socket.send(message if isinstance(message, str) else json.dumps({"jsonrpc": "2.0", **message}))

    async def start(self, method: str, **params: Any) -> int:
        self._next += 1
        await self.send({"id": self._next, "method": method, "params": params})
        return self._next

    async def until(self, condition: Callable[[Json], bool]) -> Json:
        """The first message from now on that fulfils it."""
        while True:
            message: Json = json.loads(await self._socket.recv())
            self.received.append(message)
            if condition(message):
                return message

    async def answer(self, number: int | None) -> Json:
        return await self.until(lambda message: message.get("id") == number and "method" not in message)

    async def call(self, method: str, **params: Any) -> Json:
        reply = await self.answer(await self.start(method, **params))
        assert "error" not in reply, reply
        result: Json = reply["result"]
        return result

    async def refused(self, method: str, **params: Any) -> tuple[int, str]:
        error = (await self.answer(await self.start(method, **params)))["error"]
        return error["code"], error["message"]

    async def question(self) -> Json:
        return await self.until(lambda message: message.get("method") == "session/request_permission")

    def updates(self, kind: str) -> list[Json]:
        params = [message["params"] for message in self.received if message.get("method") == "session/update"]
        return [one["update"] for one in params if one["update"]["sessionUpdate"] == kind]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"]["text"] for update in self.updates(kind))


@asynccontextmanager
async def editor(server: Any, token: str = "", query: str = "", **capabilities: Any) -> AsyncIterator[Wire]:
    headers = {"Authorization": f"Bearer {token or server.token}"}
    async with connect(f"{server.ws_url}/acp{query}", additional_headers=headers, max_size=None) as socket:
        wire = Wire(socket)
        await wire.call("initialize", protocolVersion=1, clientCapabilities=capabilities)
        yield wire


def block(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


ERRORS: list[tuple[Json | str, int, str]] = [
    ("not json", -32700, "this is not JSON"),
    ("[]", -32600, "this is not a message of JSON-RPC 2.0"),
    ('{"id": {}, "method": "initialize"}', -32600, "this is not a message of JSON-RPC 2.0"),
    ({"id": 7, "method": "no/such"}, -32601, "Method not found: no/such"),
    ({"id": 7, "method": "initialize", "params": {}}, -32602, "protocolVersion"),
    ({"id": 7, "method": "initialize", "params": [1]}, -32602, "Invalid params"),
    ({"id": 7, "method": "session/new", "params": {}}, -32602, "cwd"),
    ({"id": 7, "method": "session/new", "params": {"cwd": "here"}}, -32602, "must be an absolute path"),
    ({"id": 7, "method": "session/new", "params": {"cwd": "/"}}, -32004, "outside the folders"),
    ({"id": 7, "method": "session/new", "params": {"cwd": "$", "mcpServers": [{"name": "x"}]}}, -32602, "a command"),
    ({"id": 7, "method": "session/new", "params": {"cwd": "$", "mcpServers": [{"name": 1}]}}, -32602, "name"),
    ({"id": 7, "method": "session/load", "params": {"cwd": "$", "sessionId": "x"}}, -32002, "not found"),
    ({"id": 7, "method": "session/load", "params": {"cwd": "$", "sessionId": ""}}, -32602, "sessionId"),
    ({"id": 7, "method": "session/prompt", "params": {"sessionId": "x", "prompt": []}}, -32002, "is not open here"),
    ({"id": 7, "method": "session/prompt", "params": {"sessionId": "@", "prompt": []}}, -32602, "prompt is empty"),
    ({"id": 7, "method": "session/prompt", "params": {"sessionId": "@", "prompt": [{"type": "image"}]}}, -32602, "[0]"),
    ({"id": 7, "method": "session/prompt", "params": {"sessionId": "@", "prompt": [{"no": 1}]}}, -32602, "prompt[0]"),
    ({"id": 7, "method": "session/prompt", "params": {"sessionId": "@", "prompt": "hi"}}, -32602, "array"),
    ({"id": 7, "method": "session/set_mode", "params": {"sessionId": "@", "modeId": "x"}}, -32602, "dry-run"),
    ({"id": 7, "method": "session/set_config_option", "params": {"sessionId": "@", "configId": "x", "value": "y"}},
     -32602, "choose one of agent, model, effort, mode"),
    ({"id": 7, "method": "session/set_config_option", "params": {"sessionId": "@", "configId": "agent", "value": "y"}},
     -32602, "unknown agent"),
    ({"id": 7, "method": "session/set_config_option", "params": {"sessionId": "@", "configId": "mode", "value": 3}},
     -32602, "must be a string"),
    ({"id": 7, "method": "session/list", "params": {"cursor": "x"}}, -32602, "nextCursor"),
    ({"id": 7, "method": "session/list", "params": {"cwd": "here"}}, -32602, "absolute"),
    ({"id": 7, "method": "session/close", "params": {"sessionId": "x"}}, -32002, "is not open here"),
    ({"id": 7, "method": "session/delete", "params": {"sessionId": "x"}}, -32002, "not found"),
    ({"id": 7, "method": "authenticate", "params": {"methodId": "x"}}, -32602, "nothing to authenticate"),
    ({"id": 7, "method": "logout", "params": {}}, -32602, "nobody to log out"),
]  # fmt: skip


def test_whatever_is_wrong_gets_a_clear_error_and_the_next_request_its_answer(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, editor(server) as wire:
            opened = await wire.call("session/new", cwd=str(server.workspace), mcpServers=[])
            replies = []
            for message, _, _ in ERRORS:
                text = message if isinstance(message, str) else json.dumps({"jsonrpc": "2.0", **message})
                text = text.replace('"$"', json.dumps(str(server.workspace)))
                await wire.send(text.replace('"@"', json.dumps(opened["sessionId"])))
                number = message.get("id") if isinstance(message, dict) else None
                replies.append((await wire.answer(number))["error"])
            assert [
                (reply["code"], part in reply["message"]) for reply, (_, _, part) in zip(replies, ERRORS, strict=True)
            ] == [(code, True) for _, code, _ in ERRORS], replies
            ended = await wire.call(
                "session/prompt", sessionId=opened["sessionId"], prompt=block(script([{"say": "Hi"}]))
            )
            assert (ended["stopReason"], wire.text()) == ("end_turn", "Hi")

    asyncio.run(main())


async def ask_in(server: Any, wire: Wire, script: Script) -> tuple[str, int, Json]:
    """A session whose agent asks about a command: its id, the number of the prompt, and the question."""
    opened = await wire.call("session/new", cwd=str(server.workspace))
    prompt = script([{"shell": "touch made"}], [{"say": "Over."}])
    number = await wire.start("session/prompt", sessionId=opened["sessionId"], prompt=block(prompt))
    return opened["sessionId"], number, await wire.question()


def test_who_answers_first_decides_and_the_other_question_is_withdrawn(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, editor(server) as wire, server.client() as phone:
            session, number, question = await ask_in(server, wire, script)
            [pending] = (await phone.get("/api/permissions")).json()["permissions"]
            decided = await phone.post(f"/api/permissions/{pending['id']}", json={"decision": "allow"})
            assert decided.status_code == 200
            withdrawn = await wire.until(lambda message: message.get("method") == "$/cancel_request")
            assert withdrawn["params"] == {"requestId": question["id"]}
            await wire.send({"id": question["id"], "result": {"outcome": {"outcome": "cancelled"}}})  # too late
            assert (await wire.answer(number))["result"]["stopReason"] == "end_turn"
            assert (server.workspace / "made").exists()

            prompt = block(script([{"shell": "touch other"}], [{"say": "Over."}]))
            number = await wire.start("session/prompt", sessionId=session, prompt=prompt)
            question = await wire.question()
            names = [option["kind"] for option in question["params"]["options"]]
            assert (names[0], names[-1]) == ("allow_once", "reject_once")
            [pending] = (await phone.get("/api/permissions")).json()["permissions"]
            outcome = {"outcome": {"outcome": "selected", "optionId": "reject"}}
            await wire.send({"id": question["id"], "result": outcome})
            assert (await wire.answer(number))["result"]["stopReason"] == "end_turn"
            late = await phone.post(f"/api/permissions/{pending['id']}", json={"decision": "allow"})
            assert (late.status_code, (server.workspace / "other").exists()) == (409, False)

    asyncio.run(main())


def test_nobody_sets_the_environment_of_agents_on_a_server_that_is_not_shared(serve: Any) -> None:
    async def main() -> None:
        async with serve() as server, editor(server, query="?alone=true&same_machine=true") as wire:
            code, message = await wire.refused("_stagedoor/environment", env={"PATH": "/nowhere"})
            assert (code, message) == (-32601, "Method not found: _stagedoor/environment")

    asyncio.run(main())


def test_the_rights_of_an_editor_are_those_of_its_token(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, editor(server) as wire:
            _, watching = await server.app.state.devices.add("w", "watcher", "watch")
            _, answering = await server.app.state.devices.add("a", "phone", "answer")
            session, number, _ = await ask_in(server, wire, script)
            cwd = str(server.workspace)
            async with editor(server, watching) as watcher, editor(server, answering) as phone:
                for client in (watcher, phone):
                    assert [one["sessionId"] for one in (await client.call("session/list"))["sessions"]] == [session]
                    await client.call("session/load", sessionId=session, cwd=cwd, mcpServers=[])
                    for method, params in (
                        ("session/new", {"cwd": cwd}),
                        ("session/prompt", {"sessionId": session, "prompt": block("x")}),
                        ("session/set_mode", {"sessionId": session, "modeId": "autonomous"}),
                        (
                            "session/set_config_option",
                            {"sessionId": session, "configId": "mode", "value": "autonomous"},
                        ),
                        ("session/delete", {"sessionId": session}),
                    ):
                        assert (await client.refused(method, **params))[0] == -32004, method
                    await client.send({"method": "session/cancel", "params": {"sessionId": session}})
                asked = [one for one in watcher.received if one.get("method") == "session/request_permission"]
                shown = [one for one in phone.received if one.get("method") == "session/request_permission"]
                [question] = shown or [await phone.question()]
                assert asked == []
                outcome = {"outcome": {"outcome": "selected", "optionId": "allow"}}
                await phone.send({"id": question["id"], "result": outcome})
                assert (await wire.answer(number))["result"]["stopReason"] == "end_turn"
                assert (server.workspace / "made").exists()
                await watcher.until(lambda _: watcher.text() == "Over.")
                assert not [one for one in watcher.received if one.get("method") == "session/request_permission"]
            with pytest.raises(Exception, match="401"):
                async with editor(server, "wrong"):
                    pass

    asyncio.run(main())


def test_a_session_is_seen_from_two_editors_and_outlives_both(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server:
            async with editor(server) as first, editor(server) as second:
                session, _, _ = await ask_in(server, first, script)
                await second.call("session/resume", sessionId=session, cwd=str(server.workspace))
                assert (await second.question())["params"]["toolCall"]["title"] == "touch made"
            [pending] = await server.service.questions.list()  # both have left, and the agent still waits
            await server.service.questions.respond(pending.id, "yes")
            async with editor(server) as third:
                await third.call("session/load", sessionId=session, cwd=str(server.workspace), mcpServers=[])
                await third.until(lambda _: third.text() == "Over.") if third.text() != "Over." else None
                assert (server.workspace / "made").exists()
                await third.call("session/close", sessionId=session)
                assert (await third.refused("session/prompt", sessionId=session, prompt=block("x")))[0] == -32002
                await third.call("session/delete", sessionId=session)
                assert (await third.call("session/list"))["sessions"] == []

    asyncio.run(main())


def test_a_cancelled_prompt_never_runs_and_a_withdrawn_one_is_answered(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, editor(server) as wire:
            opened = await wire.call("session/new", cwd=str(server.workspace))
            session = opened["sessionId"]
            number = await wire.start("session/prompt", sessionId=session, prompt=block(script([{"stall": None}])))
            await wire.send({"method": "session/cancel", "params": {"sessionId": session}})  # before the agent is there
            assert (await wire.answer(number))["result"]["stopReason"] == "cancelled"
            number = await wire.start("session/prompt", sessionId=session, prompt=block(script([{"stall": None}])))
            await wire.send({"method": "$/cancel_request", "params": {"requestId": number}})
            assert (await wire.answer(number))["error"]["code"] == -32800
            prompt = block(script([{"say": "Next."}]))
            assert (await wire.call("session/prompt", sessionId=session, prompt=prompt))["stopReason"] == "end_turn"
            assert wire.text() == "Next."

    asyncio.run(main())


def test_mode_model_and_effort_are_chosen_before_and_between_turns(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, editor(server, query="?agent=understudy") as wire:
            opened = await wire.call("session/new", cwd=str(server.workspace))
            session = opened["sessionId"]
            values = {one["id"]: one["currentValue"] for one in opened["configOptions"]}
            assert values == {"agent": "understudy", "model": "default", "mode": "supervised", "effort": "default"}
            await wire.call("session/set_mode", sessionId=session, modeId="dry-run")
            await wire.call("session/prompt", sessionId=session, prompt=block(script([{"shell": "touch dry"}])))
            chosen = await wire.call(
                "session/set_config_option", sessionId=session, configId="mode", value="autonomous"
            )
            assert [one["currentValue"] for one in chosen["configOptions"]] == [
                "understudy",
                "default",
                "autonomous",
                "default",
            ]
            await wire.call("session/prompt", sessionId=session, prompt=block(script([{"shell": "touch made"}])))
            assert ((server.workspace / "dry").exists(), (server.workspace / "made").exists()) == (False, True)
            assert [update["currentModeId"] for update in wire.updates("current_mode_update")] == ["dry-run"]
            view = await server.service.sessions.get(session)
            assert (view.tier, view.activity) == ("autonomous", "idle")
            notices = [
                record for record in await server.service.events.read(session) if b'"reconfigured"' in record.body
            ]
            assert len(notices) == 1

    asyncio.run(main())


def test_another_model_or_effort_leaves_the_permissions_as_they_are(serve: Any, script: Script) -> None:
    """Also where the session asks more than its tier says, or somebody has changed its tier meanwhile."""

    async def main() -> None:
        async with serve() as server, editor(server) as wire:
            sessions, cwd = server.service.sessions, str(server.workspace)
            spec = SessionSpec(
                prompt=script([{"say": "hi"}]), agent="understudy", tier="autonomous", approval="ask", keep_open=True
            )
            session = (await sessions.create(spec)).id
            await wire.call("session/load", sessionId=session, cwd=cwd, mcpServers=[])
            while (await sessions.get(session)).activity != "idle":
                await asyncio.sleep(0.05)
            for option, value in (("effort", "high"), ("model", "understudy-mini")):
                chosen = {"sessionId": session, "configId": option, "value": value}
                await wire.call("session/set_config_option", **chosen)
                view = await sessions.get(session)
                assert (view.tier, view.approval) == ("autonomous", "ask")
            await sessions.reconfigure(session, tier="dry-run")
            await wire.call("session/set_config_option", sessionId=session, configId="effort", value="low")
            assert (await sessions.get(session)).tier == "dry-run"

    asyncio.run(main())


def test_an_ended_session_goes_on_under_its_name(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, editor(server) as wire:
            cwd = str(server.workspace)
            session = (await wire.call("session/new", cwd=cwd))["sessionId"]
            await wire.call("session/prompt", sessionId=session, prompt=block(script([{"say": "One. "}])))
            await server.service.sessions.cancel(session)
            await wire.call("session/prompt", sessionId=session, prompt=block(script([{"say": "Two. "}])))
            async with editor(server) as again:  # it finds what has continued it
                await again.call("session/load", sessionId=session, cwd=cwd, mcpServers=[])
                assert again.text() == "One. Two. "
                await again.call("session/prompt", sessionId=session, prompt=block(script([{"say": "Three."}])))
                assert again.text() == "One. Two. Three."
            views, count = await server.service.sessions.page(Query())
            assert (count, [view.parent_id for view in views]) == (2, [session, None])

    asyncio.run(main())


def test_what_an_editor_sends_with_a_prompt_reaches_the_agent(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, editor(server, fs={"readTextFile": True}) as wire:
            saved, changed = server.workspace / "saved.txt", server.workspace / "changed.txt"
            saved.write_text("same")
            changed.write_text("old")
            session = (await wire.call("session/new", cwd=str(server.workspace)))["sessionId"]
            secret = server.workspace / "link.txt"
            secret.symlink_to("/etc/hostname")  # it leads out of the project: not even asked for
            long = server.workspace / "long.txt"
            linked = (secret, server.workspace / ".." / "up.txt", saved, changed, long)
            links = [{"type": "resource_link", "name": one.name, "uri": f"file://{one}"} for one in linked]
            embedded = {"type": "resource", "resource": {"uri": "file:///else/where.md", "text": "```\nfenced\n```"}}
            prompt = [*block("Look at these:"), *links, embedded]
            number = await wire.start("session/prompt", sessionId=session, prompt=prompt)
            # What the editor shows of the three:
            for place, text in ((saved, "same"), (changed, "new"), (long, "x" * (MOST_UNSAVED + 1))):
                read = await wire.until(lambda message: message.get("method") == "fs/read_text_file")
                assert read["params"]["path"] == str(place)
                await wire.send({"id": read["id"], "result": {"content": text}})
            assert (await wire.answer(number))["result"]["stopReason"] == "end_turn"
            view = await server.service.sessions.get(session)
            assert view.prompt.splitlines() == [
                "Look at these:", f"@{secret}", f"@{linked[1]}", f"@{saved}",
                "", f"{changed} (not saved yet):", "```", "new", "```", "",
                f"@{long}", "", "/else/where.md:", "````", "```", "fenced", "```", "````",
            ]  # fmt: skip

    asyncio.run(main())


def test_a_form_of_the_editor_answers_what_the_agent_asks(serve: Any, script: Script) -> None:
    asking = script([{"question": {"text": "Which one?", "options": ["red", "green"]}}], [{"say": "Thanks."}])

    async def main() -> None:
        async with serve() as server, editor(server, elicitation={"form": {}}) as forms, editor(server) as plain:
            for wire, method in ((forms, "elicitation/create"), (plain, "session/request_permission")):
                session = (await wire.call("session/new", cwd=str(server.workspace)))["sessionId"]
                number = await wire.start("session/prompt", sessionId=session, prompt=block(asking))
                asked = await wire.until(lambda message, method=method: message.get("method") == method)
                if wire is forms:
                    [(name, field)] = asked["params"]["requestedSchema"]["properties"].items()
                    assert field["enum"] == ["red", "green"]
                    answer = {"action": "accept", "content": {name: "green"}}
                else:
                    [chosen] = [one for one in asked["params"]["options"] if one["name"] == "green"]
                    answer = {"outcome": {"outcome": "selected", "optionId": chosen["optionId"]}}
                await wire.send({"id": asked["id"], "result": answer})
                assert (await wire.answer(number))["result"]["stopReason"] == "end_turn"
                records = await server.service.events.read(session)
                assert any(record.type == "tool_result" and b"green" in record.body for record in records)

    asyncio.run(main())


SELECTED: list[Any] = ["yes", ["allow"], "choice-0", "", None, "ALLOW", "allow "]
ANSWERS: list[Any] = [
    {}, [], "allow", 3, None, {"outcome": "allow"}, {"outcome": {"outcome": "selected"}},
    {"outcome": {"outcome": "cancelled", "optionId": "allow"}}, {"outcome": {"outcome": "other", "optionId": "allow"}},
    {"action": "accept", "content": {"q1": "yes"}},
    *({"outcome": {"outcome": "selected", "optionId": one}} for one in SELECTED),
]  # fmt: skip


def test_only_an_offered_option_approves() -> None:
    request = PermissionRequest(request_id="r", tool_name="shell", input={"command": "x"})
    assert [type(decision_of(request, answer)) for answer in ANSWERS] == [Deny] * len(ANSWERS)
    offered = [option["optionId"] for option in options_of(replace(request, remembered_as=[{"allow": "x"}]))]
    decisions = [decision_of(request, {"outcome": {"outcome": "selected", "optionId": one}}) for one in offered]
    allowed = [Allow(), Allow(remember="session"), Allow(remember="always")]
    assert decisions == [*allowed, Deny("rejected in the editor")]


def test_a_client_that_does_not_read_is_given_up() -> None:
    async def main() -> None:
        stuck = asyncio.Event()
        sent: list[bytes] = []

        async def send(message: bytes) -> None:
            sent.append(message)
            await stuck.wait()

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            silent = Outbox(send, stall_after=0.05)  # a wait that is expected to run out
            group.create_task(silent.run())
            silent.put(b"x")
            await silent.closed.wait()
            await silent.flushed()
            await silent.room()
            flooded = Outbox(send)
            flooded.put(b"x" * FULL)
            waiting = group.create_task(flooded.room())
            await asyncio.sleep(0)
            assert not waiting.done()
            for _ in range(MOST // FULL):
                flooded.put(b"x" * FULL)
            await waiting  # nobody waits for a client that is gone
            assert flooded.closed.is_set()
            flooded.put(b"late")
            await flooded.run()
        assert sent == [b"x"]

    asyncio.run(main())


@pytest.mark.live
@pytest.mark.skipif(not CAN_RUN_TYPESCRIPT, reason="the TypeScript SDK is not installed: run `make clis`")
def test_the_typescript_sdk_over_websocket_sees_its_question_withdrawn(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server:
            task = {
                "sdk": str(SDK), "url": f"{server.ws_url}/acp", "protocols": ["stagedoor", f"bearer.{server.token}"],
                "cwd": str(server.workspace), "answer": "wait",
                "prompt": script([{"say": "Hm. "}, {"shell": "touch made"}], [{"say": "Over."}]),
            }  # fmt: skip
            program = str(ROOT / "tests" / "live" / "editor.mjs")
            out = asyncio.subprocess.PIPE
            client = await asyncio.create_subprocess_exec(str(NODE), program, json.dumps(task), stdout=out)
            bell = server.service.sessions.bell()
            while not (waiting := await server.service.questions.list()):
                await bell.rung()
            bell.close()
            await server.service.questions.respond(waiting[0].id, "yes", who="phone")
            told, _ = await client.communicate()
            seen = json.loads(told)
            assert (seen["questions"], seen["withdrawn"], seen["stop"]) == (["touch made"], 1, "end_turn")
            assert (seen["text"], seen["replayed"], seen["listed"]) == ("Hm. Over.", "Hm. Over.", 1)
            assert (server.workspace / "made").exists()

    asyncio.run(main())
