"""``stagedoor acp`` as real clients of the protocol drive it: acpx, and the official SDKs of TypeScript and Python.

``make test`` plays each client once, and each of two real CLIs; ``make compatibility`` every client with every agent.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema

from stagedoor.testing import Script, ScriptedModel, find_cli, say, shell
from stagedoor.testing.clis import path_with_node, proven_packages
from tests.processes import is_running
from tools.clis import FOLDER, editor_packages

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = editor_packages(Path(os.environ.get("STAGEDOOR_CLIS") or CHECKOUT / FOLDER))
NEEDS_NEWER_NODE = next((agent for agent, package in proven_packages().items() if package.node), None)
NODE = shutil.which("node", path=path_with_node(agent=NEEDS_NEWER_NODE))
BOUND = 300.0
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(NODE is None or not PACKAGES.exists(), reason="the clients are not installed: run `make clis`"),
]
SCRIPT: Script = [shell("echo from the agent > made.txt"), say("All done.")]
SAID = "All done."
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


class Stage:
    """A home, a project and a configuration for one agent; ``command`` starts ``stagedoor acp`` with it."""

    def __init__(self, folder: Path, agent: str, model: ScriptedModel) -> None:
        self.agent = agent
        self.model = model
        self.project = folder / "project"
        self.project.mkdir()
        self.folder = folder
        self.env = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ} | {
            "STAGEDOOR_HOME": str(folder / "stagedoor"),
            "STAGEDOOR_UNDERSTUDY_HOME": str(folder / "understudy"),
            "HOME": str(folder / "home"),
        }
        (folder / "home").mkdir()
        config: dict[str, Any] = {"agents": {"default": agent}}
        self.prompt = "Write the file."
        if agent == "understudy":
            self.prompt = json.dumps({"script": [[{"shell": "echo from the agent > made.txt"}], [{"say": SAID}]]})
        else:
            played = model.environment(agent, cwd=self.project, home=folder / "agent-home")
            config["agents"][agent] = {"command": str(find_cli(agent)), "env": played.env, "model": played.model}
        (folder / "stagedoor").mkdir(mode=0o700)
        (folder / "stagedoor" / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
        self.command = [sys.executable, "-m", "stagedoor.cli", "acp"]

    def check(self, said: str, questions: list[str]) -> None:
        assert (self.project / "made.txt").read_text() == "from the agent\n"
        assert (said.strip(), len(questions)) == (SAID, 1), questions


def drive_by_acpx(stage: Stage) -> None:
    wrapper = stage.folder / "agent.sh"
    wrapper.write_text(f"#!/bin/sh\nexec {' '.join(stage.command)}\n")
    wrapper.chmod(0o755)
    program = str(PACKAGES / "acpx" / json.loads((PACKAGES / "acpx" / "package.json").read_text())["bin"]["acpx"])
    flags = ["--agent", str(wrapper), "--cwd", str(stage.project), "--approve-all", "--format", "json"]
    done = subprocess.run(
        [str(NODE), program, *flags, "exec", stage.prompt], env=stage.env, capture_output=True, text=True, check=False,
        timeout=BOUND,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    updates = [one["params"]["update"] for one in messages if one.get("method") == "session/update"]
    text = "".join(one["content"]["text"] for one in updates if one["sessionUpdate"] == "agent_message_chunk")
    questions = [one["params"] for one in messages if one.get("method") == "session/request_permission"]
    stage.check(text, [one["toolCall"]["title"] for one in questions])
    assert [one["result"]["stopReason"] for one in messages if "stopReason" in one.get("result", {})] == ["end_turn"]


def run_typescript(task: dict[str, Any]) -> dict[str, Any]:
    task = {"sdk": str(PACKAGES / "@agentclientprotocol" / "sdk"), **task}
    argv = [str(NODE), str(CHECKOUT / "tests" / "live" / "editor.mjs"), json.dumps(task)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=BOUND)
    assert done.returncode == 0, done.stderr[-2000:]
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def drive_by_typescript(stage: Stage) -> None:
    command = {"command": stage.command[0], "args": stage.command[1:], "env": stage.env}
    takes_pictures = stage.agent != "understudy"
    task = {"cwd": str(stage.project), "prompt": stage.prompt, "answer": "allow_once"}
    seen = run_typescript({**command, **task, "image": PICTURE if takes_pictures else ""})
    stage.check(seen["text"], seen["questions"])
    if takes_pictures:
        assert any(PICTURE in json.dumps(request.body) for request in stage.model.requests)
    assert seen["replayed"].strip() == SAID
    assert (seen["agent"], seen["stop"], seen["listed"]) == ("stagedoor", "end_turn", 1)


class Editor:
    def __init__(self) -> None:
        self.text = ""
        self.questions: list[str] = []

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if update.session_update == "agent_message_chunk":
            self.text += update.content.text

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        self.questions.append(tool_call.title)
        chosen = next(option for option in options if option.kind == "allow_once")
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return schema.RequestPermissionResponse(outcome=outcome)


def drive_by_python(stage: Stage) -> None:
    async def main() -> None:
        editor = Editor()
        program, *words = stage.command
        async with (
            asyncio.timeout(BOUND),
            acp.spawn_agent_process(
                editor, program, *words, env=stage.env, transport_kwargs={"stderr": None}, use_unstable_protocol=True
            ) as (agent, _),
        ):
            await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
            opened = await agent.new_session(cwd=str(stage.project), mcp_servers=[])
            answer = await agent.prompt(session_id=opened.session_id, prompt=[acp.text_block(stage.prompt)])
            assert answer.stop_reason == "end_turn"
            while editor.text.strip() != SAID:  # the package hands each notification to a task of its own
                await asyncio.sleep(0.01)
        stage.check(editor.text, editor.questions)

    asyncio.run(main())


CLIENTS: dict[str, Callable[[Stage], None]] = {
    "acpx": drive_by_acpx,
    "typescript": drive_by_typescript,
    "python": drive_by_python,
}
AGENTS = ("understudy", "claude", "codex")
COVERING = {
    ("acpx", "claude"),
    ("typescript", "codex"),
}  # the Python SDK drives the understudy in tests/server/test_acp.py
CASES = [
    (client, agent)
    for client in CLIENTS
    for agent in AGENTS
    if (client, agent) in COVERING or os.environ.get("STAGEDOOR_CONTRACT")
]


@pytest.mark.parametrize(("client", "agent"), CASES, ids=lambda word: word)
def test_a_client_drives_an_agent(client: str, agent: str, tmp_path: Path) -> None:
    if agent != "understudy" and find_cli(agent) is None:
        pytest.skip(f"{agent} is not installed: run `make clis`")
    with ScriptedModel(SCRIPT) as model:
        CLIENTS[client](Stage(tmp_path, agent, model))


@pytest.mark.skipif(not os.environ.get("STAGEDOOR_CONTRACT"), reason="played by make compatibility")
@pytest.mark.parametrize("victim", ["stagedoor acp", "server"])
@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_kill_9_leaves_nothing_running_and_a_session_that_goes_on(agent: str, victim: str, tmp_path: Path) -> None:
    """The CLI runs a command when its editor's program, or the server that these share, is killed."""
    if find_cli(agent) is None:
        pytest.skip(f"{agent} is not installed: run `make clis`")
    sleeping = "echo $$ > pid; exec sleep 98075"
    with ScriptedModel([say("First."), shell(sleeping), say("Again.")]) as model:
        stage = Stage(tmp_path, agent, model)
        asyncio.run(_killed_and_loaded(stage, victim))


