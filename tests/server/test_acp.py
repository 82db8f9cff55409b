"""``stagedoor acp``: the official client of the protocol drives our agents, on stdin and stdout and over ``/acp``."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema

from stagedoor import cli
from stagedoor.server.running import server_file
from tests.processes import is_running

from .test_kill import Server

BOUND = 240
Script = Callable[..., str]


class Editor:
    """An official client that keeps every update and answers questions as it is told: ``never`` leaves them open."""

    def __init__(self, kind: str = "allow_once") -> None:
        self.kind = kind
        self.updates: list[Any] = []
        self.questions: list[Any] = []
        self.question = asyncio.Event()
        self.agent = 0
        """The process of its ``stagedoor acp``."""

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        self.questions.append((tool_call, options))
        self.question.set()
        if self.kind == "never":
            await asyncio.Event().wait()
        chosen = next(option for option in options if option.kind == self.kind)
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def shows(self, text: str, kind: str = "agent_message_chunk") -> None:
        """The package hands each notification to a task of its own, which may come after the answer to a request."""
        while self.text(kind) != text:
            await asyncio.sleep(0.01)

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update.content.text for update in self.updates if update.session_update == kind)


UNDERSTUDY = ("--agent", "understudy")
Connect = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture
def connect(tmp_path: Path) -> Connect:
    """``async with connect(editor, *flags) as agent``: a ``stagedoor acp`` of its own, in a home of the test's."""
    (tmp_path / "project").mkdir()

    @asynccontextmanager
    async def start(editor: Editor, *flags: str, **more: str) -> AsyncIterator[Any]:
        env = os.environ | {
            "STAGEDOOR_HOME": str(tmp_path / "home"),
            "STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "understudy"),
            "HOME": str(tmp_path),
        }
        argv = ["-m", "stagedoor.cli", "acp", *(flags or (*UNDERSTUDY, "--local"))]
        async with (
            asyncio.timeout(BOUND),
            acp.spawn_agent_process(
                editor, sys.executable, *argv, env=env | more, transport_kwargs={"stderr": None},
                use_unstable_protocol=True,
            ) as (agent, process),
        ):  # fmt: skip
            editor.agent = process.pid
            greeting = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
            assert greeting.agent_info.name == "stagedoor"
            yield agent

    return start


def blocks(text: str) -> list[Any]:
    return [acp.text_block(text)]


def test_a_turn_a_question_and_the_log_of_it(connect: Connect, script: Script, tmp_path: Path) -> None:
    cwd = str(tmp_path / "project")
    prompt = script(
        [
            {"think": "Hm."},
            {"say": "Editing. "},
            {"plan": ["Edit"]},
            {"write_file": {"path": "a.txt", "content": "new"}},
        ],
        [{"shell": "cat a.txt"}],
        [{"say": "Done."}],
    )

    async def main() -> None:
        editor = Editor()
        async with connect(editor) as agent:
            opened = await agent.new_session(cwd=cwd, mcp_servers=[])
            assert opened.modes.current_mode_id == "supervised"
            assert [option.id for option in opened.config_options] == ["agent", "model", "mode", "effort"]
            answer = await agent.prompt(session_id=opened.session_id, prompt=blocks(prompt))
            assert answer.stop_reason == "end_turn"
            assert [call.title for call, _ in editor.questions] == ["cat a.txt"]
            listed = await agent.list_sessions(cwd=cwd)
            assert [one.session_id for one in listed.sessions] == [opened.session_id]
        assert (tmp_path / "project" / "a.txt").read_text() == "new"
        again = Editor()
        async with connect(again) as agent:  # another process: all it knows is the log
            await agent.load_session(session_id=opened.session_id, cwd=cwd, mcp_servers=[])
            await again.shows("Editing. Done.")
            assert again.text("user_message_chunk") == prompt
            kinds = [update.session_update for update in again.updates]
            assert {"agent_thought_chunk", "plan", "tool_call", "tool_call_update"} <= set(kinds)
            again.updates.clear()
            answer = await agent.prompt(session_id=opened.session_id, prompt=blocks(script([{"say": "More."}])))
            await again.shows("More.")
            assert (answer.stop_reason, again.text("user_message_chunk")) == ("end_turn", "")

    asyncio.run(main())


