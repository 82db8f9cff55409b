"""Our client against an agent written with the official package, in a real child process."""

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stagedoor.agents.acp import (
    AcpClient,
    AcpSession,
    AcpSessionConfig,
    AcpUsage,
    CurrentModeUpdate,
    Event,
    InitializeResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    RequestFailed,
    RequestPermission,
    RequestWithdrawn,
    SessionListing,
    SessionUpdate,
)
from stagedoor.agents.acp.config import AcpProfile
from stagedoor.agents.acp.responses import tool_names
from stagedoor.errors import (
    LocalProtocolError,
    NotSupported,
    SessionEnded,
    SessionNotFound,
)
from stagedoor.transports.launch import Exited
from tests.agents.acp.turns import AGENT, BOUND, EVERYTHING, TURN_END, run, text_in, turn, until
from tests.processes import is_running


def test_an_agent_that_does_not_tell_its_tools_works_all_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        client = AcpClient(AGENT, tmp_path, profile=AcpProfile(tool_list="_no/such/method"))
        async with await client.create_session("say hello") as session:
            events = session.events
            [*_, refused] = await turn(events)
            assert isinstance(refused, RequestFailed)
            assert (refused.method, session.tools) == ("_no/such/method", ())
            assert text_in(await turn(events)) == "hello"

    run(main())


@pytest.mark.parametrize(
    ("result", "names"),
    [
        (
            b'{"v":1,"tools":[{"name":"edit","enabled":true},{"name":"glob","enabled":false},{"name":"ls"}]}',
            ("edit", "ls"),
        ),
        (b'{"tools":[]}', ()),
        (b'{"tools":["edit"]}', ()),
        (b"null", ()),
    ],
)
def test_a_list_of_tools_is_read_or_left(result: bytes, names: tuple[str, ...]) -> None:
    assert tool_names(msgspec.Raw(result)) == names


def test_create_follow_up_and_close(tmp_path: Path) -> None:
    async def main() -> None:
        session = await AcpClient(AGENT, tmp_path).create_session("say hello")
        async with session:
            events = session.events
            first = await turn(events)
            hello, opened, *rest = first
            assert isinstance(hello, InitializeResponse)
            assert isinstance(opened, NewSessionResponse)
            assert text_in(rest) == "hello"
            assert rest[-1] == PromptResponse("end_turn", AcpUsage(3, 4, 7), session_id=session.session_id)
            await session.send("say again")
            assert text_in(await turn(events)) == "again"
            assert (await session.turn_ended()) == rest[-1]
            pid = session.pid
            assert is_running(pid)
        assert [event async for event in events][-1] == Exited(0, "")
        assert not is_running(pid)
        with pytest.raises(SessionEnded):
            await session.send("say more")

    run(main())


def test_all_updates_arrive_typed_and_many_readers_see_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with await AcpClient(AGENT, tmp_path).create_session() as session:
            first, second, raw = session.events, session.events, session.received
            await session.send("updates")
            received = await turn(first)
            assert await turn(second) == received
            assert [event async for _, event in _until_turn_end(raw)] == received
            kinds = [type(event.update).__name__ for event in received if isinstance(event, SessionUpdate)]
            assert kinds == [
                "UserMessageChunk",
                "AgentMessageChunk",
                "AgentThoughtChunk",
                "AcpToolCall",
                "ToolCallUpdate",
                "AcpPlan",
                "PlanUpdate",
                "PlanRemoved",
                "AvailableCommandsUpdate",
                "CurrentModeUpdate",
                "ConfigOptionUpdate",
                "SessionInfoUpdate",
                "UsageUpdate",
            ]

    run(main())


async def _until_turn_end(raw: AsyncIterator[tuple[bytes, Event]]) -> AsyncIterator[tuple[bytes, Event]]:
    async for pair in raw:
        yield pair
        if isinstance(pair[1], TURN_END):
            return


async def _allow_later(question: RequestPermission) -> PermissionOption:
    await asyncio.sleep(0)
    return next(option for option in question.options if option.option_id == "yes-always")


def _broken(question: RequestPermission) -> Any:
    raise RuntimeError("broken callback")


async def _never(question: RequestPermission) -> Any:
    await asyncio.Event().wait()


PERMISSIONS = {
    "once": (AcpSessionConfig(can_use_tool=lambda question: "allow_once"), "yes"),
    "always": (AcpSessionConfig(can_use_tool=lambda question: "allow_always"), "yes-always"),
    "reject": (AcpSessionConfig(can_use_tool=lambda question: "reject_once"), "no"),
    "reject-always": (AcpSessionConfig(can_use_tool=lambda question: "reject_always"), "never"),
    "cancel": (AcpSessionConfig(can_use_tool=lambda question: None), "cancelled"),
    "async": (AcpSessionConfig(can_use_tool=_allow_later), "yes-always"),
    "nobody": (AcpSessionConfig(), "no"),
    "broken": (AcpSessionConfig(can_use_tool=_broken), "no"),
    "nonsense": (AcpSessionConfig(can_use_tool=lambda question: "sure"), "no"),  # type: ignore[arg-type,return-value]
    "timeout": (AcpSessionConfig(can_use_tool=_never, permission_timeout=0.05), "no"),
}
"""How somebody answers, and what the agent hears."""


