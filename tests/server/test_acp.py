"""``stagedoor acp``: the official client of the protocol drives our agents, on stdin and stdout and over ``/acp``."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema

BOUND = 240
Script = Callable[..., str]


class Editor:
    """An official client that keeps every update and answers questions as it is told: ``never`` leaves them open."""

    def __init__(self, kind: str = "allow_once") -> None:
        self.kind = kind
        self.updates: list[Any] = []
        self.questions: list[Any] = []
        self.question = asyncio.Event()

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

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update.content.text for update in self.updates if update.session_update == kind)


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
        argv = ["-m", "stagedoor.cli", "acp", *(flags or ("--agent", "understudy"))]
        async with (
            asyncio.timeout(BOUND),
            acp.spawn_agent_process(
                editor, sys.executable, *argv, env=env | more, transport_kwargs={"stderr": None},
                use_unstable_protocol=True,
            ) as (agent, _),
        ):  # fmt: skip
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
            assert again.text("user_message_chunk") == prompt
            assert again.text() == "Editing. Done."
            kinds = [update.session_update for update in again.updates]
            assert {"agent_thought_chunk", "plan", "tool_call", "tool_call_update"} <= set(kinds)
            again.updates.clear()
            answer = await agent.prompt(session_id=opened.session_id, prompt=blocks(script([{"say": "More."}])))
            assert (answer.stop_reason, again.text(), again.text("user_message_chunk")) == ("end_turn", "More.", "")

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