def test_cancel_ends_the_turn_though_nobody_answers_its_question(
    connect: Connect, script: Script, tmp_path: Path
) -> None:
    async def main() -> None:
        editor = Editor("never")
        async with connect(editor) as agent:
            opened = await agent.new_session(cwd=str(tmp_path / "project"), mcp_servers=[])
            prompt = agent.prompt(session_id=opened.session_id, prompt=blocks(script([{"shell": "touch made"}])))
            async with asyncio.TaskGroup() as group:
                turn = group.create_task(prompt)
                await editor.question.wait()
                await agent.cancel(session_id=opened.session_id)
            assert turn.result().stop_reason == "cancelled"
        assert not (tmp_path / "project" / "made").exists()

    asyncio.run(main())


EDITOR = """
import json, subprocess, sys, time
agent = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def call(number, method, **params):
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    agent.stdin.write(json.dumps(message).encode() + b"\\n")
    agent.stdin.flush()
def until(condition):
    return next(message for message in map(json.loads, agent.stdout) if condition(message))
def answer(number):
    return until(lambda message: message.get("id") == number and "method" not in message)["result"]
task = json.loads(sys.argv[1])
call(1, "initialize", protocolVersion=1)
call(2, "session/new", cwd=task["cwd"], mcpServers=[])
session = answer(2)["sessionId"]
call(3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": task["first"]}])
answer(3)
call(4, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": task["second"]}])
until(lambda message: message.get("params", {}).get("update", {}).get("sessionUpdate") == "tool_call")
print(json.dumps({"session": session, "agent": agent.pid}), flush=True)
answer(4)
"""


@pytest.mark.parametrize("victim", ["editor", "agent", "server"])
def test_kill_9_of_either_side_leaves_nothing_running_and_a_session_that_goes_on(
    victim: str, connect: Connect, script: Script, tmp_path: Path
) -> None:
    cwd = tmp_path / "project"
    second = script([{"say": "Two. "}, {"shell": "echo $$ > pid; exec sleep 98071"}])
    task = {"cwd": str(cwd), "first": script([{"say": "One. "}]), "second": second}
    argv = [sys.executable, "-m", "stagedoor.cli", "acp", "--agent", "understudy"]
    env = os.environ | {
        "STAGEDOOR_HOME": str(tmp_path / "home"),
        "STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "understudy"),
        "STAGEDOOR_SESSIONS__TIER": "autonomous",
        "HOME": str(tmp_path),
    }
    with subprocess.Popen(
        [sys.executable, "-c", EDITOR, json.dumps(task), *argv], env=env, stdout=subprocess.PIPE, text=True
    ) as editor:
        try:
            assert editor.stdout is not None
            seen = json.loads(editor.stdout.readline())
            wait_until(lambda: (cwd / "pid").exists() and (cwd / "pid").read_text().endswith("\n"))
            command = int((cwd / "pid").read_text())
            assert is_running(command)
            server = json.loads((tmp_path / "home" / "shared.json").read_text())["pid"]
            victims = {"editor": editor.pid, "agent": seen["agent"], "server": server}
            os.kill(victims[victim], signal.SIGKILL)
            wait_until(lambda: not any(map(is_running, (command, seen["agent"], server))))
        finally:
            editor.kill()

    async def main() -> None:
        again = Editor()
        async with connect(again, *UNDERSTUDY) as agent:
            await agent.load_session(session_id=seen["session"], cwd=str(cwd), mcp_servers=[])
            await again.shows("One. Two. ")
            prompt = blocks(script([{"say": "Three."}]))
            answer = await agent.prompt(session_id=seen["session"], prompt=prompt)
            await again.shows("One. Two. Three.")
            assert answer.stop_reason == "end_turn"
            listed = await agent.list_sessions()
            assert [one.session_id for one in listed.sessions] == [seen["session"]]

    asyncio.run(main())


