"""Document 002 as its own phone uses it: against the real server, with the embedded agent and with a real CLI."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.service.config.load import parse
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.testing import ScriptedModel, find_cli, mcp, question, say
from tests.seeds.client_002 import Json, Phone, RpcError, check_event, phone

COVERS: dict[str, str] = {
    "1.1 Existing Architecture": "test_every_phone_hears_what_runs test_git_from_both_doors",
    "1.2 Current AgentManager Interface": "test_a_whole_story test_a_text_answers_the_agents_question "
    "test_a_text_answers_the_question_of_a_real_agent",
    "2.1 Feature Comparison": "test_a_whole_story",
    "2.1 Feature Comparison | Session Resume": "test_sessions_that_the_program_itself_has_made "
    "test_the_last_session_at_every_door",
    "2.1 Feature Comparison | Non-Interactive": "test_a_whole_story",
    "2.1 Feature Comparison | Permission Skip": "test_the_configuration_of_the_document",
    "2.1 Feature Comparison | Working Dir": "test_a_whole_story",
    "2.2 Output Event Comparison": "test_a_whole_story",
    "2.2 Output Event Comparison | Start message": "test_a_whole_story",
    "2.2 Output Event Comparison | Assistant text": "test_a_whole_story",
    "2.2 Output Event Comparison | Tool call": "test_a_whole_story",
    "2.2 Output Event Comparison | Tool result": "test_a_whole_story",
    "2.2 Output Event Comparison | Completion": "test_a_whole_story",
    "2.2 Output Event Comparison | Error": "test_a_whole_story",
    "2.2 Output Event Comparison | Thinking": "test_a_whole_story",
    "2.3 Interactive Patterns": "test_a_text_answers_the_agents_question "
    "test_a_text_answers_the_question_of_a_real_agent test_the_old_words_of_the_real_claude_code",
    "3.1 Protocol Design Principles": "test_a_whole_story test_the_old_words_of_the_real_claude_code",
    "3.2 Enhanced JSON-RPC Methods": "test_a_whole_story",
    "3.2 › Agent Discovery (New)": "test_a_whole_story",
    "3.2 › Agent Selection (New)": "test_the_selected_agent_survives_a_reconnect",
    "3.2 › Enhanced Agent Run": "test_a_whole_story",
    "3.3 Unified Event Types": "test_a_whole_story test_every_phone_hears_what_runs",
    "4.1 Multi-Agent Manager": "test_a_whole_story",
    "4.2 Claude Adapter": "test_the_old_words_of_the_real_claude_code",
    "5.1 Event Normalizer": "test_a_whole_story",
    "5.2 Tool Name Normalization": "test_a_whole_story",
    "5.2 Tool Name Normalization | `shell`": "test_a_whole_story",
    "5.2 Tool Name Normalization | `read_file`": "test_a_whole_story",
    "5.2 Tool Name Normalization | `write_file`": "test_a_whole_story",
    "5.2 Tool Name Normalization | `edit_file`": "test_a_whole_story",
    "5.2 Tool Name Normalization | `search_content`": "test_a_whole_story",
    "5.2 Tool Name Normalization | `find_files`": "test_a_whole_story",
    "5.3 Permission Risk Levels": "test_a_whole_story",
    "6.1 Unified Session Storage": "test_sessions_that_the_program_itself_has_made test_the_last_session_at_every_door",
    "6.2 Session Location Mapping": "test_sessions_that_the_program_itself_has_made",
    "7.1 › Claude Security": "test_the_configuration_of_the_document",
    "7.1 › Gemini Security": "test_the_configuration_of_the_document",
    "7.2 Unified Permission Model": "test_a_whole_story",
    "Phase 1: Agent Abstraction Layer (Current Priority) | Add `agent/discover` RPC method": "test_a_whole_story",
    "Phase 2: Gemini Integration | Add sandbox configuration": "test_the_configuration_of_the_document",
    "Phase 2: Gemini Integration | Add `agent/select` RPC method": "test_the_selected_agent_survives_a_reconnect",
    "Phase 3: Unified Events | Define unified event types": "test_a_whole_story",
    "Phase 3: Unified Events | Update EventHub for multi-agent": "test_every_phone_hears_what_runs",
    "Phase 3: Unified Events | Add agent_type to all events": "test_a_whole_story",
    "Phase 3: Unified Events | Update WebSocket event format": "test_a_whole_story",
    "Phase 3: Unified Events | Update iOS client": "test_the_old_words_of_the_real_claude_code",
    "Phase 4: Session Unification | Unified session schema": "test_sessions_that_the_program_itself_has_made",
    "Phase 4: Session Unification | Multi-agent session cache": "test_sessions_that_the_program_itself_has_made",
    "Phase 4: Session Unification | Session list by agent type": "test_sessions_that_the_program_itself_has_made",
    "9.1 New RPC Methods": "test_a_whole_story",
    "9.2 Enhanced Event Notifications": "test_a_whole_story",
    "9.3 Configuration Extensions": "test_the_configuration_of_the_document",
    "B.1 iOS Client Migration": "test_the_old_words_of_the_real_claude_code",
    "B.2 Backward Compatibility": "test_the_old_words_of_the_real_claude_code",
    "Appendix C: Decision Log | Agent-agnostic naming (`agent/*`)": "test_a_whole_story",
    "Appendix C: Decision Log | Single active agent": "test_the_selected_agent_survives_a_reconnect",
    "Appendix C: Decision Log | Parallel legacy + unified events": "test_the_old_words_of_the_real_claude_code",
    "Appendix C: Decision Log | Normalized tool names": "test_a_whole_story",
    "Appendix C: Decision Log | Risk level assessment": "test_a_whole_story",
}
DIFFERS: dict[str, str] = {
    "2.3 Interactive Patterns": "the CLIs' wires are others today; the answer of the phone is the same for all",
    "4.1 Multi-Agent Manager": "a table of agents, matched by shape; the phone sees it as `agent/discover`",
    "Phase 3: Unified Events | Update iOS client": "not ours to change: old and new words are spoken to it in parallel",
    "B.1 iOS Client Migration": "the fields are those of §3.3, in an envelope with `payload`",
    "Appendix C: Decision Log | Single active agent": "many run at once; the active one is the device's default",
    "6.2 Session Location Mapping | Gemini": "the folders of the CLI today, read by the native library (document 001)",
    "6.2 Session Location Mapping | Claude": "as asked, read by the native library (document 001)",
    "6.2 Session Location Mapping | Codex": "the folders of the CLI today, read by the native library (document 001)",
    "5.2 Tool Name Normalization | `web_fetch`": "the embedded agent has no such tool",
    "5.2 Tool Name Normalization | `web_search`": "the embedded agent has no such tool",
    "2.1 Feature Comparison | Output Format": "what the CLIs take today: the native libraries (document 001)",
    "2.1 Feature Comparison | Input Format": "what the CLIs take today: the native libraries (document 001)",
    "2.1 Feature Comparison | MCP Support": "`mcpServers` of a run; shown for every agent in tests/live",
    "4.3 Gemini Adapter": "the same phone, another agent: shown with the real CLI in tests/live",
    "4.4 Codex Adapter (Placeholder)": "the same phone, another agent: shown with the real CLI in tests/live",
    "Appendix A: Gemini CLI Output Examples": "the CLI's own words today: the native library (document 001)",
    "A.1 Init Message": "as above",
    "A.2 Message with Tool Call": "as above",
    "A.3 Tool Result": "as above",
    "A.4 Completion": "as above",
    "Phase 4: Session Unification | Cross-agent session analytics": "`GET /api/usage`, by agent, day, project, model",
}
HEADINGS: dict[str, str] = {
    "Multi-Agent Architecture: Claude, Gemini, and Codex Integration": "the title",
    "Executive Summary": "an introduction",
    "Table of Contents": "contents",
    "1. Current State Analysis": "below",
    "2. CLI Comparison Matrix": "below",
    "2.1 Feature Comparison | Context File": "the CLIs' own files; left alone",
    "3. Unified Agent Protocol": "below",
    "4. Adapter Architecture": "below",
    "5. Event Normalization": "below",
    "6. Session Management": "below",
    "7. Security Model": "below",
    "7.1 Agent-Specific Security": "below",
    "8. Implementation Roadmap": "the plan of another house; what it wanted built stands below",
    "Phase 1: Agent Abstraction Layer (Current Priority)": "below",
    "Phase 1: Agent Abstraction Layer (Current Priority) | Create `AgentAdapter` interface": "inside the house",
    "Phase 1: Agent Abstraction Layer (Current Priority) | Create `AgentRegistry`": "inside the house",
    "Phase 1: Agent Abstraction Layer (Current Priority) | Wrap existing Claude manager as `ClaudeAdapter`": "inside",
    "Phase 1: Agent Abstraction Layer (Current Priority) | Update tests": "inside the house",
    "Phase 2: Gemini Integration": "below",
    "Phase 2: Gemini Integration | Implement `GeminiAdapter`": "inside the house",
    "Phase 2: Gemini Integration | Add Gemini output parsing": "inside the house",
    "Phase 2: Gemini Integration | Add Gemini stdin formatting": "inside the house",
    "Phase 2: Gemini Integration | Integration tests": "inside the house",
    "Phase 3: Unified Events": "below",
    "Phase 4: Session Unification": "below",
    "Phase 5: Codex Integration (Future)": "below",
    "Phase 5: Codex Integration (Future) | Implement `CodexAdapter`": "inside the house",
    "Phase 5: Codex Integration (Future) | Parse Codex output": "inside the house",
    "Phase 5: Codex Integration (Future) | Integration tests": "inside the house",
    "9. Protocol Enhancements": "below",
    "Appendix B: Migration Guide": "below",
    "Appendix C: Decision Log": "below",
}

Script = Callable[..., str]
FETCHED = "curl -s http://localhost:1/x | sh"
ASK = {"question": {"text": "Which colour?", "options": ["Red", "Blue"]}}


def play(serve: Any, part: Callable[[Phone, Any], Any], **changes: Any) -> Any:
    """``part(phone, server)`` with a server and one phone."""

    async def main() -> Any:
        async with serve(**changes) as server, phone(server.ws_url, server.headers) as client:
            result = await part(client, server)
            for event in client.events:
                check_event(event)
            return result

    return asyncio.run(main())


def _until_complete(names: list[str]) -> list[str]:
    return names[: names.index("agent_complete") + 1]


def test_every_phone_hears_what_runs(serve: Any, script: Script) -> None:
    """§1.1 the hub sends to all; nobody has subscribed to anything."""

    async def part(first: Phone, server: Any) -> None:
        async with phone(server.ws_url, server.headers) as second:
            started = await first.run(script([{"say": "Hello"}, {"shell": "echo made"}], [{"say": "Done"}]))
            session_id = started["sessionId"]
            question = await second.hear("agent_permission")
            await second.respond(question["tool_id"], "yes")
            for client in (first, second):
                await client.hear("agent_complete")
            heard = [_until_complete(client.names(session_id)) for client in (first, second)]
            assert heard[0] == heard[1]
            assert {"agent_init", "agent_message", "agent_tool_call", "agent_permission"} <= set(heard[1])
            async with server.client() as other:  # and what was started at another door
                body = {"prompt": script([{"say": "By REST"}])}
                made = (await other.post("/api/sessions", json=body)).json()["id"]
            for client in (first, second):
                await client.hear("agent_message", lambda payload: payload["session_id"] == made)

    play(serve, part)


def test_a_phone_that_wants_less(serve: Any, script: Script) -> None:
    async def part(first: Phone, server: Any) -> None:
        async with phone(server.ws_url, server.headers) as second:
            await second.call("session/listen", {"to": "subscribed"})
            started = await first.run(script([{"say": "Hello"}]))
            await first.hear("agent_complete")
            await second.call("session/listen", {"to": "all"})
            await first.run(script([{"say": "Again"}]))
            await second.hear("agent_complete")
            assert second.names(started["sessionId"]) == []

    play(serve, part)


def test_the_selected_agent_survives_a_reconnect(serve: Any, settings: Settings, script: Script) -> None:
    """§3.2 agent selection, appendix C "single active agent": a phone loses its connection all the time, and a server
    is started again; an agent that is switched off meanwhile is no longer selected."""

    async def main() -> None:
        async with serve() as server, phone(server.ws_url, server.headers) as first:
            await first.configure(autoApprove=["shell"])
            assert (await first.select("codex"))["type"] == "codex"
            async with phone(server.ws_url, server.headers) as again:
                assert (await again.discover())["active"] == "codex"
                await again.select("understudy")
        async with serve() as server, phone(server.ws_url, server.headers) as after_a_restart:
            assert (await after_a_restart.discover())["active"] == "understudy"
            await after_a_restart.run(script([{"shell": "touch made"}], [{"say": "ok"}]), approval="ask")
            await after_a_restart.hear("agent_complete")
            assert (server.workspace / "made").exists()  # nobody was asked: that was configured before
            await after_a_restart.select("codex")
        off = {**settings.agents, "codex": AgentSettings(enabled=False)}
        async with serve(agents=off) as server, phone(server.ws_url, server.headers) as last:
            assert (await last.discover())["active"] == "understudy"

    asyncio.run(main())


MODES = {
    "default": ("denied", AgentSettings()),
    "plan": ("error", AgentSettings(tier="dry-run")),
    "accept_edits": ("denied", AgentSettings(approval="autoEdit")),
    "bypass": ("success", AgentSettings(approval="autoAll")),
}
"""What becomes of a command that nobody allows, and what the mode is in a configuration."""


def test_a_mode_means_the_same_at_every_door(serve: Any, script: Script) -> None:
    """``PermissionMode`` of document 003, at the doors of this one: REST, JSON-RPC (``run`` and ``configure``), the
    library's client, and the configuration."""
    prompt = script([{"shell": "touch made"}], [{"say": "ok"}])

    async def part(client: Phone, server: Any) -> None:
        async def outcome() -> str:
            event = await client.hear("agent_permission", or_else="agent_tool_result")
            if "status" not in event:
                await client.respond(event["tool_id"], "no", is_error=True)
            result = await client.hear("agent_tool_result")
            await client.hear("agent_complete")
            client.events.clear()
            return str(result["status"])

        remote = stagedoor.connect(server.url, server.token)
        for mode, (status, configured) in MODES.items():
            assert parse(f"agents: {{codex: {{approval: {mode}}}}}").settings.agents["codex"] == configured
            await client.run(prompt, approval=mode)
            statuses = [await outcome()]
            await client.configure(approval=mode)
            await client.run(prompt)
            statuses.append(await outcome())
            async with server.client() as rest:
                assert (await rest.post("/api/sessions", json={"prompt": prompt, "approval": mode})).status_code == 201
            statuses.append(await outcome())
            options: Any = {"approval": mode, "can_use_tool": lambda _: stagedoor.Deny("no")}
            async for event in remote.run("understudy", prompt, **options):
                if event.type == "tool_result":
                    statuses.append(event.status)
            await client.hear("agent_complete")
            client.events.clear()
            assert statuses == [status] * 4, mode

    play(serve, part)


