"""Confined sessions through the doors: the server's configuration is the least, and no client gets round it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from stagedoor import catalog
from stagedoor.service.config.settings import AgentSettings
from stagedoor.service.opening import Opening
from stagedoor.service.views import SessionView
from stagedoor.transports.confinement.mechanism import choose
from stagedoor.unified.options import Confine, Options, Sandbox, Tier

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def _something_works() -> None:
    try:
        asyncio.run(choose())
    except Exception as missing:
        pytest.skip(str(missing))


def _configured(settings: Any, confine: Confine) -> dict[str, AgentSettings]:
    return {"understudy": AgentSettings(env=settings.agents["understudy"].env, confine=confine)}


@pytest.mark.parametrize(
    ("configured", "body", "level"),
    [
        ("off", {"confine": "workspace"}, "workspace"),
        ("workspace", {}, "workspace"),
        ("workspace", {"confine": "off"}, "workspace"),
        ("workspace", {"confine": "read-only"}, "read-only"),
        ("off", {"sandbox": "workspaceWrite"}, "workspace"),
        ("off", {"confine": "off"}, "off"),
    ],
    ids=str,
)
def test_a_client_gets_no_more_room_than_is_configured(
    serve: Any, settings: Any, script: Any, tmp_path: Path, configured: Confine, body: Json, level: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    async def main() -> Path:
        async with serve(agents=_configured(settings, configured)) as server, server.client() as client:
            tries = f"touch inside {outside}/made; ls {server.home} > seen"
            request = {"prompt": script([{"shell": tries}], [{"say": "ok"}]), "tier": "autonomous", **body}
            made = await client.post("/api/sessions", json=request)
            assert made.status_code == 201, made.text
            where = f"{server.ws_url}/ws/sessions/{made.json()['id']}"
            async with connect(where, additional_headers=server.headers, proxy=None) as socket:
                events = [json.loads(message) async for message in socket]  # to its end
            results = [event for event in events if event.get("type") == "tool_result"]
            assert len(results) == 1, events
            return Path(made.json()["cwd"])

    cwd = asyncio.run(main())
    assert (outside / "made").exists() == (level == "off")
    assert (cwd / "inside").exists() == (level != "read-only")
    if level == "workspace":
        assert (cwd / "seen").read_bytes() == b""  # nothing of the server's own


@pytest.mark.parametrize("agent", catalog.names())
@pytest.mark.parametrize("sandbox", ["none", "readOnly", "workspaceWrite", "fullAccess"])
def test_every_sandbox_mode_opens_on_every_agent(settings: Any, tmp_path: Path, agent: str, sandbox: Sandbox) -> None:
    """As the documents ask for it: ``sandboxMode``."""
    entry = catalog.agent(agent)
    limited = "confine" in entry.drivers[entry.choose_driver(Options())].capabilities.notes  # it says so, and refuses
    tier: Tier = "autonomous" if limited and sandbox == "workspaceWrite" else "supervised"
    view = SessionView(id="a" * 32, agent=agent, cwd=str(tmp_path), sandbox=sandbox, tier=tier)
    assert sandbox in Opening(settings, tmp_path / "home").session(view).capabilities.sandbox
