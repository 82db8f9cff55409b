"""Files and terminals of the editor: used by agents that leave those to their client, once our rules allow it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from msgspec.structs import replace

from stagedoor import AcpAgent, catalog
from stagedoor.service.config.settings import AgentSettings, Settings

from .conftest import BOUND
from .test_acp_door import Wire, block, editor

EXAMPLE = Path(__file__).parents[1] / "agents" / "acp" / "example_agent.py"
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
HERE = "?same_machine=true&agent=example"
EVERYTHING: dict[str, Any] = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}


@pytest.fixture
def settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(catalog, "_configured", None)  # put back at the end
    modes: Any = {"dry-run": "ask", "supervised": "ask", "autonomous": "code"}
    example = AcpAgent(command=[sys.executable, str(EXAMPLE), "--images"], modes=modes, name="example")
    return replace(settings, agents={**settings.agents, "example": AgentSettings(acp=example)}, tier="supervised")


class Desk:
    """What an editor does: it has files of its own, and shows commands without running them."""

    def __init__(self, wire: Wire, answer: str = "allow_once") -> None:
        self.wire = wire
        self.files: dict[str, str] = {}
        self.calls: list[str] = []
        self.questions: list[str] = []
        self.commands: list[list[str]] = []
        self._answer = answer

    async def prompt(self, session: str, text: str) -> str:
        """The agent's words in this turn."""
        before = len(self.wire.text())
        number = await self.wire.start("session/prompt", sessionId=session, prompt=block(text))
        while True:
            message = await self.wire.until(lambda one: "id" in one)
            if "method" not in message:
                assert (message["id"], message["result"]["stopReason"]) == (number, "end_turn")
                return self.wire.text()[before:]
            await self.wire.send({"id": message["id"], **self._reply(message["method"], message["params"])})

    def _reply(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(method)
        match method:
            case "session/request_permission":
                self.questions.append(params["toolCall"]["title"])
                chosen = next(one for one in params["options"] if one["kind"] == self._answer)
                return {"result": {"outcome": {"outcome": "selected", "optionId": chosen["optionId"]}}}
            case "fs/read_text_file":
                if params["path"] not in self.files:
                    return {"error": {"code": -32002, "message": "no such buffer"}}
                return {"result": {"content": self.files[params["path"]]}}
            case "fs/write_text_file":
                if params["path"].endswith("locked.txt"):
                    return {"error": {"code": -32603, "message": "the buffer is locked"}}
                self.files[params["path"]] = params["content"]
                return {"result": None}
            case "terminal/create":
                self.commands.append([params["command"], *params["args"]])
                return {"result": {"terminalId": "editor-7"}}
            case _:
                assert params["terminalId"] == "editor-7"
                results = {
                    "terminal/wait_for_exit": {"exitCode": 3, "signal": None},
                    "terminal/output": {"output": "in the editor", "truncated": False, "exitStatus": {"exitCode": 3}},
                }
                return {"result": results.get(method, {})}


def run(scene: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await scene()

    asyncio.run(bounded())


def test_what_the_rules_allow_is_done_in_the_editor(serve: Any, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serve() as server, editor(server, query=HERE, **EVERYTHING) as wire:
            desk = Desk(wire)
            place, other = server.workspace / "a.txt", server.workspace / "b.txt"
            place.write_text("on disk")
            other.write_text("closed")
            desk.files[str(place)] = "not saved"
            session = (await wire.call("session/new", cwd=str(server.workspace), mcpServers=[]))["sessionId"]
            assert await desk.prompt(session, f"read {place}") == "not saved"
            assert (
                await desk.prompt(session, f"read {other}") == "closed"
            )  # the editor cannot; it is there all the same
            assert await desk.prompt(session, f"write {place}") == "written"
            assert (desk.files[str(place)], place.read_text()) == ("written\n", "on disk")
            assert (await desk.prompt(session, f"write {server.workspace}/locked.txt")).startswith("error")
            assert not (server.workspace / "locked.txt").exists()
            assert desk.questions == []
            assert await desk.prompt(session, "terminal touch made") == "3 in the editor"
            assert (desk.questions, desk.commands) == (
                ["/bin/sh -c 'touch made'"], [["/bin/sh", "-c", "touch made"]],
            )  # fmt: skip
            assert not (server.workspace / "made").exists()
            assert desk.calls[-1] == "terminal/release"
            events = [record.type for record in await server.service.events.read(session, 0, 500)]
            assert events.count("tool_result") == 5  # the log has them as it has those that we do

    run(scene)


def test_an_image_of_the_agent_is_shown_and_loaded_again(serve: Any) -> None:
    """In an answer, and in what a call gave; the log names it for those that read words."""

    def shown(wire: Any) -> list[Any]:
        answers = [update["content"] for update in wire.updates("agent_message_chunk")]
        calls = [update.get("content") or [] for update in wire.updates("tool_call_update")]
        given = [one["content"] for content in calls for one in content if one["type"] == "content"]
        return [one for one in (*answers, *given) if one["type"] == "image"]

    tools = str(Path(__file__).parents[1] / "understudy" / "tools_server.py")
    drawing = {"name": "sums", "command": sys.executable, "args": [tools], "env": []}
    calling = json.dumps({"script": [[{"mcp": {"server": "sums", "tool": "draw", "arguments": {}}}], [{"say": "-"}]]})

    async def scene() -> None:
        async with serve() as server:
            cwd = str(server.workspace)
            for query, servers, prompt, content in (
                (HERE, [], "updates", "AA=="),
                ("?agent=understudy", [drawing], calling, PICTURE),
            ):
                async with editor(server, query=query) as wire:
                    opened = await wire.call("session/new", cwd=cwd, mcpServers=servers)
                    session = opened["sessionId"]
                    await wire.call("session/set_mode", sessionId=session, modeId="autonomous")
                    await wire.call("session/prompt", sessionId=session, prompt=block(prompt))
                    expected = [{"type": "image", "mimeType": "image/png", "data": content}]
                    assert shown(wire) == expected
                async with editor(server, query=query) as again:
                    await again.call("session/load", sessionId=session, cwd=cwd, mcpServers=[])
                    assert shown(again) == expected
                words = [record.body for record in await server.service.events.read(session, 0, 500)]
                assert any(b"an image: image/png, " in line for line in words)

    run(scene)


def test_a_picture_that_somebody_sent_is_shown_when_the_session_is_loaded(serve: Any) -> None:
    picture = {"type": "image", "mimeType": "image/png", "data": PICTURE}

    async def scene() -> None:
        async with serve() as server:
            cwd = str(server.workspace)
            async with editor(server, query=HERE) as wire:
                session = (await wire.call("session/new", cwd=cwd, mcpServers=[]))["sessionId"]
                await wire.call("session/prompt", sessionId=session, prompt=[*block("say hello"), picture])
            for is_there in (True, False):
                async with editor(server, query=HERE) as again:
                    await again.call("session/load", sessionId=session, cwd=cwd, mcpServers=[])
                    sent = [update["content"] for update in again.updates("user_message_chunk")]
                    assert ([one for one in sent if one["type"] == "image"], again.text()) == (
                        [picture] if is_there else [],
                        "hello",
                    )
                rmtree(server.service.home / "attachments" / session, ignore_errors=True)

    run(scene)


def test_what_the_rules_forbid_never_reaches_the_editor(serve: Any, tmp_path: Path) -> None:
    async def scene() -> None:
        async with serve() as server, editor(server, query=HERE, **EVERYTHING) as wire:
            desk = Desk(wire, answer="reject_once")
            session = (await wire.call("session/new", cwd=str(server.workspace), mcpServers=[]))["sessionId"]
            for prompt in (f"write {tmp_path}/outside.txt", f"write {server.workspace}/.git/hooks/x", "shell true"):
                await desk.prompt(session, prompt)
            await wire.call("session/close", sessionId=session)
            session = (await wire.call("session/new", cwd=str(server.workspace), mcpServers=[]))["sessionId"]
            await wire.call("session/set_mode", sessionId=session, modeId="dry-run")
            assert (await desk.prompt(session, f"write {server.workspace}/a.txt")).startswith("error")
            assert set(desk.calls) == {"session/request_permission"}
            assert desk.files == {}
            assert desk.commands == []

    run(scene)


@pytest.mark.parametrize(
    ("query", "offered"), [(HERE, {}), ("?agent=example", EVERYTHING)], ids=["lacks it", "elsewhere"]
)
def test_we_do_what_the_editor_cannot(query: str, offered: dict[str, Any], serve: Any) -> None:
    """It lacks the capability, or it is on another machine, whose files are not these."""

    async def scene() -> None:
        async with serve() as server, editor(server, query=query, **offered) as wire:
            desk = Desk(wire)
            session = (await wire.call("session/new", cwd=str(server.workspace), mcpServers=[]))["sessionId"]
            assert await desk.prompt(session, f"write {server.workspace}/a.txt") == "written"
            assert (server.workspace / "a.txt").read_text() == "written\n"
            assert await desk.prompt(session, "terminal echo out; exit 4") == "4 out\n"
            assert set(desk.calls) == {"session/request_permission"}

    run(scene)


def test_an_editor_that_leaves_leaves_nobody_waiting(serve: Any) -> None:
    async def scene() -> None:
        async with serve() as server:
            async with editor(server, query=HERE, **EVERYTHING) as wire:
                session = (await wire.call("session/new", cwd=str(server.workspace), mcpServers=[]))["sessionId"]
                await wire.call("session/set_mode", sessionId=session, modeId="autonomous")
                await wire.start("session/prompt", sessionId=session, prompt=block("shell sleep 98073"))
                created = await wire.until(lambda one: one.get("method") == "terminal/create")
                await wire.send({"id": created["id"], "result": {"terminalId": "editor-7"}})
                await wire.until(lambda one: one.get("method") == "terminal/wait_for_exit")
            bell = server.service.events.bell(session)
            while (await server.service.sessions.get(session)).activity != "idle":
                await bell.rung()
            bell.close()
            async with editor(server, query=HERE) as wire:  # and another one goes on with it
                await wire.call("session/load", sessionId=session, cwd=str(server.workspace), mcpServers=[])
                assert await Desk(wire).prompt(session, f"write {server.workspace}/a.txt") == "written"

    run(scene)
