"""Recordings of the real CLIs as other versions might have printed them: nothing of what was said is lost."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stagedoor import catalog
from stagedoor.agents.claude.protocol import ClaudeProtocol
from stagedoor.agents.codex.protocol import AppServerProtocol
from stagedoor.agents.codex.questions import FileChangeRequestApproval
from stagedoor.replay import Account, translate
from stagedoor.unified import events
from stagedoor.unified.events import Event

sys.path.insert(0, str(Path(__file__).parent))
from test_unified_replay import CASES, check, lines_of, replay

Json = Any
IDS = frozenset({"id", "requestId", "request_id", "protocolVersion"})
"""What answers are matched by: that it is missing is another thing than that it is written otherwise."""


def each_number(value: Json, other: Callable[[float], Json], key: str = "") -> Json:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return other(value) if key not in IDS else value
    if isinstance(value, dict):
        return {name: each_number(member, other, name) for name, member in value.items()}
    return [each_number(member, other, key) for member in value] if isinstance(value, list) else value


def with_more(value: Json) -> Json:
    """A field that we have never heard of in every object."""
    if isinstance(value, dict):
        return {**{name: with_more(member) for name, member in value.items()}, "xNew": {"a": [1, None]}}
    return [with_more(member) for member in value] if isinstance(value, list) else value


def ids_as_floats(value: Json) -> Json:
    if isinstance(value, dict):
        return {
            name: float(member) if name in IDS and type(member) is int else ids_as_floats(member)
            for name, member in value.items()
        }
    return [ids_as_floats(member) for member in value] if isinstance(value, list) else value


MUTATIONS: dict[str, Callable[[Json], Json]] = {
    "floats": lambda value: each_number(value, float),
    "ids as floats": ids_as_floats,
    "fractions": lambda value: each_number(value, lambda number: number + 0.5),
    "words": lambda value: each_number(value, lambda number: f"{number}"),
    "nothing": lambda value: each_number(value, lambda number: None),
    "objects": lambda value: each_number(value, lambda number: {"value": number}),
    "lists": lambda value: each_number(value, lambda number: [number]),
    "negative": lambda value: each_number(value, lambda number: -1 - abs(number)),
    "truth": lambda value: each_number(value, lambda number: True),
    "beyond all bounds": lambda value: each_number(value, lambda number: float("inf")),
    "more fields": with_more,
    "spaces": lambda value: value,
}


def mutated(line: bytes, mutate: Callable[[Json], Json], *, spaces: bool = False) -> bytes:
    separators = (" , ", " : ") if spaces else (",", ":")
    head = b""
    if line.startswith(b"sse data: "):
        head, line = line[:10], line[10:]
    try:
        value = json.loads(line)
    except ValueError:
        return head + line
    if not isinstance(value, dict):
        return head + line
    if "dir" in value and "line" in value:
        inner = value["line"]
        if isinstance(inner, str):
            value["line"] = mutated(inner.encode("utf-8", "surrogatepass"), mutate, spaces=spaces).decode()
        elif value["dir"] != "note":
            value["line"] = mutate(inner)
        return json.dumps(value).encode()
    return head + json.dumps(mutate(value), separators=separators).encode()


def told(stream: list[Event]) -> tuple[list[str], list[str]]:
    """The text, whole, and how everything ended."""
    texts = "".join(event.text for event in stream if isinstance(event, events.Text))
    ends = [event.status for event in stream if isinstance(event, events.TurnCompleted | events.Done)]
    return [texts], ends


CASES_OF_EACH = [
    "claude-2.1.197/07-partial-messages", "claude-2.1.197/10-subagent", "claude-2.1.197/31-can-use-tool",
    "claude-2.1.197/165-message-while-running", "claude-2.1.197/77-api-prompt-too-long",
    "codex-0.166.0/02-bash-readonly", "codex-0.166.0/08-plan-gpt55", "codex-0.166.0/33-spawn-v1",
    "codex-0.166.0/80-app-basic", "codex-0.166.0/81-app-approve-cmd-accept", "codex-0.166.0/107-app-subagent-v1",
    "gemini-0.61.0/02-shell", "opencode-1.18.33/02-bash", "opencode-1.18.33/11-task-subagent",
    "opencode-1.18.33/40-serve-main", "opencode-1.18.33/51-acp-subagent-permission",
]  # fmt: skip
PATHS = [path for path in CASES if f"{path.parent.name}/{path.stem}" in CASES_OF_EACH]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_nothing_is_lost(path: Path) -> None:
    lines = lines_of(path.read_bytes())
    before = Account()
    usual = replay(path, lines, before)
    for mutation, mutate in MUTATIONS.items():
        after = Account()
        stream = replay(path, [mutated(line, mutate, spaces=mutation == "spaces") for line in lines], after)
        check(stream)
        surprises = [event for event in stream if isinstance(event, events.Unrecognized)]
        assert (mutation, after.lines, after.unrecognized) == (mutation, before.lines, before.unrecognized), surprises
        assert (mutation, told(stream)) == (mutation, told(usual))
        assert min(numbers_of(stream)) >= 0, mutation


def numbers_of(stream: list[Event]) -> list[float]:
    return [
        number
        for event in stream
        if isinstance(event, events.Done | events.TurnCompleted)
        for number in msgspec.structs.astuple(event.usage)
        if number is not None
    ]


EXEC = ['{"type":"thread.started","thread_id":"a"}', '{"type":"turn.started"}']
TEXT = '{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"hi"}}'
RUN = [
    '{"type":"step_start","sessionID":"s","part":{"type":"step-start"}}',
    '{"type":"text","sessionID":"s","part":{"type":"text","text":"hi"}}',
]
ENDINGS: list[tuple[str, str, list[str], str, str]] = [
    # agent, driver, lines, how it ends, the kind of error or the text
    ("codex", "exec", ['{"type":"error","message":"401 Unauthorized"}'], "error", "authentication_failed"),
    ("codex", "exec", [*EXEC, '{"type":"error","message":"boom"}'], "error", "unknown"),
    ("codex", "exec", [EXEC[0], '{"type":"error","message":"boom"}'], "error", "unknown"),
    ("codex", "exec", [*EXEC, '{"type":"error","message":"x"}', TEXT, '{"type":"turn.completed"}'], "success", "hi"),
    ("codex", "exec", [*EXEC, TEXT, '{"type":"turn.completed"}', '{"type":"error","message":"x"}'], "success", "hi"),
    ("codex", "exec", [*EXEC, TEXT, '{"type":"turn.completed","usage":{"input_tokens":5.0}}'], "success", "hi"),
    ("codex", "exec", [*EXEC, TEXT, '{"type":"turn.completed","usage":"lots"}'], "success", "hi"),
    ("codex", "exec", ["\ufeff" + EXEC[0], EXEC[1], TEXT, '{"type":"turn.completed"}'], "success", "hi"),
    (
        "codex",
        "app-server",
        ['{"method":"error","params":{"threadId":"a","error":{"message":"boom"},"willRetry":false}}'],
        "error",
        "unknown",
    ),
    (
        "opencode",
        "run",
        [*RUN, '{"type":"step_finish","sessionID":"s","part":{"type":"step-finish"}}'],
        "success",
        "hi",
    ),
    ("opencode", "run", [*RUN, '{"type":"step_finish","sessionID":"s"}'], "success", "hi"),
    ("opencode", "run", [*RUN, '{"type":"step_finish","part":{"reason":null,"cost":"0.5"}}'], "success", "hi"),
    ("opencode", "run", RUN, "error", "connection_failed"),
    (
        "opencode",
        "run",
        [
            RUN[0],
            '{"type":"tool_use","part":{"tool":"bash","callID":"c","state":{"status":"completed"}}}',
            '{"type":"step_finish"}',
        ],
        "error",
        "connection_failed",
    ),
    (
        "opencode",
        "serve",
        ['{"type":"session.error","properties":{"sessionID":"s","error":{"name":"ProviderAuthError","data":{}}}}'],
        "error",
        "authentication_failed",
    ),
    ("gemini", "stream-json", ['{"type":"error","message":"API key invalid"}'], "error", "authentication_failed"),
    (
        "gemini",
        "stream-json",
        ['{"type":"init","session_id":"x"}', '{"type":"error","severity":"error","message":"quota exceeded"}'],
        "error",
        "quota_exceeded",
    ),
    (
        "claude",
        "stream",
        ['\ufeff{"type":"result","subtype":"success","is_error":false,"result":"hi","usage":{"input_tokens":"5"}}'],
        "success",
        "hi",
    ),
]


@pytest.mark.parametrize(("agent", "driver", "lines", "status", "word"), ENDINGS)
def test_how_it_ends(agent: str, driver: str, lines: list[str], status: str, word: str) -> None:
    account = Account()
    stream = list(translate(agent, catalog.agent(agent).drivers[driver], [line.encode() for line in lines], account))
    check(stream)
    assert account.unrecognized == 0
    done = stream[-1]
    assert isinstance(done, events.Done)
    said = done.result if status == "success" else [e.kind for e in stream if isinstance(e, events.Error)][-1]
    assert (done.status, said) == (status, word)


def test_a_part_that_is_not_recognized_counts() -> None:
    lines = [*EXEC, '{"type":"item.completed","item":{"id":"2","type":"hologram"}}', TEXT, '{"type":"turn.completed"}']
    account = Account()
    list(translate("codex", catalog.agent("codex").drivers["exec"], [line.encode() for line in lines], account))
    assert (account.unrecognized, account.lines) == (1, 5)


def test_a_question_with_a_member_that_cannot_be_read_is_no_question() -> None:
    """Somebody would decide about something else than what is then done."""
    good = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": 7}
    for request, asked in ((good, True), ({**good, "input": "rm -rf /"}, False), ({**good, "tool_name": None}, False)):
        protocol = ClaudeProtocol()
        line = {"type": "control_request", "request_id": "r", "request": request}
        protocol.receive(json.dumps(line).encode())
        assert bool(protocol.open_questions) is asked
        assert bool(protocol.outgoing()) is not asked  # it is refused


def test_a_question_about_files_never_shows_a_part_of_them() -> None:
    """The question itself names no files: they are those of the item before it."""
    protocol = AppServerProtocol()

    def item(*changes: object) -> bytes:
        item = {"type": "fileChange", "id": "f", "changes": changes, "status": "inProgress"}
        return json.dumps({"method": "item/started", "params": {"threadId": "a", "turnId": "1", "item": item}}).encode()

    good = {"path": "/w/a", "kind": {"type": "add"}, "diff": "x"}
    asks = b'{"id":5,"method":"item/fileChange/requestApproval","params":{"threadId":"a","turnId":"1","itemId":"f"}}'
    protocol.receive(item(good))
    protocol.receive(item(good, {"path": {"new": "/etc/passwd"}, "kind": {"type": "add"}, "diff": "x"}))
    (question,) = protocol.receive(asks)
    assert isinstance(question, FileChangeRequestApproval)
    assert question.changes == []
    protocol.receive(item(good))
    (question,) = protocol.receive(asks)
    assert isinstance(question, FileChangeRequestApproval)
    assert [change.path for change in question.changes] == ["/w/a"]


def test_a_sub_agent_of_an_older_codex_ends_with_its_turn() -> None:
    """Codex 0.145 says that a sub-agent started, and of its end no more than that its turn is over."""

    def note(method: str, **params: object) -> bytes:
        return json.dumps({"method": method, "params": params}).encode()

    started = {"type": "subAgentActivity", "id": "spawn", "kind": "started", "agentThreadId": "b", "agentPath": "/b"}
    done = {"type": "agentMessage", "id": "m", "text": "hi"}
    lines = [
        note("thread/started", thread={"id": "a"}),
        note("turn/started", threadId="a", turn={"id": "1"}),
        note("item/completed", threadId="a", turnId="1", item=started),
        note("turn/started", threadId="b", turn={"id": "2"}),
        note("turn/completed", threadId="b", turn={"id": "2", "status": "completed"}),
        note("item/completed", threadId="a", turnId="1", item=done),
        note("turn/completed", threadId="a", turn={"id": "1", "status": "completed"}),
    ]
    stream = list(translate("codex", catalog.agent("codex").drivers["app-server"], lines))
    results = [(event.tool_use_id, event.status) for event in stream if isinstance(event, events.ToolResult)]
    assert results == [("spawn", "success")]
    assert isinstance(stream[-1], events.Done)
    assert stream[-1].status == "success"
