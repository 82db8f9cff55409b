"""JSON-RPC against the real server: the seed's examples word for word, and everything a client relies on."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from websockets.asyncio.client import ClientConnection, connect

from stagedoor import __version__
from stagedoor.service.config.settings import AgentSettings, Limits, Settings
from stagedoor.testing import ScriptedModel, find_cli, say, shell

BOUND = 240.0
Script = Callable[..., str]
Json = dict[str, Any]


class Failed(Exception):
    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.code = error["code"]
        self.problem = error.get("data")


class Client:
    """Answers go to who asked; notifications are kept in the order they came."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.received: list[Json] = []
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Json]] = {}
        self._news = asyncio.Condition()

    async def listen(self) -> None:
        async for text in self.socket:
            message = json.loads(text)
            if "method" in message:
                async with self._news:
                    self.received.append(message)
                    self._news.notify_all()
            else:
                self._pending.pop(message["id"]).set_result(message)

    async def raw(self, message: Json) -> Json:
        """One call as it is written; its answer as it is."""
        self._pending[message["id"]] = answer = asyncio.get_running_loop().create_future()
        await self.socket.send(json.dumps(message))
        return await answer

    async def call(self, method: str, **params: Any) -> Any:
        message = await self.raw({"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params})
        if "error" in message:
            raise Failed(message["error"])
        return message["result"]

    async def hear(self, method: str, test: Callable[[Json], bool] = lambda _: True) -> Json:
        """The params of the first notification that fits, be it old or still to come."""
        async with self._news:
            while True:
                for one in self.received:
                    if one["method"] == method and test(one["params"]):
                        return one["params"]
                await self._news.wait()


@contextlib.asynccontextmanager
async def joined(server: Any) -> AsyncIterator[Client]:
    async with connect(f"{server.ws_url}/ws", additional_headers=server.headers, proxy=None) as socket:
        client = Client(socket)
        listening = asyncio.ensure_future(client.listen())
        try:
            async with asyncio.timeout(BOUND):
                yield client
        finally:
            listening.cancel()
            await asyncio.wait([listening])


Play = Callable[..., Any]


@pytest.fixture
def play(serve: Any) -> Play:
    """Runs ``part(client, server)`` with one client and one server."""

    def run(part: Callable[[Client, Any], Any], **changes: Any) -> Any:
        async def main() -> Any:
            async with serve(**changes) as server, joined(server) as client:
                return await part(client, server)

        return asyncio.run(main())

    return run


def seqs(client: Client, session_id: str) -> list[int]:
    return [one["params"]["seq"] for one in client.received if one["params"].get("session_id") == session_id]


# ------------------------------------------------------------------------------------------- the seed's examples


def test_discovery_as_the_seed_shows_it(play: Play) -> None:
    async def part(client: Client, server: Any) -> Json:
        return await client.raw({"jsonrpc": "2.0", "id": 1, "method": "agent/discover", "params": {}})

    answer = play(part)
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
    result = answer["result"]
    assert (result["active"], result["status"]) == ("understudy", "idle")
    [understudy] = [one for one in result["available"] if one["type"] == "understudy"]
    assert understudy == {
        "type": "understudy",
        "name": "Understudy (embedded, scripted)",
        "version": __version__,
        "capabilities": {"streaming": True, "sessionResume": True, "thinking": True, "mcp": True, "sandbox": True},
        "tools": [
            "shell", "read_file", "write_file", "edit_file", "delete_file", "search_content", "find_files", "task",
            "plan", "question",
        ],
        "drivers": ["acp"],
        "sandboxModes": ["readOnly", "workspaceWrite", "fullAccess"],
        "signedIn": True,
    }  # fmt: skip
    everybody = {one["type"] for one in [*result["available"], *result["unavailable"]]}
    assert {"claude", "codex", "gemini", "opencode"} < everybody
    assert all(set(one) == {"type", "name", "problem", "fix"} for one in result["unavailable"])


def test_selection_as_the_seed_shows_it(play: Play) -> None:
    async def part(client: Client, server: Any) -> Json:
        return await client.raw({"jsonrpc": "2.0", "id": 2, "method": "agent/select", "params": {"type": "gemini"}})

    assert play(part) == {
        "jsonrpc": "2.0",
        "id": 2,
        "result": {"status": "selected", "type": "gemini", "name": "Gemini CLI"},
    }


RUN: Json = {
    "jsonrpc": "2.0",
    "id": 3,
    "method": "agent/run",
    "params": {
        "prompt": "Fix the login bug",
        "mode": "new",
        "options": {"sandbox": "docker", "model": "gemini-2.0-pro", "allowedTools": ["shell", "read_file"]},
    },
}


def test_the_seeds_run_goes_to_the_selected_agent_with_its_options(play: Play, settings: Settings) -> None:
    missing = AgentSettings(command=str(Path(settings.home) / "no-such-program"))

    async def part(client: Client, server: Any) -> tuple[Json, Json, Json]:
        await client.call("agent/select", type="gemini")
        answer = (await client.raw(RUN))["result"]
        await client.hear("subscription_ended")
        session = await client.call("session/get", sessionId=answer["sessionId"])
        return answer, session["session"]["wanted"], session

    answer, spec, session = play(part, agents={**settings.agents, "gemini": missing})
    assert answer == {
        "status": "started", "type": "gemini", "sessionId": session["id"], "lastSeq": 0, "messageId": None,
    }  # fmt: skip
    assert (spec["container"], spec["model"]) == ("docker", "gemini-2.0-pro")
    assert spec["allowedTools"] == ["shell", "read_file"]
    assert session["status"] == "error"  # no such program: said in the stream, not as a failed call


def test_an_agent_without_that_container_says_what_it_has(play: Play) -> None:
    async def part(client: Client, server: Any) -> Json:
        return await client.raw(RUN)

    error = play(part)["error"]
    assert error == {
        "code": -32602,
        "message": "unknown sandbox 'docker' for understudy; use one of none, readOnly, workspaceWrite, fullAccess",
        "data": {
            "type": "urn:stagedoor:problem:bad-request",
            "title": "The request is not valid",
            "status": 400,
            "detail": "unknown sandbox 'docker' for understudy; use one of none, readOnly, workspaceWrite, fullAccess",
            "field": "$.sandbox",
        },
    }


def test_configuration_counts_for_what_is_run_next(play: Play, script: Script) -> None:
    async def part(client: Client, server: Any) -> tuple[Json, Json, Json, Json]:
        first = await client.call("agent/configure", sandbox="readOnly", model="fast", autoApprove=["shell"])
        ran = await client.call("agent/run", prompt=script([{"say": "Hi"}]), options={"model": "slow"}, keepOpen=False)
        await client.hear("subscription_ended")
        spec = (await client.call("session/get", sessionId=ran["sessionId"]))["session"]["wanted"]
        second = await client.call("agent/configure", sandbox=None, auto_approve=None)
        other = await client.call("agent/select", type="codex")
        third = await client.call("agent/configure")
        assert other["type"] == third["type"] == "codex"
        return first, spec, second, third

    first, spec, second, third = play(part)
    assert first == {
        "status": "configured", "type": "understudy", "sandbox": "readOnly", "model": "fast", "autoApprove": ["shell"],
        "tier": None, "approval": None,
    }  # fmt: skip
    assert (spec["sandbox"], spec["model"], spec["autoApprove"]) == ("readOnly", "slow", ["shell"])
    assert second == {**first, "sandbox": None, "autoApprove": []}
    assert third == {**first, "type": "codex", "sandbox": None, "model": None, "autoApprove": []}


# --------------------------------------------------------------------------------------------------- one session


def test_a_run_is_told_answered_and_stopped(play: Play, script: Script) -> None:
    async def part(client: Client, server: Any) -> tuple[Json, list[Json], Json, Json]:
        ran = await client.call("agent/run", prompt=script([{"say": "Hi"}, {"shell": "touch made"}], [{"say": "ok"}]))
        question = await client.hear("agent_permission")
        waiting = await client.call("agent/status")
        tool = question["payload"]["tool_id"]
        answered = await client.call("agent/respond", toolUseID=tool, response="approved", isError=False)
        assert answered["decision"] == "allow"
        assert question["payload"]["tool_name"] == "shell"
        await client.hear("agent_complete")
        stopped = await client.call("agent/stop")
        ended = await client.hear("subscription_ended")
        assert (server.workspace / "made").exists()
        assert (stopped["status"], stopped["activity"]) == ("stopped", "ended")
        assert stopped["state"] == ended["state"]
        return ran, client.received, waiting, ended

    ran, received, waiting, ended = play(part)
    assert (waiting["type"], waiting["status"], waiting["waiting"]) == ("understudy", "waiting", 1)
    assert waiting["session"]["status"] == "active"
    methods = [one["method"] for one in received]
    kinds = list(dict.fromkeys(methods))
    assert kinds == [
        "agent_init", "agent_status", "agent_message", "agent_message_delta", "agent_tool_call", "agent_permission",
        "agent_tool_result", "agent_complete", "subscription_ended",
    ]  # fmt: skip
    assert all(one["jsonrpc"] == "2.0" and one["params"]["session_id"] == ran["sessionId"] for one in received)
    numbers = [one["params"]["seq"] for one in received]
    assert numbers == sorted(numbers)
    assert ended["seq"] == numbers[-1]


@pytest.mark.parametrize(
    ("response", "is_error", "decision"),
    [("yes", False, "allow"), ("", False, "allow"), ("go on, no problem", False, "allow"), ("yes", True, "deny"),
     ("No, use git", False, "deny"), ("denied", False, "deny")],
)  # fmt: skip
def test_what_a_response_means(play: Play, script: Script, response: str, is_error: bool, decision: str) -> None:
    async def part(client: Client, server: Any) -> tuple[str, str]:
        await client.call("agent/run", prompt=script([{"shell": "touch made"}], [{"say": "ok"}]), keepOpen=False)
        tool = (await client.hear("agent_permission"))["payload"]["tool_id"]
        answered = await client.call("agent/respond", tool_use_id=tool, response=response, is_error=is_error)
        with pytest.raises(Failed) as again:
            await client.call("agent/respond", tool_use_id=tool, response="yes")
        assert again.value.code == -32003
        await client.hear("subscription_ended")
        result = await client.hear("agent_tool_result")
        return answered["decision"], result["payload"]["status"]

    assert play(part) == (decision, "success" if decision == "allow" else "denied")


def test_a_session_goes_on_where_it_is_continued(play: Play, script: Script) -> None:
    async def part(client: Client, server: Any) -> tuple[list[Json], Json]:
        first = await client.call("agent/run", prompt=script([{"say": "one"}]))
        await client.hear("agent_complete", lambda p: p["payload"]["turn"] == 1)
        second = await client.call("agent/run", prompt=script([{"say": "two"}]), mode="continue")
        await client.hear("agent_complete", lambda p: p["payload"]["turn"] == 2)
        sent = await client.call("session/send", sessionId=first["sessionId"], prompt=script([{"say": "three"}]))
        await client.hear("agent_complete", lambda p: p["payload"]["turn"] == 3)
        await client.call("agent/stop")
        await client.hear("subscription_ended")
        third = await client.call("agent/run", prompt=script([{"say": "four"}]), mode="continue")
        await client.hear("agent_complete", lambda p: p["session_id"] == third["sessionId"])
        fourth = await client.call("session/resume", sessionId=first["sessionId"], prompt=script([{"say": "five"}]))
        await client.hear("agent_complete", lambda p: p["session_id"] == fourth["sessionId"])
        page = await client.call("session/list", agent="understudy")
        assert sent == {"status": "queued", "messageId": sent["messageId"], "sessionId": first["sessionId"]}
        return [first, second, third, fourth], page

    ran, page = play(part)
    assert [one["status"] for one in ran] == ["started", "queued", "resumed", "resumed"]
    assert ran[0]["sessionId"] == ran[1]["sessionId"]
    assert page["total"] == 3
    listed = {one["id"]: one for one in page["sessions"]}
    assert [listed[one["sessionId"]]["session"]["parentId"] for one in ran] == [None, None, *[ran[0]["sessionId"]] * 2]
    session = listed[ran[0]["sessionId"]]
    assert (session["agent_type"], session["status"], session["message_count"]) == ("understudy", "completed", 6)
    assert session["repo_path"] == session["session"]["cwd"]
    assert session["tokens_used"] == session["session"]["usage"]["totalTokens"]
    assert listed[ran[3]["sessionId"]]["status"] == "active"
    assert set(session) == {
        "id", "agent_type", "created_at", "updated_at", "status", "repo_path", "message_count", "tokens_used",
        "cost_usd", "session", "stored", "title",
    }  # fmt: skip


def test_a_client_that_comes_back_goes_on_from_its_last_number(play: Play, script: Script) -> None:
    prompt = script([{"say": "one"}, {"shell": "echo out"}], [{"say": "two"}])

    async def part(client: Client, server: Any) -> tuple[list[Json], list[list[Json]]]:
        options = {"tier": "autonomous"}
        ran = await client.call("agent/run", prompt=prompt, options=options, keepOpen=False)
        last = (await client.hear("subscription_ended"))["seq"]
        parts: list[list[Json]] = []
        for after in range(last + 1):
            async with joined(server) as other:
                subscribed = await other.call("session/subscribe", sessionId=ran["sessionId"], after=after)
                await other.hear("subscription_ended")
                assert (subscribed["verdict"], subscribed["after"], subscribed["lastSeq"]) == ("ok", after, last)
                parts.append(other.received)
        return client.received, parts

    whole, parts = play(part)
    for after, replayed in enumerate(parts):
        assert replayed == [
            message
            for message in whole
            if message["params"]["seq"] > after or message["method"] == "subscription_ended"
        ]
    by_seq = itertools.groupby(whole[:-1], key=lambda message: message["params"]["seq"])
    for _, of_one in by_seq:
        *before, last = of_one
        assert [message["params"].get("more") for message in [*before, last]] == [*[True] * len(before), None]


def test_events_are_read_in_pages_and_followed_in_any_dialect(play: Play, script: Script) -> None:
    async def read(client: Client, session_id: str, dialect: str) -> list[Json]:
        events: list[Json] = []
        after = 0
        while True:
            page = await client.call("session/events", sessionId=session_id, after=after, limit=2, dialect=dialect)
            events += page["events"]
            if page["nextAfter"] == after:
                return events
            after = page["nextAfter"]

    async def part(client: Client, server: Any) -> dict[str, tuple[list[Json], list[Json]]]:
        found: dict[str, tuple[list[Json], list[Json]]] = {}
        ran = await client.call("agent/run", prompt=script([{"say": "Hello"}]), keepOpen=False, dialect="stagedoor")
        await client.hear("subscription_ended")
        found["stagedoor"] = (await read(client, ran["sessionId"], "stagedoor"), client.received[:-1])
        for dialect in ("ues", "lifecycle", "board", "notify", "chat"):
            async with joined(server) as other:
                await other.call("session/subscribe", sessionId=ran["sessionId"], dialect=dialect)
                await other.hear("subscription_ended")
                found[dialect] = (await read(client, ran["sessionId"], dialect), other.received[:-1])
        return found

    for dialect, (events, received) in play(part).items():
        assert events
        for one in received:
            one["params"].pop("more", None)
        if dialect == "notify":
            assert received == events
        else:
            assert {one["method"] for one in received} == {"session_event"}
            assert [one["params"]["event"] for one in received] == events
            assert {one["params"]["dialect"] for one in received} == {dialect}


def test_who_follows_everything_hears_of_sessions_and_questions(play: Play, script: Script) -> None:
    async def part(client: Client, server: Any) -> None:
        await client.call("session/subscribe")
        async with joined(server) as other:
            ran = await other.call("agent/run", prompt=script([{"shell": "touch made"}], [{"say": "ok"}]))
            question = await client.hear("permission_changed", lambda p: p["open"])
            assert question["permission"] == (await other.call("permission/list"))["permissions"][0]
            assert question["session_id"] == ran["sessionId"]
            await other.call("permission/answer", id=question["permission"]["id"], decision="deny", message="not now")
            closed = await client.hear("permission_changed", lambda p: not p["open"])
            assert closed["permission"]["decision"] == {"type": "deny", "message": "not now", "interrupt": False}
            await other.call("agent/stop")
            await client.hear("session_changed", lambda p: p["session"]["status"] != "active")
            await server.service.sessions.delete(ran["sessionId"])
            await client.hear("session_changed", lambda p: p.get("deleted") is True)
            assert (await client.call("permission/list", open=False))["permissions"] == []
        again = [client.call("session/subscribe") for _ in range(3)]  # each takes the place of the one before
        assert [one["status"] for one in await asyncio.gather(*again)] == ["subscribed"] * 3
        assert (await client.call("session/unsubscribe"))["status"] == "unsubscribed"
        assert (await client.call("session/unsubscribe"))["status"] == "notSubscribed"

    play(part)


def test_a_workspace_is_shown_and_watched(play: Play, script: Script) -> None:
    prompt = script([{"write_file": {"path": "a.txt", "content": "one\ntwo\n"}}], [{"say": "ok"}])

    async def part(client: Client, server: Any) -> None:
        git(server.workspace, "init", "-q", "-b", "main")
        first = await client.call("agent/run", prompt=script([{"say": "ready"}]))
        session_id = first["sessionId"]
        await client.call("session/subscribe", sessionId=session_id, watch=["files", "git"])
        (server.workspace / "seen").touch()  # nothing is missed after the answer
        await client.hear("file_changed", lambda p: p["files"] == [{"path": "seen", "change": "created"}])
        await client.hear("git_changed", lambda p: [one["path"] for one in p["status"]["files"]] == ["seen"])
        await client.hear("agent_complete")
        await client.call("session/send", sessionId=session_id, prompt=prompt)
        changed = await client.hear("file_changed", lambda p: any(one["path"] == "a.txt" for one in p["files"]))
        assert {"path": "a.txt", "change": "created"} in changed["files"]
        await client.hear("git_changed", lambda p: any(one["path"] == "a.txt" for one in p["status"]["files"]))
        status = await client.call("git/status")
        assert (status["repository"], status["branch"], status["clean"]) == (True, "main", False)
        assert {"path": "a.txt", "change": "untracked", "staged": False, "oldPath": None} in status["files"]
        diff = await client.call("git/diff", path="a.txt")
        assert "+one" in diff["diff"]
        listing = await client.call("file/list", sessionId=session_id)
        assert "a.txt" in [one["path"] for one in listing["entries"]]
        text = await client.call("file/read", path="a.txt", firstLine=2)
        assert (text["content"], text["firstLine"], text["lastLine"]) == ("two\n", 2, 2)
        with pytest.raises(Failed) as outside:
            await client.call("file/read", path="../stagedoor-home/token")
        assert outside.value.code == -32004

    play(part)


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


# ------------------------------------------------------------------------------------------------ what is refused


REFUSED: list[tuple[str, Json, int, str]] = [
    ("agent/select", {"type": "claud"}, -32007, "did you mean 'claude'?"),
    ("agent/select", {}, -32602, "type"),
    ("agent/run", {"prompt": "x", "mode": "old"}, -32602, "mode"),
    ("agent/run", {"prompt": "x", "sessionId": "y"}, -32602, "mode continue"),
    ("agent/run", {"prompt": "x", "mode": "continue"}, -32602, "send the sessionId"),
    ("agent/run", {"prompt": " "}, -32602, "the prompt is empty"),
    ("agent/run", {"prompt": "x", "cwd": "/"}, -32004, "outside the folders"),
    ("agent/run", {"prompt": "x", "options": {"modle": "y"}}, -32602, "modle"),
    ("agent/run", {"prompt": "x", "options": {"maxTurns": 0}}, -32602, "maxTurns"),
    ("agent/run", {"prompt": "nul\0"}, -32602, "NUL"),
    ("agent/stop", {}, -32602, "send the sessionId"),
    ("agent/stop", {"sessionId": "nobody"}, -32001, "session 'nobody' not found"),
    ("agent/respond", {"toolUseId": "x"}, -32001, "permission/list"),
    ("agent/status", {"sessionId": "nobody"}, -32001, "session 'nobody' not found"),
    ("session/list", {"limit": 0}, -32602, "limit"),
    ("session/list", {"limt": 1}, -32602, "did you mean 'limit'?"),
    ("session/get", {"sessionId": 1}, -32602, "sessionId"),
    ("session/get", {"sessionId": "x", "session_id": "y"}, -32602, "twice"),
    ("session/events", {"sessionId": "nobody"}, -32001, "session 'nobody' not found"),
    ("session/events", {"sessionId": "x", "dialect": "latin"}, -32602, "dialect"),
    ("session/events", {"sessionId": "x", "after": -1}, -32602, "after"),
    ("session/events", {"sessionId": "x", "after": 1e300}, -32602, "after"),
    ("session/subscribe", {"sessionId": "nobody"}, -32001, "session 'nobody' not found"),
    ("session/send", {"sessionId": "nobody", "prompt": "x"}, -32001, "session 'nobody' not found"),
    ("session/resume", {"sessionId": "nobody", "prompt": "x"}, -32001, "session 'nobody' not found"),
    ("permission/answer", {"decision": "maybe", "id": "x"}, -32602, "decision"),
    ("permission/answer", {"decision": "allow"}, -32602, "send the id of the question"),
    ("permission/answer", {"decision": "allow", "id": "x"}, -32001, "question 'x' not found"),
    ("permission/answer", {"decision": "allow", "id": "x", "message": "y"}, -32602, "only with deny"),
    ("permission/answer", {"decision": "deny", "id": "x", "updatedInput": {}}, -32602, "only with allow"),
    ("git/status", {}, -32602, "send the sessionId"),
    ("file/read", {"path": "a", "firstLine": 0}, -32602, "firstLine"),
    ("agent/discovr", {}, -32601, "did you mean 'agent/discover'?"),
    ("", {}, -32601, "unknown method"),
]


def test_what_cannot_be_done_is_refused_with_a_reason(play: Play) -> None:
    async def part(client: Client, server: Any) -> list[str]:
        wrong: list[str] = []
        for method, params, code, words in REFUSED:
            try:
                wrong.append(f"{method} {params} was done: {await client.call(method, **params)}")
            except Failed as fault:
                if fault.code != code or words not in str(fault):
                    wrong.append(f"{method} {params}: {fault.code} {fault}")
        return wrong

    assert play(part) == []


def test_limits_are_told(play: Play, script: Script, settings: Settings) -> None:
    async def part(client: Client, server: Any) -> list[int]:
        ids = [
            (await client.call("agent/run", prompt=script([{"say": "x"}]), subscribe=False))["sessionId"] for _ in "ab"
        ]
        await client.call("session/subscribe", sessionId=ids[0])
        await client.call("session/subscribe", sessionId=ids[0])  # again: that is still one
        codes: list[int] = []
        with pytest.raises(Failed, match="unsubscribe from one") as full:
            await client.call("session/subscribe", sessionId=ids[1])
        codes.append(full.value.code)
        await client.hear("agent_complete", lambda p: p["session_id"] == ids[0])
        await client.call("session/unsubscribe", sessionId=ids[0])
        await client.call("session/subscribe", sessionId=ids[1])
        await client.hear("agent_complete", lambda p: p["session_id"] == ids[1])
        return codes

    assert play(part, limits=replace(Limits(), subscriptions=1)) == [-32005]


# --------------------------------------------------------------------------------------------------- the protocol


def error(code: int, message: str, call_id: Any = None) -> Json:
    return {"jsonrpc": "2.0", "id": call_id, "error": {"code": code, "message": message}}


A_CALL: Json = {"jsonrpc": "2.0", "id": 1, "method": "session/list", "params": {}}
EMPTY = {"sessions": [], "total": 0, "offset": 0, "limit": 50, "nextCursor": ""}
NOT_A_CALL = error(-32600, "a call must be an object with jsonrpc, method, params and id")
PROTOCOL: list[tuple[str, Any]] = [
    (json.dumps(A_CALL), {"jsonrpc": "2.0", "id": 1, "result": EMPTY}),
    (json.dumps({**A_CALL, "params": []}), {"jsonrpc": "2.0", "id": 1, "result": EMPTY}),
    (json.dumps({**A_CALL, "params": None}), {"jsonrpc": "2.0", "id": 1, "result": EMPTY}),
    (json.dumps({**A_CALL, "id": "a\u2028b"}), {"jsonrpc": "2.0", "id": "a\u2028b", "result": EMPTY}),
    (json.dumps({**A_CALL, "id": 10**30}), {"jsonrpc": "2.0", "id": 10**30, "result": EMPTY}),
    (json.dumps({**A_CALL, "id": -1.5}), {"jsonrpc": "2.0", "id": -1.5, "result": EMPTY}),
    (json.dumps({**A_CALL, "id": None}), {"jsonrpc": "2.0", "id": None, "result": EMPTY}),
    (json.dumps({**A_CALL, "id": [1]}), error(-32600, "the id must be a string, a number or null")),
    (json.dumps({**A_CALL, "id": True}), error(-32600, "the id must be a string, a number or null")),
    (json.dumps({**A_CALL, "method": 1}), error(-32600, "the method must be a string", 1)),
    (json.dumps({**A_CALL, "jsonrpc": "1.0"}),
     error(-32600, 'this is a JSON-RPC 2.0 server: send "jsonrpc": "2.0"', 1)),
    (json.dumps({"jsonrpc": "2.0", "id": 7, "result": 1}),
     error(-32600, "this server sends no calls to its clients, so there is nothing to answer", 7)),
    ("[]", error(-32600, "the batch is empty; put calls into it")),
    ("1", NOT_A_CALL),
    ("[1, 2]", [NOT_A_CALL, NOT_A_CALL]),
    (json.dumps([{**A_CALL, "id": number} for number in range(101)]),
     error(-32600, "the batch has 101 calls; the limit is 100")),
    (json.dumps([{**A_CALL, "id": "x"}, {"jsonrpc": "2.0", "method": "session/list"}, 5]),
     [{"jsonrpc": "2.0", "id": "x", "result": EMPTY}, NOT_A_CALL]),
    ('{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"search":"\\ud83d"}}',
     {"jsonrpc": "2.0", "id": 1, "result": EMPTY}),
]  # fmt: skip


def test_the_protocol_to_the_letter(server: Any) -> None:
    def post(message: str) -> tuple[int, Any]:
        response = server.http.post("/rpc", content=message, headers={"content-type": "application/json"})
        return response.status_code, response.json()

    assert [(message, post(message)) for message, _ in PROTOCOL] == [
        (message, (200, answer)) for message, answer in PROTOCOL
    ]


def test_over_post_notifications_are_not_answered_and_choices_stay(server: Any) -> None:
    def post(body: Any) -> Any:
        return server.http.post("/rpc", json=body)

    quiet = {"jsonrpc": "2.0", "method": "agent/select", "params": {"type": "codex"}}
    assert (post(quiet).status_code, post(quiet).content) == (204, b"")
    assert post([quiet, {"jsonrpc": "2.0", "method": "no/such"}]).status_code == 204
    assert post({"jsonrpc": "2.0", "id": 1, "method": "agent/status"}).json()["result"]["type"] == "codex"
    refused = post({"jsonrpc": "2.0", "id": 1, "method": "session/subscribe"}).json()["error"]
    assert (refused["code"], "WebSocket" in refused["message"]) == (-32602, True)
    assert server.http.post("/rpc", content="{}", headers={"content-type": "text/plain"}).status_code == 415
    assert server.http.get("/rpc").status_code == 405


def test_a_batch_over_websocket_and_answers_out_of_order(play: Play, script: Script) -> None:
    async def part(client: Client, server: Any) -> None:
        async with connect(f"{server.ws_url}/ws", additional_headers=server.headers, proxy=None) as socket:
            prompt = script([{"say": "x"}])
            batch = [
                {"jsonrpc": "2.0", "method": "agent/select", "params": {"type": "understudy"}},
                {"jsonrpc": "2.0", "id": 1, "method": "agent/run", "params": {"prompt": prompt, "keepOpen": False}},
                {"jsonrpc": "2.0", "id": 2, "method": "agent/status", "params": {}},
            ]
            await socket.send(json.dumps(batch))
            first, second = json.loads(await socket.recv())
            assert (first["id"], first["result"]["status"]) == (1, "started")
            assert (second["id"], second["result"]["sessionId"]) == (2, first["result"]["sessionId"])
            while json.loads(await socket.recv())["method"] != "subscription_ended":
                pass
            for junk in (b"\xff\xfe", b"", "{", '{"id":'):
                await socket.send(junk)
                assert json.loads(await socket.recv())["error"]["code"] == -32700
            await socket.send(b'{"jsonrpc":"2.0","id":9,"method":"session/list"}')  # binary is understood too
            assert json.loads(await socket.recv())["result"]["total"] == 1

    play(part)


def test_a_client_that_reads_nothing_hinders_nobody_and_loses_nothing(play: Play, script: Script) -> None:
    loud = {"shell": "head -c 200000 /dev/zero | tr '\\0' x"}
    prompt = script(*[[loud] for _ in range(50)], [{"say": "end"}])

    async def part(client: Client, server: Any) -> tuple[list[Json], list[Json]]:
        async with connect(
            f"{server.ws_url}/ws", additional_headers=server.headers, proxy=None, max_queue=1, ping_interval=None
        ) as deaf:
            ran = await client.call("agent/run", prompt=prompt, keepOpen=False, options={"tier": "autonomous"})
            params = {"sessionId": ran["sessionId"]}
            await deaf.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "session/subscribe", "params": params}))
            await client.hear("subscription_ended")
            assert (await client.call("session/list"))["total"] == 1
            late: list[Json] = [json.loads(await deaf.recv())]
            while late[-1].get("method") != "subscription_ended":
                late.append(json.loads(await deaf.recv()))
            return client.received, late[1:]

    received, late = play(part)
    assert late == received


