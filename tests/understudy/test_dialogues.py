"""Whole dialogues with the understudy, through our own client."""

import asyncio
from typing import Any

import pytest

from stagedoor.agents.acp import (
    AcpPlan,
    AcpToolCall,
    AcpUsage,
    AgentMessageChunk,
    AgentThoughtChunk,
    ClientCapabilities,
    Content,
    Cost,
    DiffContent,
    PlanEntry,
    PromptResponse,
    RequestPermission,
    SessionInfoUpdate,
    ToolCallUpdate,
    UsageUpdate,
)


def output_of(update: ToolCallUpdate) -> str:
    return "".join(content.text for content in update.contents() if isinstance(content, Content))


def test_text_thoughts_plan_and_usage(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        reply = await dialogue.say(
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
        assert [update.text for update in reply.updates if isinstance(update, AgentThoughtChunk)] == ["Hm."]
        chunks = [update.text for update in reply.updates if isinstance(update, AgentMessageChunk)]
        assert chunks == ["One two", " three.", "Done."]
        assert AcpPlan([PlanEntry("a", "completed"), PlanEntry("b", "pending")]) in reply.updates
        assert any(isinstance(update, SessionInfoUpdate) for update in reply.updates)
        assert reply.updates[-1] == UsageUpdate(120, 200_000, Cost(0.0, "USD"))
        usage = AcpUsage(58, 25, 135, thought_tokens=1, cached_read_tokens=52)
        assert reply.end == PromptResponse("max_tokens", usage, session_id=dialogue.session.session_id)

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
        reply = await dialogue.say(
            [
                {"write_file": {"path": "new/a.txt", "content": "one\n"}},
                {"edit_file": {"path": "new/a.txt", "old": "one", "new": "two"}},
                {"delete_file": "old.txt"},
                [{"read_file": "new/a.txt"}, {"find_files": "*.txt"}, {"search_content": "tw."}],
            ]
        )
        path = str(work.resolve() / "new" / "a.txt")
        diffs = [content for update in reply.final for content in update.contents() if isinstance(content, DiffContent)]
        assert diffs == [
            DiffContent(path, "one\n", None, {"kind": "add"}),
            DiffContent(path, "two\n", "one\n", {"kind": "modify"}),
            DiffContent(str(work.resolve() / "old.txt"), "", "alpha\n", {"kind": "delete"}),
        ]
        assert sorted(reply.outputs[3:]) == ["new/a.txt", "new/a.txt:1: two", "two\n"]  # they ran side by side
        assert reply.started == [
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
        reply = await dialogue.say([step, {"say": "Went on."}])
        assert reply.ended == ["failed"]
        assert "outside the workspace" in reply.outputs[0]
        assert reply.text == "Went on."
        assert secret.read_text() == "secret"
        assert not (understudy.workspace.parent / "new").exists()

    understudy.dialogue(main, mode="auto")


EDIT = {"write_file": {"path": "a.txt", "content": "x"}}
COMMAND = {"shell": "echo ran > b.txt"}


@pytest.mark.parametrize(
    ("mode", "questions", "ended", "files"),
    [
        ("ask", ["Write a.txt", "echo ran > b.txt"], ["completed", "completed", "completed"], ["a.txt", "b.txt"]),
        ("auto_edit", ["echo ran > b.txt"], ["completed", "completed", "completed"], ["a.txt", "b.txt"]),
        ("auto", [], ["completed", "completed", "completed"], ["a.txt", "b.txt"]),
        ("plan", [], ["failed", "failed", "completed"], []),
    ],
)
def test_modes(understudy: Any, mode: str, questions: list[str], ended: list[str], files: list[str]) -> None:
    async def main(dialogue: Any) -> None:
        reply = await dialogue.say([EDIT, COMMAND, {"find_files": "*.none"}])
        assert [event.tool_call.title for event in reply.questions] == questions
        assert reply.ended == ended
        assert sorted(path.name for path in understudy.workspace.iterdir()) == files

    understudy.dialogue(main, mode=mode, can_use_tool=lambda question: "allow_once")


def test_permission_is_asked_with_four_kinds_and_the_diff(understudy: Any) -> None:
    questions: list[RequestPermission] = []

    def ask(question: RequestPermission) -> Any:
        questions.append(question)
        return "reject_once"

    async def main(dialogue: Any) -> None:
        reply = await dialogue.say([EDIT, {"say": "Then not."}])
        assert reply.ended == ["failed"]
        assert reply.outputs[0] == "Not done: the user rejected it."
        assert reply.text == "Then not."
        assert reply.stop_reason == "end_turn"
        (question,) = questions
        assert [option.kind for option in question.options] == [
            "allow_once",
            "allow_always",
            "reject_once",
            "reject_always",
        ]
        place = str(understudy.workspace.resolve() / "a.txt")
        assert question.tool_call.contents() == [DiffContent(place, "x", None, {"kind": "add"})]
        assert not (understudy.workspace / "a.txt").exists()

    understudy.dialogue(main, can_use_tool=ask)


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
        reply = await dialogue.say([{"shell": "true"}, {"shell": "true"}, {"shell": "true #"}])
        assert (len(reply.questions), reply.ended) == (questions, ended)

    understudy.dialogue(main, can_use_tool=lambda question: answer)


def test_commands_stream_their_output_and_report_their_exit_code(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        reply = await dialogue.say(
            [{"shell": "echo one; until [ -e go ]; do touch go; sleep 0.2; done; echo two >&2; exit 3"}, {"say": "."}]
        )
        running = [
            output_of(update)
            for update in reply.updates
            if isinstance(update, ToolCallUpdate) and update.status == "in_progress" and update.content
        ]
        assert running[0] == "one\n"
        (end,) = reply.final
        assert (end.status, output_of(end)) == ("failed", "one\ntwo\n")
        assert (end.raw_output["exitCode"], end.raw_output["error"]) == (3, "exit code 3")

    understudy.dialogue(main, mode="auto")


def test_large_and_broken_output(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        reply = await dialogue.say(
            [[{"shell": "head -c 2000000 /dev/zero | tr '\\0' x"}, {"shell": "printf 'a\\377b\\n'"}], "half_emoji"]
        )
        outputs = sorted(reply.outputs, key=len)
        assert outputs == ["a\ufffdb\n", "x" * 2_000_000]
        assert reply.text == "Half of an emoji: \ufffd"

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
        reply = await dialogue.say([[{"shell": "echo a"}, {"shell": "echo b"}]])
        assert sorted(reply.outputs) == ["a\n", "b\n"]

    understudy.dialogue(main, can_use_tool=ask)


def test_a_sub_agent_works_under_its_call(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        inner = [{"shell": "echo deep"}, {"say": "Found it."}]
        reply = await dialogue.say([{"task": {"prompt": "look", "script": inner}}, {"say": "Thanks."}])
        task, command = (update for update in reply.updates if isinstance(update, AcpToolCall))
        assert command.meta == {"toolName": "shell", "parentToolCallId": task.tool_call_id}
        assert reply.outputs == ["deep\n", "Found it."]

    understudy.dialogue(main, mode="auto")


@pytest.mark.parametrize(("answer", "ended"), [({"answer": "blue"}, "blue"), (None, "The question was not answered.")])
def test_questions(understudy: Any, answer: Any, ended: str) -> None:
    async def main(dialogue: Any) -> None:
        reply = await dialogue.say([{"question": {"text": "Which?", "options": ["red", "blue"]}}])
        assert reply.outputs == [ended]

    forms = ClientCapabilities(elicitation_forms=True)
    understudy.dialogue(main, capabilities=forms, elicit=lambda question: answer)


def test_tools_it_does_not_have(understudy: Any) -> None:
    async def main(dialogue: Any) -> None:
        reply = await dialogue.say(
            [
                [
                    {"web_fetch": "http://127.0.0.1:1/"},
                    {"native": {"tool": "Frobnicate", "input": {"a": 1}}},
                    {"call": {"tool": "shell"}},
                ]
            ]
        )
        assert reply.ended == ["failed", "failed", "failed"]

    understudy.dialogue(main, mode="auto")
