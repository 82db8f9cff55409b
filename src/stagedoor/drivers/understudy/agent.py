"""The embedded agent: always installed, plays a script, speaks ACP."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ... import __version__
from ...agents.acp import AcpClient, AcpProfile, AcpSession, RequestPermission
from ...agents.acp.commands import ClientCapabilities
from ...agents.acp.protocol import AcpProtocol
from ...agents.acp.requests import CreateElicitation
from ...errors import NotSupported
from ...mcp.functions import HOST
from ...understudy import command
from ...understudy.store import default_home
from ...unified.decisions import Ask
from ...unified.options import Options
from ...unified.tool_lists import AgentTool, ToolLists, tool_lists
from ...wire.fitting import whole_number
from ..acp.dictionary import AcpDictionary, Manner
from ..acp.opening import CAPABILITIES as CAPABILITIES_OF_ACP
from ..acp.opening import config
from ..acp.recording import AcpRecordingReader, recognize_acp
from ..acp.settings import AcpSettings
from ..agent import Agent, Driver, Presence, StateFolders
from ..confinement import confinement_of
from ..transcripts import Transcript
from .stored import NAME, list_stored, read_stored

# Its own mode `auto_edit` is not used: it would let edits of files run from which something runs later.
MODES = {"dry-run": "plan", "supervised": "ask", "autonomous": "auto"}
APPROVALS = {"ask": "ask", "askDangerous": "ask", "autoEdit": "ask", "autoAll": "auto"}
CAPABILITIES = replace(
    CAPABILITIES_OF_ACP,
    effort=True,
    permissions="all",
    allowed_tools=True,
    disallowed_tools=True,
    tool_list=True,
    cost=True,
    exit_codes=True,
    subagents=True,
    sandbox=("none", "readOnly", "workspaceWrite", "fullAccess"),
    dry_run=True,
    supervised=True,
    confine=True,
    notes={
        **{
            field: note for field, note in CAPABILITIES_OF_ACP.notes.items() if field not in ("supervised", "tool_list")
        },
        "permissions": "asks about every edit and command its mode does not allow",
        "sandbox": "readOnly is the dry run; workspaceWrite is confine='workspace'",
    },
)
TITLE = "Understudy (embedded, scripted)"
TOOLS: tuple[AgentTool, ...] = (
    AgentTool("shell", "shell", ("files", "network", "process")),
    AgentTool("read_file", "read_file", ("files",), "free"),
    AgentTool("write_file", "write_file", ("files",)),
    AgentTool("edit_file", "edit_file", ("files",)),
    AgentTool("delete_file", "edit_file", ("files",)),
    AgentTool("search_content", "search_content", ("files",), "free"),
    AgentTool("find_files", "find_files", ("files",), "free"),
    AgentTool("task", "task", control="free"),
    AgentTool("plan", "plan", control="free"),
    AgentTool("question", "question"),
)


def _exit_code(raw_output: Any) -> int | None:
    match raw_output:
        case {"exitCode": code}:
            return whole_number(code)
        case _:
            return None


def _parent(meta: object) -> str | None:
    match meta:
        case {"parentToolCallId": str(call_id)}:
            return call_id
        case _:
            return None


MANNER = Manner(
    tools={**{tool.name: tool.kind for tool in TOOLS if tool.name == tool.kind}, "mcp": "mcp"},
    profile=AcpProfile(tool_name_in_id=r"(.+?)__\d+$"),
    exit_code=_exit_code,
    parent=_parent,
)


def mode_of(options: Options) -> str:
    if options.tier == "dry-run" or options.sandbox == "readOnly":
        return "plan"
    return MODES[options.tier] if options.approval is None else APPROVALS[options.approval]


def lists_of(options: Options) -> ToolLists:
    return tool_lists(options, TOOLS, agent=TITLE)


def check(options: Options) -> None:
    lists = lists_of(options)
    entries = (*(lists.allowed.servers if lists.allowed is not None else ()), *lists.denied.servers)
    if one := next((entry for entry in entries if entry.tool and entry.server != HOST), None):
        raise NotSupported(f"understudy withholds whole MCP servers: write 'mcp__{one.server}' in the list")


def allows_edits(options: Options) -> bool:
    """Whether edits of the workspace run without a question."""
    if lists_of(options).limits:  # then every question goes through the lists
        return False
    return options.approval == "autoEdit" or (options.approval is None and options.tier == "supervised")


async def open_session(prompt: str, options: Options, ask: Ask, dictionary: AcpDictionary) -> AcpSession:
    lists = lists_of(options)
    without = ",".join(tool.name for tool in lists.withheld)
    readers = ",".join(f"{HOST}/{tool.name}" for tool in options.tools if tool.reads)
    limits = [*(("--without", without) if without else ()), *(("--reads", readers) if readers else ())]
    argv = [*command(executable=options.executable), *limits, *options.extra_args]
    servers = {name: server for name, server in options.mcp_servers.items() if lists.permits_server(name)}
    options = replace(options, mcp_servers=servers)
    env = dict(options.env) if not options.inherit_env else {**os.environ, **options.env} if options.env else None
    client = AcpClient(
        argv,
        options.cwd,
        env,
        quiet=options.stall_after,
        capabilities=ClientCapabilities(elicitation_forms=True),
        confinement=confinement_of(options, state_of),
    )
    settings = config(options, ask, dictionary, mode=mode_of(options), edits=allows_edits(options))
    if options.resume is None:
        return await client.create_session(prompt, settings)
    if options.fork:
        return await client.fork_session(options.resume, prompt, settings)
    return await client.resume_session(options.resume, prompt, settings)


def state_of(env: Mapping[str, str]) -> StateFolders:
    return StateFolders((str(default_home(env)),))


async def inspect(env: Mapping[str, str] | None) -> Presence:
    return Presence(
        agent=NAME,
        title=TITLE,
        installed=True,
        executable=sys.executable,
        version=__version__,
        signed_in=True,
        drivers={name: driver.capabilities for name, driver in AGENT.drivers.items()},
    )


AGENT = Agent(
    name=NAME,
    title=TITLE,
    install="",
    drivers={
        "acp": Driver(
            "acp",
            CAPABILITIES,
            lambda: AcpDictionary(MANNER),
            AcpProtocol,
            open_session,
            (RequestPermission, CreateElicitation),
            lambda _: AcpRecordingReader(),
            recognize=recognize_acp(NAME),
            check=check,
            settings=AcpSettings(),
        )
    },
    choose_driver=lambda options: "acp",
    list_stored=list_stored,
    read_stored=read_stored,
    inspect=inspect,
    tools=TOOLS,
    state=state_of,
    transcript=Transcript(lambda cwd, env: default_home(env), ("{id}.jsonl",)),
)