async def _killed_and_loaded(stage: Stage, victim: str) -> None:
    program, *words = stage.command
    env = {**stage.env, "STAGEDOOR_SESSIONS__TIER": "autonomous"}
    cwd = str(stage.project)

    def start(editor: Editor) -> Any:
        return acp.spawn_agent_process(
            editor, program, *words, env=env, transport_kwargs={"stderr": None}, use_unstable_protocol=True
        )

    async with asyncio.timeout(BOUND):
        async with start(Editor()) as (agent, process):
            await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
            session = (await agent.new_session(cwd=cwd, mcp_servers=[])).session_id
            await agent.prompt(session_id=session, prompt=[acp.text_block("one")])
            turn = asyncio.ensure_future(agent.prompt(session_id=session, prompt=[acp.text_block("two")]))
            file = stage.project / "pid"
            while not (file.exists() and file.read_text().endswith("\n")):
                await asyncio.sleep(0.05)
            command = int(file.read_text())
            server = json.loads((stage.folder / "stagedoor" / "shared.json").read_text())["pid"]
            os.kill(process.pid if victim == "stagedoor acp" else server, signal.SIGKILL)
            while any(map(is_running, (command, process.pid, server))):
                await asyncio.sleep(0.05)
            turn.cancel()
        again = Editor()
        async with start(again) as (agent, _):
            await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
            await agent.load_session(session_id=session, cwd=cwd, mcp_servers=[])
            answer = await agent.prompt(session_id=session, prompt=[acp.text_block("three")])
            assert answer.stop_reason == "end_turn"
            while not again.text.startswith("First.") or "Again." not in again.text:
                await asyncio.sleep(0.01)
