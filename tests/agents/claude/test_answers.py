from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from stagedoor.agents.claude import (
    CanUseTool,
    ClaudeSessionConfig,
    HookCallback,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolServer,
)
from stagedoor.agents.claude.answers import NO_ANSWER, ClaudeAnswers
from stagedoor.agents.claude.commands import (
    AnswerCanUseTool,
    AnswerControlRequest,
    AnswerHook,
    AnswerMcp,
    RefuseControlRequest,
    Reply,
)
from stagedoor.agents.claude.events import Elicitation, McpMessage, Question, RequestUserDialog

QUESTION = CanUseTool("Bash", {"command": "ls"}, request_id="q")


def answered(config: ClaudeSessionConfig, *questions: Question) -> list[Reply]:
    """What is answered to the questions, asked one after the other."""

    async def main() -> list[Reply]:
        replies: asyncio.Queue[Reply] = asyncio.Queue()
        answers = ClaudeAnswers(config, replies.put)
        received: list[Reply] = []
        for question in questions:
            answers.start(question)
            async with asyncio.timeout(240):
                received.append(await replies.get())
        return received

    return asyncio.run(main())


async def allow_later(request: CanUseTool) -> PermissionResultAllow:
    await asyncio.sleep(0)
    return PermissionResultAllow({"command": "pwd"})


async def never(request: object) -> PermissionResultAllow:
    await asyncio.Event().wait()
    return PermissionResultAllow()


def fails(request: object) -> PermissionResultAllow:
    raise RuntimeError("no idea")


def leaves(request: object) -> PermissionResultAllow:
    raise SystemExit(3)


class Asker:
    async def __call__(self, request: CanUseTool) -> PermissionResultAllow:
        return PermissionResultAllow()


@pytest.mark.parametrize(
    ("callback", "decision"),
    [
        (lambda request: PermissionResultAllow(), PermissionResultAllow()),
        (lambda request: PermissionResultDeny("no"), PermissionResultDeny("no")),
        (allow_later, PermissionResultAllow({"command": "pwd"})),
        (lambda request: allow_later(request), PermissionResultAllow({"command": "pwd"})),
        (Asker(), PermissionResultAllow()),
        (fails, PermissionResultDeny("The permission callback failed: RuntimeError: no idea")),
        (leaves, PermissionResultDeny("The permission callback failed: RuntimeError: SystemExit(3)")),
        (
            lambda request: True,
            PermissionResultDeny("The permission callback returned bool, which is neither allow nor deny."),
        ),
        (
            lambda request: None,
            PermissionResultDeny("The permission callback returned NoneType, which is neither allow nor deny."),
        ),
    ],
)
def test_decisions(
    callback: Callable[[CanUseTool], Any], decision: PermissionResultAllow | PermissionResultDeny
) -> None:
    assert answered(ClaudeSessionConfig(can_use_tool=callback), QUESTION) == [AnswerCanUseTool("q", decision)]


def test_silence_denies() -> None:
    config = ClaudeSessionConfig(can_use_tool=never, permission_timeout=0.01)
    assert answered(config, QUESTION) == [AnswerCanUseTool("q", PermissionResultDeny(NO_ANSWER))]
    left_open = ClaudeSessionConfig(host_answers_permissions=True, permission_timeout=0.01)
    assert answered(left_open, QUESTION) == [AnswerCanUseTool("q", PermissionResultDeny(NO_ANSWER))]


async def blocks_the_loop(request: object) -> PermissionResultAllow:
    time.sleep(0.05)
    return PermissionResultAllow()


def test_an_answer_after_the_deadline_is_refused_by_the_clock() -> None:
    """The function holds up the loop, so that no timer of the loop can fire before it returns."""
    late = ClaudeSessionConfig(can_use_tool=blocks_the_loop, permission_timeout=0.01)
    assert answered(late, QUESTION) == [AnswerCanUseTool("q", PermissionResultDeny(NO_ANSWER))]
    hooks = {"PreToolUse": [HookMatcher([blocks_the_loop], timeout=0.01)]}  # type: ignore[list-item]
    call = HookCallback("PreToolUse_0_0", {"hook_event_name": "PreToolUse"}, request_id="h")
    reason = "the hook did not answer within 0.01 s"
    output = {"hookSpecificOutput": {**DENIED, "permissionDecisionReason": reason}}
    assert answered(ClaudeSessionConfig(hooks=hooks), call) == [AnswerHook("h", output)]


