"""Whole dialogues with the understudy, through our own client."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podium.agents.acp import (
    AcpConfig,
    AgentMessageChunk,
    AgentThoughtChunk,
    ClientCapabilities,
    Content,
    Cost,
    Diff,
    Plan,
    PlanEntry,
    PromptResponse,
    RequestFailed,
    RequestPermission,
    SessionInfoUpdate,
    SessionUpdate,
    ToolCall,
    ToolCallUpdate,
    Unanswered,
    Usage,
    UsageUpdate,
    UserMessageChunk,
)
from podium.errors import LocalProtocolError, ProcessExited, SessionNotFound
from podium.transports.launch import Exited
from podium.understudy.demo import DEMO_FILES


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except FileNotFoundError:
        return False


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def pid_in(path: Path) -> int:
    await until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def is_text(event: Any) -> bool:
    return isinstance(event, SessionUpdate) and isinstance(event.update, AgentMessageChunk)


def shown(update: ToolCallUpdate) -> str:
    return "".join(content.text for content in update.contents() if isinstance(content, Content))


def test_text_thoughts_plan_and_usage(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        heard = await dialogue.say(
            [
                [
                    {"think": "Hm."},
                    {"say": {"text": "One two three.", "chunks": 2}},
                    {"plan": [{"text": "a", "status": "completed"}, {"text": "b"}]},
                    {"usage": {"input": 10, "output": 5, "cached": 2, "reasoning": 1}},
                ],
                [{"say": "Done."}, {"stop": "max_tokens"}],
            ]
        )
        assert [update.text for update in heard.updates if isinstance(update, AgentThoughtChunk)] == ["Hm."]
        chunks = [update.text for update in heard.updates if isinstance(update, AgentMessageChunk)]
        assert chunks == ["One two", " three.", "Done."]
        assert Plan([PlanEntry("a", "completed"), PlanEntry("b", "pending")]) in heard.updates
        assert any(isinstance(update, SessionInfoUpdate) for update in heard.updates)
        assert heard.updates[-1] == UsageUpdate(120, 200_000, Cost(0.0, "USD"))
        usage = Usage(110, 25, 135, thought_tokens=1, cached_read_tokens=52)
        assert heard.end == PromptResponse("max_tokens", usage, session_id=dialogue.session.session_id)

    understudy.dialogue(main)


def test_a_script_goes_on_from_turn_to_turn(understudy: Any) -> None:
    script = """
script:
  - [{think: Look.}, {shell: "echo passed"}]
  - when:
      - {contains: passed, reply: {say: Green.}}
      - {reply: {say: Red.}}
  - say: Second turn.
routes:
  "the other job":
    - say: Routed.
