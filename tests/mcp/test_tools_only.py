"""The program that keeps a server's resources from an agent: what it passes on, and what not."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from stagedoor.mcp import tools_only

SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    result = {"capabilities": {"tools": {}, "resources": {}}, "saw": message["method"]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize("method", ["resources/list", "resources/read", "resources/templates/list", "resources/x"])
def test_resources_are_refused(method: str) -> None:
    [answer] = tools_only.refusals({"jsonrpc": "2.0", "id": 3, "method": method})
    assert (answer["id"], answer["error"]["code"]) == (3, tools_only.METHOD_NOT_FOUND)


@pytest.mark.parametrize(
    "message", [{"id": 1, "method": "tools/call"}, {"id": 1, "result": {}}, "resources/list", None]
)
def test_everything_else_is_passed_on(message: Any) -> None:
    assert tools_only.refusals(message) == []


def test_a_whole_conversation() -> None:
    """As bytes: the word may be written with escapes, and several requests may stand in one line."""
    lines = [
        b'{"jsonrpc": "2.0", "id": 1, "method": "initialize"}',
        b'{"jsonrpc": "2.0", "id": 2, "method": "res\\u006furces/read"}',
        b'[{"jsonrpc": "2.0", "id": 3, "method": "resources/list"}]',
        b'{"jsonrpc": "2.0", "id": 4, "method": "tools/list", "params": {"of": "resources/"}}',
    ]
    command = [sys.executable, "-I", tools_only.__file__, sys.executable, "-c", SERVER]
    done = subprocess.run(command, input=b"\n".join(lines) + b"\n", capture_output=True, check=True, timeout=120)
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert {number: answer.get("result", {}).get("saw", "") for number, answer in answers.items()} == {
        1: "initialize", 2: "", 3: "", 4: "tools/list",
    }  # fmt: skip
    assert answers[1]["result"]["capabilities"] == {"tools": {}}