def test_without_anybody_to_ask_the_answer_is_no() -> None:
    assert answered(ClaudeSessionConfig(), QUESTION) == [
        AnswerCanUseTool("q", PermissionResultDeny("Nobody can allow this call: no permission callback is set."))
    ]


@pytest.mark.parametrize(
    "decision", [PermissionResultDeny("never", remember=True), PermissionResultAllow(remember=True)]
)
def test_remembered_decisions(decision: PermissionResultAllow | PermissionResultDeny) -> None:
    calls: list[dict[str, Any]] = []

    def decide(request: CanUseTool) -> PermissionResultAllow | PermissionResultDeny:
        calls.append(request.input)
        return decision

    described = CanUseTool("Bash", {"command": "ls", "description": "List"}, request_id="r")
    other = CanUseTool("Bash", {"command": "rm"}, request_id="s")
    replies = answered(ClaudeSessionConfig(can_use_tool=decide), QUESTION, described, other)
    assert replies == [AnswerCanUseTool(i, decision) for i in "qrs"]
    assert calls == [{"command": "ls"}, {"command": "rm"}]


def test_one_slow_decision_does_not_hold_up_another() -> None:
    release = threading.Event()

    def decide(request: CanUseTool) -> PermissionResultAllow | PermissionResultDeny:
        if request.request_id == "slow":
            assert release.wait(60)
            return PermissionResultDeny("slow")
        return PermissionResultAllow()

    async def main() -> list[Reply]:
        replies: asyncio.Queue[Reply] = asyncio.Queue()
        answers = ClaudeAnswers(ClaudeSessionConfig(can_use_tool=decide), replies.put)
        for name in ("slow", "quick"):
            answers.start(CanUseTool("Bash", {}, request_id=name))
        async with asyncio.timeout(240):
            first = await replies.get()
            release.set()
            return [first, await replies.get()]

    assert asyncio.run(main()) == [
        AnswerCanUseTool("quick", PermissionResultAllow()),
        AnswerCanUseTool("slow", PermissionResultDeny("slow")),
    ]


def test_a_void_question_is_not_answered() -> None:
    async def main() -> None:
        entered, cancelled = asyncio.Event(), asyncio.Event()

        async def decide(request: CanUseTool) -> PermissionResultAllow:
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return PermissionResultAllow()

        async def reply(reply: Reply) -> None:
            raise AssertionError(reply)

        answers = ClaudeAnswers(ClaudeSessionConfig(can_use_tool=decide), reply)
        answers.start(QUESTION)
        async with asyncio.timeout(240):
            await entered.wait()
            answers.void("q")
            answers.void("unknown")
            await cancelled.wait()
        answers.void_all()

    asyncio.run(main())


DENIED = {"hookEventName": "PreToolUse", "permissionDecision": "deny"}


@pytest.mark.parametrize(
    ("event", "hook", "output"),
    [
        ("PreToolUse", lambda call: None, {}),
        ("PreToolUse", lambda call: {"continue": False}, {"continue": False}),
        ("Stop", fails, {}),
        ("PreToolUse", fails,
         {"hookSpecificOutput": {**DENIED, "permissionDecisionReason": "the hook failed: RuntimeError: no idea"}}),
        ("PreToolUse", never,
         {"hookSpecificOutput": {**DENIED, "permissionDecisionReason": "the hook did not answer within 0.01 s"}}),
    ],
)  # fmt: skip
def test_hooks(event: str, hook: Callable[[HookCallback], Any], output: dict[str, Any]) -> None:
    config = ClaudeSessionConfig(hooks={event: [HookMatcher([hook], timeout=0.01 if hook is never else None)]})
    call = HookCallback(f"{event}_0_0", {"hook_event_name": event}, request_id="h")
    assert answered(config, call) == [AnswerHook("h", output)]


def test_other_questions() -> None:
    async def later() -> str:
        return "done"

    config = ClaudeSessionConfig(mcp_servers={"desk": ToolServer([later])})
    ping = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"later"}}'
    result = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "done"}]}}
    for question, reply in (
        (McpMessage("desk", ping, "m"), AnswerMcp("m", result)),  # type: ignore[arg-type]
        (
            McpMessage("other", ping, "m"),
            RefuseControlRequest("m", "MCP server 'other' is not registered in this process"),
        ),  # type: ignore[arg-type]
        (Elicitation("s", request_id="e"), AnswerControlRequest("e", {"action": "decline"})),
        (RequestUserDialog("d", request_id="u"), AnswerControlRequest("u", {"behavior": "cancelled"})),
        (HookCallback("nobody", request_id="h"), AnswerHook("h", {})),
    ):
        assert answered(config, question) == [reply]
