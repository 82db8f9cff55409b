from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from stagedoor.errors import BadRequest
from stagedoor.mcp.functions import tool
from stagedoor.mcp.protocol import ToolCall, ToolServer
from stagedoor.transports.callbacks import run_callback


def add(a: int, b: int = 2) -> int:
    """Adds two numbers."""
    return a + b


async def shout(text: str) -> str:
    return text.upper()


def fail() -> None:
    raise RuntimeError("broken")


def blocks() -> list[dict[str, str]]:
    return [{"type": "text", "text": "ready made"}]


SERVER = ToolServer([add, tool(shout, name="loud", description="Shouts."), fail, blocks], name="desk")


async def made(call: ToolCall) -> Any:
    return await run_callback(call.tool.bound(call.arguments))


def ask(method: str, params: Any = None, **more: Any) -> Any:
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}} | more
    return asyncio.run(SERVER.respond(json.dumps(message).encode(), made))


def test_the_tools_are_listed_with_their_schemas() -> None:
    listed = ask("tools/list")["result"]["tools"]
    assert listed[0] == {
        "name": "add",
        "description": "Adds two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
            "required": ["a"],
            "additionalProperties": False,
        },
    }
    assert [(t["name"], t["description"]) for t in listed[1:]] == [("loud", "Shouts."), ("fail", ""), ("blocks", "")]


@pytest.mark.parametrize(
    ("name", "arguments", "text", "failed"),
    [
        ("add", {"a": 40}, "42", False),
        ("add", {"a": 1, "b": 1}, "2", False),
        ("loud", {"text": "hey"}, "HEY", False),
        ("blocks", {}, "ready made", False),
        ("fail", {}, "RuntimeError: broken", True),
        ("add", {"a": "x"}, "wrong arguments for add: Expected `int`, got `str` - at `$.a`", True),
        ("add", {}, "wrong arguments for add: Object missing required field `a`", True),
    ],
)
def test_calls(name: str, arguments: dict[str, Any], text: str, failed: bool) -> None:
    reply = ask("tools/call", {"name": name, "arguments": arguments})
    expected: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    assert reply == {"jsonrpc": "2.0", "id": 7, "result": expected | ({"isError": True} if failed else {})}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [("resources/list", {}, -32601), ("tools/call", {"name": "nope"}, -32602), ("tools/call", [1], -32602)],
)
def test_faults(method: str, params: Any, code: int) -> None:
    assert ask(method, params)["error"]["code"] == code


def test_the_handshake() -> None:
    result = ask("initialize", {"protocolVersion": "2025-11-25"})["result"]
    assert result["protocolVersion"] == "2025-11-25"
    assert result["serverInfo"] == {"name": "desk", "version": "1"}
    assert ask("ping")["result"] == {}
    assert asyncio.run(SERVER.respond(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', made)) is None
    assert asyncio.run(SERVER.respond(b"nonsense", made))["error"]["code"] == -32700  # type: ignore[index]


def test_only_named_arguments() -> None:
    def variadic(*numbers: int) -> int:
        return sum(numbers)

    with pytest.raises(BadRequest, match="input_schema"):
        tool(variadic)
    unchecked = tool(lambda **more: more, name="any", input_schema={"type": "object"})
    assert unchecked.bound({"x": 1})() == {"x": 1}
