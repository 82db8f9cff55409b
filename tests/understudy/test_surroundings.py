"""MCP servers, a hostile workspace, the death of the client, and the command line."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from stagedoor.agents.acp import Content, McpServerStdio, RequestPermission
from stagedoor.understudy import command
from tests.processes import is_running

SERVER = McpServerStdio("sums", sys.executable, (str(Path(__file__).with_name("tools_server.py")),))
MISSING = McpServerStdio("gone", "/no/such/program")


def test_tools_of_an_mcp_server(understudy: Any) -> None:
    questions: list[RequestPermission] = []

    def ask(question: RequestPermission) -> Any:
        questions.append(question)
        return "allow_always"

    async def main(dialogue: Any) -> None:
        def mcp(server: str, tool: str, **arguments: int) -> Any:
            return {"mcp": {"server": server, "tool": tool, "arguments": arguments}}

        reply = await dialogue.say(
            [
                [mcp("sums", "add", a=2, b=3), mcp("sums", "add", a=20, b=30)],
                mcp("sums", "add", a=1, b=1),
                mcp("sums", "fail"),
                mcp("gone", "x"),
                mcp("nobody", "x"),
            ]
        )
        outputs = [
            "".join(part.text for part in update.contents() if isinstance(part, Content)) for update in reply.final
        ]
        assert sorted(outputs[:2]) == ["5", "50"]
        assert outputs[2] == "2"
        assert "fail" in outputs[3]
        assert outputs[4:] == [
            "The MCP server 'gone' did not start: No such file or directory",
            "The session has no MCP server 'nobody'.",
        ]
        assert reply.ended == ["completed"] * 3 + ["failed"] * 3
        assert [question.tool_call.title for question in questions].count("sums: add") == 2

    understudy.dialogue(main, mcp_servers=(SERVER, MISSING), can_use_tool=ask)


def test_nothing_in_the_workspace_is_imported(understudy: Any) -> None:
    for name in ("asyncio.py", "msgspec.py", "stagedoor.py", "json.py"):
        (understudy.workspace / name).write_text("raise SystemExit('hijacked')\n")

    async def main(dialogue: Any) -> None:
        assert (await dialogue.say([{"say": "Fine."}])).text == "Fine."

    understudy.dialogue(main)


CLIENT = """
import asyncio, sys
from stagedoor.agents.acp import AcpClient, AcpSessionConfig
async def main():
    session = await AcpClient(sys.argv[2:], sys.argv[1]).create_session(
        "- shell: 'sleep 1000 & echo $! > pid; wait'", AcpSessionConfig(mode="auto"))
    async for event in session.events:
        pass
asyncio.run(main())
"""


def wait_until(condition: Any) -> None:
    bound = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < bound
        time.sleep(0.02)


def test_the_death_of_the_client_leaves_nothing_running(understudy: Any) -> None:
    argv = [sys.executable, "-c", CLIENT, str(understudy.workspace), *understudy.argv()]
    with subprocess.Popen(argv) as client:
        pid_file = understudy.workspace / "pid"
        wait_until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
        pid = int(pid_file.read_text())
        assert is_running(pid)
        client.send_signal(signal.SIGKILL)
        client.wait()
    wait_until(lambda: not is_running(pid))


def test_the_command_line(tmp_path: Path) -> None:
    argv = command(home=str(tmp_path / "home"))
    version = subprocess.run([*argv, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout == "understudy 0.1.0\n"
    missing = subprocess.run([*command("/no/such.yaml")], capture_output=True, text=True, check=False)
    assert (missing.returncode, missing.stderr) == (
        2,
        "understudy: cannot read /no/such.yaml: No such file or directory\n",
    )
    requests = tmp_path / "requests.jsonl"
    requests.write_text('not json\n{"id":1,"method":"no/such"}\n{"id":2,"method":"session/new","params":{"cwd":3}}')
    with requests.open() as stdin:  # a plain file on standard input is served too
        answers = subprocess.run(argv, stdin=stdin, capture_output=True, text=True, check=True).stdout.splitlines()
    assert answers == [
        '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,'
        '"message":"this is not JSON: send one JSON-RPC message per line"}}',
        '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found: no/such"}}',
        '{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Invalid params: '
        'Expected `str`, got `int` - at `$.cwd`"}}',
    ]


def test_sessions_are_kept_where_the_environment_says(understudy: Any, tmp_path: Path) -> None:
    state = tmp_path / "state"
    env = {**os.environ, "XDG_STATE_HOME": str(state)}
    env.pop("STAGEDOOR_UNDERSTUDY_HOME", None)
    request = f'{{"id":1,"method":"session/new","params":{{"cwd":"{understudy.workspace}","mcpServers":[]}}}}\n'
    subprocess.run(command(), input=request, env=env, capture_output=True, text=True, check=True)
    assert len(list((state / "stagedoor" / "understudy").glob("us-*.jsonl"))) == 1
    env["STAGEDOOR_UNDERSTUDY_HOME"] = str(tmp_path / "mine")
    subprocess.run(command(), input=request, env=env, capture_output=True, text=True, check=True)
    assert len(list((tmp_path / "mine").glob("us-*.jsonl"))) == 1