"""

    async def main(dialogue: Any) -> None:
        assert (await dialogue.say("go")).text == "Green."
        assert (await dialogue.say("go on")).text == "Second turn."
        assert (await dialogue.say("do the other job")).text == "Routed."
        assert (await dialogue.say("more")).text == "The script is over."

    understudy.dialogue(main, script=script, mode="auto")


def test_files_are_changed_for_real_and_shown_as_diffs(understudy: Any) -> None:
    work = understudy.workspace
    (work / "old.txt").write_text("alpha\n")

    async def main(dialogue: Any) -> None:
        heard = await dialogue.say(
            [
                {"write_file": {"path": "new/a.txt", "content": "one\n"}},
                {"edit_file": {"path": "new/a.txt", "old": "one", "new": "two"}},
                {"delete_file": "old.txt"},
                [{"read_file": "new/a.txt"}, {"find_files": "*.txt"}, {"search_content": "tw."}],
            ]
        )
        path = str(work.resolve() / "new" / "a.txt")
        diffs = [content for update in heard.final for content in update.contents() if isinstance(content, Diff)]
        assert diffs == [
            Diff(path, "one\n", None, {"kind": "add"}),
            Diff(path, "two\n", "one\n", {"kind": "modify"}),
            Diff(str(work.resolve() / "old.txt"), "", "alpha\n", {"kind": "delete"}),
        ]
        assert [shown(update) for update in heard.final[3:]] == ["two\n", "new/a.txt", "new/a.txt:1: two"]
        assert heard.started == [
            "Write new/a.txt",
            "Edit new/a.txt",
            "Delete old.txt",
            "Read new/a.txt",
            "Find *.txt",
            "Search tw.",
        ]
        assert [path.name for path in sorted(work.rglob("*")) if path.is_file()] == ["a.txt"]

    understudy.dialogue(main, mode="auto")


@pytest.mark.parametrize(
    "step",
    [
        {"read_file": "../secret"},
        {"read_file": "link"},
        {"write_file": {"path": "../secret", "content": "x"}},
        {"write_file": {"path": "link", "content": "x"}},
        {"write_file": {"path": "out/new", "content": "x"}},
        {"edit_file": {"path": "/etc/hostname", "old": "a", "new": "b"}},
        {"delete_file": "../secret"},
        {"search_content": {"pattern": ".", "path": ".."}},
        {"find_files": {"pattern": "*", "path": "/"}},
    ],
    ids=lambda step: " ".join(map(str, step.items()))[:40],
)
def test_file_tools_do_not_leave_the_workspace(understudy: Any, step: Any) -> None:
    secret = understudy.workspace.parent / "secret"
    secret.write_text("secret")
    (understudy.workspace / "link").symlink_to(secret)
    (understudy.workspace / "out").symlink_to(understudy.workspace.parent)

    async def main(dialogue: Any) -> None:
        heard = await dialogue.say([step, {"say": "Went on."}])
        assert heard.ended == ["failed"]
        assert "outside the workspace" in shown(heard.final[0])
        assert heard.text == "Went on."
        assert secret.read_text() == "secret"
        assert not (understudy.workspace.parent / "new").exists()

    understudy.dialogue(main, mode="auto")


EDIT = {"write_file": {"path": "a.txt", "content": "x"}}
COMMAND = {"shell": "echo ran > b.txt"}


@pytest.mark.parametrize(
    ("mode", "asked", "ended", "files"),
    [
        ("ask", ["Write a.txt", "echo ran > b.txt"], ["completed", "completed", "completed"], ["a.txt", "b.txt"]),
        ("auto_edit", ["echo ran > b.txt"], ["completed", "completed", "completed"], ["a.txt", "b.txt"]),
        ("auto", [], ["completed", "completed", "completed"], ["a.txt", "b.txt"]),
        ("plan", [], ["failed", "failed", "completed"], []),
    ],
)
def test_modes(understudy: Any, mode: str, asked: list[str], ended: list[str], files: list[str]) -> None:
    async def main(dialogue: Any) -> None:
        heard = await dialogue.say([EDIT, COMMAND, {"find_files": "*.none"}])
        assert [event.tool_call.title for event in heard.asked] == asked
        assert heard.ended == ended
        assert sorted(path.name for path in understudy.workspace.iterdir()) == files

    understudy.dialogue(main, mode=mode, request_permission=lambda question: "allow_once")


def test_permission_is_asked_with_four_kinds_and_the_diff(understudy: Any) -> None:
    asked: list[RequestPermission] = []

    def ask(question: RequestPermission) -> Any:
        asked.append(question)
        return "reject_once"

    async def main(dialogue: Any) -> None:
        heard = await dialogue.say([EDIT, {"say": "Then not."}])
        assert heard.ended == ["failed"]
        assert shown(heard.final[0]) == "Not done: the user rejected it."
        assert heard.text == "Then not."
        assert heard.stop_reason == "end_turn"
        (question,) = asked
        assert [option.kind for option in question.options] == [
            "allow_once",
            "allow_always",
            "reject_once",
            "reject_always",
        ]
        place = str(understudy.workspace.resolve() / "a.txt")
        assert question.tool_call.contents() == [Diff(place, "x", None, {"kind": "add"})]
        assert not (understudy.workspace / "a.txt").exists()

    understudy.dialogue(main, request_permission=ask)


@pytest.mark.parametrize(
    ("answer", "questions", "ended"),
    [
        ("allow_once", 3, ["completed", "completed", "completed"]),
        ("allow_always", 2, ["completed", "completed", "completed"]),
        ("reject_once", 3, ["failed", "failed", "failed"]),
        ("reject_always", 2, ["failed", "failed", "failed"]),
    ],
)
def test_always_is_remembered(understudy: Any, answer: Any, questions: int, ended: list[str]) -> None:
    async def main(dialogue: Any) -> None:
        heard = await dialogue.say([{"shell": "true"}, {"shell": "true"}, {"shell": "true #"}])
        assert (len(heard.asked), heard.ended) == (questions, ended)

    understudy.dialogue(main, request_permission=lambda question: answer)


def test_commands_stream_their_output_and_report_their_exit_code(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        heard = await dialogue.say(
            [{"shell": "echo one; until [ -e go ]; do touch go; sleep 0.2; done; echo two >&2; exit 3"}, {"say": "."}]
        )
        running = [
            shown(update)
            for update in heard.updates
            if isinstance(update, ToolCallUpdate) and update.status == "in_progress" and update.content
        ]
        assert running[0] == "one\n"
        (end,) = heard.final
        assert (end.status, shown(end)) == ("failed", "one\ntwo\n")
        assert (end.raw_output["exitCode"], end.raw_output["error"]) == (3, "exit code 3")

    understudy.dialogue(main, mode="auto")


def test_large_and_broken_output(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        heard = await dialogue.say(
            [[{"shell": "head -c 2000000 /dev/zero | tr '\\0' x"}, {"shell": "printf 'a\\377b\\n'"}], "half_emoji"]
        )
        outputs = sorted((shown(update) for update in heard.final), key=len)
        assert outputs == ["a\ufffdb\n", "x" * 2_000_000]
        assert heard.text == "Half of an emoji: \ufffd"

    understudy.dialogue(main, mode="auto")


def test_parallel_calls_are_asked_together(understudy: Any) -> None:
    waiting = 0
    both = asyncio.Event()

    async def ask(question: RequestPermission) -> Any:
        nonlocal waiting
        waiting += 1
        if waiting == 2:
            both.set()
        await both.wait()
        return "allow_once"

    async def main(dialogue: Any) -> None:
        heard = await dialogue.say([[{"shell": "echo a"}, {"shell": "echo b"}]])
        assert sorted(shown(update) for update in heard.final) == ["a\n", "b\n"]

    understudy.dialogue(main, request_permission=ask)


def test_a_sub_agent_works_under_its_call(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        inner = [{"shell": "echo deep"}, {"say": "Found it."}]
        heard = await dialogue.say([{"task": {"prompt": "look", "script": inner}}, {"say": "Thanks."}])
        task, command = (update for update in heard.updates if isinstance(update, ToolCall))
        assert command.meta == {"toolName": "shell", "parentToolCallId": task.tool_call_id}
        assert [shown(update) for update in heard.final] == ["deep\n", "Found it."]

    understudy.dialogue(main, mode="auto")


@pytest.mark.parametrize(("answer", "ended"), [({"answer": "blue"}, "blue"), (None, "The question was not answered.")])
def test_questions(understudy: Any, answer: Any, ended: str) -> None:
    async def main(dialogue: Any) -> None:
        heard = await dialogue.say([{"question": {"text": "Which?", "options": ["red", "blue"]}}])
        assert [shown(update) for update in heard.final] == [ended]

    forms = ClientCapabilities(elicitation_forms=True)
    understudy.dialogue(main, capabilities=forms, elicit=lambda question: answer)


def test_tools_it_does_not_have(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        heard = await dialogue.say(
            [
                [
                    {"web_fetch": "http://127.0.0.1:1/"},
                    {"native": {"tool": "Frobnicate", "input": {"a": 1}}},
                    {"call": {"tool": "shell"}},
                ]
            ]
        )
        assert heard.ended == ["failed", "failed", "failed"]

    understudy.dialogue(main, mode="auto")


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
        await dialogue.session.send('[{"shell": "sleep 1000 & echo $! > pid; echo begun; wait"}]')
        pid = await pid_in(understudy.workspace / "pid")
        assert alive(pid)
        await dialogue.session.interrupt()
        heard = await dialogue.hear()
        assert heard.stop_reason == "cancelled"
        assert heard.ended == ["failed"]
        assert "Cancelled." in shown(heard.final[0])
        await until(lambda: not alive(pid))
        assert (await dialogue.say([{"say": "Still here."}])).text == "Still here."

    understudy.dialogue(main, mode="auto")


def test_interrupt_mid_question(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        await dialogue.session.send('[{"shell": "echo x > ran"}]')
        await dialogue.hear(until=lambda event: isinstance(event, RequestPermission))
        await dialogue.session.interrupt()
        heard = await dialogue.hear()
        assert (heard.stop_reason, heard.ended) == ("cancelled", ["failed"])
        assert not (understudy.workspace / "ran").exists()

    async def never(question: RequestPermission) -> Any:
        await asyncio.Event().wait()

    understudy.dialogue(main, request_permission=never)


def test_a_command_that_leaves_something_behind_does_not_hold_up_the_turn(understudy: Any) -> None:
    pids: list[int] = []

    async def main(dialogue: Any) -> None:
        heard = await dialogue.say([{"shell": "sleep 1000 & echo $! > pid; echo left"}])
        assert [shown(update) for update in heard.final] == ["left\n"]
        pids.append(int((understudy.workspace / "pid").read_text()))
        assert alive(pids[0])

    understudy.dialogue(main, mode="auto")
    assert not alive(pids[0])


def test_closing_ends_commands_in_the_background_too(understudy: Any) -> None:
    pids: list[int] = []

    async def main(dialogue: Any) -> None:
        step = {"shell": {"command": "echo $$ > pid; exec sleep 1000", "background": True}}
        assert (await dialogue.say([step])).ended == ["completed"]
        pids.append(await pid_in(understudy.workspace / "pid"))
        assert alive(pids[0])

    understudy.dialogue(main, mode="auto")
    assert not alive(pids[0])


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
        heard = await dialogue.say([[{"say": "Well"}, fault]])
        failed = heard.end
        assert isinstance(failed, RequestFailed)
        assert (failed.code, failed.message, failed.details) == (code, message, details)
        assert heard.text == "Well"
        assert (await dialogue.say([[{"http_error": {"status": 500, "times": 2}}, {"say": "On."}]])).text == "On."

    understudy.dialogue(main)


@pytest.mark.parametrize("partway", [False, True])
def test_cut_is_a_death_in_the_middle(understudy: Any, partway: bool) -> None:
    async def main(dialogue: Any) -> None:
        heard = await dialogue.say([[{"say": "Well"}, {"cut": {"partway": partway}}]])
        assert isinstance(heard.end, Unanswered)
        assert [event async for event in dialogue.events] == [Exited(1, "")]

    understudy.dialogue(main)


def test_stall_and_empty(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        assert (await dialogue.say(["empty"])).text == ""
        assert (await dialogue.say([[{"stall": 0.01}, {"say": "Back."}]])).text == "Back."
        await dialogue.session.send('[["stall", {"say": "never"}]]')
        await dialogue.session.interrupt()
        heard = await dialogue.hear()
        assert (heard.stop_reason, heard.text) == ("cancelled", "")

    understudy.dialogue(main)


def test_sessions_are_stored_listed_loaded_resumed_and_forked(understudy: Any, bounded: Any, dialogue_of: Any) -> None:
    script = '- [{think: Hm.}, {say: "One. "}, {shell: echo x}]\n- say: Two.\n- say: Three.\n- say: Four.\n'

    async def main() -> None:
        client = understudy.client(script)
        async with await client.create_session("first prompt", AcpConfig(mode="auto")) as session:
            first = session.session_id
            assert (await dialogue_of(session).hear()).text == "One. Two."
        (listed,) = await client.list_sessions()
        assert (listed.session_id, listed.cwd, listed.title) == (first, str(understudy.workspace), "first prompt")
        async with await client.resume_session(first, "go on") as session:
            heard = await dialogue_of(session).hear()
            assert heard.text == "Three."
            assert not any(event.replayed for event in heard.events if isinstance(event, SessionUpdate))
            assert session.modes is not None
            assert session.modes.current_mode_id == "auto"
        async with await client.fork_session(first, "go on") as session:
            assert session.session_id != first
            assert (await dialogue_of(session).hear()).text == "Four."
        async with await client.resume_session(first, "go on", AcpConfig(replay=True)) as session:
            heard = await dialogue_of(session).hear()
            replayed = [event.update for event in heard.events if isinstance(event, SessionUpdate) and event.replayed]
            assert [type(update).__name__ for update in replayed] == [
                "UserMessageChunk",
                "AgentThoughtChunk",
                "AgentMessageChunk",
                "ToolCall",
                "AgentMessageChunk",
                "UserMessageChunk",
                "AgentMessageChunk",
            ]
            prompts = [update.text for update in replayed if isinstance(update, UserMessageChunk)]
            assert prompts == ["first prompt", "go on"]
            live = [event.update for event in heard.events if isinstance(event, SessionUpdate) and not event.replayed]
            assert "".join(update.text for update in live if isinstance(update, AgentMessageChunk)) == "Four."
        assert len(await client.list_sessions()) == 2
        await client.delete_session(first)
        assert first not in [one.session_id for one in await client.list_sessions()]
        for unknown in (first, "../../etc/passwd", ""):
            with pytest.raises(SessionNotFound):
                await client.resume_session(unknown, "go on")

    bounded(main())


def test_prompts_that_are_scripts(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        assert (await dialogue.say("- say: YAML\n- say: ' it is'\n")).text == "YAML it is"
        fenced = "Please do this:\n```podium\n- say: Fenced.\n```\nThank you."
        assert (await dialogue.say(fenced)).text == "Fenced."
        assert "Hello! I am the understudy" in (await dialogue.say("- not a script, just a dash")).text
        failed = (await dialogue.say("```podium\n- frobnicate: 1\n```")).end
        assert isinstance(failed, RequestFailed)
        assert "unknown part 'frobnicate'" in failed.message

    understudy.dialogue(main)


def test_the_demo_reacts_to_the_workspace(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        assert "work with no files yet" in (await dialogue.say("hello")).text
        for name, content in DEMO_FILES.items():
            (understudy.workspace / name).write_text(content)
        heard = await dialogue.say("hello")
        assert heard.text.endswith("Repaired, and the tests pass.")
        assert [question.tool_call.kind for question in heard.asked] == ["edit", "execute"]
        assert heard.ended == ["completed", "completed", "completed"]
        assert "{name}" in (understudy.workspace / "greeting.py").read_text()
        assert "work with 2 files" in (await dialogue.say("/demo")).text

    understudy.dialogue(main, request_permission=lambda question: "allow_once")


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
    given = iter(answers)

    async def main(dialogue: Any) -> None:
        assert (await dialogue.say("hello")).text.endswith(text)

    understudy.dialogue(main, request_permission=lambda question: next(given))


def test_bad_requests_are_refused_one_by_one(understudy: Any, bounded: Any) -> None:
    async def main() -> None:
        client = understudy.client()
        async with await client.create_session() as session:
            with pytest.raises(LocalProtocolError, match="no mode 'yolo'"):
                await session.set_mode("yolo")
            await session.set_model("understudy-mini")
            assert [option.current_value for option in session.config_options] == ["understudy-mini"]

    bounded(main())


def test_a_bad_script_is_said_at_once(understudy: Any, bounded: Any) -> None:
    async def main() -> None:
        with pytest.raises(ProcessExited, match="unknown part"):
            await understudy.client("- frobnicate: 1\n").create_session()

    bounded(main())