def test_permission(tmp_path: Path) -> None:
    async def main() -> None:
        client = AcpClient(AGENT, tmp_path, share_process=True)  # it takes a second to start
        async with await client.create_session():
            outcomes: dict[str, str] = {}
            for name, (config, _) in PERMISSIONS.items():
                async with await client.create_session("ask", config) as session:
                    received = await turn(session.events)
                    requests = [event for event in received if isinstance(event, RequestPermission)]
                    assert (name, [request.tool_call.title for request in requests]) == (name, ["rm -rf /"])
                    outcomes[name] = text_in(received)
        assert outcomes == {name: outcome for name, (_, outcome) in PERMISSIONS.items()}

    run(main())


def test_a_plain_callback_that_is_late_stalls_nothing_and_is_not_obeyed(tmp_path: Path) -> None:
    async def main() -> None:
        release = threading.Event()

        def slow(question: RequestPermission) -> Any:
            release.wait(BOUND)
            return "allow_once"

        config = AcpSessionConfig(can_use_tool=slow, permission_timeout=0.05)
        async with await AcpClient(AGENT, tmp_path).create_session("ask", config) as session:
            events = session.events
            assert text_in(await turn(events)) == "no"
            release.set()
            await session.send("say still here")
            assert text_in(await turn(events)) == "still here"

    run(main())


def test_interrupt_mid_turn_and_mid_question_keeps_the_session(tmp_path: Path) -> None:
    async def main() -> None:
        question_arrived = asyncio.Event()
        closed = asyncio.Event()

        async def ask(question: RequestPermission) -> None:
            question_arrived.set()
            try:
                await asyncio.Event().wait()
            finally:
                closed.set()

        config = AcpSessionConfig(can_use_tool=ask)
        async with await AcpClient(AGENT, tmp_path).create_session("wait", config) as session:
            events = session.events
            await session.interrupt()
            end = (await turn(events))[-1]
            assert isinstance(end, PromptResponse)
            assert end.stop_reason == "cancelled"
            await session.send("ask_then_wait")
            await question_arrived.wait()
            await session.interrupt()
            await closed.wait()
            received = await turn(events)
            assert [event.why for event in received if isinstance(event, RequestWithdrawn)] == [
                "the turn was cancelled"
            ]
            assert text_in(received) == "cancelled"
            await session.send("say still here")
            assert text_in(await turn(events)) == "still here"

    run(main())


def test_files_are_served_inside_the_workspace_only(tmp_path: Path) -> None:
    async def main() -> None:
        work = tmp_path / "work"
        work.mkdir()
        (tmp_path / "secret").write_text("secret")
        (work / "link").symlink_to(tmp_path / "secret")
        (work / "a.txt").write_text("inside")
        answers = {}
        async with await AcpClient(AGENT, work, capabilities=EVERYTHING).create_session() as session:
            events = session.events
            for prompt in (
                f"read {work}/a.txt",
                f"read {work}/missing",
                f"read {work}/link",
                f"read {work}/../secret",
                f"write {tmp_path}/secret",
                f"write {work}/new/b.txt",
            ):
                await session.send(prompt)
                answers[prompt.replace(str(tmp_path), "")] = text_in(await turn(events))
        assert answers == {
            "read /work/a.txt": "inside",
            "read /work/missing": "error -32002",
            "read /work/link": "error -32603",
            "read /work/../secret": "error -32603",
            "write /secret": "error -32603",
            "write /work/new/b.txt": "written",
        }
        assert (tmp_path / "secret").read_text() == "secret"
        assert (work / "new" / "b.txt").read_text() == "written\n"

    run(main())


def test_nothing_is_served_that_was_not_offered(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "a.txt").write_text("inside")
        async with await AcpClient(AGENT, tmp_path).create_session(f"read {tmp_path}/a.txt") as session:
            assert text_in(await turn(session.events)) == "error -32601"

    run(main())


def test_terminals(tmp_path: Path) -> None:
    async def main() -> None:
        async with await AcpClient(AGENT, tmp_path, capabilities=EVERYTHING).create_session() as session:
            events = session.events
            await session.send("terminal pwd; echo err >&2; echo; exit 3")
            assert text_in(await turn(events)) == f"3 {tmp_path}\nerr\n\n"
            await session.send("hold sleep 1000 & echo $! > pid; wait")
            await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
            pid = int((tmp_path / "pid").read_text())
            assert is_running(pid)
        await until(lambda: not is_running(pid))

    run(main())


