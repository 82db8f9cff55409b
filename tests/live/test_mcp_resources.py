"""Resources of MCP servers: Codex reads them without a question, so where something is asked about it has none."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.errors import NotSupported
from stagedoor.testing import ScriptedModel, find_cli, say
from stagedoor.testing.script import native

BOUND = 240.0
SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    open(sys.argv[1], "a").write(message["method"] + "\\n")
    about = {"name": "tiny", "version": "1"}
    results = {
        "initialize": {"capabilities": {"tools": {}, "resources": {}}, "serverInfo": about},
        "tools/list": {"tools": [{"name": "add", "description": "Add", "inputSchema": {"type": "object"}}]},
        "resources/list": {"resources": [{"uri": "x://secret", "name": "secret"}]},
        "resources/read": {"contents": [{"uri": "x://secret", "text": "SECRET"}]},
    }
    result = results.get(message["method"], {})
    if message["method"] == "initialize":
        result["protocolVersion"] = message["params"]["protocolVersion"]
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
CASES: dict[str, tuple[dict[str, Any], bool]] = {
    "supervised": ({"tier": "supervised"}, False),
    "dry-run": ({"tier": "dry-run"}, False),
    "supervised, a server of the user's own": ({"tier": "supervised", "own": True}, False),
    "autonomous": ({"tier": "autonomous"}, True),
    "autonomous, withheld": ({"tier": "autonomous", "disallowed_tools": ["read_mcp_resource"]}, False),
    "by policy": ({"tier": "supervised", "policy": "default: ask\nrules: [{tool: mcp, action: allow}]\n"}, True),
}


@pytest.mark.live
@pytest.mark.parametrize("case", CASES)
def test_codex_reads_only_what_is_allowed(case: str, tmp_path: Path) -> None:
    executable = find_cli("codex")
    if executable is None:
        pytest.skip("codex is not installed: run `make clis`")
    options, reads = CASES[case]
    options = dict(options)
    home, workspace, log = tmp_path / "home", tmp_path / "workspace", tmp_path / "log"
    for folder in (home, workspace):
        folder.mkdir()
    (tmp_path / "server.py").write_text(SERVER)
    if "policy" in options:
        (tmp_path / "policy.yaml").write_text(options["policy"])
        options["policy"] = tmp_path / "policy.yaml"
    words = [str(tmp_path / "server.py"), str(log)]
    steps = [native("list_mcp_resources"), native("read_mcp_resource", server="tiny", uri="x://secret"), say("Done.")]

    async def main(env: dict[str, str]) -> list[stagedoor.Event]:
        async with asyncio.timeout(BOUND):
            more: dict[str, Any] = {**options, "env": env, "inherit_env": False, "executable": executable}
            return [event async for event in stagedoor.run("codex", "Go", cwd=workspace, **more)]

    with ScriptedModel(steps) as model:
        env = dict(model.environment("codex", home=home, cwd=workspace).env)
        if options.pop("own", False):
            with (home / ".codex" / "config.toml").open("a") as config:
                config.write(f"\n[mcp_servers.tiny]\ncommand = {sys.executable!r}\nargs = {words!r}\n")
        else:
            options["mcp_servers"] = {"tiny": stagedoor.McpServer(command=sys.executable, args=tuple(words))}
        events = asyncio.run(main(env))
    assert isinstance(events[-1], stagedoor.Done)
    assert events[-1].result == "Done."
    methods = log.read_text().split()
    assert "tools/list" in methods
    assert [method for method in methods if method.startswith("resources/")] == (
        ["resources/list", "resources/read"] if reads else []
    )
    outputs = " ".join(event.output for event in events if isinstance(event, stagedoor.ToolResult))
    assert ("SECRET" in outputs) is reads


def test_what_cannot_be_withheld_is_refused(tmp_path: Path) -> None:
    remote = stagedoor.McpServer(url="https://tools.example/mcp", transport="http")
    executable = find_cli("codex")
    if executable is None:
        pytest.skip("codex is not installed: run `make clis`")

    async def main() -> None:
        options: dict[str, Any] = {"disallowed_tools": ["read_mcp_resource"], "tier": "autonomous"}
        run = stagedoor.run(
            "codex", "Go", cwd=tmp_path, mcp_servers={"tiny": remote}, executable=executable, env={}, inherit_env=False,
            **options,
        )  # fmt: skip
        async for _ in run:
            pass

    with pytest.raises(NotSupported, match="resources of servers over HTTP unasked"):
        asyncio.run(main())