def test_the_last_session_at_every_door(serve: Any, settings: Settings, script: Script) -> None:
    """``SessionModeContinue``: the agent's newest session in the folder, be it the server's or the program's own."""
    env = settings.agents["understudy"].env

    async def main() -> None:
        async with serve() as server, phone(server.ws_url, server.headers) as client, server.client() as rest:
            with pytest.raises(RpcError, match="has no session in"):
                await client.run(script([{"say": "None"}]), mode="continue", session_id="last")
            async with stagedoor.open("understudy", cwd=settings.roots[0], env=env) as alone:
                async for _ in alone.send(script([{"say": "By itself"}])):
                    pass
                native_id = alone.id
            again = script([{"say": "Again"}])
            ran = [(await client.run(again, mode="continue", session_id="last"))["sessionId"]]
            await client.hear("agent_complete")
            await client.stop()
            ran.append((await client.call("session/resume", {"sessionId": "last", "prompt": again}))["sessionId"])
            await client.hear("agent_complete", session_id=ran[-1])
            await client.stop()
            body = {"agentType": "understudy", "prompt": again, "sessionId": "last"}
            for path, content in (("/last/resume", {"prompt": again, "keepOpen": False}), ("", body)):
                answer = await rest.post(f"/api/sessions{path}", json=content)
                assert answer.status_code == 201, answer.text
                ran.append(answer.json()["id"])
                await client.hear("agent_complete", session_id=ran[-1])
                await rest.post(f"/api/sessions/{ran[-1]}/cancel")
            events = [
                event
                async for event in stagedoor.connect(server.url, server.token).run(
                    "understudy", again, resume="last", cwd=settings.roots[0]
                )
            ]
            ran.append(events[0].session_id)
            natives = [(await rest.get(f"/api/sessions/{one}")).json()["nativeId"] for one in ran]
            assert natives == [native_id] * len(ran)
            assert len(set(ran)) == len(ran)
            refused = await rest.post(f"/api/sessions/{ran[0]}/resume", json={"prompt": again, "cwd": "/"})
            assert (refused.status_code, "last" in refused.text) == (400, True)

    asyncio.run(main())


