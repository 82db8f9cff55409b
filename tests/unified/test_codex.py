"""Codex CLI's recordings through protocol, dictionary and grammar: what they mean, and that each is well-formed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stagedoor import catalog, replay
from stagedoor.agents.codex import (
    Accept,
    Answers,
    ApprovalPolicy,
    AppServerProtocol,
    CodexSessionConfig,
    Decline,
    ExecProtocol,
    Question,
    SandboxMode,
)
from stagedoor.agents.codex.config import DriverName
from stagedoor.agents.codex.notifications import (
    AgentMessageDeltaNotification,
    TurnCompletedNotification,
    TurnStartedNotification,
)
from stagedoor.agents.codex.questions import McpServerElicitationRequest
from stagedoor.agents.codex.threads import CallRefusal, CodexTurn
from stagedoor.drivers.codex.app_server_dictionary import AppServerDictionary
from stagedoor.drivers.codex.exec_dictionary import ExecDictionary
from stagedoor.drivers.codex.opening import native_answer
from stagedoor.drivers.codex.rights import allowed_unasked, asks, config_of
from stagedoor.drivers.codex.tools import plain_command
from stagedoor.drivers.codex.withholding import SHELL_FEATURES, unasked_tools_off
from stagedoor.errors import NotSupported
from stagedoor.permissions.policy import Policy
from stagedoor.permissions.rules import Rule
from stagedoor.transports.launch import Exited, Stalled
from stagedoor.unified.decisions import Allow
from stagedoor.unified.events import (
    Done,
    Error,
    Event,
    FileChange,
    Init,
    Notice,
    PermissionRequest,
    PermissionResolved,
    Plan,
    PlanItem,
    Retry,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
    Usage,
    UsageReport,
)
from stagedoor.unified.options import McpServer, Options
from stagedoor.wire import shapes

TRANSCRIPTS = Path(__file__).parent.parent / "transcripts" / "codex-0.166.0"
CASES = sorted(TRANSCRIPTS.glob("*.jsonl"))
SMALL = [path for path in CASES if path.stat().st_size < 6_000]


def driver_of(path: Path) -> str:
    return "app-server" if "-app-" in path.name else "exec"


def translated(path: Path, lines: Iterable[bytes] | None = None) -> list[Event]:
    driver = catalog.agent("codex").drivers[driver_of(path)]
    return list(replay.translate("codex", driver, path.read_bytes().splitlines() if lines is None else lines))


def of(number: str) -> list[Event]:
    [path] = TRANSCRIPTS.glob(f"{number}-*.jsonl")
    return translated(path)


def bare(events: Iterable[Event]) -> list[Event]:
    """Without header and without deltas, advice and counts: what was said and done."""
    passed_over = (Init, TextDelta, ThinkingDelta, UsageReport, TurnStarted, TurnCompleted, Done)
    passed_over += (PermissionRequest, PermissionResolved)  # the goldens of tests/contract hold the questions
    essentials = [
        event
        for event in events
        if not isinstance(event, passed_over)
        and not (isinstance(event, Notice) and event.code in ("config_warning", "model_unknown", "usage_of_thread"))
    ]
    return [_without_header(event) for event in essentials]


def _without_header(event: Event) -> Event:
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    for name in ("agent", "session_id", "seq", "timestamp", "turn", "native", "risk"):
        fields.pop(name, None)
    return type(event)(**fields)


def well_formed(events: Sequence[Event]) -> None:
    kinds = [type(event) for event in events]
    assert kinds[0] is Init
    assert kinds[-1] is Done
    assert kinds.count(Init) == kinds.count(Done) == 1
    assert kinds.count(TurnStarted) == kinds.count(TurnCompleted)
    uses = [event.tool_use_id for event in events if isinstance(event, ToolUse)]
    results = [event.tool_use_id for event in events if isinstance(event, ToolResult)]
    assert len(uses) == len(set(uses))
    assert sorted(uses) == sorted(results)
    message_ids = {event.message_id for event in events if isinstance(event, Text)}
    assert {event.message_id for event in events if isinstance(event, TextDelta)} <= message_ids
    for event in events:
        if isinstance(event, Text):
            deltas = [e.text for e in events if isinstance(e, TextDelta) and e.message_id == event.message_id]
            assert "".join(deltas) in ("", event.text)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_recording_is_well_formed_and_known(path: Path) -> None:
    events = translated(path)
    well_formed(events)
    assert [event for event in events if isinstance(event, Unrecognized)] == []


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_every_prefix_is_well_formed(path: Path) -> None:
    lines = path.read_bytes().splitlines()
    for length in range(len(lines)):
        events = translated(path, lines[:length])
        well_formed_so_far = [event for event in events if not isinstance(event, TextDelta)]
        well_formed(well_formed_so_far)


SHELL: dict[str, Any] = {"name": "shell", "native_name": "exec_command", "operation": "execute"}
USAGE = Usage(input_tokens=10576, output_tokens=84, cached_tokens=5287, reasoning_tokens=14, total_tokens=10660)


def shell_use(tool_use_id: str, command: str, **more: Any) -> ToolUse:
    return ToolUse(tool_use_id=tool_use_id, input={"command": command} | more, target=command, **SHELL)


MEANINGS: dict[str, list[Event]] = {
    "04": [
        shell_use("1.item_1", "echo before; ls /definitely/missing; exit 3"),
        ToolResult(
            tool_use_id="1.item_1",
            name="shell",
            status="error",
            output="before\nls: cannot access '/definitely/missing': No such file or directory\n",
            exit_code=3,
        ),
        Text(text="The command failed.", message_id="1.item_2"),
    ],
    "06": [
        ToolUse(
            tool_use_id="1.item_0",
            name="edit_file",
            native_name="apply_patch",
            input={"paths": ["/repo/new.txt"], "changes": [{"path": "/repo/new.txt", "kind": "update"}]},
            operation="write",
            target="/repo/new.txt",
        ),
        FileChange(path="/repo/new.txt", change="modified", tool_use_id="1.item_0"),
        ToolResult(tool_use_id="1.item_0", name="edit_file", status="success"),
        Text(text="Updated.", message_id="1.item_1"),
    ],
    "12": [
        shell_use("1.item_0", "echo two; sleep 1"),
        shell_use("1.item_1", "echo one; sleep 1"),
        ToolResult(tool_use_id="1.item_0", name="shell", status="success", output="two\n", exit_code=0),
        ToolResult(tool_use_id="1.item_1", name="shell", status="success", output="one\n", exit_code=0),
        Text(text="All done.", message_id="1.item_2"),
    ],
    "22": [Notice(level="warning", code="no_answer", message="the model ended its turn without a word")],
    "82": [
        shell_use("call_fake00000500", "touch /home/user/outside/dec.txt && echo touched", cwd="/repo"),
        ToolResult(tool_use_id="call_fake00000500", name="shell", status="denied"),
        Text(
            text='Result: exec_command failed: CreateProcess { message: "Rejected(\\"rejected by user\\")" }',
            message_id="msg_fake00000504",
        ),
    ],
    "94": [
        ToolUse(
            tool_use_id="call_fake00000633",
            name="mcp",
            native_name="mcp__probe__add",
            input={"a": 2, "b": 3},
            target="probe.add",
        ),
        ToolResult(tool_use_id="call_fake00000633", name="mcp", status="success", output="5", duration_ms=1.0),
        Text(text='Tool said: Wall time: 0.0107 seconds\nOutput:\n{"sum":5}', message_id="msg_fake00000637"),
    ],
    "109": [
        shell_use("call_fake00000928", "echo x", cwd="/repo"),
        ToolResult(tool_use_id="call_fake00000928", name="shell", status="denied", output="the turn was interrupted"),
    ],
    "126": [
        *(Retry(attempt=attempt, reason="Connection failed: error sending request") for attempt in (1, 2, 3)),
        Error(kind="connection_failed", message="the agent ended in the middle of its turn", fatal=True),
    ],
    "127": [
        Error(
            kind="connection_failed",
            message="We’re currently experiencing high demand, which may cause temporary errors.",
            fatal=True,
        )
    ],
}  # fmt: skip


@pytest.mark.parametrize("number", MEANINGS)
def test_meaning(number: str) -> None:
    assert bare(of(number)) == MEANINGS[number]


PATCH = "call_fake00000916"


def test_a_patch_tells_each_file_with_its_diff() -> None:
    changes = [event for event in bare(of("108")) if isinstance(event, FileChange)]
    assert changes == [
        FileChange(
            path="/repo/a.txt",
            change="created",
            diff="--- /dev/null\n+++ b/repo/a.txt\n@@ -0,0 +1 @@\n+alpha\n",
            after="alpha\n",
            tool_use_id=PATCH,
        ),
        FileChange(
            path="/repo/gone.txt",
            change="deleted",
            diff="--- a/repo/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n",
            before="gone\n",
            tool_use_id=PATCH,
        ),
        FileChange(
            path="/repo/moved.txt",
            change="moved",
            diff="--- a/repo/keep.txt\n+++ b/repo/moved.txt\n@@ -1 +1 @@\n-keep\n+kept\n",
            tool_use_id=PATCH,
        ),
    ]


def test_turns_are_counted_one_by_one() -> None:
    completed = [event.usage.total_tokens for event in of("108") if isinstance(event, TurnCompleted)]
    done = of("108")[-1]
    assert completed == [15750, 8026]
    assert [event.total_tokens for event in of("108") if isinstance(event, UsageReport)] == [7806, 15750, 8026]
    assert isinstance(done, Done)
    assert done.usage.total_tokens == 15750 + 8026


def test_exec_counts_the_thread_and_we_the_turn() -> None:
    before = ExecProtocol(before=None)
    lines = (TRANSCRIPTS / "65-resume-base.jsonl").read_bytes().splitlines()
    dictionary = ExecDictionary()
    events = [event for line in lines for native in before.receive(line) for event in dictionary.translate(native)]
    [completed] = [event for event in events if isinstance(event, TurnCompleted)]
    assert completed.usage == Usage()
    assert [event.code for event in events if isinstance(event, Notice)][-1] == "usage_unknown"
    [counted] = [event.usage for event in of("04") if isinstance(event, TurnCompleted)]
    assert counted == USAGE


def test_a_recording_does_not_tell_whether_its_thread_was_resumed() -> None:
    """The first total of a thread may be of earlier turns too; what comes after it is known."""
    lines = (TRANSCRIPTS / "65-resume-base.jsonl").read_bytes().splitlines()
    lines += (TRANSCRIPTS / "68-resume-flags-after.jsonl").read_bytes().splitlines()
    lines += (TRANSCRIPTS / "78-fork.jsonl").read_bytes().splitlines()
    events = translated(TRANSCRIPTS / "65-resume-base.jsonl", lines)
    notices = [(event.turn, event.code) for event in events if isinstance(event, Notice)]
    assert notices == [
        (1, "usage_of_thread"),
        (2, "cumulative_usage"),
        (2, "session_changed"),
        (3, "usage_of_thread"),
    ]
    used = [event.usage.total_tokens for event in events if isinstance(event, TurnCompleted)]
    assert used == [7073, 36441 - 7073, 140343]


def test_a_client_that_goes_on_in_a_fork_is_followed() -> None:
    events = of("100")
    assert {event.parent_tool_use_id for event in events} == {None}
    turns = [(turn.status, turn.result, turn.usage.total_tokens) for turn in events if isinstance(turn, TurnCompleted)]
    assert turns == [
        ("success", "The command ran.", 13985),
        ("success", "second", 7163),
        ("success", "in fork", 12241),
        ("error", "Invalid request: missing field `input`", 0),
        ("error", "thread not found: 01a1ddd5-0000-7051-af10-170b63b2a1e6", 0),
    ]
    [changed] = [event for event in events if isinstance(event, Notice) and event.code == "session_changed"]
    assert changed.native_session_id == "01a1ddde-75d3-78b1-bb22-f580df4c6798"


def test_what_another_thread_is_refused_does_not_end_the_turn_that_runs() -> None:
    dictionary = AppServerDictionary()
    turn = CodexTurn(id="t1", root_turn_id="t1")
    dictionary.translate(TurnStartedNotification("main", turn))
    refused = dictionary.translate(CallRefusal(7, "turn/start", -32600, "thread not found: x", "x"))
    assert refused == [
        Notice(level="warning", code="request_refused", message="turn/start: thread not found: x"),
    ]
    dictionary.translate(TurnCompletedNotification("main", turn))
    assert [type(event) for event in dictionary.translate(CallRefusal(8, "turn/start", -32600, "no", "x"))] == [
        Error,
        TurnCompleted,
    ]


def test_a_sub_agent_whose_call_is_not_told_has_no_parent() -> None:
    dictionary = AppServerDictionary()
    dictionary.translate(TurnStartedNotification("main", CodexTurn(id="t1", root_turn_id="t1")))
    dictionary.translate(TurnStartedNotification("below", CodexTurn(id="t2", root_turn_id="t1")))
    assert dictionary.translate(AgentMessageDeltaNotification("below", "t2", "m", "hi")) == [
        TextDelta(text="hi", message_id="m")
    ]


def test_a_sub_agent_speaks_under_the_call_that_started_it() -> None:
    events = of("107")
    [spawn] = [event.tool_use_id for event in events if isinstance(event, ToolUse) and event.name == "task"]
    below = [event for event in events if event.parent_tool_use_id is not None]
    assert {event.parent_tool_use_id for event in below} == {spawn}
    assert [event.text for event in below if isinstance(event, Text)] == ["I am the child."]
    [completed] = [event for event in events if isinstance(event, TurnCompleted)]
    assert completed.result.startswith("Child finished")
    assert completed.usage.total_tokens == 26223 + 6352  # its own, and the sub-agent's


def test_thinking_is_told_in_pieces_and_whole() -> None:
    events = of("80")
    [thought] = [event.text for event in events if isinstance(event, Thinking)]
    assert thought == "**Looking at the task**\n\nThe user wants a greeting.\n**Second part**\n\nKeep it short."
    assert "".join(event.text for event in events if isinstance(event, ThinkingDelta)) == thought


def test_a_plan_is_told_when_it_changes() -> None:
    plans = [event.items for event in of("08") if isinstance(event, Plan)]
    words = ("Look around", "Change the code", "Run the tests")
    assert plans == [
        [PlanItem(word, "completed" if place < done else "pending") for place, word in enumerate(words)]
        for done in range(4)
    ]


def test_errors_of_the_app_server_have_their_kinds() -> None:
    kinds = [event.kind for event in of("103") if isinstance(event, Error)]
    assert kinds == ["unknown", "model_not_found", "context_overflow", "quota_exceeded", "authentication_failed"]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        ("110", "authentication_failed"),
        ("111", "unknown"),
        ("113", "model_not_found"),
        ("115", "quota_exceeded"),
        ("116", "context_overflow"),
        ("120", "connection_failed"),
        ("122", "rate_limited"),
        ("128", "authentication_failed"),
        ("133", "timeout"),
        ("151", "connection_failed"),
    ],
)
def test_errors_of_exec_have_their_kinds(number: str, kind: str) -> None:
    events = of(number)
    assert [event.kind for event in events if isinstance(event, Error)] == [kind]
    assert [event.status for event in events if isinstance(event, TurnCompleted)] == ["error"]


def test_an_answer_that_is_asked_for_again_counts_once() -> None:
    events = of("119")
    assert [event.code for event in events if isinstance(event, Notice)] == [
        "text_repeated",
        "text_repeated",
        "usage_of_thread",
    ]
    assert [(event.attempt, event.max_attempts) for event in events if isinstance(event, Retry)] == [(1, 5), (2, 5)]
    [completed] = [event for event in events if isinstance(event, TurnCompleted)]
    assert (completed.status, completed.result) == ("success", "Recovered.")


@pytest.mark.parametrize("number", ["140", "109e"])
@pytest.mark.parametrize(
    ("exited", "message"),
    [
        (Exited(1, ""), "Codex exited with code 1 before the turn ended"),
        (Exited(-9, "Error: gone\n"), "Codex exited with code -9 before the turn ended: Error: gone"),
    ],
)
def test_the_end_of_the_program_ends_the_turn(number: str, exited: Exited, message: str) -> None:
    [path] = TRANSCRIPTS.glob(f"{number}-*.jsonl")
    of_exec = driver_of(path) == "exec"
    protocol = ExecProtocol() if of_exec else AppServerProtocol()
    dictionary: Any = ExecDictionary(prompted=True) if of_exec else AppServerDictionary(prompted=True)
    for line in path.read_bytes().splitlines():
        side, message_of_line = replay.side_of(line)
        if side == "out" and isinstance(message_of_line, bytes):
            for native in protocol.receive(message_of_line):
                dictionary.translate(native)
    assert dictionary.translate(exited) == [
        Error(kind="connection_failed", message=message, fatal=True),
        TurnCompleted(status="error"),
    ]
    assert [type(event) for event in dictionary.translate(exited)] == ([] if of_exec else [Notice])


@pytest.mark.parametrize("make", [ExecDictionary, AppServerDictionary])
def test_what_no_line_says(make: type[Any]) -> None:
    dictionary = make()
    assert dictionary.translate(Stalled(30.0)) == [
        Notice(level="warning", code="stalled", message="the agent has been silent for 30 s")
    ]
    assert dictionary.translate(shapes.UnknownMessage(b"\xffhm", "why")) == [Unrecognized(raw="�hm", why="why")]
    assert dictionary.translate(Exited(0)) == []


@pytest.mark.parametrize(
    ("wrapped", "plain"),
    [
        ("/bin/bash -lc 'echo hi'", "echo hi"),
        ("/bin/bash -lc ls", "ls"),
        ('bash -c "echo \'it\' \\"costs\\" \\$5 \\`x\\`"', "echo 'it' \"costs\" $5 `x`"),
        ("/bin/zsh -lc 'a\nb'", "a\nb"),
        ("/bin/bash -lc 'it'\"'\"'s'", "it's"),
        ("/bin/bash -lc 'echo' more words", "/bin/bash -lc 'echo' more words"),
        ("/bin/bash -lc 'no end", "/bin/bash -lc 'no end"),
        ("git status", "git status"),
    ],
)
def test_the_shell_around_a_command_is_taken_away(wrapped: str, plain: str) -> None:
    assert plain_command(wrapped) == plain


# ---------------------------------------------------------------------------------------------------------- questions


def question_of(number: str) -> tuple[Question, PermissionRequest]:
    """The first question of a recording, natively and in our words."""
    [path] = TRANSCRIPTS.glob(f"{number}-*.jsonl")
    protocol, dictionary = AppServerProtocol(), AppServerDictionary()
    for line in path.read_bytes().splitlines():
        both = replay.side_of(line)
        if both[0] == "out" and isinstance(both[1], bytes):
            for native in protocol.receive(both[1]):
                if isinstance(native, Question):
                    request = dictionary.request(native)
                    assert request is not None
                    return native, request
                dictionary.translate(native)
    raise AssertionError("no question in the recording")


CHOICES = ["allow_once", "allow_session", "reject_once", "reject_and_stop"]
REQUESTS: dict[str, dict[str, Any]] = {
    "81": {
        "tool_name": "shell",
        "native_name": "exec_command",
        "operation": "execute",
        "target": "touch /home/user/outside/acc.txt && echo touched",
        "input": {"command": "touch /home/user/outside/acc.txt && echo touched", "cwd": "/repo"},
        "description": "May I write outside the workspace?",
    },
    "85": {
        "tool_name": "write_file",
        "native_name": "apply_patch",
        "operation": "write",
        "target": "/home/user/outside/f-accept.txt",
        "input": {
            "paths": ["/home/user/outside/f-accept.txt"],
            "changes": [
                {
                    "path": "/home/user/outside/f-accept.txt",
                    "kind": "add",
                    "diff": "--- /dev/null\n+++ b/home/user/outside/f-accept.txt\n@@ -0,0 +1,2 @@\n"
                    "+line one\n+line two\n",
                }
            ],
        },
    },
    "94": {
        "tool_name": "mcp",
        "native_name": "mcp__probe__add",
        "target": "probe.add",
        "input": {"a": 2, "b": 3},
        "description": 'Allow the probe MCP server to run tool "add"?',
    },
    "109f": {
        "tool_name": "question",
        "native_name": "request_user_input",
        "target": "Which color?",
        "description": "Which color?",
        "input": {
            "questions": [
                {
                    "id": "q1",
                    "header": "Color",
                    "question": "Which color?",
                    "options": [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}],
                    "isOther": True,
                    "isSecret": False,
                }
            ]
        },
    },
}


@pytest.mark.parametrize("number", REQUESTS)
def test_questions_in_our_words(number: str) -> None:
    question, request = question_of(number)
    assert request == PermissionRequest(
        request_id=f"{question.thread_id}:{question.request_id}",
        tool_use_id=question.item_id,
        choices=CHOICES,
        **REQUESTS[number],
    )


@pytest.mark.parametrize(
    ("number", "decision", "answer"),
    [
        ("81", Allow(), Accept()),
        ("81", Allow(remember="session"), Accept()),
        ("81", Allow(remember="always"), Accept()),
        ("81", Allow(updated_input={"command": "ls"}), Decline),
        ("94", Allow(updated_input={"a": 1}), Decline),
        ("109f", Allow(), Decline),
        ("109f", Allow(updated_input={"answers": {"q1": "Blue"}}), Answers({"q1": ["Blue"]})),
        ("109f", Allow(updated_input={"answers": {"Which color?": ["Red", "Blue"]}}), Answers({"q1": ["Red", "Blue"]})),
        ("109f", Allow(updated_input={"answers": "Blue"}), Decline),
    ],
)
def test_answers_in_codex_words(number: str, decision: Allow, answer: Any) -> None:
    native = native_answer(question_of(number)[0], decision)
    assert isinstance(native, Decline) if answer is Decline else native == answer


@pytest.mark.parametrize(
    ("schema", "decision", "answer"),
    [
        ({"type": "object", "properties": {}}, Allow(), Accept()),
        ({"type": "object", "required": ["name"]}, Allow(), Decline),
        ({"type": "object", "required": ["name"]}, Allow(updated_input={"name": "Ada"}), Accept({"name": "Ada"})),
        (None, Allow(updated_input={"content": {"name": "Ada"}}), Accept({"name": "Ada"})),
    ],
)
def test_forms_of_mcp_servers(schema: Any, decision: Allow, answer: Any) -> None:
    form = McpServerElicitationRequest(
        request_id=7, thread_id="t", server_name="forms", mode="form", message="Who?", requested_schema=schema
    )
    native = native_answer(form, decision)
    assert isinstance(native, Decline) if answer is Decline else native == answer
    request = AppServerDictionary().request(form)
    assert request is not None
    assert (request.tool_name, request.native_name, request.target, request.description) == (
        "question",
        "mcp__forms",
        "Who?",
        "forms: Who?",
    )


def test_a_refusal_is_told_with_its_reason() -> None:
    question, _ = question_of("109f")
    dictionary = AppServerDictionary()
    dictionary.translate(question)
    dictionary.refuse(question, "not now")
    [path] = TRANSCRIPTS.glob("109f-*.jsonl")
    resolved = next(line for line in path.read_bytes().splitlines() if b"serverRequest/resolved" in line)
    _, message = replay.side_of(resolved)
    assert isinstance(message, bytes)
    [native] = AppServerProtocol().receive(message)
    assert [_without_header(event) for event in dictionary.translate(native)] == [
        ToolResult(tool_use_id=question.item_id, name="question", status="denied", output="not now")
    ]


# ------------------------------------------------------------------------------------------------------------- rights

READ, WRITE, FULL = SandboxMode.READ_ONLY, SandboxMode.WORKSPACE_WRITE, SandboxMode.DANGER_FULL_ACCESS
NEVER, ALL = ApprovalPolicy.NEVER, ApprovalPolicy.UNTRUSTED
RIGHTS: list[tuple[dict[str, Any], DriverName, SandboxMode, ApprovalPolicy | None, bool, tuple[str, ...]]] = [
    ({"tier": "dry-run"}, "app-server", READ, NEVER, False, ()),
    ({"tier": "dry-run", "approval": "autoAll", "sandbox": "fullAccess"}, "app-server", READ, NEVER, False, ()),
    ({"tier": "autonomous", "sandbox": "readOnly"}, "app-server", READ, NEVER, False, ()),
    ({}, "app-server", WRITE, ALL, True, ()),
    ({"approval": "ask"}, "app-server", WRITE, ALL, True, ()),
    ({"approval": "askDangerous", "sandbox": "workspaceWrite"}, "app-server", WRITE, ALL, False, ()),
    ({"approval": "autoEdit", "sandbox": "none"}, "app-server", FULL, ALL, False, ()),
    ({"tier": "autonomous"}, "app-server", FULL, NEVER, False, ()),
    ({"tier": "autonomous", "sandbox": "workspaceWrite"}, "app-server", WRITE, NEVER, False, ()),
    ({"tier": "autonomous", "approval": "ask"}, "app-server", WRITE, ALL, True, ()),
    ({"tier": "dry-run"}, "exec", READ, None, False, ()),
    ({"approval": "ask", "sandbox": "fullAccess"}, "exec", READ, None, False, ()),
    ({}, "exec", READ, None, False, ()),
    ({"approval": "autoAll"}, "exec", FULL, None, False, ()),
    ({"tier": "autonomous", "sandbox": "workspaceWrite"}, "exec", WRITE, None, False, ()),
]


@pytest.mark.parametrize(("fields", "driver", "sandbox", "policy", "network", "disabled"), RIGHTS)
def test_rights(
    fields: dict[str, Any],
    driver: DriverName,
    sandbox: SandboxMode,
    policy: ApprovalPolicy | None,
    network: bool,
    disabled: tuple[str, ...],
    tmp_path: Path,
) -> None:
    options = Options(cwd=str(tmp_path), env={"HOME": str(tmp_path)}, inherit_env=False, **fields)
    config = config_of(options, driver)
    mode = fields.get("approval") or fields.get("tier")
    read_only = fields.get("tier") == "dry-run" or fields.get("sandbox") == "readOnly"
    free = mode in ("autonomous", "autoAll", "askDangerous") and not read_only
    typing = () if mode in ("autonomous", "autoAll") and not read_only else ("unified_exec_tty",)
    assert (config.sandbox_mode, config.approval_policy, config.network_access, config.disable) == (
        sandbox,
        policy,
        network,
        (*disabled, *typing, *(() if free else ("image_generation",))),
    )
    questions = driver == "app-server" and policy is ALL  # its own ones, where somebody may be there to answer
    assert config.enable == (("default_mode_request_user_input",) if questions else ())
    assert config.config == {
        **({} if free else {"web_search": "disabled"}),  # it never asks about a search
        **({"suppress_unstable_features_warning": True} if questions else {}),
    }
    assert asks(options) == (policy is ALL or (driver == "exec" and sandbox is not FULL and "tier" not in fields))


@pytest.mark.parametrize(
    ("rules", "typing"),
    [
        ((), True),
        (({"action": "deny", "risk": ("high",)},), False),
        (({"action": "ask", "risk": ("low",)},), False),
        (({"action": "deny", "command": ("curl *",)},), False),
        (({"action": "deny", "tool": ("web_search",)},), True),
    ],
)
def test_input_for_commands_needs_a_policy_that_allows_every_risk(
    rules: tuple[dict[str, Any], ...], typing: bool, tmp_path: Path
) -> None:
    policy = Policy(rules=tuple(Rule(**rule) for rule in rules), default="allow")
    options = Options(cwd=str(tmp_path), env={"HOME": str(tmp_path)}, inherit_env=False, policy=policy)
    assert ("write_stdin" not in unasked_tools_off(options)) == typing


def test_rules_of_the_user_cost_a_dry_run_its_shell(tmp_path: Path) -> None:
    rules = tmp_path / ".codex" / "rules"
    rules.mkdir(parents=True)
    (rules / "default.rules").write_text('prefix_rule(pattern=["touch"], decision="allow")\n')
    options = Options(cwd=str(tmp_path), tier="dry-run", env={"HOME": str(tmp_path)}, inherit_env=False)
    assert config_of(options, "app-server").disable == (*SHELL_FEATURES, "unified_exec_tty", "image_generation")
    assert config_of(options, "exec").ignore_rules
    assert catalog.agent("codex").choose_driver(options) == "exec"
    free = Options(cwd=str(tmp_path), tier="autonomous", env={"HOME": str(tmp_path)}, inherit_env=False)
    assert catalog.agent("codex").choose_driver(free) == "app-server"


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["a.txt"], True),
        (["{cwd}/deep/a.txt", "b.txt"], True),
        (["../a.txt"], False),
        (["/etc/hosts"], False),
        (["a.txt", "/etc/hosts"], False),
        (["link/a.txt"], False),
        ([".git/hooks/pre-commit"], False),
        (["deep/.codex/config.toml"], False),
        (["."], False),
        ([], False),
    ],
)
def test_patches_of_the_workspace_are_not_asked_about(paths: list[str], expected: bool, tmp_path: Path) -> None:
    cwd, outside = tmp_path / "workspace", tmp_path / "outside"
    cwd.mkdir()
    outside.mkdir()
    (cwd / "link").symlink_to(outside)
    request = PermissionRequest(
        request_id="1",
        tool_name="edit_file",
        operation="write",
        input={"paths": [path.format(cwd=cwd) for path in paths]},
    )
    options = Options(cwd=str(cwd), protected=catalog.protected())
    assert allowed_unasked(request, options) == expected
    assert not allowed_unasked(request, msgspec.structs.replace(options, approval="ask"))


def test_options_in_codex_words(tmp_path: Path) -> None:
    options = Options(
        cwd=str(tmp_path),
        model="gpt-5.5",
        tier="autonomous",
        system_prompt="whole",
        append_system_prompt="more",
        output_schema={"type": "object"},
        mcp_servers={
            "a": McpServer(command="python", args=("-c", "pass"), env={"X": "1"}),
            "b": McpServer(url="http://127.0.0.1:1/mcp", headers={"Y": "2"}, transport="http"),
        },
        images=("p.png",),
        env={"Z": "3"},
        extra_args=("-c", "x=1"),
        stall_after=5.0,
    )
    assert config_of(options, "app-server") == CodexSessionConfig(
        driver="app-server",
        model="gpt-5.5",
        approval_policy=NEVER,
        sandbox_mode=FULL,
        base_instructions="whole",
        developer_instructions="more",
        mcp_servers={
            "a": {
                "command": "python",
                "args": ["-c", "pass"],
                "env": {"X": "1"},
                "default_tools_approval_mode": "approve",
            },
            "b": {
                "url": "http://127.0.0.1:1/mcp",
                "http_headers": {"Y": "2"},
                "default_tools_approval_mode": "approve",
            },
        },
        output_schema={"type": "object"},
        images=("p.png",),
        plan_tool=True,
        env={"Z": "3"},
        extra_args=("-c", "x=1"),
        stall_after=5.0,
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"mcp_servers": {"a": McpServer(url="http://127.0.0.1:1/sse", transport="sse")}},
        {"resume": "x", "append_system_prompt": "more"},
        {"resume": "x", "system_prompt": "whole"},
    ],
)
def test_what_codex_cannot_do_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(NotSupported):
        config_of(Options(**fields), "app-server")
