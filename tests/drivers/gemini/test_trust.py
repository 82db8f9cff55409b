"""Gemini CLI in a folder that nobody trusts: restricted, as if trusted where there is nothing to load, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stagedoor.agents.gemini import GeminiDriver, GeminiSessionConfig, StdioMcpServer
from stagedoor.drivers.gemini.trust import with_trust
from stagedoor.errors import UntrustedProject
from stagedoor.unified.options import Options

ACP, STREAM = GeminiDriver.ACP, GeminiDriver.STREAM_JSON
SERVERS = {"s": StdioMcpServer(command="s")}


def config(folder: Path, driver: GeminiDriver, servers: Any = None, **options: Any) -> GeminiSessionConfig:
    wanted = GeminiSessionConfig(driver=driver, mcp_servers=servers or {})
    return with_trust(wanted, Options(cwd=str(folder), **options), str(folder.parent))


@pytest.mark.parametrize(("driver", "servers"), [(ACP, None), (ACP, SERVERS), (STREAM, None)])
def test_where_there_is_nothing_to_load(tmp_path: Path, driver: GeminiDriver, servers: Any) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "settings.json").touch()  # the user's own
    (folder / ".env").touch()
    made = config(folder, driver, servers)
    assert (made.trust_workspace, made.settings) == (True, {"advanced": {"ignoreLocalEnv": True}})
    (folder / "GEMINI.md").touch()
    names = config(folder, driver, servers).settings["context"]["fileName"]
    assert not (folder / names[0]).exists()
    assert config(folder, driver, servers, trust=True).settings == {}
    (folder / ".gemini" / "commands").mkdir(parents=True)
    assert made.check_workspace is not None
    with pytest.raises(UntrustedProject, match=r"\.gemini"):
        made.check_workspace()  # before each start


@pytest.mark.parametrize("name", [".gemini/settings.json", ".gemini/.env", ".agents/skills/x/SKILL.md"])
def test_where_there_is_something(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "project"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).touch()
    assert config(folder, ACP).trust_workspace is False
    assert config(folder, ACP, trust=True).trust_workspace is True
    with pytest.raises(UntrustedProject, match="leave mcp_servers out"):
        config(folder, ACP, SERVERS)
    with pytest.raises(UntrustedProject, match="use driver acp, or look at it and run stagedoor trust"):
        config(folder, STREAM)
    with pytest.raises(UntrustedProject, match="use driver acp, or use another tier"):
        config(folder, STREAM, tier="dry-run")
