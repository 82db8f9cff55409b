from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stagedoor.agents.claude import CanUseTool, PermissionResultAllow, PermissionResultDeny
from stagedoor.agents.claude.answers import Delegate
from stagedoor.agents.claude.permission_server import ask

QUESTION = {"tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "toolu_1"}
Decide = Callable[[CanUseTool], Awaitable[PermissionResultAllow | PermissionResultDeny]]


def answer_to(question: dict[str, Any], decide: Decide | None) -> Any:
    """The answer that the permission server gives to Claude Code."""

    async def main() -> Any:
        delegate = await Delegate.open()
        delegate.decide = decide
        try:
            async with asyncio.timeout(240):
                return json.loads(await ask(delegate.entry["args"][-1], question))
        finally:
            delegate.close()

    return asyncio.run(main())


async def allow(request: CanUseTool) -> PermissionResultAllow:
    assert (request.tool_name, request.input, request.tool_use_id) == ("Bash", {"command": "ls"}, "toolu_1")
    return PermissionResultAllow()


async def deny(request: CanUseTool) -> PermissionResultDeny:
    return PermissionResultDeny("no", interrupt=True)


@pytest.mark.parametrize(
    ("decide", "answer"),
    [
        (allow, {"behavior": "allow", "updatedInput": {"command": "ls"}}),
        (deny, {"behavior": "deny", "message": "no", "interrupt": True}),
        (None, {"behavior": "deny", "message": "Nobody can allow this call: no permission callback is set."}),
    ],
)
def test_answers(decide: Decide | None, answer: dict[str, Any]) -> None:
    assert answer_to(QUESTION, decide) == answer


def test_a_question_that_cannot_be_read_is_refused() -> None:
    assert answer_to({"input": {}}, allow)["behavior"] == "deny"


def test_when_the_session_is_over_the_answer_is_no(tmp_path: Path) -> None:
    async def main() -> None:
        nobody = json.loads(await ask(str(tmp_path / "nobody"), QUESTION))
        assert nobody["behavior"] == "deny"

        entered = asyncio.Event()

        async def never(request: CanUseTool) -> PermissionResultAllow:
            entered.set()
            await asyncio.Event().wait()
            return PermissionResultAllow()

        delegate = await Delegate.open()
        delegate.decide = never
        folder = Path(delegate.entry["args"][-1]).parent
        assert folder.stat().st_mode & 0o077 == 0
        waiting = asyncio.create_task(ask(str(folder / "permissions"), QUESTION))
        async with asyncio.timeout(240):
            await entered.wait()
            delegate.close()
            assert json.loads(await waiting)["behavior"] == "deny"
        assert not folder.exists()

    asyncio.run(main())


def test_a_question_taken_back_is_not_decided_any_more() -> None:
    async def main() -> None:
        entered, cancelled = asyncio.Event(), asyncio.Event()

        async def never(request: CanUseTool) -> PermissionResultAllow:
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return PermissionResultAllow()

        delegate = await Delegate.open()
        delegate.decide = never
        waiting = asyncio.create_task(ask(delegate.entry["args"][-1], QUESTION))
        async with asyncio.timeout(240):
            await entered.wait()
            waiting.cancel()
            await cancelled.wait()
        delegate.close()

    asyncio.run(main())
