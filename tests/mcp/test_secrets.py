"""What a tool server is signed in to with is in no list of processes."""

from __future__ import annotations

from typing import Any

import pytest

from stagedoor.agents.claude.launch import launch as launch_claude
from stagedoor.agents.codex.launch import launch as launch_codex
from stagedoor.drivers.claude import opening
from stagedoor.drivers.claude.dictionary import ClaudeDictionary
from stagedoor.drivers.codex.rights import config_of
from stagedoor.transports.launch import Launch
from stagedoor.unified.options import McpServer, Options, check_options


async def nobody(request: Any) -> Any:
    raise AssertionError(request)


def codex(options: Options) -> Launch:
    return launch_codex(config_of(options, "exec"), cwd=options.cwd, executable="codex", prompt="go")


def claude(options: Options) -> Launch:
    return launch_claude(opening.config(options, nobody, ClaudeDictionary()), cwd=options.cwd, executable="claude")


@pytest.mark.parametrize("start", [codex, claude])
def test_no_secret_of_a_tool_server_is_an_argument(start: Any, tmp_path: Any) -> None:
    server = McpServer(url="http://127.0.0.1:1/mcp", headers={"Authorization": "Bearer s3cret"}, transport="http")
    launch = start(check_options({"cwd": str(tmp_path), "mcp_servers": {"host": server}}))
    assert not [word for word in launch.argv if "s3cret" in word]
    places = [*launch.env.values(), *(content.decode() for content in launch.files.values())]
    assert any("s3cret" in place for place in places)
