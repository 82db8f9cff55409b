"""Document 002 as its own phone uses it: against the real server, with the embedded agent and with a real CLI."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stagedoor.service.config.settings import Settings
from tests.seeds.client_002 import Phone, RpcError, check_event, phone

Script = Callable[..., str]
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


def test_the_selected_agent_survives_a_reconnect(serve: Any) -> None:
    """§3.2 agent selection, appendix C "single active agent": a phone loses its connection all the time."""

    async def part(first: Phone, server: Any) -> None:
        assert (await first.select("codex"))["type"] == "codex"
        await first.configure(model="gpt-5")
        async with phone(server.ws_url, server.headers) as again:
            assert (await again.discover())["active"] == "codex"

    play(serve, part)


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
