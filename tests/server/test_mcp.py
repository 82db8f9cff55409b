"""The MCP door: a model that starts agents, with the rights of its token and of the session it runs in."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from websockets.asyncio.client import connect

from stagedoor.errors import NotAllowed
from stagedoor.mcp import bridge
from stagedoor.server.mcp import tools as door_tools
from stagedoor.service.config.settings import Limits, Settings
from stagedoor.service.opening import narrowed
from stagedoor.service.views import Scope, SessionSpec, SessionView

from .conftest import BOUND, Serve, Server

Script = Callable[..., str]


class Model:
    """A calling model: each tool is a POST, as any client of the protocol makes it."""

    def __init__(self, server: Server, token: str = "", **headers: str) -> None:
        self._client = server.client(headers={"Authorization": f"Bearer {token or server.token}", **headers})

    async def raw(self, method: str, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return (await self._client.post("/mcp", json=message)).json()

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """The result, or the words of the error."""
        reply = await self.raw("tools/call", name=tool, arguments=arguments)
        result = reply["result"]
        text = result["content"][0]["text"]
        return f"error: {text}" if result.get("isError") else json.loads(text)

    async def finished(self, session: str = "") -> Any:
        while not (view := await self.call("wait", session=session, seconds=20)).get("turn_over"):
            pass
        return view

    async def __aenter__(self) -> Model:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()


def run(scene: Callable[[], Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await scene()

    asyncio.run(bounded())


async def device(server: Server, scope: Scope, name: str = "model") -> str:
    _, token = await server.app.state.devices.add(f"device-{name}-{scope}", name, scope)
    return str(token)


def test_from_start_to_cancel(serve: Serve, script: Script) -> None:
    async def scene() -> None:
        async with serve() as server, Model(server) as model:
            subprocess.run(["git", "init", "-q", str(server.workspace)], check=True)
            assert "understudy" in [one["agent"] for one in await model.call("agents")]
            prompt = script([{"write_file": {"path": "made.txt", "content": "here\n"}}], [{"say": "It is made."}])
            started = await model.call("start", prompt=prompt, agent="understudy", tier="autonomous")
            assert (started["agent"], started.get("turn_over")) == ("understudy", None)
            view = await model.finished()
            assert (view["session"], view["result"], view["state"]) == (started["session"], "It is made.", "idle")
            events = await model.call("events", session=started["session"])
            assert {"tool_use", "file_change", "text"} <= {event["type"] for event in events["events"]}
            assert events["next"] == events["last"]
            assert "+here" in (await model.call("diff"))["diff"]
            again = await model.call("send", prompt=script([{"say": "Again."}]))
            assert again["session"] == started["session"]
            assert (await model.finished())["result"] == "Again."
            assert [one["session"] for one in await model.call("list")] == [started["session"]]
            listed = (await model.raw("resources/list"))["result"]["resources"]
            assert [one["uri"] for one in listed] == [f"stagedoor://sessions/{started['session']}"]
            read = (await model.raw("resources/read", uri=listed[0]["uri"]))["result"]["contents"][0]
            assert json.loads(read["text"])["result"] == "Again."
            assert (await model.raw("resources/read", uri="stagedoor://sessions/none"))["error"]["code"] == -32002
            assert (await model.call("cancel", session=started["session"]))["state"] in ("done", "cancelled")

    run(scene)


def test_a_calling_model_answers_no_permission_question(serve: Serve, script: Script) -> None:
    """It is told that a person must; no tool decides, and a token for this door opens no other one."""

    async def scene() -> None:
        async with serve() as server:
            token = await device(server, "call")
            async with Model(server, token) as model:
                prompt = script([{"shell": "touch made"}], [{"say": "done"}])
                started = await model.call("start", prompt=prompt, agent="understudy")
                while not (view := await model.call("wait", seconds=1)).get("waits_for"):
                    assert not view.get("turn_over"), view
                assert view["waits_for"] == door_tools.PERSON
                names = [tool["name"] for tool in (await model.raw("tools/list"))["result"]["tools"]]
                assert sorted(names) == ["agents", "cancel", "diff", "events", "list", "send", "start", "wait"]
                (question,) = await server.service.questions.list()
                for name in [*names, "answer", "approve", "permissions", "resolve"]:
                    for words in ({"session": question.id}, {"request_id": question.id, "decision": "allow"}):
                        arguments = {**words, "prompt": "allow"} if name in ("start", "send") else words
                        refused = await model.raw("tools/call", name=name, arguments=arguments)
                        assert "error" in refused or refused["result"]["isError"], (name, arguments)
                for method in ("permissions/answer", "session/answer", "elicitation/create", "sampling/createMessage"):
                    assert "error" in await model.raw(method, id=question.id, decision="allow")
                for uri in (f"stagedoor://permissions/{question.id}", f"stagedoor://sessions/{question.id}"):
                    assert "error" in await model.raw("resources/read", uri=uri)
                assert [one.id for one in await server.service.questions.list()] == [question.id]
                headers = {"Authorization": f"Bearer {token}"}
                async with connect(f"{server.ws_url}/acp", additional_headers=headers) as socket:
                    for method, params in (("initialize", {"protocolVersion": 1}), ("session/list", {})):
                        await socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
                        assert "needs the scope" in json.loads(await socket.recv())["error"]["message"]
                async with server.client(headers={"Authorization": f"Bearer {token}"}) as client:
                    answer = await client.post(f"/api/permissions/{question.id}", json={"decision": "allow"})
                    assert answer.status_code == 403
                    assert (await client.get("/api/sessions")).status_code == 403
                async with server.client() as person:
                    answer = await person.post(f"/api/permissions/{question.id}", json={"decision": "allow"})
                    assert answer.status_code == 200
                assert (await model.finished(started["session"]))["result"] == "done"

    run(scene)


REFUSED: tuple[tuple[Scope, dict[str, str], str, dict[str, Any], Any], ...] = (
    ("watch", {}, "start", {"prompt": "x"}, "this needs the scope 'run'"),
    ("watch", {}, "cancel", {"session": "x"}, "this needs the scope 'run'"),
    ("watch", {}, "list", {}, []),
    ("answer", {}, "send", {"prompt": "x"}, "this needs the scope 'run'"),
    ("call", {}, "start", {"prompt": "x", "tier": "autonomous"}, "tier 'autonomous' is more than you may ask for"),
    ("call", {"Stagedoor-Tier": "autonomous"}, "start", {"prompt": "x", "tier": "autonomous"}, "('supervised')"),
    ("call", {"Stagedoor-Tier": "dry-run"}, "start", {"prompt": "x", "tier": "supervised"}, "('dry-run')"),
    ("call", {}, "wait", {"session": "somebody-elses"}, "session 'somebody-elses' not found"),
    ("call", {}, "wait", {}, "you have started no session yet"),
    ("admin", {"Stagedoor-Tier": "supervised"}, "start", {"prompt": "x", "tier": "autonomous"}, "is more than"),
    ("admin", {"Stagedoor-Session": "none"}, "start", {"prompt": "x"}, "is not open on this server"),
    ("admin", {}, "start", {"prompt": ""}, "wrong arguments for start"),
    ("admin", {}, "start", {"prompt": "x", "agent": "nobody"}, "nobody"),
    ("admin", {}, "start", {"prompt": "x", "cwd": "/"}, "/"),
    ("admin", {}, "wait", {"seconds": 1e9}, "wrong arguments for wait"),
)


def test_what_is_refused(serve: Serve) -> None:
    async def scene() -> None:
        async with serve() as server:
            scopes = dict.fromkeys(scope for scope, *_ in REFUSED)
            tokens = {scope: await device(server, scope) for scope in scopes}
            for scope, headers, tool, arguments, outcome in REFUSED:
                async with Model(server, tokens[scope], **headers) as model:
                    result = await model.call(tool, **arguments)
                    assert (outcome in result) if isinstance(outcome, str) else (result == outcome), (tool, arguments)
            assert (await server.service.sessions.page(door_tools.Query()))[1] == 0

    run(scene)


def test_a_nested_session_gets_no_more_than_the_one_that_starts_it(
    serve: Serve, settings: Settings, script: Script
) -> None:
    async def scene() -> None:
        inner = Path(settings.roots[0]) / "inner"
        inner.mkdir()
        limits = Limits(depth=3, children=2)
        async with serve(limits=limits) as server:
            spec = SessionSpec(
                prompt=script([{"say": "up"}]), agent="understudy", cwd=str(inner), tier="supervised", keep_open=True,
                disallowed_tools=("web_fetch",),
            )  # fmt: skip
            top = await server.service.sessions.create(spec)
            async with Model(server, **{"Stagedoor-Session": top.id}) as model:
                hello = script([{"say": "hello"}])
                for refused, words in (
                    ({"tier": "autonomous"}, "may do more than the one that starts it"),
                    ({"cwd": settings.roots[0]}, "is outside"),
                ):
                    assert words in await model.call("start", prompt=hello, agent="understudy", **refused)
                first = await model.call("start", prompt=hello, agent="understudy")
                second = await model.call("start", prompt=hello, agent="understudy", tier="dry-run")
                assert (first["tier"], second["tier"], first["cwd"]) == ("supervised", "dry-run", str(inner))
                assert "which is the limit" in await model.call("start", prompt=hello, agent="understudy")
                child = await server.service.sessions.get(first["session"])
                assert (child.parent, child.spec and child.spec.disallowed_tools) == (top.id, ("web_fetch",))
                async with server.client() as client:
                    shown = (await client.get(f"/api/sessions/{child.id}")).json()
                    assert shown["parent"] == top.id
                assert f"session {top.id!r} not found" in await model.call("send", prompt="x", session=top.id)
                assert {one["session"] for one in await model.call("list")} == {first["session"], second["session"]}
            async with Model(server, **{"Stagedoor-Session": first["session"]}) as model:
                third = await model.call("start", prompt=hello, agent="understudy")
            async with Model(server, **{"Stagedoor-Session": third["session"]}) as model:
                assert "nested 3 deep" in await model.call("start", prompt=hello, agent="understudy")

    run(scene)


def test_a_header_gives_a_token_no_rights(serve: Serve, script: Script) -> None:
    """Whoever knows the id of a session can say that they run there: a token for this door gains nothing by it."""

    async def scene() -> None:
        async with serve(tier="supervised") as server:
            hello = script([{"say": "hello"}])
            spec = SessionSpec(prompt=hello, agent="understudy", keep_open=True, only_refusing=True, tier="autonomous")
            free = await server.service.sessions.create(spec)
            lax = await server.service.sessions.create(replace(spec, tier="supervised", approval="autoAll"))
            async with Model(server, **{"Stagedoor-Session": free.id}) as owner:
                theirs = (await owner.call("start", prompt=hello, agent="understudy"))["session"]
            token = await device(server, "call")
            for top, approval in ((free, None), (lax, "autoEdit")):
                headers = {"Stagedoor-Session": top.id, "Stagedoor-Tier": "autonomous"}
                async with Model(server, token, **headers) as model:
                    assert await model.call("list") == []
                    for tool in ("wait", "events", "diff", "cancel"):
                        assert "not found" in await model.call(tool, session=theirs)
                    assert "not found" in await model.call("send", session=theirs, prompt="x")
                    refused = await model.call("start", prompt=hello, agent="understudy", tier="autonomous")
                    assert "is more than you may ask for ('supervised')" in refused
                    mine = await model.call("start", prompt=hello, agent="understudy")
                    assert [one["session"] for one in await model.call("list")] == [mine["session"]]
                child = await server.service.sessions.get(mine["session"])
                assert (child.parent, child.tier, child.approval) == (top.id, "supervised", approval)
                assert child.spec is not None
                assert child.spec.only_refusing  # as the session above: no rule of the server allows it anything

    run(scene)


def test_the_tier_of_the_caller_bounds_a_session_inside_a_session(serve: Serve, script: Script) -> None:
    async def scene() -> None:
        async with serve() as server:
            hello = script([{"say": "hello"}])
            spec = SessionSpec(prompt=hello, agent="understudy", keep_open=True, tier="autonomous")
            top = await server.service.sessions.create(spec)
            async with Model(server, **{"Stagedoor-Session": top.id, "Stagedoor-Tier": "dry-run"}) as model:
                refused = await model.call("start", prompt=hello, agent="understudy", tier="supervised")
                assert "is more than you may ask for ('dry-run')" in refused
                assert (await model.call("start", prompt=hello, agent="understudy"))["tier"] == "dry-run"
            async with Model(server, **{"Stagedoor-Session": top.id}) as model:
                assert (await model.call("start", prompt=hello, agent="understudy"))["tier"] == "autonomous"

    run(scene)


def test_the_folders_of_a_caller_bound_its_sessions(serve: Serve, settings: Settings, script: Script) -> None:
    async def scene() -> None:
        inner = Path(settings.roots[0]) / "in ner:1"
        inner.mkdir()
        (inner / "out").symlink_to(settings.roots[0])
        async with serve() as server:
            hello = script([{"say": "hello"}])
            async with Model(server, **{"Stagedoor-Roots": quote(str(inner))}) as model:
                assert (await model.call("start", prompt=hello, agent="understudy"))["cwd"] == str(inner)
                for cwd in (settings.roots[0], "..", str(inner / "out"), "/"):
                    assert "is outside" in await model.call("start", prompt=hello, agent="understudy", cwd=cwd)
            async with Model(server, **{"Stagedoor-Roots": "/"}) as model:  # no more than the server's own
                assert "error" in await model.call("start", prompt=hello, agent="understudy", cwd="/")
            async with Model(server, **{"Stagedoor-Roots": "here"}) as model:
                assert (await model.raw("tools/list"))["status"] == 400

    run(scene)


def test_a_session_that_is_narrowed_narrows_those_it_has_started(serve: Serve, script: Script) -> None:
    async def scene() -> None:
        async with serve() as server:
            sessions = server.service.sessions
            hello = script([{"say": "hello"}])
            spec = SessionSpec(prompt=hello, agent="understudy", keep_open=True, tier="autonomous")
            top = await sessions.create(spec)
            async with Model(server, **{"Stagedoor-Session": top.id}) as model:
                await model.call("start", prompt=hello, agent="understudy", tier="dry-run")
                planner = await model.finished()
                await model.call("start", prompt=hello, agent="understudy")
                child = await model.finished()
            async with Model(server, **{"Stagedoor-Session": child["session"]}) as model:
                await model.call("start", prompt=hello, agent="understudy")
                grandchild = await model.finished()
            async with server.client() as client:
                change = {"tier": "supervised", "approval": "ask"}
                assert (await client.patch(f"/api/sessions/{top.id}", json=change)).status_code == 200
            narrowed = [await sessions.get(one["session"]) for one in (child, grandchild, planner)]
            assert [(view.tier, view.approval) for view in narrowed] == [
                ("supervised", "ask"), ("supervised", "ask"), ("dry-run", None),
            ]  # fmt: skip
            assert not any(view.ended for view in narrowed)

    run(scene)


def test_those_that_a_session_starts_share_its_limits() -> None:
    def view(name: str, budget: float | None = None, cost: float | None = None, *, ended: bool = False) -> SessionView:
        spec = SessionSpec(prompt="", max_budget_usd=budget, max_turns=5, timeout=60.0)
        return SessionView(id=name, agent="x", cwd="/", spec=spec, cost_usd=cost, activity="ended" if ended else "idle")

    above = view("top", 10.0, 2.0)
    for others, asked, outcome in (
        ([], None, 4.0),
        ([], 1.0, 1.0),
        ([view("a", 4.0, 3.0)], None, 2.0),
        ([view("a", 4.0, 1.0, ended=True)], 20.0, 3.5),
        ([view("a", 4.0, ended=True)], None, 2.0),  # what it cost is not known
        ([view("a")], None, "is spent, or given"),
        ([view("a", 4.0), view("b", 4.0)], 0.5, "is spent, or given"),
    ):
        spec = SessionSpec(prompt="", max_budget_usd=asked, max_turns=9, timeout=1.0)
        if isinstance(outcome, str):
            with pytest.raises(NotAllowed, match=outcome):
                narrowed(spec, above, others)
        else:
            given = narrowed(spec, above, others)
            assert (given.max_budget_usd, given.max_turns, given.timeout) == (outcome, 5, 1.0), others
    assert narrowed(SessionSpec(prompt="", max_budget_usd=3.0), view("free")).max_budget_usd == 3.0


def test_many_calls_at_once_start_no_more_than_one_by_one(serve: Serve, script: Script) -> None:
    async def scene() -> None:
        async with serve(limits=Limits(children=2)) as server, Model(server, await device(server, "call")) as model:
            hello = script([{"say": "hi"}])
            started = await asyncio.gather(
                *(model.call("start", prompt=hello, agent="understudy") for _ in range(6)),
            )
            assert sum("session" in one for one in started if isinstance(one, dict)) == 2
            assert sum("which is the limit" in one for one in started if isinstance(one, str)) == 4

    run(scene)


def test_one_caller_has_only_so_many_sessions(serve: Serve, script: Script) -> None:
    async def scene() -> None:
        async with serve(limits=Limits(children=1)) as server:
            token = await device(server, "call")
            async with Model(server, token) as model, Model(server, await device(server, "call", "other")) as other:
                first = await model.call("start", prompt=script([{"say": "hi"}]), agent="understudy")
                assert "which is the limit" in await model.call("start", prompt="x", agent="understudy")
                mine = await other.call("start", prompt=script([{"say": "hi"}]), agent="understudy")
                assert [one["session"] for one in await other.call("list")] == [mine["session"]]
                await model.call("cancel", session=first["session"])
                assert "session" in await model.call("start", prompt=script([{"say": "hi"}]), agent="understudy")

    run(scene)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_the_official_client_over_http(serve: Serve, script: Script, mode: str) -> None:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    from mcp import Client

    async def scene() -> None:
        async with (
            serve() as server,
            httpx2.AsyncClient(headers=server.headers, timeout=BOUND) as http,
            Client(streamable_http_client(f"{server.url}/mcp", http_client=http), mode=mode) as client,
        ):
            assert len((await client.list_tools()).tools) == 8
            started = await client.call_tool("start", {"prompt": script([{"say": "hi"}]), "agent": "understudy"})
            assert not started.is_error
            assert len((await client.list_resources()).resources) == 1
            assert len((await client.list_resource_templates()).resource_templates) == 1

    run(scene)


def test_the_official_client_on_standard_input(tmp_path: Path, script: Script) -> None:
    """``stagedoor mcp`` as an agent starts it, with sessions of its own."""
    from mcp import Client, StdioServerParameters

    workspace = tmp_path / "workspace"
    workspace.mkdir()
    env = {**os.environ, "STAGEDOOR_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "stagedoor.cli", "mcp"], env=env, cwd=str(workspace)
    )

    async def scene() -> None:
        async with Client(parameters) as client:
            prompt = script([{"say": "hi from below"}])
            await client.call_tool("start", {"prompt": prompt, "agent": "understudy", "cwd": str(workspace)})
            while True:
                result = await client.call_tool("wait", {"seconds": 20})
                view = json.loads(result.content[0].text)  # type: ignore[union-attr]
                if view.get("turn_over"):
                    break
            assert view["result"] == "hi from below"

    run(scene)


def test_a_call_is_answered_though_the_input_ends_behind_it(serve: Serve) -> None:
    """As with ``echo '…' | stagedoor mcp``."""

    async def scene() -> None:
        async with serve() as server:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", bridge.__file__, f"{server.url}/mcp", stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, env={bridge.SECRET: f"Bearer {server.token}"},
            )  # fmt: skip
            out, _ = await process.communicate(b'{"jsonrpc":"2.0","id":7,"method":"tools/list"}\n')
            assert (process.returncode, json.loads(out)["id"]) == (0, 7)

    run(scene)
