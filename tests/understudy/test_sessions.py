"""Stored sessions, scripts in prompts, and the demo."""

from typing import Any

import pytest

from stagedoor.agents.acp import (
    AcpSessionConfig,
    AgentMessageChunk,
    RequestFailed,
    SessionUpdate,
    UserMessageChunk,
)
from stagedoor.errors import LocalProtocolError, ProcessExited, SessionNotFound
from stagedoor.understudy.demo import DEMO_FILES


def test_sessions_are_stored_listed_loaded_resumed_and_forked(understudy: Any, bounded: Any, dialogue_of: Any) -> None:
    script = '- [{think: Hm.}, {say: "One. "}, {shell: echo x}]\n- say: Two.\n- say: Three.\n- say: Four.\n'

    async def main() -> None:
        client = understudy.client(script)
        async with await client.create_session("first prompt", AcpSessionConfig(mode="auto")) as session:
            first = session.session_id
            assert (await dialogue_of(session).hear()).text == "One. Two."
        (listed,) = await client.list_sessions()
        assert (listed.session_id, listed.cwd, listed.title) == (first, str(understudy.workspace), "first prompt")
        async with await client.resume_session(first, "go on") as session:
            reply = await dialogue_of(session).hear()
            assert reply.text == "Three."
            assert not any(event.replayed for event in reply.events if isinstance(event, SessionUpdate))
            assert session.modes is not None
            assert session.modes.current_mode_id == "auto"
        async with await client.fork_session(first, "go on") as session:
            assert session.session_id != first
            assert (await dialogue_of(session).hear()).text == "Four."
        async with await client.resume_session(first, "go on", AcpSessionConfig(replay=True)) as session:
            reply = await dialogue_of(session).hear()
            replayed = [event.update for event in reply.events if isinstance(event, SessionUpdate) and event.replayed]
            assert [type(update).__name__ for update in replayed] == [
                "UserMessageChunk",
                "AgentThoughtChunk",
                "AgentMessageChunk",
                "AcpToolCall",
                "AgentMessageChunk",
                "UserMessageChunk",
                "AgentMessageChunk",
            ]
            prompts = [update.text for update in replayed if isinstance(update, UserMessageChunk)]
            assert prompts == ["first prompt", "go on"]
            live = [event.update for event in reply.events if isinstance(event, SessionUpdate) and not event.replayed]
            assert "".join(update.text for update in live if isinstance(update, AgentMessageChunk)) == "Four."
        assert len(await client.list_sessions()) == 2
        await client.delete_session(first)
        assert first not in [session.session_id for session in await client.list_sessions()]
        for unknown in (first, "../../etc/passwd", ""):
            with pytest.raises(SessionNotFound):
                await client.resume_session(unknown, "go on")

    bounded(main())


def test_prompts_that_are_scripts(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        assert (await dialogue.say("- say: YAML\n- say: ' it is'\n")).text == "YAML it is"
        fenced = "Please do this:\n```stagedoor\n- say: Fenced.\n```\nThank you."
        assert (await dialogue.say(fenced)).text == "Fenced."
        assert "Hello! I am the understudy" in (await dialogue.say("- not a script, just a dash")).text
        failed = (await dialogue.say("```stagedoor\n- frobnicate: 1\n```")).end
        assert isinstance(failed, RequestFailed)
        assert "unknown part 'frobnicate'" in failed.message

    understudy.dialogue(main)


def test_the_demo_reacts_to_the_workspace(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        assert "work with no files yet" in (await dialogue.say("hello")).text
        for name, content in DEMO_FILES.items():
            (understudy.workspace / name).write_text(content)
        reply = await dialogue.say("hello")
        assert reply.text.endswith("Repaired, and the tests pass.")
        assert [question.tool_call.kind for question in reply.questions] == ["edit", "execute"]
        assert reply.ended == ["completed", "completed", "completed"]
        assert "{name}" in (understudy.workspace / "greeting.py").read_text()
        assert "work with 2 files" in (await dialogue.say("/demo")).text

    understudy.dialogue(main, can_use_tool=lambda question: "allow_once")


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (["reject_once"], "Then I leave it as it is."),
        (["allow_once", "reject_once"], "The edit is made; I did not run the tests."),
    ],
)
def test_the_demo_takes_no_for_an_answer(understudy: Any, answers: list[str], text: str) -> None:
    for name, content in DEMO_FILES.items():
        (understudy.workspace / name).write_text(content)
    decisions = iter(answers)

    async def main(dialogue: Any) -> None:
        assert (await dialogue.say("hello")).text.endswith(text)

    understudy.dialogue(main, can_use_tool=lambda question: next(decisions))


def test_bad_requests_are_refused_one_by_one(understudy: Any, bounded: Any) -> None:
    async def main() -> None:
        client = understudy.client()
        async with await client.create_session() as session:
            with pytest.raises(LocalProtocolError, match="no mode 'yolo'"):
                await session.set_mode("yolo")
            await session.set_model("understudy-mini")
            assert [option.current_value for option in session.config_options] == ["understudy-mini", "medium"]

    bounded(main())


def test_a_bad_script_is_said_at_once(understudy: Any, bounded: Any) -> None:
    async def main() -> None:
        with pytest.raises(ProcessExited, match="unknown part"):
            await understudy.client("- frobnicate: 1\n").create_session()

    bounded(main())
