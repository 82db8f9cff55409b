"""Claude Code as one value: everything the catalog knows of it."""

from __future__ import annotations

from collections.abc import Mapping

from ...agents.claude.client import INSTALL, SIGN_IN, VERSIONS, ClaudeClient
from ...agents.claude.events import CanUseTool
from ...agents.claude.protocol import ClaudeProtocol
from ...transports.versions import CheckedVersion
from ...unified.capabilities import Capabilities
from ...unified.options import Options
from ..agent import Agent, ArgumentRules, Driver, Package, Presence, ScriptedSetup
from ..inspection import SignIn, inspected
from .dictionary import ClaudeDictionary
from .opening import check, client_of, models_of, open_session
from .protected import PROTECTED
from .recording import ClaudeRecordingReader, recognize_stream
from .scripted import scripted_settings
from .state import TRANSCRIPT, state_of
from .stored import list_stored, read_stored
from .tools import TITLE, TOOLS
from .trust import PROJECT_PATHS

CAPABILITIES = Capabilities(
    text_deltas=True,
    thinking=True,
    plan=True,
    subagents=True,
    mcp_servers=True,
    permissions="all",
    edit_input=True,
    deny_message=True,
    remember_session=True,
    interrupt=True,
    resume=True,
    fork=True,
    max_turns=True,
    max_budget=True,
    structured_output=True,
    images=True,
    system_prompt=True,
    append_system_prompt=True,
    effort=True,
    allowed_tools=True,
    disallowed_tools=True,
    tool_list=True,
    sandbox=("none", "readOnly", "workspaceWrite", "fullAccess"),
    confine=True,
    exit_codes=True,
    diffs=True,
    cost=True,
    notes={
        "permissions": "every call that acts, by a PreToolUse hook; none when autonomous",
        "deny_message": "with interrupt the message is not delivered: the turn ends at once",
        "max_turns": "per prompt, counted by Claude Code",
        "max_budget": "over the whole process, counted by Claude Code",
        "sandbox": "readOnly is the dry run. workspaceWrite is Claude Code's own sandbox (bubblewrap, socat): it holds "
        "for commands, and we refuse edits outside; MCP servers are not in it, and the network is asked about by host, "
        "but open when autonomous. confine='workspace' holds for everything but the network",
        "subagents": "their text comes whole, without deltas", "images": "with the first prompt of a session",
        "exit_codes": "unknown for commands in the background and for those whose code Claude Code reinterprets",
    },
)  # fmt: skip


async def inspect(env: Mapping[str, str] | None) -> Presence:
    client = ClaudeClient("/", env=env)  # where we stand, a project could bring a helper for its keys

    async def sign_in() -> SignIn:
        if (await client.auth_status()).logged_in:
            return True, "", ""
        return False, "Claude Code is not signed in", SIGN_IN

    return await inspected(AGENT, client.find_executable, client.check_version, sign_in)


async def check_version(options: Options) -> CheckedVersion:
    return await client_of(options).check_version()


AGENT = Agent(
    name="claude",
    title=TITLE,
    install=INSTALL,
    drivers={
        "stream": Driver(
            "stream", CAPABILITIES, ClaudeDictionary, ClaudeProtocol, open_session, (CanUseTool,),
            ClaudeRecordingReader, check_version, recognize_stream, check, models=models_of,
        )
    },
    choose_driver=lambda options: "stream",
    list_stored=list_stored,
    read_stored=read_stored,
    inspect=inspect,
    tools=TOOLS,
    protected=PROTECTED,
    keep_lines=True,
    arguments=ArgumentRules(
        reserved={
            "-p": 0, "--print": 0, "--verbose": 0, "--output-format": 1, "--input-format": 1,
            "--include-partial-messages": 0, "--replay-user-messages": 0, "--permission-prompt-tool": 1,
        },
        replaced={
            "--dangerously-skip-permissions": "skip_permissions: true",
            "--permission-mode": "tier or approval",
            "--model": "model",
            "--tools": "allowed_tools",
            "--allowedTools": "allowed_tools",
            "--allowed-tools": "allowed_tools",
            "--disallowedTools": "disallowed_tools",
            "--disallowed-tools": "disallowed_tools",
        },
    ),
    state=state_of,
    transcript=TRANSCRIPT,
    project_paths=PROJECT_PATHS,
    package=Package("@anthropic-ai/claude-code", "2.1.197"),
    versions=VERSIONS,
    scripted=ScriptedSetup("claude-sonnet-4-5", scripted_settings),
)  # fmt: skip
