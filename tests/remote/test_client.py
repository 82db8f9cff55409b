"""``stagedoor.connect`` against the real server: the same words, the same stories, the same exceptions as here."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.errors import AlreadyAnswered, BadRequest, LocalProtocolError, NotAllowed
from stagedoor.remote.client import ACCEPTED, REFUSED, RemoteOptions
from stagedoor.unified.options import Options

HELLO = [{"say": "Hello"}]


def kinds(events: list[stagedoor.Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_a_run_tells_the_same_as_a_local_one(server: Any, script: Any, tmp_path: Path) -> None:
    prompt = script([{"say": "I make a file."}, {"shell": "touch made"}], [{"say": "Done."}])
    targets: list[str] = []

    def ask(request: stagedoor.PermissionRequest) -> stagedoor.Allow:
        targets.append(request.target)
        return stagedoor.Allow()

    local_folder = tmp_path / "here"
    local_folder.mkdir()
    env = {"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "understudy-here")}
    local = stagedoor.run_sync("understudy", prompt, cwd=str(local_folder), can_use_tool=ask, env=env)
    remote = stagedoor.connect(server.url, server.token).run_sync(
        "understudy", prompt, cwd=server.workspace, tier="supervised", can_use_tool=ask
    )
    assert kinds(remote.events) == kinds(local.events)
    assert [event.seq for event in remote.events] == list(range(1, len(remote.events) + 1))
    assert (remote.text, remote.status, remote.usage) == (local.text, local.status, local.usage)
    assert targets == ["touch made", "touch made"]
    assert (server.workspace / "made").exists()
    resolved = next(event for event in remote.events if isinstance(event, stagedoor.PermissionResolved))
    assert (resolved.decision, resolved.by) == ("allow", "client")


def test_a_conversation_is_kept_and_ended_with_its_block(serve: Any, script: Any) -> None:
    async def main() -> None:
        async with serve() as server, stagedoor.connect(server.url, server.token) as remote:
            async with remote.open("understudy", title="Two turns") as session:
                assert session.id == ""
                with pytest.raises(LocalProtocolError, match="send one"):
                    await session.view()
                first = [event async for event in session.send(script(HELLO))]
                second = [event async for event in session.send(script([{"say": "More"}]))]
                everything = remote.session(session.id, after=0)
                rest = session.events
                assert (await session.view()).activity == "idle"
            last = [event async for event in rest]
            assert [event.seq for event in [*first, *second, *last]] == list(range(1, last[-1].seq + 1))
            assert (kinds(first)[0], kinds(first)[-1], kinds(second)[-1]) == ("Init", "TurnCompleted", "TurnCompleted")
            assert kinds(last) == ["Done"]
            assert [event async for event in everything.events] == [*first, *second, *last]
            view = (await remote.sessions())[0]
            assert (view.id, view.title, view.state, view.turn) == (session.id, "Two turns", "done", 2)
            with pytest.raises(LocalProtocolError, match="open another"):
                await session.post("again")
            with pytest.raises(stagedoor.SessionEnded):
                await remote.session(view.id).post("again")

            async with remote.open("understudy", resume=view.id) as going_on:
                [event async for event in going_on.send(script(HELLO))]
                [event async for event in going_on.send(script(HELLO))]
                resumed = await going_on.view()
            assert (resumed.parent_id, resumed.turn) == (view.id, 2)
            events = [event async for event in remote.run("understudy", script(HELLO), resume=view.id, fork=True)]
            assert kinds(events)[-1] == "Done"

    asyncio.run(main())


def test_leaving_a_run_ends_it_and_leaving_a_joined_session_does_not(serve: Any, script: Any) -> None:
    endless = script([{"say": {"text": ["w "] * 6000, "pause": 0.01}}])

    async def main() -> None:
        async with serve() as server:
            remote = stagedoor.connect(server.url, server.token)
            running = remote.run("understudy", endless)
            async for event in running:
                if isinstance(event, stagedoor.TextDelta):
                    break
            view = (await remote.sessions())[0]
            async with remote.session(view.id) as joined:
                async for event in joined.events:
                    if isinstance(event, stagedoor.TextDelta):
                        break
            async for event in remote.session(view.id, after=1).events:
                assert event.seq == 2
                break
            assert (await remote.session(view.id).view()).activity == "working"
            await running.aclose()
            assert (await remote.session(view.id).view()).state == "cancelled"

            token = stagedoor.CancelToken()
            stopped: list[stagedoor.Event] = []
            async for event in remote.run("understudy", endless, cancel=token):
                stopped.append(event)
                if isinstance(event, stagedoor.TextDelta):
                    token.cancel()
            assert isinstance(stopped[-1], stagedoor.Done)
            assert stopped[-1].status == "interrupted"

            session = remote.open("understudy")
            turn: list[stagedoor.Event] = []
            async for event in session.send(endless):
                turn.append(event)
                if kinds(turn).count("TextDelta") == 1 and isinstance(event, stagedoor.TextDelta):
                    await session.interrupt()
            assert isinstance(turn[-1], stagedoor.TurnCompleted)
            assert turn[-1].status == "interrupted"
            dropped = session.id
            del session
            async with asyncio.timeout(240):
                assert isinstance([event async for event in remote.session(dropped).events][-1], stagedoor.Done)

    asyncio.run(main())


def test_what_is_left_before_it_has_begun_is_ended_too(serve: Any, proxied: Any, script: Any) -> None:
    async def main() -> None:
        async with serve() as server, proxied(server) as proxy:
            remote = stagedoor.connect(proxy.url, server.token)
            for way in ("run", "open"):

                async def begin(way: str = way) -> None:
                    if way == "run":
                        slow = script([{"say": {"text": ["w", "w"], "pause": 60}}])
                        [event async for event in remote.run("understudy", slow)]
                    async with remote.open("understudy") as session:
                        await session.post(script(HELLO))
                        await asyncio.sleep(60)

                proxy.requests.clear()
                beginning = asyncio.create_task(begin())
                while not proxy.requests:
                    await asyncio.sleep(0)
                beginning.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await beginning
            assert [view.activity for view in await remote.sessions()] == ["ended", "ended"]

            session = remote.open("nobody")
            with pytest.raises(BadRequest):
                await session.post("Hello")
            with pytest.raises(BadRequest, match="nobody"):
                await session.post("Hello again")
            await session.close()

    asyncio.run(main())


def test_questions_are_asked_all_at_once_and_a_late_answer_is_no_error(serve: Any, script: Any) -> None:
    prompt = script([{"shell": "touch one"}, {"shell": "touch two"}], [{"say": "Done."}])
    thinking = threading.Event()
    targets: list[str] = []

    def slow(request: stagedoor.PermissionRequest) -> stagedoor.Allow:
        targets.append(request.target)
        thinking.wait(60)
        return stagedoor.Allow()

    async def main() -> None:
        async with serve() as server:
            remote = stagedoor.connect(server.url, server.token)
            events: list[stagedoor.Event] = []
            async for event in remote.run("understudy", prompt, can_use_tool=slow):
                events.append(event)
                if isinstance(event, stagedoor.PermissionRequest):
                    assert event.request_id in [question.id for question in await remote.questions()]
                    await remote.answer(event.request_id, stagedoor.Deny("not now"))
                    with pytest.raises(AlreadyAnswered):
                        await remote.answer(event.request_id, stagedoor.Allow())
                elif isinstance(event, stagedoor.TurnCompleted):
                    thinking.set()
            resolved = [event for event in events if isinstance(event, stagedoor.PermissionResolved)]
            assert [(event.decision, event.message) for event in resolved] == [("deny", "not now")] * 2
            assert sorted(targets) == ["touch one", "touch two"]
            assert await remote.questions() == []

            # Whoever joins later is asked only what is still open.
            joined_targets: list[str] = []

            async def ask(request: stagedoor.PermissionRequest) -> stagedoor.Deny:
                joined_targets.append(request.target)
                return stagedoor.Deny("no")

            old = (await remote.sessions())[0]
            assert kinds([event async for event in remote.session(old.id, can_use_tool=ask).events])[-1] == "Done"
            assert joined_targets == []
            async with remote.open("understudy") as session:
                await session.post(script([{"shell": "touch three"}], [{"say": "Done."}]))
                async with asyncio.timeout(240):
                    while not await remote.questions(session.id):
                        await asyncio.sleep(0.01)
                async with remote.session(session.id, can_use_tool=ask) as joined:
                    async for event in joined.events:
                        if isinstance(event, stagedoor.TurnCompleted):
                            break
            assert joined_targets == ["touch three"]

    asyncio.run(main())


def test_a_callback_that_cannot_be_obeyed_denies(serve: Any, script: Any) -> None:
    prompt = script([{"shell": "touch made"}], [{"say": "Done."}])

    def broken(_: stagedoor.PermissionRequest) -> stagedoor.Allow:
        raise ZeroDivisionError("thought too far")

    answers: dict[str, Any] = {
        "the permission callback failed: ZeroDivisionError('thought too far')": broken,
        "the permission callback returned 'yes', which is neither Allow nor Deny": lambda _: "yes",
        "cannot run a tool with a changed input": lambda _: stagedoor.Allow(updated_input={"command": "touch other"}),
    }

    async def main() -> list[str]:
        async with serve() as server:
            remote = stagedoor.connect(server.url, server.token)
            decisions: list[str] = []
            for callback in answers.values():
                async for event in remote.run("understudy", prompt, can_use_tool=callback):
                    if isinstance(event, stagedoor.PermissionResolved):
                        decisions.append(f"{event.decision}: {event.message}")
            assert list(server.workspace.iterdir()) == []
            return decisions

    for decision, expected in zip(asyncio.run(main()), answers, strict=True):
        assert decision.startswith("deny: ")
        assert expected in decision


def test_what_is_wrong_is_raised_as_it_is_here(serve: Any, script: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with serve() as server:
            remote = stagedoor.connect(server.url, server.token)
            stranger = stagedoor.connect(server.url, "stagedoor_nobody-knows-this-token")
            for fault, work in (
                (stagedoor.SessionNotFound, remote.session("nope").view()),
                (stagedoor.SessionNotFound, anext(remote.session("nope").events)),
                (stagedoor.SessionNotFound, remote.answer("nope:1", stagedoor.Allow())),
                (BadRequest, anext(remote.session("nope", after=-1).events)),
                (BadRequest, anext(remote.run("nobody", "Hello"))),
                (BadRequest, anext(remote.run("understudy", " "))),
                (NotAllowed, anext(remote.run("understudy", "Hello", cwd=tmp_path.parent))),
                (stagedoor.NotSignedIn, stranger.agents()),
                (stagedoor.NotSignedIn, anext(stranger.session("nope").events)),
            ):
                with pytest.raises(fault):
                    await work
            assert await remote.sessions() == []
            assert {agent.agent for agent in await remote.agents()} >= {"understudy"}
            assert (await remote.usage("agent")).rows == ()

    asyncio.run(main())


def test_an_answer_nobody_may_give_is_raised(serve: Any, script: Any) -> None:
    async def main() -> None:
        async with serve() as server:
            async with server.client() as client:
                invited = (await client.post("/api/pairing", json={"scope": "watch", "name": "screen"})).json()
                paired = (await client.post("/api/pair", json={"code": invited["code"]})).json()
            remote, screen = (stagedoor.connect(server.url, token) for token in (server.token, paired["token"]))
            async with remote.open("understudy") as session:
                await session.post(script([{"shell": "touch made"}], [{"say": "Done."}]))
                watching = screen.session(session.id, can_use_tool=lambda _: stagedoor.Allow())
                with pytest.raises(NotAllowed, match="needs the scope 'answer'"):
                    [event async for event in watching.events]
                assert not (server.workspace / "made").exists()

    asyncio.run(main())


def test_options_that_make_no_sense_with_a_server_are_refused(server: Any) -> None:
    remote = stagedoor.connect(server.url, server.token)
    for name in set(Options.__struct_fields__) - ACCEPTED:
        with pytest.raises(stagedoor.NotSupported, match=f"{name}= does not work with a server: "):
            remote.open("understudy", **{name: None})
    assert set(REFUSED) == set(Options.__struct_fields__) - ACCEPTED
    with pytest.raises(TypeError, match="unknown option 'colour'"):
        remote.open("understudy", colour="red")
    with pytest.raises(stagedoor.NotSupported, match="leave out model="):
        remote.open("understudy", resume="some", model="other")
    with pytest.raises(stagedoor.NotSupported, match="needs resume="):
        remote.open("understudy", fork=True)
    with pytest.raises(stagedoor.NotSupported, match="leave it out"):
        remote.open("understudy", permission_timeout=None)


def test_the_typed_options_are_those_that_are_taken() -> None:
    assert set(RemoteOptions.__annotations__) == ACCEPTED
