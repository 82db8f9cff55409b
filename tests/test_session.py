"""The unified session over the embedded agent: a real child process, real tools, no mocks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.errors import AlreadyAnswered, LocalProtocolError, SessionEnded
from stagedoor.permissions.audit import read_log, verify
from stagedoor.transports.guard.processes import descendants
from stagedoor.unified.events import Event
from stagedoor.unified.options import McpServer, Options, check_options

BOUND = 240.0


def script(*replies: object) -> str:
    """A prompt the understudy plays as its script."""
    return json.dumps({"script": list(replies)})


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return {"cwd": str(workspace), "env": {"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "home")}}


def run(prompt: str, options: dict[str, Any], **more: Any) -> list[Event]:
    async def main() -> list[Event]:
        async with asyncio.timeout(BOUND):
            return [event async for event in stagedoor.run("understudy", prompt, **(options | more))]

    return asyncio.run(main())


def kinds(events: list[Event]) -> list[str]:
    return [event.__struct_config__.tag for event in events]  # type: ignore[misc]


def test_a_whole_run(options: dict[str, Any]) -> None:
    prompt = script([{"think": "hm"}, {"say": "Hello"}, {"shell": "echo out; exit 3"}], [{"say": "Bye"}])
    events = run(prompt, options, tier="autonomous")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert {event.agent for event in events} == {"understudy"}
    assert kinds(events)[:2] == ["init", "turn_started"]
    assert kinds(events)[-2:] == ["turn_completed", "done"]
    result = next(event for event in events if isinstance(event, stagedoor.ToolResult))
    assert (result.name, result.status, result.exit_code) == ("shell", "error", 3)
    assert "out" in result.output
    done = events[-1]
    assert isinstance(done, stagedoor.Done)
    assert (done.status, done.result, done.tool_uses) == ("success", "Bye", 1)


def test_what_a_sub_agent_does_carries_its_call(options: dict[str, Any]) -> None:
    inner = [
        [{"think": "hm"}, {"say": "Looking."}, {"write_file": {"path": "a.txt", "content": "one\n"}}],
        {"say": "Seen."},
    ]
    prompt = script([{"say": "Go."}, {"task": {"prompt": "look", "script": inner}}], [{"say": "Thanks."}])
    events = run(prompt, options, tier="autonomous")
    [task] = [event for event in events if isinstance(event, stagedoor.ToolUse) and event.name == "task"]
    below = [event for event in events if event.parent_tool_use_id is not None]
    assert {event.parent_tool_use_id for event in below} == {task.tool_use_id}
    assert {"thinking", "text_delta", "text", "tool_use", "file_change", "tool_result"} == set(kinds(below)) - {
        "thinking_delta"
    }
    texts = [(event.text, event.parent_tool_use_id is None) for event in events if isinstance(event, stagedoor.Text)]
    assert texts == [("Go.", True), ("Looking.", False), ("Seen.", False), ("Thanks.", True)]


def test_files_change_and_the_diff_is_told(options: dict[str, Any]) -> None:
    events = run(script([{"write_file": {"path": "a.txt", "content": "one\n"}}], [{"say": "ok"}]), options)
    [change] = [event for event in events if isinstance(event, stagedoor.FileChange)]
    assert (change.path, change.change, change.after) == ("a.txt", "created", "one\n")
    assert change.diff == "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+one\n"
    assert (Path(options["cwd"]) / "a.txt").read_text() == "one\n"


ASKS = script([{"shell": "touch made"}], [{"say": "ok"}])
Callback = Callable[[stagedoor.PermissionRequest], Any]


async def allow_async(request: stagedoor.PermissionRequest) -> stagedoor.Allow:
    await asyncio.sleep(0)
    return stagedoor.Allow()


def broken(request: stagedoor.PermissionRequest) -> stagedoor.Allow:
    raise RuntimeError("boom")


PERMISSIONS: list[tuple[str, Callback | None, bool, str, str]] = [
    ("allowed", lambda request: stagedoor.Allow(), True, "callback", ""),
    ("allowed by a coroutine", allow_async, True, "callback", ""),
    ("denied", lambda request: stagedoor.Deny("not today"), False, "callback", "not today"),
    (
        "a callback that raises denies",
        broken,
        False,
        "callback",
        "the permission callback failed: RuntimeError('boom')",
    ),
    ("an answer that is none denies", lambda request: True, False, "callback", "the permission callback returned True"),
    ("nobody to ask denies", None, False, "policy", "nobody can be asked"),
]


@pytest.mark.parametrize(
    ("callback", "allowed", "by", "message"), [row[1:] for row in PERMISSIONS], ids=[row[0] for row in PERMISSIONS]
)
def test_permissions(options: dict[str, Any], callback: Callback | None, allowed: bool, by: str, message: str) -> None:
    events = run(ASKS, options, approval="ask", can_use_tool=callback)
    [question] = [event for event in events if isinstance(event, stagedoor.PermissionRequest)]
    [resolved] = [event for event in events if isinstance(event, stagedoor.PermissionResolved)]
    [result] = [event for event in events if isinstance(event, stagedoor.ToolResult)]
    assert (question.tool_name, question.operation) == ("shell", "execute")
    assert (question.target, question.risk) == ("touch made", "medium")
    assert question.request_id == resolved.request_id
    assert (resolved.decision, resolved.by) == ("allow" if allowed else "deny", by)
    assert resolved.message.startswith(message)
    assert result.status == ("success" if allowed else "denied")
    assert result.output == "" or not allowed  # what the question showed is not what the command has put out
    assert question.risk_reasons == ["writes made, in the workspace"]
    assert (Path(options["cwd"]) / "made").exists() == allowed
    order = kinds(events)
    assert order.index("tool_use") < order.index("permission_request") < order.index("permission_resolved")


def test_an_unanswered_question_is_denied_when_its_time_is_up(options: dict[str, Any]) -> None:
    async def never(request: stagedoor.PermissionRequest) -> stagedoor.Allow:
        await asyncio.Event().wait()
        return stagedoor.Allow()

    events = run(ASKS, options, approval="ask", can_use_tool=never, permission_timeout=0.3)
    [question] = [event for event in events if isinstance(event, stagedoor.PermissionRequest)]
    [resolved] = [event for event in events if isinstance(event, stagedoor.PermissionResolved)]
    assert question.expires_at is not None
    assert (resolved.decision, resolved.by) == ("deny", "timeout")
    assert not (Path(options["cwd"]) / "made").exists()


def test_answers_from_outside_once_and_in_time(options: dict[str, Any]) -> None:
    async def main() -> None:
        async def wait(request: stagedoor.PermissionRequest) -> stagedoor.Allow:
            await asyncio.Event().wait()
            return stagedoor.Allow()

        async with (
            asyncio.timeout(BOUND),
            stagedoor.open("understudy", approval="ask", can_use_tool=wait, **options) as session,
        ):
            async for event in session.send(ASKS):
                if isinstance(event, stagedoor.PermissionRequest):
                    session.answer(event.request_id, stagedoor.Allow())
                    with pytest.raises(AlreadyAnswered):
                        session.answer(event.request_id, stagedoor.Deny())
                if isinstance(event, stagedoor.PermissionResolved):
                    assert (event.decision, event.by) == ("allow", "client")

    asyncio.run(main())


def test_turns_of_one_session_and_resume_in_another(options: dict[str, Any]) -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND):
            async with stagedoor.open("understudy", **options) as session:
                first = [event async for event in session.send(script([{"say": "one"}]))]
                second = [event async for event in session.send(script([{"say": "two"}]))]
                session_id = session.id
            assert (kinds(first)[0], kinds(second)[0]) == ("init", "turn_started")
            assert [event.turn for event in second] == [2] * len(second)
            with pytest.raises(SessionEnded):
                await anext(session.send("more"))
            assert [
                stored.session_id for stored in stagedoor.history(options["cwd"], "understudy", env=options["env"])
            ] == [session_id]
            async with stagedoor.open("understudy", resume=session_id, **options) as again:
                third = [event async for event in again.send(script([{"say": "three"}]))]
            init = third[0]
            assert isinstance(init, stagedoor.Init)
            assert (init.resumed, init.native_session_id) == (True, session_id)

    asyncio.run(main())


def test_a_changed_input_is_refused_where_the_agent_cannot_take_it(options: dict[str, Any]) -> None:
    def change(request: stagedoor.PermissionRequest) -> stagedoor.Allow:
        return stagedoor.Allow(updated_input={"command": "touch other"})

    events = run(ASKS, options, approval="ask", can_use_tool=change)
    [result] = [event for event in events if isinstance(event, stagedoor.ToolResult)]
    assert result.status == "denied"
    assert list(Path(options["cwd"]).iterdir()) == []


def test_closing_does_not_wait_for_a_reader_that_has_gone(options: dict[str, Any]) -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND), stagedoor.open("understudy", **options) as session:
            turn = session.send(script([{"say": "x" * 20_000, "chunks": 10_000}]))
            assert isinstance(await anext(turn), stagedoor.Init)
            await turn.aclose()

    asyncio.run(main())


def test_a_second_prompt_during_a_turn_is_refused(options: dict[str, Any]) -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND), stagedoor.open("understudy", tier="autonomous", **options) as session:
            turn = session.send(script([{"shell": "sleep 600"}]))
            assert isinstance(await anext(turn), stagedoor.Init)
            with pytest.raises(LocalProtocolError, match="a turn is still running"):
                await anext(session.send("more"))
            await session.interrupt()

    asyncio.run(main())


def test_an_agent_that_takes_nothing_in_mid_turn_says_so(options: dict[str, Any]) -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND), stagedoor.open("understudy", tier="autonomous", **options) as session:
            assert session.capabilities.steer is False
            with pytest.raises(stagedoor.NotSupported, match="accepts no input during a turn"):
                await session.steer("and mind the tests")

    asyncio.run(main())


def test_a_turn_is_undone_and_the_undo_too(options: dict[str, Any]) -> None:
    work = Path(options["cwd"])

    async def main() -> None:
        opened = stagedoor.open("understudy", tier="autonomous", checkpoints=True, **options)
        async with asyncio.timeout(BOUND), opened as session:
            reader = session.events
            async for _ in session.send(script([{"shell": "echo new > made.txt"}], [{"say": "done"}])):
                pass
            assert [(one.turn, one.kind) for one in await session.checkpoints()] == [(1, "turn")]
            undone = await session.undo()
            assert (undone.paths, (work / "made.txt").exists()) == (("made.txt",), False)
            redone = await session.undo(checkpoint=undone.redo, paths=["made.txt"])
            assert (redone.paths, (work / "made.txt").read_text()) == (("made.txt",), "new\n")
        told = [event async for event in reader if isinstance(event, stagedoor.FilesRestored)]
        assert [(event.before_turn, event.files, event.redo) for event in told] == [
            (1, 1, undone.redo),
            (1, 1, redone.redo),
        ]
        async with stagedoor.open("understudy", **options) as session:
            with pytest.raises(stagedoor.NotSupported, match="open it with checkpoints=True"):
                await session.undo()

    asyncio.run(main())


def test_interrupt_ends_the_turn_and_its_command_but_not_the_session(options: dict[str, Any]) -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND), stagedoor.open("understudy", tier="autonomous", **options) as session:
            seen: list[Event] = []
            async for event in session.send(script([{"shell": "echo up; sleep 600"}])):
                seen.append(event)
                if isinstance(event, stagedoor.ToolProgress):
                    await session.interrupt()
            completed = seen[-1]
            assert isinstance(completed, stagedoor.TurnCompleted)
            assert completed.status == "interrupted"
            after = [event async for event in session.send(script([{"say": "still here"}]))]
            assert isinstance(after[-1], stagedoor.TurnCompleted)
            assert after[-1].status == "success"

    asyncio.run(main())
    assert descendants(os.getpid()) == []


def test_a_turn_that_takes_too_long(options: dict[str, Any]) -> None:
    events = run(script([{"shell": "sleep 600"}]), options, tier="autonomous", timeout=1.0)
    errors = [event.kind for event in events if isinstance(event, stagedoor.Error)]
    assert errors == ["timeout"]
    assert isinstance(events[-1], stagedoor.Done)
    assert events[-1].status == "interrupted"


@pytest.mark.parametrize("way", ["timeout", "interrupt"])
def test_an_agent_that_does_not_begin(options: dict[str, Any], tmp_path: Path, way: str) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nsleep 600\n")
    silent.chmod(0o755)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "x"}
    more = {"executable": str(silent), "env": env, "inherit_env": False, "cwd": options["cwd"]}

    async def main() -> list[Event]:
        async with (
            asyncio.timeout(BOUND),
            stagedoor.open("claude", timeout=1.0 if way == "timeout" else None, **more) as session,
        ):
            if way == "interrupt":
                asyncio.get_running_loop().call_later(
                    0.5, lambda: stops.append(asyncio.ensure_future(session.interrupt()))
                )
            return [event async for event in session.send("go")]

    stops: list[asyncio.Future[None]] = []
    events = asyncio.run(main())
    assert [event.kind for event in events if isinstance(event, stagedoor.Error)] == ["timeout"] * (way == "timeout")
    assert isinstance(events[-1], stagedoor.TurnCompleted)
    assert events[-1].status == "interrupted"
    assert descendants(os.getpid()) == []


def test_an_agent_that_waits_for_an_answer_is_not_called_stalled(options: dict[str, Any]) -> None:
    async def late(_: stagedoor.PermissionRequest) -> stagedoor.Allow:
        never = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(never.wait(), 0.6)  # a dozen times as long as its silence may last
        return stagedoor.Allow()

    async def main() -> list[Event]:
        async with (
            asyncio.timeout(BOUND),
            stagedoor.open("understudy", approval="ask", can_use_tool=late, stall_after=0.05, **options) as session,
        ):
            events: list[Event] = []
            async for event in session.send(script([{"shell": "sleep 600"}])):
                events.append(event)
                if stalled(event) and any(isinstance(each, stagedoor.PermissionResolved) for each in events):
                    await session.interrupt()
            return events

    def stalled(event: Event) -> bool:
        return isinstance(event, stagedoor.Notice) and event.code == "stalled"

    events = asyncio.run(main())
    question, answer = (kinds(events).index(kind) for kind in ("permission_request", "permission_resolved"))
    assert not any(map(stalled, events[question:answer]))
    assert any(map(stalled, events[answer:]))


def test_an_agent_that_dies_mid_turn(options: dict[str, Any]) -> None:
    events = run(script([{"say": "I will now di"}, "cut"]), options)
    assert kinds(events)[-2:] == ["turn_completed", "done"]
    done = events[-1]
    assert isinstance(done, stagedoor.Done)
    assert done.status == "error"
    assert [event.kind for event in events if isinstance(event, stagedoor.Error)] == ["connection_failed"]


def test_leaving_the_loop_stops_the_agent(options: dict[str, Any]) -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND):
            stream = stagedoor.run("understudy", script([{"shell": "sleep 600"}]), tier="autonomous", **options)
            async for event in stream:
                if isinstance(event, stagedoor.ToolUse):
                    break
            await stream.aclose()

    asyncio.run(main())
    assert descendants(os.getpid()) == []


def test_a_dropped_session_leaves_nothing_running(options: dict[str, Any]) -> None:
    async def main() -> None:
        session = stagedoor.open("understudy", tier="autonomous", **options)
        turn = session.send(script([{"shell": "sleep 600"}]))
        assert isinstance(await anext(turn), stagedoor.Init)
        await turn.aclose()
        del session, turn
        gc.collect()
        async with asyncio.timeout(BOUND):
            while descendants(os.getpid()):
                await asyncio.sleep(0.02)

    asyncio.run(main())


def test_raw_puts_the_native_message_beside_each_event(options: dict[str, Any]) -> None:
    events = run(script([{"say": "hi"}]), options, raw=True)
    deltas = [event for event in events if isinstance(event, stagedoor.TextDelta)]
    assert [json.loads(bytes(event.native))["method"] for event in deltas] == ["session/update"] * len(deltas)
    assert "absorbed" in [event.code for event in events if isinstance(event, stagedoor.Notice)]


def test_run_sync(options: dict[str, Any]) -> None:
    result = stagedoor.run_sync("understudy", script([{"say": "forty-two"}]), **options)
    assert (result.text, result.status) == ("forty-two", "success")

    async def inside_a_loop() -> stagedoor.Result:
        with pytest.raises(RuntimeError, match=r"use await stagedoor\.result\(…\)"):
            stagedoor.run_sync("understudy", "anything", **options)
        return await stagedoor.result("understudy", script([{"say": "forty-two"}]), **options)

    inside = asyncio.run(inside_a_loop())
    assert (inside.text, inside.status) == ("forty-two", "success")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"agent": "claud"}, "unknown agent 'claud': did you mean 'claude'?"),
        ({"agent": "understudy", "driver": "exec"}, "understudy has no driver 'exec'; choose from acp"),
        ({"agent": "understudy", "max_turns": 3}, r"understudy \(acp\) does not support max_turns"),
        (
            {"agent": "understudy", "sandbox": "fullAccess", "confine": "workspace"},
            "sandbox='fullAccess' and confine='workspace' contradict each other",
        ),
    ],
)
def test_what_is_not_supported_is_refused_before_anything_starts(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(stagedoor.NotSupported, match=complaint):
        stagedoor.open(**arguments)


BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "a tier": ({"tier": "wild"}, "tier='wild': choose from dry-run, supervised, autonomous"),
    "an approval": ({"approval": "x"}, "approval='x': choose from ask, askDangerous, autoEdit, autoAll"),
    "a number": ({"timeout": "1"}, "timeout='1': expected `float | null`, got `str`"),
    "below zero": ({"timeout": -4}, "timeout=-4: give a number above 0, or None for no limit"),
    "no end": ({"permission_timeout": float("inf")}, "permission_timeout=inf: give a number above 0, or None"),
    "a word for a list": ({"extra_args": "--x"}, "extra_args='--x': expected `array`, got `str`"),
    "no secret is told": ({"env": {"KEY": 1}}, "^env: expected `str`, got `int`"),
    "no function": ({"can_use_tool": 5}, "can_use_tool=5: give a function"),
    "no policy": ({"policy": {"default": "deny"}}, "give the path of a policy file, or a Policy"),
    "a copy of nothing": ({"fork": True}, "fork=True copies a session: name it with resume="),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_a_wrong_value_is_refused_before_anything_starts(name: str) -> None:
    arguments, complaint = BAD_OPTIONS[name]
    with pytest.raises(stagedoor.BadRequest, match=complaint):
        stagedoor.open("understudy", **arguments)


def test_paths_and_tables_may_be_given_as_they_come(tmp_path: Path) -> None:
    arguments = {
        "cwd": tmp_path,
        "images": [tmp_path / "a.png"],
        "mcp_servers": {"docs": {"command": "x"}},
        "timeout": 5,
    }
    expected = Options(
        cwd=str(tmp_path), images=(str(tmp_path / "a.png"),), mcp_servers={"docs": McpServer(command="x")}, timeout=5.0
    )
    assert check_options(arguments) == expected


def test_an_unknown_option() -> None:
    with pytest.raises(TypeError, match="unknown option 'modle'; the options are cwd, model"):
        stagedoor.open("understudy", modle="x")


POLICY = """
rules:
  - {action: deny, command: "touch forbidden*", message: "not that one"}
  - {action: allow, command: "touch *"}
