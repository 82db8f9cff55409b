"""The understudy is an ACP agent for anybody: here for the official package's client."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema


class Editor:
    """An official client that keeps every update and answers questions as told."""

    def __init__(self, kind: str = "allow_once") -> None:
        self.kind = kind
        self.updates: list[Any] = []
        self.questions: list[Any] = []
        self.question = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> schema.RequestPermissionResponse:
        self.questions.append(tool_call)
        self.question.set()
        if self.kind == "never":
            await asyncio.Event().wait()
        chosen = next(option for option in options if option.kind == self.kind)
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    def text(self) -> str:
        chunks = [update for update in self.updates if isinstance(update, schema.AgentMessageChunk)]
        return "".join(chunk.content.text for chunk in chunks)


@asynccontextmanager
async def connected(editor: Editor, argv: list[str]) -> AsyncIterator[Any]:
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    async with (
        asyncio.timeout(240),
        acp.spawn_agent_process(
            editor, argv[0], *argv[1:], env=env, transport_kwargs={"stderr": None}, use_unstable_protocol=True
        ) as (agent, _),
    ):
        hello = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        assert hello.agent_info.name == "understudy"
        yield agent


async def turn_reported(editor: Editor) -> None:
    """The package hands each notification to a task of its own; the usage is the last thing of a turn."""
    while not any(isinstance(update, schema.UsageUpdate) for update in editor.updates):
        await asyncio.sleep(0.01)


SCRIPT = """
- [{think: Hm.}, {say: "Editing. "}, {plan: [Edit]}, {write_file: {path: a.txt, content: new}}]
- [{shell: cat a.txt}]
- say: Done.
- say: Later.
"""


def test_a_whole_turn(understudy: Any) -> None:
    async def main() -> None:
        editor = Editor()
        async with connected(editor, understudy.argv(SCRIPT)) as agent:
            opened = await agent.new_session(cwd=str(understudy.workspace), mcp_servers=[])
            assert opened.modes.current_mode_id == "ask"
            answer = await agent.prompt(session_id=opened.session_id, prompt=[acp.text_block("go")])
            assert (answer.stop_reason, answer.usage.total_tokens) == ("end_turn", 360)
            await turn_reported(editor)
            assert editor.text() == "Editing. Done."
            assert [call.title for call in editor.questions] == ["Write a.txt", "cat a.txt"]
            kinds = {type(update).__name__ for update in editor.updates}
            assert kinds >= {
                "AgentThoughtChunk",
                "AgentPlanUpdate",
                "ToolCallStart",
                "ToolCallProgress",
                "UsageUpdate",
                "SessionInfoUpdate",
                "AvailableCommandsUpdate",
            }
        assert (understudy.workspace / "a.txt").read_text() == "new"

    asyncio.run(main())


def test_list_load_fork_and_modes(understudy: Any) -> None:
    async def main() -> None:
        cwd = str(understudy.workspace)
        editor = Editor()
        async with connected(editor, understudy.argv(SCRIPT)) as agent:
            opened = await agent.new_session(cwd=cwd, mcp_servers=[])
            await agent.set_session_mode(session_id=opened.session_id, mode_id="auto")
            await agent.prompt(session_id=opened.session_id, prompt=[acp.text_block("go")])
            assert editor.questions == []
            await agent.close_session(session_id=opened.session_id)
            listed = await agent.list_sessions(cwd=cwd)
            assert [(session.session_id, session.title) for session in listed.sessions] == [(opened.session_id, "go")]
            forked = await agent.fork_session(session_id=opened.session_id, cwd=cwd)
            assert forked.session_id != opened.session_id
        editor = Editor()
        async with connected(editor, understudy.argv(SCRIPT)) as agent:
            loaded = await agent.load_session(session_id=opened.session_id, cwd=cwd, mcp_servers=[])
            assert loaded.modes.current_mode_id == "auto"
            await agent.prompt(session_id=opened.session_id, prompt=[acp.text_block("more")])
            await turn_reported(editor)
            assert editor.text() == "Editing. Done.Later."
            with pytest.raises(acp.RequestError, match="Session not found"):
                await agent.load_session(session_id="nope", cwd=cwd, mcp_servers=[])
            with pytest.raises(acp.RequestError, match="unknown mode"):
                await agent.set_session_mode(session_id=opened.session_id, mode_id="yolo")
            with pytest.raises(acp.RequestError, match="not an existing absolute path"):
                await agent.new_session(cwd="nowhere", mcp_servers=[])

    asyncio.run(main())


def test_cancel_while_a_question_is_open(understudy: Any) -> None:
    async def main() -> None:
        editor = Editor("never")
        async with connected(editor, understudy.argv()) as agent:
            opened = await agent.new_session(cwd=str(understudy.workspace), mcp_servers=[])
            prompt = [acp.text_block("- shell: touch ran")]
            turn = asyncio.create_task(agent.prompt(session_id=opened.session_id, prompt=prompt))
            await editor.question.wait()
            await agent.cancel(session_id=opened.session_id)
            assert (await turn).stop_reason == "cancelled"
            assert list(Path(understudy.workspace).iterdir()) == []

    asyncio.run(main())