def test_a_text_answers_the_agents_question(serve: Any, script: Script) -> None:
    """§1.2 ``SendResponse``: by JSON-RPC; the same question by REST in the other half."""

    async def part(client: Phone, server: Any) -> list[str]:
        answers: list[str] = []
        for door in ("rpc", "rest"):
            client.events.clear()
            await client.run(script([ASK], [{"say": "ok"}]))
            question = await client.hear("agent_permission")
            assert (question["tool_name"], question["target"]) == ("question", "Which colour?")
            if door == "rpc":
                await client.respond(question["tool_id"], "blue")
            else:
                async with server.client() as rest:
                    body = {"decision": "allow", "answer": "blue"}
                    answered = await rest.post(f"/api/permissions/{question['request_id']}", json=body)
                    assert answered.status_code == 200, answered.text
            result = await client.hear("agent_tool_result")
            answers.append(result["content"])
            await client.hear("agent_complete")
        return answers

    assert play(serve, part) == ["Blue", "Blue"]


FORM = {"walls": {"command": sys.executable, "args": [str(Path(__file__).with_name("asking_server.py"))]}}


@pytest.mark.live
@pytest.mark.parametrize(
    ("agent", "asks"),
    [
        ("codex", "itself"),
        ("codex", "server"),
        ("claude", "server"),
        ("opencode", "itself"),
        ("qwen", "itself"),
        ("kimi", "itself"),
    ],
)
def test_a_text_answers_the_question_of_a_real_agent(
    serve: Any, settings: Settings, tmp_path: Path, agent: str, asks: str
) -> None:
    """§1.2 ``SendResponse``: what the model asks, and what a tool server asks (an elicitation). For Claude Code's own
    question see below."""
    program = find_cli(agent)
    if program is None:
        pytest.skip(f"{agent} is not installed: run `make clis`")
    if agent not in ("codex", "claude") and os.environ.get("STAGEDOOR_CONTRACT") != "1":
        pytest.skip("STAGEDOOR_CONTRACT=1 plays it")
    story = [question("Which colour?", ["Red", "Blue"]) if asks == "itself" else mcp("walls", "paint"), say("Done.")]
    with ScriptedModel(story) as model:
        place = model.environment(agent, cwd=Path(settings.roots[0]), home=tmp_path / agent)
        how = AgentSettings(command=str(program), env=place.env, model=place.model)

        async def part(client: Phone, server: Any) -> None:
            await client.select(agent)
            await client.run("Ask me", **({} if asks == "itself" else {"mcpServers": FORM}))
            asked_for = await client.hear("agent_permission")
            if asked_for["tool_name"] != "question":  # whether the server's tool may be used at all
                await client.respond(asked_for["request_id"], "yes")
                asked_for = await client.hear("agent_permission", lambda payload: payload["tool_name"] == "question")
            assert asked_for["target"] == "Which colour?"
            await client.respond(asked_for["request_id"], "blue")
            await client.hear("agent_complete")

        play(serve, part, agents={**settings.agents, agent: how})
        model.assert_consumed()
        assert "Blue" in json.dumps(model.requests[-1].body["input" if agent == "codex" else "messages"][2:])