def test_all_windows_of_all_editors_work_at_once(connect: Connect, script: Script, tmp_path: Path) -> None:
    """On one home: each has its own process, and none is needed by another."""
    cwd = str(tmp_path / "project")

    async def main() -> None:
        first, second = Editor(), Editor()
        async with connect(second, *UNDERSTUDY) as other:
            async with connect(first, *UNDERSTUDY) as agent:
                opened = [await one.new_session(cwd=cwd, mcp_servers=[]) for one in (agent, other)]
                for one, session in zip((agent, other), opened, strict=True):
                    prompt = blocks(script([{"say": "Here. "}, {"shell": "true"}]))
                    answer = await one.prompt(session_id=session.session_id, prompt=prompt)
                    assert answer.stop_reason == "end_turn"
                await first.shows("Here. ")
                await second.shows("Here. ")
                assert len(first.questions) == len(second.questions) == 1
                listed = await agent.list_sessions(cwd=cwd)
                assert {one.session_id for one in listed.sessions} == {one.session_id for one in opened}
                os.kill(first.agent, signal.SIGKILL)
            prompt = blocks(script([{"say": "Still here."}]))
            answer = await other.prompt(session_id=opened[1].session_id, prompt=prompt)
            await second.shows("Here. Still here.")
            assert answer.stop_reason == "end_turn"
            server = json.loads((tmp_path / "home" / "shared.json").read_text())["pid"]
        wait_until(lambda: not is_running(server))  # the last one has left

    asyncio.run(main())


def test_a_server_that_is_killed_in_mid_turn_says_so_and_goes_on_once_it_is_back(
    connect: Connect, script: Script, tmp_path: Path
) -> None:
    """``--server``: the turn is answered, the program ends, and the next life of the server has the session."""
    folder = tmp_path / "server"
    folder.mkdir()
    running = script([{"say": "One. "}, {"shell": "echo $$ > pid; exec sleep 98077"}])

    async def main() -> None:
        server = Server(folder)
        cwd = folder / "workspace"

        async def flags() -> list[str]:
            await server.start()
            await server.listens()
            return ["--server", str(server.url), "--token-file", str(folder / "home" / "token"), *UNDERSTUDY]

        async with asyncio.timeout(BOUND), server.foreman():
            editor = Editor()
            async with connect(editor, *await flags()) as agent:
                session = (await agent.new_session(cwd=str(cwd), mcp_servers=[])).session_id
                await agent.set_session_mode(session_id=session, mode_id="autonomous")
                turn = asyncio.ensure_future(agent.prompt(session_id=session, prompt=blocks(running)))
                while not ((cwd / "pid").exists() and (cwd / "pid").read_text().endswith("\n")):
                    await asyncio.sleep(0.02)
                await editor.shows("One. ")  # what was shown is in the log
                await server.end(signal.SIGKILL)  # returns when nothing of it is left
                with pytest.raises(acp.RequestError, match=r"has ended .*; its sessions can be loaded again"):
                    await turn
            again = Editor()
            async with connect(again, *await flags()) as agent:
                await agent.load_session(session_id=session, cwd=str(cwd), mcp_servers=[])
                answer = await agent.prompt(session_id=session, prompt=blocks(script([{"say": "Two."}])))
                await again.shows("One. Two.")
                assert answer.stop_reason == "end_turn"

    asyncio.run(main())


