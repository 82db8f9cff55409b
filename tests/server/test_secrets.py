"""What nobody may read through the server, whatever the workspace is and whatever the agent has made of it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stagedoor.secret_files import keep_secret
from stagedoor.server.access.tokens import server_token
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.testing import ScriptedModel, find_cli, mcp, say
from tests.processes import command_lines

OWN = ("token", "log.db", ".gitignore", "snapshots")


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """The careless one: the server's own folder is in the workspace, as with ``stagedoor serve --root ~``."""
    return replace(settings, home=str(Path(settings.roots[0]) / ".state" / "stagedoor"))


async def _ended(client: Any, body: dict[str, Any]) -> str:
    session_id: str = (await client.post("/api/sessions", json=body)).json()["id"]
    async with client.stream("GET", f"/api/sessions/{session_id}/stream") as answer:
        async for _ in answer.aiter_lines():
            pass
    return session_id


def test_the_servers_own_folder_is_not_shown_where_the_workspace_holds_it(serve: Any, script: Any) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            subprocess.run(["git", "init", "-q", str(server.workspace)], check=True)
            (server.home / "token").write_text("stagedoor_this-is-the-secret")
            session_id = await _ended(client, {"prompt": script([{"say": "Hello"}])})
            for name in OWN:
                for path in (f".state/stagedoor/{name}", f"./.state/../.state/stagedoor/{name}"):
                    answer = await client.get(f"/api/sessions/{session_id}/file", params={"path": path})
                    assert (path, answer.status_code) == (path, 403)
            for where in ("files", "diff"):
                answer = await client.get(f"/api/sessions/{session_id}/{where}", params={"path": ".state/stagedoor"})
                assert answer.status_code == 403
            (server.workspace / "new.txt").write_text("new\n")
            changes = (await client.get(f"/api/sessions/{session_id}/diff")).json()
            assert ("+new" in changes["diff"], "secret" in changes["diff"]) == (True, False)
            for cwd in (server.home, server.home / "snapshots"):
                refused = await client.post("/api/sessions", json={"prompt": "x", "cwd": str(cwd)})
                assert refused.status_code == 403

    asyncio.run(main())


