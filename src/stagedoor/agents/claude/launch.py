"""How to start Claude Code: a config becomes a command line, as a value. Pure.

The prompt is never an argument: it travels as a message over standard input, which stays open until the end, because
Claude Code exits without draining its output when its input closes early.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

import msgspec

from ...mcp.protocol import ToolServer
from ...transports.launch import SCRATCH, EndInput, Launch, Signal
from .commands import ClaudeInitialize
from .config import ClaudePermissionMode, ClaudeSessionConfig, check

FIXED_ARGS = ("--print", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")

SURROUNDING = ("CLAUDECODE", "CLAUDE*")
"""What a surrounding Claude Code sets in the environment; a child would misread it as its settings."""

USERS_OWN = (
    "CLAUDE_CONFIG_DIR",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
)
"""Settings and login of the user, which a child inherits all the same."""

STOP = (EndInput(wait=1.5), Signal(signal.SIGINT, wait=3.0))
"""Not SIGTERM: Claude Code would leave the tool's shell running. Whoever stops a turn interrupts it in-band first."""

LONGEST_ARGUMENT = 100_000
"""The kernel takes 128 KiB in one argument; longer system prompts travel in a file."""

PERMISSION_SERVER = "stagedoor"
SERVERS_FILE = "servers.json"
PERMISSION_TOOL = f"mcp__{PERMISSION_SERVER}__permission"


def launch(
    config: ClaudeSessionConfig,
    *,
    cwd: str,
    executable: str,
    resume: str | None = None,
    session_id: str | None = None,
    permission_server: Mapping[str, Any] | None = None,
    inherited: Mapping[str, str] | None = None,
) -> Launch:
    """One long-lived process that takes prompts and control requests on its input.

    ``session_id`` is the id for a new session. ``permission_server`` is the MCP server entry that serves permissions in
    ``delegate`` mode. ``inherited`` is the environment the process would inherit, from which the traces of a
    surrounding Claude Code are taken; ``None`` keeps all of it.
    """
    check(config, resume=resume)
    argv = [
        executable,
        *FIXED_ARGS,
        *_session_args(config, resume, session_id),
        *_permission_args(config),
        *_model_args(config),
        *_tool_args(config, permission_server),
        *_stream_args(config),
        *config.extra_args,
    ]
    servers = _servers(config, permission_server)
    inherited_login = {} if inherited is None else {name: inherited[name] for name in USERS_OWN if name in inherited}
    return Launch(
        argv=tuple(argv),
        cwd=cwd,
        env={
            **inherited_login,
            "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
            "DISABLE_AUTOUPDATER": "1",
            **_thinking(config),
            **config.env,
        },
        unset=() if inherited is None else SURROUNDING,
        stdin="pipe",
        files={
            **{f"{flag[2:]}.txt": text.encode() for flag, text in _prompts(config).items() if _is_long(text)},
            **({SERVERS_FILE: _json(servers).encode()} if _is_secret(servers) else {}),
        },
        stop=STOP,
        confinement=config.confinement,
    )


def _session_args(config: ClaudeSessionConfig, resume: str | None, session_id: str | None) -> list[str]:
    args: list[str] = []
    if resume is not None:
        args += ["--resume", resume]
    if config.continue_session:
        args.append("--continue")
    if config.fork_session:
        args.append("--fork-session")
    chosen = config.session_id or session_id
    if chosen is not None and (config.fork_session or (resume is None and not config.continue_session)):
        args += ["--session-id", chosen]
    if not config.persist_session:
        args.append("--no-session-persistence")
    if config.name is not None:
        args += ["--name", config.name]
    return args


def _permission_args(config: ClaudeSessionConfig) -> list[str]:
    args: list[str] = []
    match config.permission_mode:
        case None | ClaudePermissionMode.delegate:
            pass
        case mode:
            args += ["--permission-mode", mode.value]
    if config.allow_dangerously_skip_permissions:
        args.append("--allow-dangerously-skip-permissions")
    if config.delegates:
        args += ["--permission-prompt-tool", PERMISSION_TOOL]
    elif config.permission_prompt_tool is not None:
        args += ["--permission-prompt-tool", config.permission_prompt_tool]
    elif config.asks_host:
        args += ["--permission-prompt-tool", "stdio"]
    return args


