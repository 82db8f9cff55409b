"""Our options in Copilot CLI's words, and the start of a session with them.

| tier, approval       | started with             | what happens                                             |
|----------------------|--------------------------|----------------------------------------------------------|
| dry-run, readOnly    | the reading tools alone  | nothing else is offered                                  |
| ask, askDangerous    |                          | every command, edit, tool of a server, and file outside  |
| supervised, autoEdit |                          | the same; most edits we allow at once                    |
| autonomous, autoAll  | `--allow-all`            | all runs                                                 |

Its modes are not used: `plan` asks about some commands and cannot be left, `autopilot` asks for the answer again and
again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ...agents.acp import launch as acp_launch
from ...errors import NotSupported
from ...mcp.functions import HOST
from ...transports.executables import find_executable
from ...transports.launch import SCRATCH, Launch
from ...transports.versions import CheckedVersion, ProvenVersions
from ...unified.decisions import Ask
from ...unified.options import FunctionServer, McpServer, Options
from ...unified.tool_lists import ToolLists, tool_lists
from ..acp.opening import LISTING_SECONDS, config, functions_of, open_launched
from ..acp.questions import AcpQuestions, stance_of
from ..confinement import confinement_of, environ_of
from ..policing import without_denied_tools
from .dictionary import CopilotDictionary
from .records import records_file
from .session import CopilotSession
from .state import state_of
from .tools import MCP_NAME, OWN_TOOLS, READING, TITLE
from .trust import PROJECT_PATHS, refuse_project, withheld_tools

INSTALL = "npm install -g @github/copilot"
VERSIONS = ProvenVersions("copilot", "1.0.102", "1.0.102", INSTALL)
HINTS = ("~/.local/bin", "~/.npm-global/bin", "/usr/local/bin", "/opt/homebrew/bin")
UNSET = ("COPILOT_ALLOW_ALL", "COPILOT_CUSTOM_INSTRUCTIONS_DIRS")
"""With the first it asks about nothing."""


def find(executable: str | None, env: Mapping[str, str] | None) -> str:
    return find_executable("copilot", executable=executable, env=env, install=INSTALL, hints=HINTS)


def program_of(executable: str) -> str:
    """The program behind its launcher, which would die alone and leave it running."""
    launcher = Path(executable).resolve()
    system = {"linux": "linux", "darwin": "darwin", "win32": "win32"}.get(sys.platform, sys.platform)
    if launcher.name != "npm-loader.js":
        return executable
    for folder in (launcher.parent.parent, launcher.parent / "node_modules" / "@github"):
        for program in sorted(folder.glob(f"copilot-{system}*/copilot")):
            if program.is_file():
                return str(program)
    return executable


async def check_version(options: Options) -> CheckedVersion:
    env = environ_of(options)
    return await VERSIONS.check(program_of(find(options.executable, env)), env=env)


def lists_of(options: Options) -> ToolLists:
    options = without_denied_tools(options, OWN_TOOLS, "copilot")
    return tool_lists(options, OWN_TOOLS, agent=TITLE, mcp_name=MCP_NAME)


def check(options: Options) -> None:
    lists = lists_of(options)
    entries = (*(lists.allowed.servers if lists.allowed is not None else ()), *lists.denied.servers)
    if one := next((entry for entry in entries if entry.tool and entry.server != HOST), None):
        raise NotSupported(f"copilot withholds whole MCP servers: write 'mcp__{one.server}' in the list")


def rights_of(options: Options) -> list[str]:
    """The arguments that say what it may do by itself, and with which tools."""
    lists, stance = lists_of(options), stance_of(options)
    if stance == "read":
        offered = [name for name in READING if lists.permits(name, _kind(name))]
        offered += [MCP_NAME.format(server=HOST, tool=tool.name) for tool in options.tools if tool.reads]
        tools = f"--available-tools={','.join(offered) or 'none'}"
        return [tools, "--deny-tool=shell", "--deny-tool=write", "--disable-builtin-mcps"]
    arguments = ["--allow-all"] if stance == "act" else []
    withheld = dict.fromkeys((*(tool.name for tool in lists.withheld), *withheld_tools(options)))
    if withheld:
        arguments.append(f"--excluded-tools={','.join(withheld)}")
    if lists.allowed is not None and not lists.permits_server("github-mcp-server"):
        arguments.append("--disable-builtin-mcps")
    return arguments


def launch_of(options: Options) -> Launch:
    refuse_project(options)
    environ, lists = environ_of(options), lists_of(options)
    argv = [program_of(find(options.executable, environ)), "--acp", "--no-auto-update", "--no-ask-user"]
    argv += rights_of(options)
    servers = {name: server for name, server in options.mcp_servers.items() if lists.permits_server(name)}
    if stance_of(options) == "read":
        servers = {name: server for name, server in servers.items() if isinstance(server, FunctionServer)}
    argv += ["--model", options.model] if options.model else []
    argv += ["--reasoning-effort", options.effort] if options.effort else []
    files: dict[str, bytes] = {}
    if servers:
        # Those that are given over the protocol it drops without a word, unless they are remote.
        argv += ["--additional-mcp-config", f"@{SCRATCH}/servers.json"]
        listed = {name: _server(server) for name, server in servers.items()}
        files["servers.json"] = json.dumps({"mcpServers": listed}).encode()
    start = acp_launch(
        [*argv, *options.extra_args],
        cwd=str(Path(options.cwd).absolute()),
        env={"COPILOT_AUTO_UPDATE": "false"},
        unset=UNSET,
        confinement=confinement_of(options, state_of, PROJECT_PATHS),
    )
    return replace(start, files=files)


def _kind(name: str) -> Any:
    return next(tool.kind for tool in OWN_TOOLS if tool.name == name)


def _server(server: McpServer) -> dict[str, Any]:
    if server.transport == "stdio":
        program = {"command": server.command, "args": list(server.args), "env": dict(server.env)}
        return {"type": "local", **program, "tools": ["*"]}
    return {"type": server.transport, "url": server.url, "headers": dict(server.headers), "tools": ["*"]}


async def open_session(prompt: str, options: Options, ask: Ask, dictionary: CopilotDictionary) -> CopilotSession:
    dictionary.expect_records()
    questions = AcpQuestions(options, ask, dictionary, lists_of(options))
    start = await asyncio.to_thread(launch_of, options)
    own = functions_of(options)  # the rest it has in a file
    servers = {HOST: own} if own is not None else {}
    settings = config(
        replace(options, mcp_servers=servers, model=None, effort=None),
        ask,
        dictionary.protocol,
        waits=LISTING_SECONDS,
    )
    settings = replace(settings, mcp_servers=())
    session = await open_launched(start, prompt, options, settings, questions)
    return CopilotSession(session, records_file(session.session_id, environ_of(options)))