def test_elicitation_and_extensions(tmp_path: Path) -> None:
    async def main() -> None:
        config = AcpSessionConfig(elicit=lambda question: {"colour": question.message[6:12]})
        client = AcpClient(AGENT, tmp_path, capabilities=EVERYTHING)
        async with await client.create_session("elicit", config) as session:
            events = session.events
            assert '"colour":"colour"' in text_in(await turn(events)).replace(" ", "")
            await session.send("extension")
            assert text_in(await turn(events)) == "error -32601"

    run(main())


def test_modes_models_and_options(tmp_path: Path) -> None:
    async def main() -> None:
        config = AcpSessionConfig(mode="code", model="large")
        async with await AcpClient(AGENT, tmp_path).create_session("say ok", config) as session:
            received = await turn(session.events)
            assert SessionUpdate(session.session_id, CurrentModeUpdate("code")) in received
            assert [option.current_value for option in session.config_options] == ["large"]
            with pytest.raises(LocalProtocolError, match="no mode 'yolo'; choose one of ask, code"):
                await session.set_mode("yolo")
            with pytest.raises(LocalProtocolError, match=r"unknown model 'huge'\. Available: small, "):
                await session.set_model("huge")
            with pytest.raises(LocalProtocolError, match="no option 'x'; its options: model"):
                await session.set_config_option("x", "y")

    run(main())


def test_resume_replay_fork_list_and_unknown(tmp_path: Path) -> None:
    async def main() -> None:
        client = AcpClient(AGENT, tmp_path)
        async with await client.resume_session("stored", "say on") as session:
            received = await turn(session.events)
            assert [event.replayed for event in received if isinstance(event, SessionUpdate)] == [False]
        async with await client.resume_session("stored", "say on", AcpSessionConfig(replay=True)) as session:
            received = await turn(session.events)
            assert [event.replayed for event in received if isinstance(event, SessionUpdate)] == [True, False]
            assert text_in(received) == "historyon"
        async with await client.fork_session("stored", "say forked") as session:
            assert session.session_id == "forked"
            received = await turn(session.events)
            assert [event.replayed for event in received if isinstance(event, SessionUpdate)] == [True, False]
        assert await client.list_sessions() == [SessionListing("a", "/x", "A"), SessionListing("b", "/x")]
        with pytest.raises(SessionNotFound, match="session 'nope' not found: list the agent's sessions"):
            await client.resume_session("nope", "say x")
        with pytest.raises(NotSupported, match="deleting"):
            await client.delete_session("stored")

    run(main())


def test_a_session_that_is_opened_again_outlives_what_was_left_of_it_before(tmp_path: Path) -> None:
    """In one process: what is collected late is not what is open now."""

    async def main() -> None:
        client = AcpClient(AGENT, tmp_path, share_process=True)
        async with await client.create_session() as other:
            for number in range(3):
                first = weakref.ref(await client.resume_session("stored"))
                gc.collect()  # nobody has closed it, and nobody has it
                assert first() is None
                again = await client.resume_session("stored", "say on", AcpSessionConfig(replay=True))
                assert (number, text_in(await turn(again.events))) == (number, "historyon")
                await again.close()
                left = weakref.ref(again)
                again = await client.resume_session("stored", f"say {number}")
                gc.collect()
                assert left() is None
                assert text_in(await turn(again.events)) == str(number)
                assert await client.list_sessions() == [SessionListing("a", "/x", "A"), SessionListing("b", "/x")]
                async with await client.fork_session("stored", "say forked") as forked:
                    assert text_in(await turn(forked.events)).endswith("forked")
                await again.close()
            await other.send("say still here")
            assert text_in(await turn(other.events)) == "still here"

    run(main())


def test_several_sessions_in_one_process_are_kept_apart(tmp_path: Path) -> None:
    async def main() -> None:
        client = AcpClient(AGENT, tmp_path, share_process=True)
        sessions: list[AcpSession] = await asyncio.gather(*(client.create_session() for _ in range(5)))
        assert len({session.pid for session in sessions}) == 1
        assert len({session.session_id for session in sessions}) == 5
        readers = [session.events for session in sessions]
        await asyncio.gather(*(session.send(f"say {number}") for number, session in enumerate(sessions)))
        assert [text_in(await turn(reader)) for reader in readers] == ["0", "1", "2", "3", "4"]
        pid = sessions[0].pid
        for session in sessions[:4]:
            await session.close()
        assert is_running(pid)
        await sessions[4].send("say last")
        assert text_in(await turn(readers[4])) == "last"
        await sessions[4].cancel()
        assert not is_running(pid)

    run(main())
