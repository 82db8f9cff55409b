"""Turns that are interrupted, fail or break off, and what is left of them: nothing."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stagedoor.agents.acp import (
    AgentMessageChunk,
    RequestFailed,
    RequestPermission,
    SessionUpdate,
    Unanswered,
)
from stagedoor.transports.guard.processes import descendants
from stagedoor.transports.launch import Exited
from stagedoor.understudy.workspace import WorkspaceCommand
from tests.processes import is_running


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def pid_in(path: Path) -> int:
    await until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def is_text(event: Any) -> bool:
    return isinstance(event, SessionUpdate) and isinstance(event.update, AgentMessageChunk)


def test_interrupt_mid_text_keeps_the_session(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        await dialogue.session.send('[{"endless": {"pause": 0.001}}]')
        await dialogue.hear(until=is_text)
        await dialogue.session.interrupt()
        assert (await dialogue.hear()).stop_reason == "cancelled"
        assert (await dialogue.say([{"say": "Still here."}])).text == "Still here."

    understudy.dialogue(main)


def test_interrupt_mid_command_kills_it(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        await dialogue.session.send('[{"shell": "sleep 1000 & echo $! > pid; echo command; wait"}]')
        pid = await pid_in(understudy.workspace / "pid")
        assert is_running(pid)
        await dialogue.session.interrupt()
        reply = await dialogue.hear()
        assert reply.stop_reason == "cancelled"
        assert reply.ended == ["failed"]
        assert "Cancelled." in reply.outputs[0]
        await until(lambda: not is_running(pid))
        assert (await dialogue.say([{"say": "Still here."}])).text == "Still here."

    understudy.dialogue(main, mode="auto")


def test_interrupt_mid_question(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        await dialogue.session.send('[{"shell": "echo x > ran"}]')
        await dialogue.hear(until=lambda event: isinstance(event, RequestPermission))
        await dialogue.session.interrupt()
        reply = await dialogue.hear()
        assert (reply.stop_reason, reply.ended) == ("cancelled", ["failed"])
        assert not (understudy.workspace / "ran").exists()

    async def never(question: RequestPermission) -> Any:
        await asyncio.Event().wait()

    understudy.dialogue(main, can_use_tool=never)


def test_a_command_that_leaves_something_behind_does_not_hold_up_the_turn(understudy: Any) -> None:
    pids: list[int] = []

    async def main(dialogue: Any) -> None:
        reply = await dialogue.say([{"shell": "sleep 1000 & echo $! > pid; echo left"}])
        assert reply.outputs == ["left\n"]
        pids.append(int((understudy.workspace / "pid").read_text()))
        assert is_running(pids[0])

    understudy.dialogue(main, mode="auto")
    assert not is_running(pids[0])


def test_closing_ends_commands_in_the_background_too(understudy: Any) -> None:
    pids: list[int] = []

    async def main(dialogue: Any) -> None:
        step = {"shell": {"command": "echo $$ > pid; exec sleep 1000", "background": True}}
        assert (await dialogue.say([step])).ended == ["completed"]
        pids.append(await pid_in(understudy.workspace / "pid"))
        assert is_running(pids[0])

    understudy.dialogue(main, mode="auto")
    assert not is_running(pids[0])


@pytest.mark.parametrize(
    ("fault", "code", "message", "details"),
    [
        ({"http_error": {"status": 401, "message": "Bad key"}}, 401, "Bad key", {"status": 401}),
        (
            {"http_error": {"status": 429, "retry_after": 3.0, "kind": "rate_limit_error"}},
            429,
            "HTTP 429",
            {"status": 429, "kind": "rate_limit_error", "retryAfter": 3.0},
        ),
        ({"http_error": 529}, 529, "HTTP 529", {"status": 529}),
        ("stream_error", -32603, "Overloaded", {"kind": "overloaded"}),
        (
            "context_overflow",
            400,
            "The conversation is too long: it exceeds the context window.",
            {"status": 400, "kind": "context_length_exceeded"},
        ),
    ],
    ids=["401", "429", "529", "stream", "overflow"],
)
def test_faults_are_errors_of_the_turn(understudy: Any, fault: Any, code: int, message: str, details: Any) -> None:
    async def main(dialogue: Any) -> None:
        reply = await dialogue.say([[{"say": "Well"}, fault]])
        failed = reply.end
        assert isinstance(failed, RequestFailed)
        assert (failed.code, failed.message, failed.details) == (code, message, details)
        assert reply.text == "Well"
        assert (await dialogue.say([[{"http_error": {"status": 500, "times": 2}}, {"say": "On."}]])).text == "On."

    understudy.dialogue(main)


@pytest.mark.parametrize("partway", [False, True])
def test_cut_is_a_death_in_the_middle(understudy: Any, partway: bool) -> None:
    async def main(dialogue: Any) -> None:
        reply = await dialogue.say([[{"say": "Well"}, {"cut": {"partway": partway}}]])
        assert isinstance(reply.end, Unanswered)
        assert reply.events[-2] == Exited(1, "")  # why comes before what remained undone
        assert [event async for event in dialogue.events] == []

    understudy.dialogue(main)


def test_stall_and_empty(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        assert (await dialogue.say(["empty"])).text == ""
        assert (await dialogue.say([[{"stall": 0.01}, {"say": "Back."}]])).text == "Back."
        await dialogue.session.send('[["stall", {"say": "never"}]]')
        await dialogue.session.interrupt()
        reply = await dialogue.hear()
        assert (reply.stop_reason, reply.text) == ("cancelled", "")

    understudy.dialogue(main)


def test_a_command_that_is_cancelled_while_it_begins_is_not_left_running(tmp_path: Path) -> None:
    async def main() -> None:
        for turns in range(30):  # of the loop: at each of them it has come a little further
            beginning = asyncio.create_task(WorkspaceCommand.start("sleep 1000", str(tmp_path)))
            for _ in range(turns):
                await asyncio.sleep(0)
            beginning.cancel()
            [command] = await asyncio.gather(beginning, return_exceptions=True)
            if isinstance(command, WorkspaceCommand):
                await command.kill()
            assert [pid for pid in descendants(os.getpid()) if is_running(pid)] == []

    asyncio.run(main())