def test_a_workspace_that_became_a_link_leads_nowhere(serve: Any, script: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            project = server.workspace / "project"
            project.mkdir()
            session_id = await _ended(client, {"prompt": script([{"say": "Hello"}]), "cwd": "project"})
            outside = tmp_path / "outside"
            outside.mkdir()
            (outside / "key").write_text("secret")
            shutil.rmtree(project)
            project.symlink_to(outside)
            for where in ("file?path=key", "files", "diff", "git"):
                answer = await client.get(f"/api/sessions/{session_id}/{where}")
                assert (where, answer.status_code, "secret" in answer.text) == (where, 403, False)
            again = await client.post(f"/api/sessions/{session_id}/resume", json={"prompt": "go on"})
            assert again.status_code == 403

    asyncio.run(main())


def test_a_link_that_an_agent_makes_is_told_as_a_link(serve: Any, script: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            (tmp_path / "key").write_text("secret")
            prompt = script([{"shell": f"ln -s {tmp_path / 'key'} innocent.txt"}], [{"say": "made"}])
            session_id = await _ended(client, {"prompt": prompt, "tier": "autonomous"})
            events = (await client.get(f"/api/sessions/{session_id}/events")).json()["events"]
            [change] = [event for event in events if event["type"] == "file_change"]
            assert (change["path"], change["change"], "secret" in str(events)) == ("innocent.txt", "created", False)

    asyncio.run(main())


@pytest.mark.parametrize("in_git", [True, False], ids=["repository", "folder"])
@pytest.mark.parametrize("name", ["token", "log.db", "key.pem"])
def test_a_hard_link_to_a_file_of_the_servers_own_shows_nothing_of_it(
    serve: Any, script: Any, tmp_path: Path, name: str, *, in_git: bool
) -> None:
    async def main() -> None:
        key = tmp_path / "key.pem"
        key.write_text("the-secret-key")
        async with serve() as server, server.client() as client:
            keep_secret(server.home, str(key))  # as a server with TLS does
            if in_git:
                subprocess.run(["git", "init", "-q", str(server.workspace)], check=True)
            (server.home / "token").write_text("stagedoor_this-is-the-secret")
            own = key if name == "key.pem" else server.home / name
            commands = f"ln {own} innocent.txt; mkdir sub; ln {own} sub/again.txt; echo new > new.txt"
            prompt = script([{"shell": commands}], [{"say": "made"}])
            session_id = await _ended(client, {"prompt": prompt, "tier": "autonomous"})
            assert (server.workspace / "innocent.txt").stat().st_ino == own.stat().st_ino
            (server.workspace / "soft.txt").symlink_to("innocent.txt")
            for path in ("innocent.txt", "sub/again.txt", "soft.txt"):
                answer = await client.get(f"/api/sessions/{session_id}/file", params={"path": path})
                assert (path, answer.status_code) == (path, 403)
            changes = await client.get(f"/api/sessions/{session_id}/diff")
            events = await client.get(f"/api/sessions/{session_id}/events")
            for text in (changes.text, events.text):
                assert ("secret" in text, "SQLite format" in text) == (False, False)
            made = [one["path"] for one in events.json()["events"] if one["type"] == "file_change"]
            assert "new.txt" in made

    asyncio.run(main())


def test_a_token_whose_file_has_a_second_name_is_made_anew(tmp_path: Path) -> None:
    home = tmp_path / "home"
    before = server_token(home)
    assert server_token(home) == before
    (tmp_path / "innocent.txt").hardlink_to(home / "token")
    after = server_token(home)
    assert after != before
    assert ((tmp_path / "innocent.txt").read_text().strip(), server_token(home)) == (before, after)
    assert (home / "token").stat().st_nlink == 1


def test_what_tool_servers_are_given_is_told_at_no_door(serve: Any, script: Any) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            given = {"command": "true", "args": [], "env": {"KEY": "hush-1"}}
            remote = {"url": "http://127.0.0.1:9/", "headers": {"Authorization": "hush-2"}}
            body = {"prompt": script([{"say": "Hello"}]), "mcpServers": {"one": given, "two": remote}}
            session_id = await _ended(client, body)
            methods = [
                {"jsonrpc": "2.0", "id": 1, "method": "session/list", "params": {}},
                {"jsonrpc": "2.0", "id": 2, "method": "session/get", "params": {"sessionId": session_id}},
                {"jsonrpc": "2.0", "id": 3, "method": "agent/status", "params": {"sessionId": session_id}},
            ]
            answers = [
                await client.post("/rpc", json=methods),
                await client.get("/api/sessions"),
                await client.get(f"/api/sessions/{session_id}"),
                await client.get(f"/api/sessions/{session_id}/events"),
                await client.get(f"/api/sessions/{session_id}/export"),
                await client.get("/api/history"),
            ]
            assert [(one.status_code, "hush" in one.text) for one in answers] == [(200, False)] * len(answers)

    asyncio.run(main())


@pytest.mark.live
@pytest.mark.skipif(find_cli("claude") is None, reason="Claude Code is not installed")
def test_what_tool_servers_are_given_stands_in_no_list_of_processes(
    serve: Any, settings: Settings, tmp_path: Path
) -> None:
    workspace = Path(settings.roots[0])
    sums = str(Path(__file__).parents[1] / "live" / "contract" / "sums_server.py")
    with ScriptedModel([mcp("sums", "add", a=11, b=12), say("Done.")]) as model:
        env = model.environment("claude", cwd=workspace, home=tmp_path / "claude").env
        how = AgentSettings(command=str(find_cli("claude")), env=env)

        async def main() -> None:
            async with serve(agents={**settings.agents, "claude": how}) as server, server.client() as client:
                given = {"command": sys.executable, "args": ["-I", "-S", sums], "env": {"KEY": "hush-hush-1"}}
                body = {"prompt": "Add", "agent": "claude", "mcpServers": {"sums": given}}
                session_id = (await client.post("/api/sessions", json=body)).json()["id"]
                while not (questions := (await client.get("/api/permissions")).json()["permissions"]):
                    await asyncio.sleep(0.02)
                running = _arguments()
                assert any(sums in one for one in running)
                assert [one for one in running if "hush-hush-1" in one] == []
                await client.post(f"/api/permissions/{questions[0]['id']}", json={"decision": "allow"})
                async with client.stream("GET", f"/api/sessions/{session_id}/stream") as answer:
                    assert "sum=23" in (await answer.aread()).decode()

        asyncio.run(main())
        model.assert_consumed()


def _arguments() -> list[str]:
    return list(command_lines().values())
