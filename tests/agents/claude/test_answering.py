from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from stagedoor.agents.claude import Allow, CanUseTool, ClaudeSessionConfig, Deny, HookCallback, HookMatcher, ToolServer
from stagedoor.agents.claude.answering import NO_ANSWER, Answering
from stagedoor.agents.claude.commands import Answer, AnswerHook, AnswerMcp, AnswerPermission, Refuse, Reply
from stagedoor.agents.claude.requests import Elicitation, McpMessage, Question, RequestUserDialog

ASKED = CanUseTool("Bash", {"command": "ls"}, request_id="q")


def answered(config: ClaudeSessionConfig, *questions: Question) -> list[Reply]:
    """What is answered to the questions, asked one after the other."""

    async def main() -> list[Reply]:
        replies: asyncio.Queue[Reply] = asyncio.Queue()
        answering = Answering(config, replies.put)
        found: list[Reply] = []
        for question in questions:
            answering.ask(question)
            async with asyncio.timeout(60):
                found.append(await replies.get())
        return found

    return asyncio.run(main())


async def allow_later(request: CanUseTool) -> Allow:
    await asyncio.sleep(0)
    return Allow({"command": "pwd"})


async def never(request: object) -> Allow:
    await asyncio.Event().wait()
    return Allow()


def fails(request: object) -> Allow:
    raise RuntimeError("no idea")


def leaves(request: object) -> Allow:
    raise SystemExit(3)


class Asker:
    async def __call__(self, request: CanUseTool) -> Allow:
        return Allow()


@pytest.mark.parametrize(
    ("callback", "decision"),
    [
        (lambda request: Allow(), Allow()),
        (lambda request: Deny("no"), Deny("no")),
        (allow_later, Allow({"command": "pwd"})),
        (lambda request: allow_later(request), Allow({"command": "pwd"})),
        (Asker(), Allow()),
        (fails, Deny("The permission callback failed: RuntimeError: no idea")),
        (leaves, Deny("The permission callback failed: RuntimeError: SystemExit: 3")),
        (lambda request: True, Deny("The permission callback gave bool, neither Allow nor Deny.")),
        (lambda request: None, Deny("The permission callback gave NoneType, neither Allow nor Deny.")),
    ],
)
def test_decisions(callback: Callable[[CanUseTool], Any], decision: Allow | Deny) -> None:
    assert answered(ClaudeSessionConfig(can_use_tool=callback), ASKED) == [AnswerPermission("q", decision)]


def test_silence_denies() -> None:
    config = ClaudeSessionConfig(can_use_tool=never, permission_timeout=0.01)
    assert answered(config, ASKED) == [AnswerPermission("q", Deny(NO_ANSWER))]
    left_open = ClaudeSessionConfig(host_answers_permissions=True, permission_timeout=0.01)
    assert answered(left_open, ASKED) == [AnswerPermission("q", Deny(NO_ANSWER))]


def test_without_anybody_to_ask_the_answer_is_no() -> None:
    assert answered(ClaudeSessionConfig(), ASKED) == [
        AnswerPermission("q", Deny("Nobody is there to allow this call."))
    ]


@pytest.mark.parametrize("decision", [Deny("never", remember=True), Allow(remember=True)])
def test_remembered_decisions(decision: Allow | Deny) -> None:
    asked: list[dict[str, Any]] = []

    def decide(request: CanUseTool) -> Allow | Deny:
        asked.append(request.input)
        return decision

    described = CanUseTool("Bash", {"command": "ls", "description": "List"}, request_id="r")
    other = CanUseTool("Bash", {"command": "rm"}, request_id="s")
    replies = answered(ClaudeSessionConfig(can_use_tool=decide), ASKED, described, other)
    assert replies == [AnswerPermission(i, decision) for i in "qrs"]
    assert asked == [{"command": "ls"}, {"command": "rm"}]


def test_one_slow_decision_does_not_hold_up_another() -> None:
    release = threading.Event()

    def decide(request: CanUseTool) -> Allow | Deny:
        if request.request_id == "slow":
            assert release.wait(60)
            return Deny("slow")
        return Allow()

    async def main() -> list[Reply]:
        replies: asyncio.Queue[Reply] = asyncio.Queue()
        answering = Answering(ClaudeSessionConfig(can_use_tool=decide), replies.put)
        for name in ("slow", "quick"):
            answering.ask(CanUseTool("Bash", {}, request_id=name))
        async with asyncio.timeout(60):
            first = await replies.get()
            release.set()
            return [first, await replies.get()]

    assert asyncio.run(main()) == [AnswerPermission("quick", Allow()), AnswerPermission("slow", Deny("slow"))]


def test_a_void_question_is_not_answered() -> None:
    async def main() -> None:
        entered, cancelled = asyncio.Event(), asyncio.Event()

        async def decide(request: CanUseTool) -> Allow:
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return Allow()

        async def reply(reply: Reply) -> None:
            raise AssertionError(reply)

        answering = Answering(ClaudeSessionConfig(can_use_tool=decide), reply)
        answering.ask(ASKED)
        async with asyncio.timeout(60):
            await entered.wait()
            answering.void("q")
            answering.void("unknown")
            await cancelled.wait()
        answering.void_all()

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
         {"hookSpecificOutput": {**DENIED, "permissionDecisionReason": "the hook gave no answer within 0.01 s"}}),
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
        (McpMessage("other", ping, "m"), Refuse("m", "there is no MCP server 'other' in this process")),  # type: ignore[arg-type]
        (Elicitation("s", request_id="e"), Answer("e", {"action": "decline"})),
        (RequestUserDialog("d", request_id="u"), Answer("u", {"behavior": "cancelled"})),
        (HookCallback("nobody", request_id="h"), AnswerHook("h", {})),
    ):
        assert answered(config, question) == [reply]
