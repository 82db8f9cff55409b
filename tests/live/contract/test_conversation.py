"""What an agent says and does, over the turns of one conversation, its resumption and its fork."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.testing import (
    delete_file,
    edit_file,
    mcp,
    plan,
    read_file,
    say,
    shell,
    task,
    think,
    usage,
    write_file,
)

pytestmark = [pytest.mark.live, pytest.mark.drift]

STEPS = [{"text": "Look around", "status": "completed"}, {"text": "Write it", "status": "in_progress"}]


def routes(folder: Path) -> dict[str, Any]:
    a_file = str(folder / "workspace" / "a.txt")
    return {
        "Greet me": [[think("Let me see."), say(["Hel", "lo ", "there."]), usage(input=1000, output=30, cached=400)]],
        "Run a command": [shell("echo good-output"), say("It ran.")],
        "Run a failing command": [shell("echo bad-output; exit 3"), say("It failed.")],
        "Write a file": [write_file(a_file, "one\ntwo\n"), say("Written.")],
        "Edit the file": [read_file(a_file), edit_file(a_file, "two\n", "2\n"), say("Edited.")],
        "Delete the file": [delete_file(a_file), say("Deleted.")],
        "Do two things at once": [[shell("echo the-first"), shell("echo the-second")], say("Both.")],
        "Make a plan": [plan(STEPS), say("Planned.")],
        "Delegate it": [task("The sub job", [shell("echo from-below"), say("Below.")]), say("Delegated.")],
        "Use the sums": [mcp("sums", "add", a=20, b=3), say("Summed.")],
        "Print bad bytes": [shell(r"printf 'caf\351 \377\376 end\n'"), say("Printed.")],
        "Say it again": [[say("Still here."), usage(input=700, output=10, cached=100)]],
        "Where were we": [say("Here.")],
        "Try another way": [say("Elsewhere.")],
    }


def test_conversation(
    rig: Any,
    stage: Any,
    cases: Any,
    expected: Any,
    play: Any,
    sums_server: stagedoor.McpServer,
    tmp_path: Path,
    plays_everything: bool,
) -> None:
    able, version = rig.capabilities, rig.version
    scene = stage(routes(tmp_path / "stage"))
    scene.git("init", "-q")

    async def main() -> None:
        servers = {"mcp_servers": {"sums": sums_server}} if able.mcp_servers else {}
        async with scene.conversation(tier="autonomous", **servers) as talk:
            await speech(talk)
            if plays_everything:
                await commands(talk)
                await files(talk)
                await collaboration(talk)
            await oddities(talk)
            session_id = talk.session.id
            done = await talk.close()
            with cases("done"):
                assert (done.status, done.result) == ("success", "Still here.")
                assert done.tool_uses == len(talk.events.of(stagedoor.ToolUse))
        await later(session_id)

    async def speech(talk: Any) -> None:
        with cases("plain text"):
            turn = await talk.turn("Greet me")
            assert turn.kinds[:2] == ["init", "turn_started"], turn.kinds
            assert (turn.text, turn.completed.status) == ("Hello there.", "success"), turn.describe()
            assert turn.completed.result == "Hello there."
            [init] = turn.of(stagedoor.Init)
            assert (init.cwd, init.resumed) == (str(scene.workspace), False)
            assert init.native_session_id == talk.session.id
            assert init.agent_version in ("", version)
        with cases("text deltas", able=able.text_deltas, field="text_deltas"):
            deltas = [event.text for event in turn.of(stagedoor.TextDelta)]
            assert "".join(deltas) == ("Hello there." if able.text_deltas else "")
            assert len(deltas) > 1 or not able.text_deltas
        with cases("thinking", able=able.thinking, field="thinking"):
            thoughts = "".join(event.text for event in turn.of(stagedoor.Thinking))
            assert ("Let me see." in thoughts) == able.thinking, turn.describe()
        with cases("usage per turn"):
            assert turn.completed.usage.input_tokens == 1000, turn.completed.usage
            assert turn.completed.usage.output_tokens == 30, turn.completed.usage
            assert turn.completed.usage.cached_tokens == (0 if expected.hides_cached_tokens else 400)
        with cases("cost", able=able.cost, field="cost"):
            assert (turn.completed.cost_usd is not None) == able.cost

    async def commands(talk: Any) -> None:
        with cases("shell command"):
            turn = await talk.turn("Run a command")
            [(use, result)] = turn.calls("shell")
            assert (use.operation, use.risk) == ("execute", "low"), use
            assert "echo good-output" in use.target
            assert result.status == "success", result
            assert "good-output" in result.output
            assert turn.text.endswith("It ran.")
        with cases("failing command"):
            turn = await talk.turn("Run a failing command")
            [(use, result)] = turn.calls("shell")
            assert "bad-output" in result.output
            assert result.status == "error", result
            assert turn.completed.status == "success"
        with cases("exit code", able=able.exit_codes, field="exit_codes"):
            assert result.exit_code == (3 if able.exit_codes else None)

    async def files(talk: Any) -> None:
        with cases("write a file"):
            turn = await talk.turn("Write a file")
            assert Path(scene.path("a.txt")).read_text() == "one\ntwo\n"
            [change] = turn.of(stagedoor.FileChange)
            assert (change.path, change.change) == ("a.txt", "created"), change
        with cases("edit a file"):
            turn = await talk.turn("Edit the file")
            assert Path(scene.path("a.txt")).read_text() == "one\n2\n"
            [change] = turn.of(stagedoor.FileChange)
            assert (change.path, change.change) == ("a.txt", "modified"), change
        with cases("diffs", able=able.diffs, field="diffs"):
            assert ("-two\n+2\n" in change.diff) == able.diffs, change
        with cases("delete a file"):
            turn = await talk.turn("Delete the file")
            assert not Path(scene.path("a.txt")).exists()
            changes = [(change.path, change.change) for change in turn.of(stagedoor.FileChange)]
            assert changes == [("a.txt", "deleted")]

    async def collaboration(talk: Any) -> None:
        with cases("parallel tools"):
            turn = await talk.turn("Do two things at once")
            outputs = sorted(result.output.strip() for _, result in turn.calls("shell"))
            assert [word in output for word, output in zip(("the-first", "the-second"), outputs, strict=True)] == [
                True
            ] * 2
        with cases("plan", able=able.plan, field="plan"):
            turn = await talk.turn("Make a plan")
            plans = [[(item.text, item.status) for item in event.items] for event in turn.of(stagedoor.Plan)]
            assert (bool(plans) and plans[-1] == [tuple(step.values()) for step in STEPS]) == able.plan, turn.describe()
            assert turn.completed.status == "success"
        with cases("sub-agents", able=able.subagents, field="subagents"):
            turn = await talk.turn("Delegate it")
            parents = {event.parent_tool_use_id for event in turn} - {None}
            tasks = {use.tool_use_id for use, _ in turn.calls("task")}
            assert parents == (tasks if able.subagents else set()), turn.describe()
            assert len(parents) == able.subagents
            assert turn.completed.status == "success"
        with cases("MCP tools", able=able.mcp_servers, field="mcp_servers"):
            if able.mcp_servers:
                turn = await talk.turn("Use the sums")
                [(_, result)] = turn.calls("mcp")
                assert (result.status, "sum=23" in result.output) == ("success", True), turn.describe()
            else:
                with pytest.raises(stagedoor.NotSupported):
                    scene.open(mcp_servers={"sums": sums_server})

    async def oddities(talk: Any) -> None:
        with cases("invalid UTF-8"):
            turn = await talk.turn("Print bad bytes")
            [(_, result)] = turn.calls("shell")
            assert "caf" in result.output
            assert "end" in result.output
        with cases("multi-turn"):
            turn = await talk.turn("Say it again")
            assert turn.kinds[0] == "turn_started"
            assert {event.turn for event in turn} == {talk.events.kinds.count("turn_started")}
            assert (turn.text, turn.completed.result) == ("Still here.", "Still here.")
            assert turn.completed.usage.input_tokens == 700, turn.completed.usage  # this turn's, not all turns'

    async def later(session_id: str) -> None:
        with cases("resume in a new process", able=able.resume, field="resume"):
            if able.resume:
                async with scene.conversation(resume=session_id, tier="autonomous") as talk:
                    turn = await talk.turn("Where were we")
                    assert (turn.text, turn.completed.status) == ("Here.", "success"), turn.describe()
                    assert turn.of(stagedoor.Init)[0].resumed
                    assert talk.session.id == session_id
                assert scene.model is None or "Still here." in str(scene.model.requests[-1].body)
            else:
                with pytest.raises(stagedoor.NotSupported):
                    scene.open(resume=session_id)
        with cases("fork", able=able.fork, field="fork"):
            if able.fork:
                async with scene.conversation(resume=session_id, fork=True, tier="autonomous") as talk:
                    turn = await talk.turn("Try another way")
                    assert (turn.text, turn.completed.status) == ("Elsewhere.", "success"), turn.describe()
                    assert talk.session.id != session_id
                assert scene.model is None or "Still here." in str(scene.model.requests[-1].body)
            else:
                with pytest.raises(stagedoor.NotSupported):
                    scene.open(resume=session_id, fork=True)
        with cases("history"):
            stored = stagedoor.history(scene.workspace, rig.agent, env=scene.env)
            assert session_id in [session.session_id for session in stored]

    play(main)
    cases.settle()
