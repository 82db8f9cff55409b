"""Sessions, REST and JSON-RPC in a repository that wants to run something: nothing of it does, whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stagedoor.service.config.settings import Settings
from tests.shadow_git.hostile import build, run

GROUNDS = ("all_of_it", "submodule_replaced", "filter_process")


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    build(tmp_path / "ground", tmp_path / "marks", *GROUNDS)
    return tmp_path / "ground"


@pytest.fixture
def settings(settings: Settings, ground: Path) -> Settings:
    return replace(settings, roots=(str(ground),), tier="autonomous")


def test_no_door_makes_anything_run(
    serve: Callable[..., Any], script: Callable[..., str], ground: Path, tmp_path: Path
) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            for name in GROUNDS:
                work = ground / name / "work"
                for worktree in (False, True):
                    prompt = script([{"write_file": {"path": "by-agent.txt", "content": "x\n"}}], [{"say": "ok"}])
                    body = {"prompt": prompt, "cwd": str(work), "worktree": worktree}
                    created = (await client.post("/api/sessions", json=body)).json()
                    session = f"/api/sessions/{created['id']}"
                    async with aclosing(server.service.events.follow(created["id"], 0)) as batches:
                        async for _ in batches:
                            pass
                    status = (await client.get(f"{session}/git")).json()
                    paths = [file["path"] for file in status["files"]]
                    diff = (await client.get(f"{session}/diff")).json()
                    assert "by-agent.txt" in paths, status
                    assert "+++ b/by-agent.txt" in diff["diff"], diff
                    if worktree:
                        done = await client.post(f"{session}/worktree", json={"keep": True})
                        assert done.json()["worktree"] == "kept", done.text
                        assert run(work, "show", f"{done.json()['branch']}:by-agent.txt") == b"x\n"

    asyncio.run(main())
    assert sorted(mark.name for mark in (tmp_path / "marks").iterdir()) == []
