"""What a protocol sends, it reads back from a recording; an answer that makes no sense allows nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stagedoor.agents.acp import commands as acp
from stagedoor.agents.acp.protocol import AcpProtocol
from stagedoor.agents.acp.requests import PermissionKind
from stagedoor.agents.acp.updates import TextContent
from stagedoor.agents.claude import commands as claude
from stagedoor.agents.claude.protocol import ClaudeProtocol
from stagedoor.agents.codex import commands as codex
from stagedoor.agents.codex.command_decoder import UNREADABLE
from stagedoor.agents.codex.protocol import AppServerProtocol
from stagedoor.agents.opencode import commands as opencode
from stagedoor.agents.opencode.command_decoder import command_in
from stagedoor.agents.opencode.commands import (
    abort_request,
    permission_request,
    prompt_request,
    question_request,
    rejection_request,
)
from stagedoor.wire.http import HttpRequest


def line(**members: Any) -> bytes:
    return msgspec.json.encode(members)


# ------------------------------------------------------------------------------------------------------------ claude

CAN_USE_TOOL = line(
    type="control_request",
    request_id="q",
    request={"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "t"},
)
HOOK = line(type="control_request", request_id="q", request={"subtype": "hook_callback", "callback_id": "c"})
RULE = msgspec.Raw(b'{"type":"addRules","destination":"session","behavior":"allow"}')


@pytest.mark.parametrize(
    ("question", "command"),
    [
        (None, claude.ClaudePrompt("Hi.")),
        (None, claude.ClaudePrompt([{"type": "text", "text": "Half an emoji: \ud83d"}])),
        (None, claude.ClaudeInterrupt()),
        (CAN_USE_TOOL, claude.AnswerCanUseTool("q", claude.PermissionResultAllow())),
        (CAN_USE_TOOL, claude.AnswerCanUseTool("q", claude.PermissionResultAllow({"command": "pwd"}, [RULE]))),
        (CAN_USE_TOOL, claude.AnswerCanUseTool("q", claude.PermissionResultDeny("No.", interrupt=True))),
        (CAN_USE_TOOL, claude.RefuseControlRequest("q", "it broke")),
        (HOOK, claude.AnswerHook("q", {"continue": False})),
    ],
)
def test_claude(question: bytes | None, command: claude.Command) -> None:
    ours, reader = ClaudeProtocol(), ClaudeProtocol()
    for protocol in (ours, reader):
        if question is not None:
            protocol.receive(question)
    ours.send(command)
    [message] = ours.outgoing()
    [decoded] = reader.decode_command(message)
    if isinstance(command, claude.ClaudePrompt) and not isinstance(command.content, str):
        command = claude.ClaudePrompt([{"type": "text", "text": "Half an emoji: �"}])
    assert msgspec.json.encode(decoded) == msgspec.json.encode(command)
    assert not reader.open_questions
    assert reader.outgoing() == []


@pytest.mark.parametrize(
    "response",
    [
        {"behavior": "allow"},
        {"behavior": "deny"},
        {"behavior": "maybe", "message": "?"},
        {"behavior": "allow", "updatedInput": []},
        [],
        None,
    ],
)
def test_claude_takes_no_such_answer(response: object) -> None:
    protocol = ClaudeProtocol()
    protocol.receive(CAN_USE_TOOL)
    answer = {"subtype": "success", "request_id": "q", "response": response}
    [command] = protocol.decode_command(line(type="control_response", response=answer))
    assert isinstance(command, claude.AnswerCanUseTool)
    assert isinstance(command.decision, claude.PermissionResultDeny)


# ------------------------------------------------------------------------------------------------------------- codex


def codex_question(method: str, **params: Any) -> bytes:
    return line(id=0, method=method, params={"threadId": "T", "turnId": "t", "itemId": "i", **params})


COMMAND = codex_question("item/commandExecution/requestApproval", command="ls")
PATCH = codex_question("item/fileChange/requestApproval")
RIGHTS = codex_question("item/permissions/requestApproval", permissions={"network": True})
FORM = codex_question("mcpServer/elicitation/request", serverName="s")
WORDS = codex_question("item/tool/requestUserInput", questions=[{"id": "q1"}])
OLDER = line(id=0, method="execCommandApproval", params={"conversationId": "T", "callId": "i", "command": ["ls"]})
CODEX: list[tuple[bytes, codex.Decision]] = [
    (COMMAND, codex.Accept()),
    (COMMAND, codex.AcceptForSession()),
    (COMMAND, codex.AcceptWithExecpolicyAmendment(["ls"])),
    (COMMAND, codex.ApplyNetworkPolicyAmendment("example.com", "deny")),
    (COMMAND, codex.Decline("")),
    (COMMAND, codex.CancelTurn()),
    (PATCH, codex.Accept()),
    (PATCH, codex.Decline("")),
    (RIGHTS, codex.Accept()),
    (RIGHTS, codex.AcceptForSession()),
    (RIGHTS, codex.Decline("")),
    (FORM, codex.Accept({"name": "x"})),
    (FORM, codex.AcceptForSession()),
    (FORM, codex.Decline("")),
    (FORM, codex.CancelTurn()),
    (WORDS, codex.Answers({"q1": ["Blue"]})),
    (WORDS, codex.Decline("")),
    (OLDER, codex.Accept()),
    (OLDER, codex.AcceptForSession()),
    (OLDER, codex.Decline("No.")),
    (OLDER, codex.CancelTurn()),
]


@pytest.mark.parametrize(("question", "decision"), CODEX)
def test_codex_answers(question: bytes, decision: codex.Decision) -> None:
    ours, reader = AppServerProtocol(), AppServerProtocol()
    [greeting] = ours.outgoing()
    ours.receive(line(id=msgspec.json.decode(greeting)["id"], result={"userAgent": "x/0.166.0"}))
    ours.outgoing()
    ours.receive(question)
    reader.receive(question)
    ours.send(codex.AnswerQuestion(0, decision))
    [message] = ours.outgoing()
    assert reader.decode_command(message) == [codex.AnswerQuestion(0, decision)]
    assert not reader.open_questions


@pytest.mark.parametrize("question", [COMMAND, PATCH, RIGHTS, FORM, WORDS, OLDER])
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"error": {"code": -1, "message": "no"}}, "no"),
        ({"result": {"decision": "maybe"}}, UNREADABLE),
        ({"result": {"action": 1, "permissions": None, "answers": []}}, UNREADABLE),
        ({"result": []}, UNREADABLE),
    ],
)
def test_codex_runs_nothing_on_such_an_answer(question: bytes, answer: dict[str, Any], why: str) -> None:
    protocol = AppServerProtocol()
    protocol.receive(question)
    assert protocol.decode_command(line(id=0, **answer)) == [codex.AnswerQuestion(0, codex.Decline(why))]


def test_codex_requests() -> None:
    protocol = AppServerProtocol()
    text = [{"type": "text", "text": "Hi."}, {"type": "localImage", "path": "/a.png"}]
    start = line(id=1, method="turn/start", params={"threadId": "T", "input": text})
    assert protocol.decode_command(start) == [codex.StartTurn("T", "Hi.")]
    protocol.receive(line(method="turn/started", params={"threadId": "T", "turn": {"id": "t"}}))
    assert protocol.decode_command(start) == [codex.Steer("T", "Hi.")]
    assert protocol.decode_command(line(id=2, method="turn/interrupt", params={"threadId": "T"})) == [
        codex.InterruptTurn("T")
    ]
    assert protocol.decode_command(line(id=3, method="thread/start", params={"cwd": "/w"})) == [
        codex.StartThread({"cwd": "/w"})
    ]
    assert protocol.decode_command(b"{") == []


# --------------------------------------------------------------------------------------------------------------- acp

QUESTION = line(
    jsonrpc="2.0",
    id=7,
    method="session/request_permission",
    params={
        "sessionId": "s",
        "toolCall": {"toolCallId": "c"},
        "options": [{"optionId": "yes", "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once"}],
    },
)


@pytest.mark.parametrize(
    ("result", "kind", "option"),
    [
        ({"outcome": {"outcome": "selected", "optionId": "yes"}}, "allow_once", "yes"),
        ({"outcome": {"outcome": "selected", "optionId": "no"}}, "reject_once", "no"),
        ({"outcome": {"outcome": "selected", "optionId": "bogus"}}, None, "bogus"),
        ({"outcome": {"outcome": "cancelled"}}, None, None),
    ],
)
def test_acp_answers(result: object, kind: PermissionKind | None, option: str | None) -> None:
    protocol = AcpProtocol()
    protocol.receive(QUESTION)
    message = line(jsonrpc="2.0", id=7, result=result)
    assert protocol.decode_command(message) == [acp.AnswerPermissionRequest(7, kind, option)]
    assert protocol.decode_command(message) == []


@pytest.mark.parametrize("answer", [{"error": {"code": 1, "message": ""}}, {"result": {"outcome": "yes"}}])
def test_acp_allows_nothing_on_such_an_answer(answer: dict[str, Any]) -> None:
    protocol = AcpProtocol()
    protocol.receive(QUESTION)
    assert protocol.decode_command(line(jsonrpc="2.0", id=7, **answer)) == [
        acp.RefuseRequest(7, "the answer could not be read")
    ]


def test_acp_requests() -> None:
    commands: list[acp.Call] = [
        acp.NewSessionRequest("/w"),
        acp.LoadSessionRequest("s", "/w"),
        acp.ResumeSessionRequest("s", "/w"),
        acp.ForkSessionRequest("s", "/w"),
        acp.PromptRequest("s", (TextContent("Hi."),)),
    ]
    for command in commands:
        ours = AcpProtocol()
        ours.call(command)
        [message] = ours.outgoing()
        assert AcpProtocol().decode_command(message) == [command]
    assert AcpProtocol().decode_command(line(jsonrpc="2.0", method="session/cancel", params={"sessionId": "s"})) == [
        acp.CancelNotification("s")
    ]


# ---------------------------------------------------------------------------------------------------------- opencode


@pytest.mark.parametrize(
    ("request_", "command"),
    [
        (prompt_request("s", opencode.OpenCodePrompt("Hi. {}"), "/w"), opencode.OpenCodePrompt("Hi. {}")),
        (abort_request("s", ""), opencode.Abort()),
        (
            permission_request(opencode.ReplyPermission("p/1", "always"), "/w"),
            opencode.ReplyPermission("p/1", "always"),
        ),
        (
            permission_request(opencode.ReplyPermission("p", "reject", "No."), ""),
            opencode.ReplyPermission("p", "reject", "No."),
        ),
        (
            HttpRequest("POST", "/session/s/permissions/p", b'{"response":"reject"}'),
            opencode.ReplyPermission("p", "reject"),
        ),
        (question_request(opencode.ReplyQuestion("q", (("A", "B"),)), ""), opencode.ReplyQuestion("q", (("A", "B"),))),
        (rejection_request("q", "/w"), opencode.RejectQuestion("q")),
        (HttpRequest("POST", "/permission/p/reply", b'{"reply":"perhaps"}'), None),
        (HttpRequest("GET", "/session/s/message"), None),
        (HttpRequest("POST", "/session/s/message", b"{"), opencode.OpenCodePrompt("")),
    ],
)
def test_opencode(request_: HttpRequest, command: opencode.Command | None) -> None:
    assert command_in(request_.line()) == command
