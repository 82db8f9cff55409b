"""Functions of the calling program as tools of every real agent: called, decided about, and told apart by tier."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.testing import ScriptedModel, mcp, say, shell, write_file

from .conftest import Rig

pytestmark = pytest.mark.live
BOUND = 300.0
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="

WITHOUT_PICTURES = ("opencode", "copilot", "qwen")
"""They do not pass a tool's picture on to a model of which they know nothing."""


def declare_that_the_model_takes_pictures(agent: str, home: Path) -> None:
    """As docs/tools.md says, in the agent's own settings."""
    if agent == "opencode":
        file = home / ".config" / "opencode" / "opencode.json"
        settings = json.loads(file.read_text())
        for provider in settings["provider"].values():
            for model in provider["models"].values():
                model |= {"attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}}
        file.write_text(json.dumps(settings))
    elif agent == "qwen":
        file = home / ".qwen" / "settings.json"
        settings = json.loads(file.read_text())
        settings["model"]["generationConfig"] = {"modalities": {"image": True}}
        file.write_text(json.dumps(settings))


class Desk:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.call_ids: list[str] = []
        self.questions: list[tuple[str, dict[str, Any]]] = []

    async def play(
        self, rig: Rig, model: ScriptedModel, root: Path, tier: str, *, takes_pictures: bool = False
    ) -> list[stagedoor.Event]:
        @stagedoor.tool(reads=True)
        def look_up(word: str, context: stagedoor.ToolContext) -> list[object]:
            """Look a word up."""
            self.calls.append(f"look_up {word}")
            self.call_ids.append(context.call_id)
            return [f"{word}: a small bird", stagedoor.Image(base64.b64decode(PICTURE))]

        async def book(title: str) -> dict[str, str]:
            """Book a title."""
            self.calls.append(f"book {title}")
            return {"booked": title}

        def decide(request: stagedoor.PermissionRequest) -> stagedoor.Allow | stagedoor.Deny:
            self.questions.append((request.target, request.input))
            return stagedoor.Allow() if request.input == {"title": "Emma"} else stagedoor.Deny("not that one")

        repo = root / "repo"
        repo.mkdir()
        environment = model.environment(rig.agent, home=root / "home", cwd=repo)
        if takes_pictures:
            declare_that_the_model_takes_pictures(rig.agent, root / "home")
        options: dict[str, Any] = {
            "cwd": str(repo), "driver": rig.driver, "executable": rig.executable, "env": environment.env,
            "inherit_env": False, "model": environment.model, "tools": [look_up, book], "tier": tier,
        }  # fmt: skip
        if rig.capabilities.permissions != "none":
            options["can_use_tool"] = decide
        async with asyncio.timeout(BOUND):
            return [event async for event in stagedoor.run(rig.agent, "go", **options)]


def test_functions_as_tools(rig: Rig, tmp_path: Path, scripted_model: Callable[..., ScriptedModel]) -> None:
    """One that only reads is called, one that acts is asked about, and what is denied does not happen."""
    if rig.is_embedded:
        pytest.skip("tests/test_functions.py")
    if rig.agent == "opencode" and rig.driver != "serve" and os.environ.get("STAGEDOOR_CONTRACT") != "1":
        pytest.skip("its other drivers, which start slowly, are played by make contract")
    desk = Desk()
    model = scripted_model(
        [
            mcp("host", "look_up", word="wren"),
            mcp("host", "book", title="Emma"),
            mcp("host", "book", title="Ulysses"),
            say("Done."),
        ]
    )
    events = asyncio.run(desk.play(rig, model, tmp_path, "supervised"))
    asks = rig.capabilities.permissions != "none"
    assert desk.calls == ["look_up wren", *(["book Emma"] if asks else [])], events
    assert desk.questions == ([("book", {"title": "Emma"}), ("book", {"title": "Ulysses"})] if asks else [])
    results = [event for event in events if isinstance(event, stagedoor.ToolResult)]
    assert (results[0].status, "wren: a small bird" in results[0].output) == ("success", True)
    shown = [(image.media_type, image.content) for image in results[0].images]
    assert shown == ([] if rig.agent == "qwen" else [("image/png", PICTURE)])  # which says only that there was one
    assert PICTURE not in results[0].output
    seen = any(PICTURE in json.dumps(request.body) for request in model.requests)
    assert seen == (rig.agent not in WITHOUT_PICTURES)
    assert results[-1].status in ("denied", "error")
    # One driver tells of a call only when it is over.
    ids = {event.tool_use_id for event in events if isinstance(event, stagedoor.ToolUse)}
    assert desk.call_ids[0] in (ids if rig.driver != "run" else {""})


@pytest.mark.skipif(os.environ.get("STAGEDOOR_CONTRACT") != "1", reason="the whole table is played by make contract")
@pytest.mark.parametrize("tier", ["dry-run", "autonomous"])
def test_functions_in_other_tiers(
    rig: Rig, tier: str, tmp_path: Path, scripted_model: Callable[..., ScriptedModel]
) -> None:
    if rig.is_embedded:
        pytest.skip("tests/test_functions.py")
    desk = Desk()
    calls_of_functions = [mcp("host", "look_up", word="wren"), mcp("host", "book", title="Emma")]
    acting = (
        [shell("touch by-command"), write_file(str(tmp_path / "repo" / "by-edit.txt"), "x")]
        if tier == "dry-run"
        else []
    )
    model = scripted_model([calls_of_functions[0], *acting, calls_of_functions[1], say("Done.")])
    events = asyncio.run(desk.play(rig, model, tmp_path, tier, takes_pictures=True))
    assert list((tmp_path / "repo").iterdir()) == []
    seen = any(PICTURE in json.dumps(request.body) for request in model.requests)
    assert seen == (rig.agent != "copilot")
    calls = {"dry-run": ["look_up wren"], "autonomous": ["look_up wren", "book Emma"]}[tier]
    assert desk.calls == calls, events
    assert desk.questions == []