def test_agents_run_in_the_environment_of_their_own_window(connect: Connect, script: Script, tmp_path: Path) -> None:
    """The server that windows share was started by one of them; a key of that one is not another's."""
    cwd = tmp_path / "project"
    look = [{"shell": "echo ${WINDOW:-none} ${ONLY_FIRST:-none} > seen"}]

    async def main() -> None:
        async with (
            connect(Editor(), *UNDERSTUDY, WINDOW="first", ONLY_FIRST="secret") as one,
            connect(Editor(), *UNDERSTUDY, WINDOW="second") as two,
        ):
            for agent, expected in ((one, "first secret"), (two, "second none"), (one, "first secret")):
                session = (await agent.new_session(cwd=str(cwd), mcp_servers=[])).session_id
                await agent.prompt(session_id=session, prompt=blocks(script(look)))
                assert (cwd / "seen").read_text().strip() == expected
            # Another window goes on with what this one has left: the agent that starts has the other's.
            await one.close_session(session_id=session)
            await two.load_session(session_id=session, cwd=str(cwd), mcp_servers=[])
            await two.set_session_mode(session_id=session, mode_id="autonomous")
            await two.prompt(session_id=session, prompt=blocks(script(look)))
            assert (cwd / "seen").read_text().strip() == "second none"

    asyncio.run(main())


def wait_until(condition: Callable[[], bool]) -> None:
    bound = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < bound
        time.sleep(0.02)


def test_the_example_of_the_docs_runs_as_it_stands(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "editors.md").read_text()
    [program] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    env = os.environ | {"STAGEDOOR_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    (tmp_path / "project").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "project")], env=env, capture_output=True, text=True,
        check=False, timeout=BOUND,
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "end_turn"), done.stderr[-2000:]
    assert "[" in done.stdout  # it was asked


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--agent", "nobody"], "nobody"),
        (["--server", "local"], "no server is running"),
        (["--server", "ftp://x"], "is not a server address"),
        (["--server", "http://127.0.0.1:9", "--local"], "contradict each other"),
        (["--token-file", "x"], "needs --server"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_clear_errors_before_anything_is_served(
    words: list[str], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STAGEDOOR_HOME", str(tmp_path / "home"))
    try:
        code: object = cli.main(["acp", *words])
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    assert (code in (1, 2), part in err, out) == (True, True, ""), err


def test_through_a_server_with_its_tool_servers_and_its_end(serve: Any, connect: Connect, script: Script) -> None:
    """``--server``, and without it the server of the same home: what the editor names reaches the agent there."""
    tools = Path(__file__).parents[1] / "understudy" / "tools_server.py"
    added = [schema.McpServerStdio(name="sums", command=sys.executable, args=[str(tools)], env=[])]
    calling = script([{"mcp": {"server": "sums", "tool": "add", "arguments": {"a": 2, "b": 3}}}], [{"say": "Over."}])

    asking = script([{"shell": "true"}], [{"say": "Over."}])

    async def main() -> None:
        async with serve() as server:
            token = server.home / "token"
            token.write_text(server.token)
            token.chmod(0o600)
            flags = ["--server", server.url, "--token-file", str(token), "--agent", "understudy"]
            with server_file(server.home, server.service.settings, (server.host, server.port)):
                for words, servers, prompt in ((flags, added, calling), (["--agent", "understudy"], [], asking)):
                    editor = Editor()
                    async with connect(editor, *words, STAGEDOOR_HOME=str(server.home)) as agent:
                        opened = await agent.new_session(cwd=str(server.workspace), mcp_servers=servers)
                        answer = await agent.prompt(session_id=opened.session_id, prompt=blocks(prompt))
                        await editor.shows("Over.")
                        assert (answer.stop_reason, len(editor.questions)) == ("end_turn", 1)
                    view = await server.service.sessions.get(opened.session_id)
                    assert (view.activity, view.tool_uses) == ("idle", 1)  # the session has not left with the editor
            argv = [sys.executable, "-m", "stagedoor.cli", "acp", *flags]
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
            left = await asyncio.create_subprocess_exec(*argv, **pipes)
            assert left.stdin is not None
            assert left.stdout is not None
            left.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n')
            assert b'"protocolVersion":1' in await left.stdout.readline()
        _, complaint = await left.communicate()  # the server has ended, and so does what is left of it here
        assert left.returncode not in (0, None)
        assert "its sessions can be loaded again" in complaint.decode()

    asyncio.run(main())
