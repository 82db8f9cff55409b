"""One callback for every agent: allowed, changed, denied, remembered, too late."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.testing import say, shell, write_file

pytestmark = [pytest.mark.live, pytest.mark.drift]

PATIENCE = 4.0
FOLLOWING = (
    "permission for an edit",
    "permission with changed input",
    "permission remembered",
    "permission denied",
    "permission timed out",
    "permission denied and interrupted",
    "reason of a denial reaches the model",
    "session goes on after a denial",
)
"""What does not arise where an agent cannot be asked for permission."""


def routes(folder: Path) -> dict[str, Any]:
    return {
        "Go ahead": [shell("touch allowed.txt"), say("Done.")],
        "Write it": [write_file(str(folder / "workspace" / "written.txt"), "new\n"), say("Done.")],
        "Change it": [shell("touch original.txt"), say("Done.")],
        "Refuse it": [shell("touch refused.txt"), say("Understood.")],
        "Remember it": [shell("touch remembered.txt"), shell("touch remembered.txt"), say("Done.")],
        "Let it wait": [shell("touch late.txt"), say("Too late.")],
        "Stop there": [shell("touch stopped.txt"), say("Never said.")],
        "Carry on": [say("Still here.")],
    }


def changed(given: Any) -> Any:
    """The input of a call with another file in it, whatever the agent calls the field."""
    if isinstance(given, dict):
        return {key: changed(value) for key, value in given.items()}
    if isinstance(given, list):
        return [changed(value) for value in given]
    return given.replace("original.txt", "changed.txt") if isinstance(given, str) else given


def test_permissions(rig: Any, stage: Any, cases: Any, play: Any, tmp_path: Path) -> None:
    able = rig.capabilities
    asks = able.permissions != "none"
    scene = stage(routes(tmp_path / "stage"))
    scene.git("init", "-q")
    asked: list[stagedoor.PermissionRequest] = []
    decide: Any = None

    async def callback(request: stagedoor.PermissionRequest) -> stagedoor.Allow | stagedoor.Deny:
        asked.append(request)
        decision = decide(request)
        return await decision if asyncio.iscoroutine(decision) else decision

    async def never(request: stagedoor.PermissionRequest) -> stagedoor.Allow:
        await asyncio.Event().wait()
        return stagedoor.Allow()

    def made(name: str) -> bool:
        return (scene.workspace / name).exists()

    async def ask(talk: Any, prompt: str, answer: Any) -> tuple[Any, list[stagedoor.PermissionResolved]]:
        nonlocal decide
        decide = answer
        asked.clear()
        heard = await talk.turn(prompt)
        return heard, heard.of(stagedoor.PermissionResolved)

    async def main() -> None:
        options = {"approval": "ask", "can_use_tool": callback, "permission_timeout": PATIENCE}
        async with scene.conversation(**options) as talk:
            await answered(talk)
            await refused(talk)
            with cases("session goes on after a denial"):
                heard, _ = await ask(talk, "Carry on", None)
                assert heard.text == "Still here."

    async def answered(talk: Any) -> None:
        with cases("permission allowed", field="permissions"):
            heard, [resolved] = await ask(talk, "Go ahead", lambda request: stagedoor.Allow())
            [request] = asked
            assert (request.tool_name, request.operation) == ("shell", "execute"), request
            assert "touch allowed.txt" in request.target
            assert (resolved.decision, resolved.by) == ("allow", "callback")
            [(_, result)] = heard.calls("shell")
            assert result.status == "success", result
            assert made("allowed.txt")
            order = heard.kinds
            assert order.index("tool_use") < order.index("permission_request") < order.index("permission_resolved")
        with cases("permission for an edit"):
            heard, _ = await ask(talk, "Write it", lambda request: stagedoor.Allow())
            assert [(request.operation, Path(request.target).name) for request in asked] == [("write", "written.txt")]
            assert made("written.txt")
        with cases("permission with changed input", able=able.edit_input, field="edit_input"):
            heard, [resolved] = await ask(
                talk, "Change it", lambda request: stagedoor.Allow(updated_input=changed(request.input))
            )
            assert not made("original.txt")
            assert made("changed.txt") == able.edit_input
            assert resolved.decision == ("allow" if able.edit_input else "deny"), resolved
        with cases("permission remembered"):
            heard, _ = await ask(talk, "Remember it", lambda request: stagedoor.Allow(remember="session"))
            assert len(asked) == 1, asked
            assert [result.status for _, result in heard.calls("shell")] == ["success", "success"]
            assert made("remembered.txt")

    async def refused(talk: Any) -> None:
        with cases("permission denied"):
            heard, [resolved] = await ask(talk, "Refuse it", lambda request: stagedoor.Deny("The captain says no."))
            assert (resolved.decision, resolved.message) == ("deny", "The captain says no.")
            [(_, result)] = heard.calls("shell")
            assert result.status == "denied", result
            assert heard.completed.status == "success", heard.describe()
            assert not made("refused.txt")
        with cases("reason of a denial reaches the model", able=able.deny_message, field="deny_message"):
            assert scene.model is None or scene.model_heard("The captain says no.") == able.deny_message
        with cases("permission timed out"):
            heard, [resolved] = await ask(talk, "Let it wait", never)
            assert (resolved.decision, resolved.by) == ("deny", "timeout")
            assert [result.status for _, result in heard.calls("shell")] == ["denied"]
            assert not made("late.txt")
        with cases("permission denied and interrupted"):
            heard, [resolved] = await ask(talk, "Stop there", lambda request: stagedoor.Deny("Stop.", interrupt=True))
            assert heard.completed.status == "interrupted", heard.describe()
            assert "Never said." not in heard.text
            assert not made("stopped.txt")

    if not asks:
        with cases("permission allowed", able=False, field="permissions"), pytest.raises(stagedoor.NotSupported):
            scene.open(can_use_tool=callback)
        cases.do_not_arise(*FOLLOWING)
    else:
        play(main)
    cases.settle()