# -------------------------------------------------------------------------------------------------- with a real CLI


@pytest.mark.live
@pytest.mark.skipif(find_cli("claude") is None, reason="Claude Code is not installed")
def test_the_seeds_examples_with_the_real_claude_code(play: Play, settings: Settings, tmp_path: Path) -> None:
    """Its old notifications come beside the new ones; the rest is as with any agent."""
    workspace = Path(settings.roots[0])
    with ScriptedModel([shell("touch made"), say("Done."), say("Again.")]) as model:
        env = model.environment("claude", cwd=workspace, home=tmp_path / "claude").env
        how = AgentSettings(command=str(find_cli("claude")), env=env)

        async def part(client: Client, server: Any) -> tuple[Json, Json, Json]:
            discovered = await client.call("agent/discover")
            await client.call("agent/select", type="claude")
            ran = await client.call("agent/run", prompt="Fix the login bug", mode="new")
            waiting = await client.hear("claude_waiting")
            question = await client.hear("agent_permission")
            assert waiting["payload"]["tool_use_id"] == question["payload"]["tool_id"]
            await client.call("agent/respond", toolUseId=waiting["payload"]["tool_use_id"], response="yes")
            await client.hear("agent_complete", lambda p: p["payload"]["turn"] == 1)
            assert (server.workspace / "made").exists()
            again = await client.call("agent/run", prompt="And again", mode="continue")
            assert (again["status"], again["sessionId"]) == ("queued", ran["sessionId"])
            await client.hear("agent_complete", lambda p: p["payload"]["turn"] == 2)
            await client.call("agent/stop")
            await client.hear("subscription_ended")
            [session] = (await client.call("session/list"))["sessions"]
            return discovered, session, {one["method"]: one for one in client.received}

        discovered, session, received = play(part, agents={**settings.agents, "claude": how})
        model.assert_consumed()
    [claude] = [one for one in discovered["available"] if one["type"] == "claude"]
    assert claude["name"] == "Claude Code"
    assert {"Read", "Write", "Edit", "Bash", "Glob", "Grep", "WebFetch", "WebSearch"} < set(claude["tools"])
    assert set(claude["capabilities"]) == {"streaming", "sessionResume", "thinking", "mcp", "sandbox"}
    assert (session["agent_type"], session["status"]) == ("claude", "completed")
    assert session["tokens_used"] > 0
    assert {"agent_message", "agent_status", "agent_permission", "claude_log", "claude_status"} < set(received)


def test_tools_that_are_approved_by_themselves_wait_for_nobody(play: Play, script: Script) -> None:
    async def part(client: Client, server: Any) -> tuple[str, str]:
        await client.call("agent/configure", autoApprove=["shell"])
        await client.call("agent/run", prompt=script([{"shell": "touch made"}], [{"say": "ok"}]), keepOpen=False)
        answered = await client.hear("agent_status", lambda p: "permission" in p["payload"])
        await client.hear("subscription_ended")
        assert (server.workspace / "made").exists()
        return answered["payload"]["permission"]["decision"], answered["payload"]["permission"]["by"]

    assert play(part) == ("allow", "policy")
