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


def changed(entry: Any) -> Any:
    """The input of a call with another file in it, whatever the agent calls the field."""
    if isinstance(entry, dict):
        return {key: changed(value) for key, value in entry.items()}
    if isinstance(entry, list):
        return [changed(value) for value in entry]
    return entry.replace("original.txt", "changed.txt") if isinstance(entry, str) else entry


def test_permissions(rig: Any, stage: Any, cases: Any, play: Any, tmp_path: Path) -> None:
    able = rig.capabilities
    asks = able.permissions != "none"
    scene = stage(routes(tmp_path / "stage"))
    scene.git("init", "-q")
    requests: list[stagedoor.PermissionRequest] = []
    decide: Any = None

    async def callback(request: stagedoor.PermissionRequest) -> stagedoor.Allow | stagedoor.Deny:
        requests.append(request)
        decision = decide(request)
        return await decision if asyncio.iscoroutine(decision) else decision

    async def never(request: stagedoor.PermissionRequest) -> stagedoor.Allow:
        await asyncio.Event().wait()
        return stagedoor.Allow()

    def exists(name: str) -> bool:
        return (scene.workspace / name).exists()

    async def ask(talk: Any, prompt: str, answer: Any) -> tuple[Any, list[stagedoor.PermissionResolved]]:
        nonlocal decide
        decide = answer
        requests.clear()
        turn = await talk.turn(prompt)
        return turn, turn.of(stagedoor.PermissionResolved)

    async def main() -> None:
        options = {"approval": "ask", "can_use_tool": callback, "permission_timeout": PATIENCE}
        async with scene.conversation(**options) as talk:
            await answered(talk)
            await refused(talk)
            with cases("session goes on after a denial"):
                turn, _ = await ask(talk, "Carry on", None)
                assert turn.text == "Still here."

    async def answered(talk: Any) -> None:
        with cases("permission allowed", field="permissions"):
            turn, [resolved] = await ask(talk, "Go ahead", lambda request: stagedoor.Allow())
            [request] = requests
            assert (request.tool_name, request.operation) == ("shell", "execute"), request
            assert "touch allowed.txt" in request.target
            assert (resolved.decision, resolved.by) == ("allow", "callback")
            [(_, result)] = turn.calls("shell")
            assert result.status == "success", (result.output, result.exit_code)
            assert exists("allowed.txt")
            order = turn.kinds
            assert order.index("tool_use") < order.index("permission_request") < order.index("permission_resolved")
        with cases("permission for an edit"):
            turn, _ = await ask(talk, "Write it", lambda request: stagedoor.Allow())
            assert [(request.operation, Path(request.target).name) for request in requests] == [
                ("write", "written.txt")
            ]
            assert exists("written.txt")
        with cases("permission with changed input", able=able.edit_input, field="edit_input"):
            turn, [resolved] = await ask(
                talk, "Change it", lambda request: stagedoor.Allow(updated_input=changed(request.input))
            )
            assert not exists("original.txt")
            assert exists("changed.txt") == able.edit_input
            assert resolved.decision == ("allow" if able.edit_input else "deny"), resolved
        with cases("permission remembered"):
            turn, _ = await ask(talk, "Remember it", lambda request: stagedoor.Allow(remember="session"))
            assert len(requests) == 1, requests
            results = [result for _, result in turn.calls("shell")]
            assert len(results) == 2
            assert [(one.status, one.output) for one in results if one.status != "success"] == []
            assert exists("remembered.txt")

    async def refused(talk: Any) -> None:
        with cases("permission denied"):
            turn, [resolved] = await ask(talk, "Refuse it", lambda request: stagedoor.Deny("The captain says no."))
            assert (resolved.decision, resolved.message) == ("deny", "The captain says no.")
            [(_, result)] = turn.calls("shell")
            assert result.status == "denied", result
            assert turn.completed.status == "success", turn.describe()
            assert not exists("refused.txt")
        with cases("reason of a denial reaches the model", able=able.deny_message, field="deny_message"):
            assert scene.model is None or scene.model_received("The captain says no.") == able.deny_message
        with cases("permission timed out"):
            turn, [resolved] = await ask(talk, "Let it wait", never)
            assert (resolved.decision, resolved.by) == ("deny", "timeout")
            assert [result.status for _, result in turn.calls("shell")] == ["denied"]
            assert not exists("late.txt")
        with cases("permission denied and interrupted"):
            turn, [resolved] = await ask(talk, "Stop there", lambda request: stagedoor.Deny("Stop.", interrupt=True))
            assert turn.completed.status == "interrupted", turn.describe()
            assert "Never said." not in turn.text
            assert not exists("stopped.txt")

    if not asks:
        with cases("permission allowed", able=False, field="permissions"), pytest.raises(stagedoor.NotSupported):
            scene.open(can_use_tool=callback)
        cases.do_not_arise(*FOLLOWING)
    else:
        play(main)
    cases.settle()