"""
RULED: list[tuple[str, str, str]] = [
    ("touch made", "success", "policy"),
    ("touch forbidden", "denied", "policy"),
    ("touch made && touch forbidden", "denied", "policy"),
    ("mkdir folder", "success", "callback"),
]


@pytest.mark.parametrize(("command", "status", "by"), RULED, ids=[row[0] for row in RULED])
def test_a_policy_decides_before_anybody_is_asked(
    options: dict[str, Any], tmp_path: Path, command: str, status: str, by: str
) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    log = tmp_path / "audit.jsonl"
    more = {"policy": str(tmp_path / "policy.yaml"), "audit": str(log)}
    prompt = script([{"shell": command}], [{"say": "ok"}])
    events = run(prompt, options, can_use_tool=lambda request: stagedoor.Allow(), **more)
    [resolved] = [event for event in events if isinstance(event, stagedoor.PermissionResolved)]
    [result] = [event for event in events if isinstance(event, stagedoor.ToolResult)]
    assert (result.status, resolved.by) == (status, by)
    assert verify(log).ok
    assert len(log.read_text().splitlines()) == 1


def test_what_a_tier_lets_run_unasked_is_recorded(options: dict[str, Any], tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    (Path(options["cwd"]) / "seen.txt").write_text("x")
    prompt = script([{"shell": "touch made"}], [{"read_file": "seen.txt"}], [{"say": "ok"}])
    run(prompt, options, tier="autonomous", audit=str(log))
    assert [(one.entry.by, one.entry.rule, one.entry.decision, one.entry.target) for one in read_log(log)] == [
        ("tier", "tier autonomous", "allow", "touch made")
    ]
    assert verify(log).ok


def test_an_answer_for_the_session_leaves_a_line_for_every_call(options: dict[str, Any], tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    prompt = script([{"shell": "mkdir -p made"}], [{"shell": "mkdir -p made"}], [{"say": "ok"}])
    events = run(prompt, options, can_use_tool=lambda request: stagedoor.Allow(remember="session"), audit=str(log))
    assert [(one.entry.by, one.entry.rule, one.entry.decision) for one in read_log(log)] == [
        ("callback", "", "allow"),
        ("rule", "remembered", "allow"),
    ]
    questions = [event.automatic for event in events if isinstance(event, stagedoor.PermissionRequest)]
    assert questions == [False, True]


def test_a_mention_of_what_may_not_be_read_is_sent_as_text(options: dict[str, Any], tmp_path: Path) -> None:
    (Path(options["cwd"]) / "secret.txt").write_text("x")
    (tmp_path / "policy.yaml").write_text("rules:\n  - {action: deny, name: hidden, path: secret.txt}\n")
    prompt = script([{"say": "@secret.txt"}])
    events = run(prompt, options, policy=str(tmp_path / "policy.yaml"))
    [notice] = [event for event in events if isinstance(event, stagedoor.Notice) and event.code == "mention_denied"]
    assert "rule “hidden” denies read of" in notice.message
    [started] = [event for event in events if isinstance(event, stagedoor.TurnStarted)]
    assert started.prompt == prompt
    assert [event.text for event in events if isinstance(event, stagedoor.Text)] == ["@ secret.txt"]
    for lists in ({"disallowed_tools": ("read_file",)}, {"allowed_tools": ("shell",)}):
        events = run(prompt, options, **lists)
        assert "mention_denied" in [event.code for event in events if isinstance(event, stagedoor.Notice)]


def test_a_bad_policy_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("rules:\n  - {action: deny, comand: x}\n")
    with pytest.raises(stagedoor.StagedoorError, match="line 2"):
        stagedoor.open("understudy", policy=str(tmp_path / "policy.yaml"))


def test_a_policy_holds_on_when_its_session_is_resumed(options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    first = run(script([{"say": "hi"}]), options, policy=str(tmp_path / "policy.yaml"))
    prompt = script([{"shell": "touch forbidden"}], [{"say": "ok"}])
    again = run(prompt, options, resume=first[0].session_id, can_use_tool=allow_async)
    [resolved] = [event for event in again if isinstance(event, stagedoor.PermissionResolved)]
    assert (resolved.decision, resolved.by, resolved.message) == ("deny", "policy", "not that one")


def test_always_adds_a_rule_to_the_policy_file(options: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    prompt = script([{"shell": "mkdir folder"}], [{"say": "ok"}])
    always = lambda request: stagedoor.Allow(remember="always")  # noqa: E731
    run(prompt, options, can_use_tool=always, policy=str(file))
    assert "mkdir folder" in file.read_text()
    (Path(options["cwd"]) / "folder").rmdir()
    events = run(prompt, options, policy=str(file))
    [resolved] = [event for event in events if isinstance(event, stagedoor.PermissionResolved)]
    assert (resolved.decision, resolved.by) == ("allow", "policy")


def test_resume_by_stagedoors_own_id_from_anywhere(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = run(script([{"say": "one"}]), options, tier="dry-run")
    monkeypatch.chdir(tmp_path)
    del options["cwd"]
    again = run(script([{"say": "two"}]), options, resume=events[0].session_id)
    init = again[0]
    assert isinstance(init, stagedoor.Init)
    assert isinstance(events[0], stagedoor.Init)
    assert (init.resumed, init.native_session_id, init.cwd) == (True, events[0].native_session_id, events[0].cwd)
    with pytest.raises(stagedoor.ServiceError, match="it cannot be resumed with tier autonomous"):
        stagedoor.open("understudy", resume=events[0].session_id, tier="autonomous")
