"""Sessions of the service over the embedded agent: follow-ups, sleep, endings, limits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stagedoor.errors import BadRequest, SessionEnded, SessionNotFound, SessionRunning, StagedoorError, TooMany
from stagedoor.service.config.settings import AgentSettings, Limits
from stagedoor.service.store import Query
from stagedoor.service.views import SessionSpec, SessionView
from stagedoor.transports.guard.processes import descendants
from stagedoor.unified.decisions import Allow
from stagedoor.unified.events import Done, Error, Init, Notice, TurnCompleted, TurnStarted, UsageReport
from tests.processes import command_lines

WAITS = [{"stall": None}]


def test_one_prompt_from_beginning_to_end(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, kit.play([{"say": "Hello"}]))
            assert (view.state, view.activity, view.queued) == ("running", "starting", 1)
            events = await watch.rest()
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert {event.session_id for event in events} == {view.id}
            assert kit.kinds(events)[:2] == ["init", "turn_started"]
            assert kit.kinds(events)[-2:] == ["turn_completed", "done"]
            ended = await service.sessions.get(view.id)
            report = (ended.state, ended.activity, ended.status, ended.result, ended.queued, ended.messages, ended.turn)
            assert report == ("done", "ended", "success", "Hello", 0, 2, 1)
            [message] = await service._store.messages(view.id, queued_only=False)
            assert (message.state, message.who) == ("sent", "tester")
            await service.sessions.cancel(view.id)  # it has ended; now its program is put away too
            counted = service.counters()
            assert counted["created understudy"] == counted["ended understudy done"] == 1
            assert (counted["awake"], counted["open"], counted["events"]) == (0, 0, len(events))

    kit.run(main())


def test_follow_ups_wait_their_turn(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            view, watch = await kit.start_session(
                service, kit.play([{"shell": "true"}], [{"say": "one"}]), approval="ask"
            )
            question = await watch.question()
            for name in ("two", "three"):
                await service.sessions.send(view.id, kit.play([{"say": name}]))
            assert (await service.sessions.get(view.id)).queued == 2
            await service.questions.answer(question.id, Allow())
            events = await watch.rest()
            assert [event.turn for event in events if isinstance(event, TurnStarted)] == [2, 3]
            assert [event.result for event in events if isinstance(event, TurnCompleted)] == ["one", "two", "three"]
            assert kit.kinds(events).count("done") == 1
            with pytest.raises(SessionEnded):
                await service.sessions.send(view.id, "more")

    kit.run(main())


def test_an_open_session_sleeps_and_is_woken_into_the_same_stream(kit: Any) -> None:
    async def main() -> None:
        usage = {"usage": {"input": 10, "output": 5}}
        async with kit.house.service(sleep_after=0.0) as service:
            view, watch = await kit.start_session(service, kit.play([{"say": "one"}, usage]), keep_open=True)
            events = await watch.notice("asleep")
            for name in ("two", "three"):
                asleep = await service.sessions.get(view.id)
                assert (asleep.activity, asleep.state) == ("asleep", "running")
                assert service.counters()["awake"] == 0
                await service.sessions.send(view.id, kit.play([{"say": name}, usage]))
                events += await watch.notice("asleep")
            ended = await service.sessions.cancel(view.id)
            events += await watch.rest()
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert kit.kinds(events).count("init") == kit.kinds(events).count("done") == 1
            assert isinstance(events[0], Init)
            codes = [event.code for event in events if isinstance(event, Notice) and event.code in ("woken", "asleep")]
            assert codes == ["asleep", "woken", "asleep", "woken", "asleep"]
            started = [event.turn for event in events if isinstance(event, TurnStarted)]
            completed = [(event.turn, event.result) for event in events if isinstance(event, TurnCompleted)]
            assert (started, completed) == ([1, 2, 3], [(1, "one"), (2, "two"), (3, "three")])
            assert [event.session.total_tokens for event in events if isinstance(event, UsageReport)] == [15, 30, 45]
            done = events[-1]
            assert isinstance(done, Done)
            assert (done.status, done.usage.total_tokens) == ("success", 45)
            assert (ended.state, ended.activity) == ("done", "ended")
            spent = await service.usage.sums(by="session")
            assert [(one.key, one.turns, one.usage.total_tokens) for one in spent.rows] == [(view.id, 3, 45)]
            await service.sessions.delete(view.id)
            assert await service.usage.sums(by="session") == spent  # what was used was used

    kit.run(main())


def test_a_restart_is_no_activity_and_the_outcome_of_the_last_turn_stays(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, kit.play([{"http_error": 500}]), keep_open=True)
            (*_, completed) = await watch.until(TurnCompleted)
        async with kit.house.service() as service:
            after = await service.sessions.get(view.id)
            assert (after.activity, after.status) == ("asleep", "error")
            assert after.updated_at == completed.timestamp
            await service.sessions.cancel(view.id)

    kit.run(main())


def test_cancelling_and_interrupting(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, kit.play(WAITS))
            await watch.until(TurnStarted)
            await service.sessions.send(view.id, "never")
            ended = await service.sessions.cancel(view.id)
            events = await watch.rest()
            assert (ended.state, ended.status, ended.error, ended.queued) == ("cancelled", "interrupted", "", 0)
            assert kit.kinds(events)[-3:] == ["turn_completed", "notice", "done"]
            assert [one.state for one in await service._store.messages(view.id, queued_only=False)] == [
                "sent",
                "dropped",
            ]
            assert await service.sessions.cancel(view.id) == ended

            view, watch = await kit.start_session(service, kit.play(WAITS), keep_open=True)
            await watch.until(TurnStarted)
            await service.sessions.interrupt(view.id)
            [completed] = [one for one in await watch.until(TurnCompleted) if isinstance(one, TurnCompleted)]
            assert (completed.status, (await service.sessions.get(view.id)).state) == ("interrupted", "running")
            await service.sessions.send(view.id, kit.play([{"say": "on"}]))
            await watch.until(TurnCompleted)
            assert (await service.sessions.cancel(view.id)).state == "done"

            view, watch = await kit.start_session(service, kit.play(WAITS))
            assert (await service.sessions.cancel(view.id)).state == "cancelled"  # before the agent has said anything
            assert kit.kinds(await watch.rest())[0] == "init"

    kit.run(main())


@pytest.mark.parametrize("turn", [1, 2])
def test_a_turn_interrupted_while_its_checkpoint_is_made_does_not_run(kit: Any, turn: int) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            looking = asyncio.Event()

            async def before_turn(view: SessionView, number: int) -> Notice | None:
                if number == turn:
                    looking.set()
                    await asyncio.Event().wait()  # a folder that takes for ever
                return None

            service._running.before_turn = before_turn
            prompts = [kit.play([{"say": "first"}]), kit.play([{"shell": "touch made"}], [{"say": "second"}])]
            view, watch = await kit.start_session(service, prompts[-turn], tier="autonomous", keep_open=True)
            if turn == 2:
                await watch.until(TurnCompleted)
                await service.sessions.send(view.id, prompts[1])
            await looking.wait()
            await service.sessions.interrupt(view.id)
            *_, completed = await watch.until(TurnCompleted)
            assert (completed.turn, completed.status) == (turn, "interrupted")
            assert not (kit.house.workspace / "made").exists()
            if turn == 2:  # else the agent has not begun, and there is nothing to go on with
                await service.sessions.send(view.id, kit.play([{"say": "third"}]))
                *_, completed = await watch.until(TurnCompleted)
                assert (completed.turn, completed.status) == (3, "success")
                await service.sessions.cancel(view.id)
            assert isinstance((await watch.rest())[-1], Done)
            states = [one.state for one in await service._store.messages(view.id, queued_only=False)]
            assert states == ["sent"] * (1 if turn == 1 else 3)

    kit.run(main())


def test_a_program_that_dies_in_its_turn_fails_and_one_that_dies_between_turns_sleeps(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, kit.play(WAITS), keep_open=True)
            await watch.until(TurnStarted)
            _kill_agents()
            events = await watch.rest()
            assert [event.fatal for event in events if isinstance(event, Error)] == [True]
            ended = await service.sessions.get(view.id)
            assert (ended.state, ended.status) == ("failed", "error")
            assert ended.error

            view, watch = await kit.start_session(service, kit.play([{"say": "one"}]), keep_open=True)
            await watch.until(TurnCompleted)
            _kill_agents()
            await watch.notice("asleep")
            await service.sessions.send(view.id, kit.play([{"say": "two"}]))
            await watch.until(lambda event: isinstance(event, TurnCompleted) and event.result == "two")

    kit.run(main())


def _kill_agents() -> None:
    """The agent itself, not the guard that stands over it."""
    below, lines = descendants(os.getpid()), command_lines()
    for pid in below:
        line = lines.get(pid, "")
        if "stagedoor.understudy" in line and "guard.py" not in line:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _all_gone() -> bool:
    """The guards end a moment after what they stand over."""
    until = time.monotonic() + 240
    while descendants(os.getpid()) and time.monotonic() < until:
        time.sleep(0.02)
    return not descendants(os.getpid())


def test_an_agent_that_cannot_be_started_fails_in_the_stream(kit: Any, tmp_path: Path) -> None:
    async def main() -> None:
        agents = {"claude": AgentSettings(command=str(tmp_path / "nowhere"))}
        async with kit.house.service(agents=agents) as service:
            view, watch = await kit.start_session(service, "hi", agent="claude", keep_open=True)
            events = await watch.rest()
            assert kit.kinds(events) == ["init", "turn_started", "error", "turn_completed", "done"]
            ended = await service.sessions.get(view.id)
            assert (ended.state, ended.status, ended.queued) == ("failed", "error", 0)
            assert "nowhere" in ended.error

    kit.run(main())


def test_resume_and_fork_make_new_sessions(kit: Any) -> None:
    async def main() -> None:
        kit.house.plays([{"say": "first"}], [{"say": "second"}])
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, "hi", title="Mine", group="g")
            await watch.rest()
            ended = await service.sessions.get(view.id)
            resumed = await service.sessions.resume(view.id, "go on", who="me")
            assert (resumed.parent_id, resumed.forked, resumed.title, resumed.group) == (view.id, False, "Mine", "g")
            events = await kit.watch(service, resumed.id).rest()
            assert isinstance(events[0], Init)
            assert events[0].resumed
            assert (await service.sessions.get(resumed.id)).result == "second"
            forked = await service.sessions.resume(view.id, "another way", fork=True)
            await kit.watch(service, forked.id).rest()
            report = await service.sessions.get(forked.id)
            assert (report.forked, report.parent_id, report.state) == (True, view.id, "done")
            assert report.native_id != ended.native_id
            assert await service.sessions.get(view.id) == ended

            never = await service.sessions.create(SessionSpec(prompt=kit.play(WAITS), keep_open=True))
            with pytest.raises(SessionRunning, match="still open"):
                await service.sessions.resume(never.id, "x")
            await service.sessions.cancel(never.id)

    kit.run(main())


def test_a_session_goes_on_with_the_rights_it_had_last(kit: Any) -> None:
    async def main() -> None:
        kit.house.plays([{"say": "first"}], [{"say": "second"}], [{"say": "third"}])
        async with kit.house.service() as service:
            sessions = service.sessions
            view, watch = await kit.start_session(service, "hi", tier="autonomous", approval="autoAll", keep_open=True)
            await watch.until(TurnCompleted)
            await sessions.reconfigure(view.id, tier="supervised", approval="ask", model="understudy-mini")
            forked = await sessions.resume(view.id, "beside", fork=True)
            await sessions.cancel(view.id)
            resumed = await sessions.resume(view.id, "on", keep_open=False)
            for other in (forked, resumed):
                assert (other.tier, other.approval, other.model) == ("supervised", "ask", "understudy-mini")
                await sessions.cancel(other.id)

    kit.run(main())


def test_change_and_delete(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, kit.play(WAITS))
            await watch.until(TurnStarted)
            await service.sessions.change(view.id, title="new name")
            with pytest.raises(SessionRunning, match="still running"):
                await service.sessions.delete(view.id)
            await service.sessions.cancel(view.id)
            changed = await service.sessions.change(view.id, archived=True)
            assert (changed.title, changed.archived, changed.state) == ("new name", True, "cancelled")
            assert await service.sessions.page(Query(archived=True)) == ([changed], 1)
            await service.sessions.delete(view.id)
            with pytest.raises(SessionNotFound):
                await service.sessions.get(view.id)
            assert await service._store.records(view.id, 0, 10) == []

    kit.run(main())


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("nothing to do", {"prompt": " "}, "the prompt is empty"),
    ("too much", {"prompt": "x" * 101}, "101 characters"),
    ("an unknown agent", {"prompt": "x", "agent": "clause"}, "did you mean 'claude'"),
    ("switched off", {"prompt": "x", "agent": "codex"}, "switched off"),
    ("what it cannot do", {"prompt": "x", "max_turns": 3}, "does not support max_turns"),
    ("no such folder", {"prompt": "x", "cwd": "missing"}, "is not a folder"),
    ("no such project", {"prompt": "x", "project_id": "p"}, "unknown project"),
    ("a branch without a worktree", {"prompt": "x", "from_branch": "main"}, "from_branch needs worktree"),
    ("a worktree of nothing", {"prompt": "x", "worktree": True}, "not in a git repository"),
]


def test_what_is_refused_leaves_nothing_behind(kit: Any) -> None:
    async def main() -> None:
        settings = kit.house.settings()
        agents = {**settings.agents, "codex": AgentSettings(enabled=False)}
        async with kit.house.service(agents=agents, limits=Limits(prompt=100, awake=1)) as service:
            for name, target, why in REFUSED:
                with pytest.raises(BadRequest) as refused:
                    await service.sessions.create(SessionSpec(**target))
                assert why in str(refused.value), name
            assert await service.sessions.page(Query()) == ([], 0)
            _, watch = await kit.start_session(service, "hi")  # the only seat is still free
            await watch.rest()

    kit.run(main())


def test_the_limit_puts_idle_sessions_to_sleep_first_and_then_refuses(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service(limits=Limits(awake=1, queued=2)) as service:
            idle, idle_watch = await kit.start_session(service, kit.play([{"say": "one"}]), keep_open=True)
            await idle_watch.until(TurnCompleted)
            busy, busy_watch = await kit.start_session(service, kit.play(WAITS))
            assert (await service.sessions.get(idle.id)).activity == "asleep"
            with pytest.raises(TooMany):
                await service.sessions.create(SessionSpec(prompt="hi"))
            with pytest.raises(TooMany):
                await service.sessions.send(idle.id, "wake up")
            await busy_watch.until(TurnStarted)
            for _ in range(2):
                await service.sessions.send(busy.id, "more")
            with pytest.raises(TooMany, match="has 2 waiting messages"):
                await service.sessions.send(busy.id, "more")
            await service.sessions.cancel(busy.id)
            await service.sessions.send(idle.id, kit.play([{"say": "two"}]))
            await idle_watch.until(lambda event: isinstance(event, TurnCompleted) and event.result == "two")
            assert service.counters()["awake"] == 1

    kit.run(main())


def test_agents_see_no_variable_of_the_servers(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEDOOR_TOKEN", "secret")
    monkeypatch.setenv("SOMETHING_ELSE", "seen")

    async def main() -> None:
        async with kit.house.service(tier="autonomous") as service:
            _, watch = await kit.start_session(service, kit.play([{"shell": "env"}], [{"say": "ok"}]))
            events = await watch.rest()
            [output] = [event.output for event in events if event.__struct_config__.tag == "tool_result"]
            names = {line.partition("=")[0] for line in output.splitlines()}
            assert {"SOMETHING_ELSE", "HOME", "PATH"} <= names
            ours = [name for name in names if name.startswith("STAGEDOOR_") and not name.startswith("STAGEDOOR_MARK_")]
            # Beside the mark by which a portable guard knows its own: which session it is, so that nesting is seen.
            assert sorted(ours) == ["STAGEDOOR_SESSION", "STAGEDOOR_UNDERSTUDY_HOME"]

    kit.run(main())


def test_the_default_agent_is_the_first_that_is_installed(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with kit.house.service(default_agent="") as service:
            found = [one.agent for one in await service.agents.list() if one.installed and one.signed_in is not False]
            view = await service.sessions.create(SessionSpec(prompt=kit.play([{"say": "ok"}])))
            assert view.agent == found[0]
            await service.sessions.cancel(view.id)

    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    kit.run(main())


def test_nothing_is_left_running_after_a_stop(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            watches = [(await kit.start_session(service, kit.play(WAITS), keep_open=bool(n % 2)))[1] for n in range(3)]
            await asyncio.gather(*(watch.until(TurnStarted) for watch in watches))
        assert await asyncio.to_thread(_all_gone)
        with pytest.raises(StagedoorError, match=r"server is stopping|start the server"):
            await service.sessions.create(SessionSpec(prompt="hi"))

    kit.run(main())


def test_settings_of_an_agent_hold_where_the_wish_is_silent(kit: Any) -> None:
    async def main() -> None:
        settings = kit.house.settings()
        how = replace(settings.agents["understudy"], auto_accept=("shell",), approval="ask", model="understudy-mini")
        async with kit.house.service(agents={"understudy": how}) as service:
            view, watch = await kit.start_session(service, kit.play([{"shell": "touch made"}], [{"say": "ok"}]))
            await watch.rest()
            assert (view.approval, view.model) == ("ask", "understudy-mini")
            assert (kit.house.workspace / "made").exists()
            [question] = await service.questions.list(open_only=False)
            assert (question.open, question.by, question.applied) == (False, "policy", True)

    kit.run(main())