def _model_args(config: ClaudeSessionConfig) -> list[str]:
    args: list[str] = []
    if config.fallback_models:
        args += ["--fallback-model", ",".join(config.fallback_models)]
    for flag, value in (
        ("--model", config.model),
        ("--effort", config.effort),
        ("--agent", config.agent),
        ("--max-turns", config.max_turns),
        ("--max-budget-usd", config.max_budget_usd),
    ):
        if value is not None:
            args += [flag, str(value)]
    for flag, text in _prompts(config).items():
        args += [f"{flag}-file", f"{SCRATCH}/{flag[2:]}.txt"] if _is_long(text) else [flag, text]
    if config.agents:
        args += ["--agents", _json(config.agents)]
    if config.output_schema is not None:
        args += ["--json-schema", _json(config.output_schema)]
    return args


def _prompts(config: ClaudeSessionConfig) -> dict[str, str]:
    prompts = {"--system-prompt": config.system_prompt, "--append-system-prompt": config.append_system_prompt}
    return {flag: text for flag, text in prompts.items() if text is not None}


def _is_long(text: str) -> bool:
    return len(text.encode()) > LONGEST_ARGUMENT


def _servers(config: ClaudeSessionConfig, permission_server: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    servers: dict[str, Any] = {
        name: {"type": "sdk", "name": name} if isinstance(server, ToolServer) else dict(server)
        for name, server in config.mcp_servers.items()
    }
    if permission_server is not None:
        servers[PERMISSION_SERVER] = dict(permission_server)
    return {"mcpServers": servers}


def _is_secret(servers: dict[str, dict[str, Any]]) -> bool:
    """What a server signs in with is for no list of processes, which every user of the machine can read."""
    return any(server.get("env") or server.get("headers") for server in servers["mcpServers"].values())


def _tool_args(config: ClaudeSessionConfig, permission_server: Mapping[str, Any] | None) -> list[str]:
    args: list[str] = []
    servers = _servers(config, permission_server)
    # "--flag=value" and not "--flag value": these flags are variadic and would swallow what follows.
    if servers["mcpServers"]:
        args.append(f"--mcp-config={f'{SCRATCH}/{SERVERS_FILE}' if _is_secret(servers) else _json(servers)}")
    if config.strict_mcp_config:
        args.append("--strict-mcp-config")
    if config.tools is not None:
        args.append(f"--tools={','.join(config.tools)}")
    if config.allowed_tools:
        args.append(f"--allowedTools={','.join(config.allowed_tools)}")
    if config.disallowed_tools:
        args.append(f"--disallowedTools={','.join(config.disallowed_tools)}")
    args += [f"--add-dir={folder}" for folder in config.add_dirs]
    if config.settings is not None:
        args += ["--settings", config.settings if isinstance(config.settings, str) else _json(config.settings)]
    if config.setting_sources is not None:
        args.append(f"--setting-sources={','.join(config.setting_sources)}")
    return args


def _stream_args(config: ClaudeSessionConfig) -> list[str]:
    return [
        flag
        for flag, enabled in (
            ("--include-partial-messages", config.include_partial_messages),
            ("--include-hook-events", config.include_hook_events),
            ("--replay-user-messages", config.replay_user_messages),
            ("--bare", config.bare),
            ("--safe-mode", config.safe_mode),
        )
        if enabled
    ]


def _thinking(config: ClaudeSessionConfig) -> dict[str, str]:
    return {} if config.max_thinking_tokens is None else {"MAX_THINKING_TOKENS": str(config.max_thinking_tokens)}


def hook_id(event: str, matcher: int, function: int) -> str:
    """The name under which ``initialize`` registers a hook function of the config."""
    return f"{event}_{matcher}_{function}"


def initialize(config: ClaudeSessionConfig) -> ClaudeInitialize | None:
    """What must be registered before the first prompt; ``None`` when the config needs nothing of the kind."""
    hooks: dict[str, list[dict[str, Any]]] = {}
    for event, matchers in config.hooks.items():
        for at, matcher in enumerate(matchers):
            entry: dict[str, Any] = {
                "matcher": matcher.matcher,
                "hookCallbackIds": [hook_id(event, at, n) for n in range(len(matcher.hooks))],
            }
            if matcher.timeout is not None:
                # We answer at the time-out ourselves; the agent's own bound only has to lie behind it.
                entry["timeout"] = matcher.timeout + 5
            hooks.setdefault(event, []).append(entry)
    request = ClaudeInitialize(
        hooks=hooks,
        sdk_mcp_servers=tuple(config.tool_servers()),
        prompt_suggestions=config.prompt_suggestions,
        forward_subagent_text=config.forward_subagent_text,
    )
    return None if request == ClaudeInitialize() else request


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
