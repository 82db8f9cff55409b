"""Resources of MCP servers: Codex reads them without a question, so where something is asked about it has none."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.testing import ScriptedModel, find_cli, say
from stagedoor.testing.script import mcp, native

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
        "tools/call": {"content": [{"type": "text", "text": "added"}]},
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
OVER_HTTP: dict[str, tuple[dict[str, Any], bool]] = {
    "supervised": ({"tier": "supervised"}, False),
    "dry-run over exec": ({"tier": "dry-run", "driver": "exec"}, False),
    "supervised, a server of the user's own": ({"tier": "supervised", "own": True}, False),
    "autonomous": ({"tier": "autonomous"}, True),
    "autonomous, withheld": ({"tier": "autonomous", "disallowed_tools": ["read_mcp_resource"]}, False),
}
STEPS = [
    native("list_mcp_resources"), native("read_mcp_resource", server="tiny", uri="x://secret"), mcp("tiny", "add"),
    say("Done."),
]  # fmt: skip


def played(folder: Path, options: dict[str, Any], server: dict[str, Any], own: str) -> list[stagedoor.Event]:
    """What Codex does with a server that has a resource; ``own``: how the user's configuration has it."""
    executable = find_cli("codex")
    if executable is None:
        pytest.skip("codex is not installed: run `make clis`")
    options = dict(options)
    home, workspace = folder / "home", folder / "workspace"
    for place in (home, workspace):
        place.mkdir()
    if "policy" in options:
        (folder / "policy.yaml").write_text(options["policy"])
        options["policy"] = folder / "policy.yaml"
    if options.get("driver") != "exec":
        options["can_use_tool"] = lambda request: stagedoor.Allow()

    async def main(env: dict[str, str]) -> list[stagedoor.Event]:
        async with asyncio.timeout(BOUND):
            more: dict[str, Any] = {**options, "env": env, "inherit_env": False, "executable": executable}
            return [event async for event in stagedoor.run("codex", "Go", cwd=workspace, **more)]

    with ScriptedModel(STEPS) as model:
        env = {**model.environment("codex", home=home, cwd=workspace).env, "TINY_KEY": "k"}
        if options.pop("own", False):
            with (home / ".codex" / "config.toml").open("a") as config:
                config.write(f"\n[mcp_servers.tiny]\n{own}\n")
        else:
            options["mcp_servers"] = {"tiny": stagedoor.McpServer(**server)}
        events = asyncio.run(main(env))
    assert isinstance(events[-1], stagedoor.Done)
    assert events[-1].result == "Done."
    return events


def check(events: list[stagedoor.Event], methods: list[str], *, reads: bool) -> None:
    assert "tools/list" in methods
    assert [method for method in methods if method.startswith("resources/")] == (
        ["resources/list", "resources/read"] if reads else []
    )
    outputs = " ".join(event.output for event in events if isinstance(event, stagedoor.ToolResult))
    assert ("SECRET" in outputs) is reads


@pytest.mark.live
@pytest.mark.parametrize("case", CASES)
def test_codex_reads_only_what_is_allowed(case: str, tmp_path: Path) -> None:
    options, reads = CASES[case]
    (tmp_path / "server.py").write_text(SERVER)
    words = [str(tmp_path / "server.py"), str(tmp_path / "log")]
    own = f"command = {sys.executable!r}\nargs = {words!r}"
    events = played(tmp_path, options, {"command": sys.executable, "args": tuple(words)}, own)
    check(events, (tmp_path / "log").read_text().split(), reads=reads)


@pytest.mark.live
@pytest.mark.parametrize("case", OVER_HTTP)
def test_the_same_of_a_server_over_http(case: str, tmp_path: Path) -> None:
    options, reads = OVER_HTTP[case]
    with served() as (address, requests):
        server = {"url": address, "headers": {"Authorization": "Bearer k"}, "transport": "http"}
        events = played(tmp_path, options, server, f'url = "{address}"\nbearer_token_env_var = "TINY_KEY"')
    assert {key for _, key in requests} == {"Bearer k"}
    methods = [method for method, _ in requests]
    check(events, methods, reads=reads)
    assert ("tools/call" in methods) is (options["tier"] != "dry-run"), "its tools are there as before"


@contextlib.contextmanager
def served() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A server with a tool and a resource, over HTTP: its address, and what was asked of it with which key."""
    requests: list[tuple[str, str]] = []

    class TinyServer(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "id" not in message:
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            requests.append((message["method"], self.headers.get("Authorization", "")))
            result = dict(RESULTS.get(message["method"], {}))
            if message["method"] == "initialize":
                result["protocolVersion"] = message["params"]["protocolVersion"]
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_response(405)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), TinyServer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {"capabilities": {"tools": {}, "resources": {}}, "serverInfo": {"name": "tiny", "version": "1"}},
    "tools/list": {"tools": [{"name": "add", "description": "Add", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "added"}]},
    "resources/list": {"resources": [{"uri": "x://secret", "name": "secret"}]},
    "resources/read": {"contents": [{"uri": "x://secret", "text": "SECRET"}]},
}