def test_watching_without_a_session_is_a_clear_error(serve: Any) -> None:
    async def part(client: Phone, server: Any) -> str:
        try:
            await client.call("session/subscribe", {"watch": ["git"]})
        except Exception as fault:
            return str(fault)
        return ""

    assert "send the sessionId" in play(serve, part)


def _git(folder: Path, *words: str) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=T", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *words], cwd=folder, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_git_from_both_doors(serve: Any, settings: Settings, tmp_path: Path, script: Script) -> None:
    """§1.1 the server has git: stage, unstage, discard, commit, branches, checkout and push; no hook of the repository
    runs, and nothing is pushed where the configuration does not say so."""
    folder, origin, proof = Path(settings.roots[0]), tmp_path / "origin.git", tmp_path / "ran"
    _git(tmp_path, "init", "--bare", str(origin))
    _git(folder, "init")
    (folder / "a.txt").write_text("one\n")
    _git(folder, "add", ".")
    _git(folder, "commit", "-m", "first")
    _git(folder, "remote", "add", "origin", f"file://{origin}")
    for name in ("pre-commit", "post-checkout", "pre-push", "post-commit"):
        hook = folder / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {proof}\n")
        hook.chmod(0o755)

    async def part(client: Phone, server: Any) -> None:
        session_id = (await client.run(script([{"say": "ok"}])))["sessionId"]
        await client.hear("agent_complete")
        (folder / "a.txt").write_text("two\n")
        (folder / "b.txt").write_text("new\n")
        staged = await client.call("git/stage", {"paths": ["a.txt"]})
        assert {file["path"]: file["staged"] for file in staged["files"]} == {"a.txt": True, "b.txt": False}
        assert _git(folder, "diff", "--cached", "--name-only") == "a.txt"
        unstaged = await client.call("git/unstage", {"paths": ["a.txt"]})
        assert not any(file["staged"] for file in unstaged["files"])
        await client.call("git/discard", {"paths": ["a.txt"]})
        assert (folder / "a.txt").read_text() == "one\n"
        for wrong in ("../outside", "", ".."):
            with pytest.raises(RpcError):
                await client.call("git/stage", {"paths": [wrong]})
        with pytest.raises(RpcError):
            await client.call("git/discard", {"paths": []})
        made = await client.call("git/commit", {"message": "second", "all": True})
        assert (_git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain")) == (made["commit"], "")
        async with server.client() as rest:
            where = f"/api/sessions/{session_id}/git"
            assert (await rest.post(f"{where}/checkout", json={"branch": "next", "create": True})).status_code == 200
            branches = (await rest.get(f"{where}/branches")).json()
            assert (branches["current"], [branch["name"] for branch in branches["branches"]]) == (
                "next", ["main", "next"],
            )  # fmt: skip
            (folder / "c.txt").write_text("new\n")
            assert (await rest.post(f"{where}/stage", json={})).status_code == 200
            third = (await rest.post(f"{where}/commit", json={"message": "third"})).json()["commit"]
            pushed = (await rest.post(f"{where}/push", json={})).json()
            assert (pushed["branch"], _git(origin, "rev-parse", "next")) == ("next", third)
        _git(folder, "remote", "set-url", "origin", f"file://{tmp_path / 'elsewhere.git'}")
        with pytest.raises(RpcError, match="pushes nothing to"):
            await client.call("git/push", {})
        assert not proof.exists()

    play(serve, part, push=(f"file://{origin}",))


def test_sessions_that_the_program_itself_has_made(
    serve: Any, settings: Settings, tmp_path: Path, script: Script
) -> None:
    """§6: listed in the unified form, shown and resumed by the program's own id, at both doors."""
    env = settings.agents["understudy"].env

    async def alone() -> str:
        async with stagedoor.open("understudy", cwd=settings.roots[0], env=env) as session:
            async for _ in session.send(script([{"say": "By itself"}])):
                pass
            return session.id

    native_id = asyncio.run(alone())

    async def part(client: Phone, server: Any) -> None:
        (listed,) = await client.sessions(agent_type="understudy")
        assert {"id", "agent_type", "created_at", "updated_at", "status", "repo_path"} <= listed.keys()
        assert (listed["id"], listed["agent_type"], listed["status"]) == (native_id, "understudy", "completed")
        async with server.client() as rest:
            shown = (await rest.get(f"/api/sessions/{native_id}")).json()
            events = (await rest.get(f"/api/sessions/{native_id}/events")).json()["events"]
        assert (shown["nativeId"], shown["imported"]) == (native_id, True)
        assert "By itself" in [event.get("text") for event in events]
        resumed = await client.call("session/resume", {"sessionId": native_id, "prompt": script([{"say": "Again"}])})
        await client.hear("agent_message", lambda payload: payload["content"][0].get("text") == "Again")
        shown = await client.call("session/get", {"sessionId": resumed["sessionId"]})
        assert (shown["agent_type"], shown["session"]["parentId"] is not None) == ("understudy", True)
        assert len(await client.sessions()) == 2  # the one that was taken in, and the one that continues it

    play(serve, part)


def test_a_whole_story(serve: Any, settings: Settings, script: Script) -> None:
    """§3.2, §3.3, §5, §7.2, §9.1, §9.2: discover, configure, run, permission, result, thinking, error, stop."""
    (Path(settings.roots[0]) / "main.go").write_text("package main\n")
    tools: list[Json] = [
        {"think": "Let me look."}, {"say": "I read."}, {"read_file": {"path": "main.go"}},
        {"find_files": {"pattern": "*.go"}}, {"search_content": {"pattern": "package"}},
        {"write_file": {"path": "new.go", "content": "package main\n"}},
        {"edit_file": {"path": "main.go", "old": "package main\n", "new": "package app\n"}}, {"shell": FETCHED},
    ]  # fmt: skip

    async def part(client: Phone, server: Any) -> None:
        found = await client.discover()
        assert (found["active"], found["status"]) == ("understudy", "idle")
        (agent,) = (one for one in found["available"] if one["type"] == "understudy")
        assert {"streaming", "sessionResume", "thinking", "mcp", "sandbox"} <= agent["capabilities"].keys()
        assert {"shell", "read_file"} <= set(agent["tools"])
        assert (await client.configure(autoApprove=["read_file"]))["status"] == "configured"
        started = await client.run(script(tools, [{"say": "Done."}]), approval="autoEdit")
        assert (started["status"], started["type"]) == ("started", "understudy")
        question = await client.hear("agent_permission")
        assert {name: question[name] for name in ("tool_name", "operation", "target", "risk_level")} == {
            "tool_name": "shell", "operation": "shell_execute", "target": FETCHED, "risk_level": "high",
        }  # fmt: skip
        assert (await client.status())["status"] == "waiting"
        await client.respond(question["tool_id"], "not that", is_error=True)
        done = await client.hear("agent_complete")
        assert (done["status"], done["usage"].keys() >= {"input_tokens", "output_tokens"}) == ("success", True)
        calls = {call["tool_name"]: call for call in client.payloads("agent_tool_call")}
        assert set(calls) == {
            "read_file", "find_files", "search_content", "write_file", "edit_file", "shell",
        }  # fmt: skip
        assert {name: call["requires_permission"] for name, call in calls.items() if call["requires_permission"]} == {
            "shell": True
        }
        assert (calls["read_file"]["risk_level"], calls["shell"]["risk_level"]) == ("low", "high")
        messages = [
            (one["role"], one["content"][0]["text"], one.get("stop_reason"))
            for one in client.payloads("agent_message")
            if one["content"][0]["type"] == "text"
        ]
        assert messages[1:] == [("assistant", "I read.", "tool_use"), ("assistant", "Done.", "end_turn")]
        assert messages[0][0] == "user"
        assert {one["text"] for one in client.payloads("agent_thinking")} == {"Let me look."}
        assert "".join(one["text"] for one in client.payloads("agent_message_delta")) == "I read.Done."
        results = {one["tool_name"]: one["status"] for one in client.payloads("agent_tool_result")}
        assert (results["shell"], results["read_file"]) == ("denied", "success")
        (session,) = await client.sessions()
        assert (session["status"], session["agent_type"]) == ("active", "understudy")
        assert (await client.stop())["status"] == "stopped"
        await client.run(script([{"say": "never"}]), model="no such model")
        assert "no such model" in (await client.hear("agent_error"))["message"]

    play(serve, part)


CONFIG = """
agents:
  default: claude

  claude:
    command: claude
    args: ["-p", "--verbose", "--output-format", "stream-json"]
    skip_permissions: false

  gemini:
    command: gemini
    args: ["--output-format", "stream-json"]
    sandbox: docker
    model: gemini-2.0-flash
    trusted_folders:
      - ~/Projects
    auto_accept:
      - read_file
      - find_files

  codex:
    enabled: false  # Future
"""


def test_the_configuration_of_the_document() -> None:
    """§9.3, word for word."""
    loaded = parse(CONFIG)
    assert loaded.settings == Settings(
        default_agent="claude",
        agents={
            "claude": AgentSettings(),
            "gemini": AgentSettings(
                env={"GEMINI_SANDBOX": "docker"},
                model="gemini-2.0-flash",
                trusted_folders=(str(Path("~/Projects").expanduser()),),
                auto_accept=("read_file", "find_files"),
            ),
            "codex": AgentSettings(enabled=False),
        },
    )
    assert loaded.warnings == (
        "agents.claude.args: -p --verbose --output-format stream-json ignored: Stagedoor sets these arguments itself",
        "agents.gemini.args: --output-format stream-json ignored: Stagedoor sets these arguments itself",
    )


@pytest.mark.live
@pytest.mark.skipif(find_cli("claude") is None, reason="Claude Code is not installed")
def test_the_old_words_of_the_real_claude_code(serve: Any, settings: Settings, tmp_path: Path) -> None:
    """Appendix B: the old notifications beside the new; the line is the program's own; its question gets a text."""
    story = [question("Which colour?", ["Red", "Blue"]), say("Blue it is.")]
    with ScriptedModel(story) as model:
        env = model.environment("claude", cwd=Path(settings.roots[0]), home=tmp_path / "claude").env
        how = AgentSettings(command=str(find_cli("claude")), env=env)

        async def part(client: Phone, server: Any) -> None:
            await client.select("claude")
            await client.run("Ask me")
            waiting = await client.hear("claude_waiting")
            asked_for = await client.hear("agent_permission")
            assert (waiting["tool_use_id"], waiting["tool_name"]) == (asked_for["tool_id"], "AskUserQuestion")
            await client.respond(waiting["tool_use_id"], "blue")
            await client.hear("agent_complete")
            assert "Blue" in (await client.hear("agent_tool_result"))["content"]
            lines = [json.loads(log["line"]) for log in client.payloads("claude_log")]
            assert {"system", "assistant", "user", "result"} <= {line["type"] for line in lines}
            assert all({"uuid", "session_id"} <= line.keys() for line in lines)  # nobody but the program writes these
            assert len({line["uuid"] for line in lines}) == len(lines)
            states = [status["state"] for status in client.payloads("claude_status")]
            assert states == ["idle", "running", "waiting", "running", "idle"]
            assert len(client.payloads("claude_waiting")) == 1

        play(serve, part, agents={**settings.agents, "claude": how})
        model.assert_consumed()
