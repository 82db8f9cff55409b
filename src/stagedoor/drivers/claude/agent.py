"""Claude Code, driven over ``stream-json`` and its control channel. Its rights: ``unified/claude/rights.py``."""

from __future__ import annotations

import asyncio
import base64
import mimetypes
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...agents.claude import (
    Allow,
    CanUseTool,
    ClaudeClient,
    ClaudeProtocol,
    ClaudeSession,
    ClaudeSessionConfig,
    Decision,
    Deny,
    HookCallback,
    HookMatcher,
    image,
    list_sessions,
)
from ...agents.claude.client import INSTALL, SIGN_IN
from ...errors import LocalProtocolError, SessionNotFound
from ...unified import decisions
from ...unified.capabilities import Capabilities
from ...unified.decisions import Ask
from ...unified.events import Risk
from ...unified.options import McpServer, Options
from ...unified.tools import operation_of
from ..agent import Agent, ArgumentRules, Driver, Package, Presence, ScriptedSetup, StoredSession
from ..inspection import SignIn, inspected
from . import ClaudeDictionary, name_of, natives_of
from .recording import ClaudeRecordingReader
from .rights import (
    ASKED_IN_A_DRY_RUN,
    NOT_IN_A_DRY_RUN,
    THE_PLAN_IS_ALL,
    Judge,
    Rights,
    allowed_in,
    hook_output,
    rights_of,
)
from .scripted import scripted_settings
from .stored import read_stored

NAME = "claude"
TITLE = "Claude Code"
HOOK_TIMEOUT = 60.0

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
    allowed_tools=True,
    disallowed_tools=True,
    sandbox=("none", "readOnly"),
    exit_codes=True,
    diffs=True,
    cost=True,
    notes={
        "permissions": "every call that acts, by a PreToolUse hook; none when autonomous",
        "deny_message": "with interrupt the message is not delivered: the turn ends at once",
        "allowed_tools": "allowed without asking; other tools stay available under the tier's rules",
        "max_turns": "per prompt, counted by Claude Code",
        "max_budget": "over the whole process, counted by Claude Code",
        "sandbox": "Claude Code enforces nothing on a command that runs; readOnly is the dry run",
        "subagents": "their text comes whole, without deltas",
        "images": "with the first prompt of a session",
        "exit_codes": "unknown for commands in the background and for those whose code Claude Code reinterprets",
    },
)


async def open_session(prompt: str, options: Options, ask: Ask, dictionary: ClaudeDictionary) -> ClaudeSession:
    dictionary.prompted = True
    dictionary.resumed = options.resume is not None
    env = None if options.inherit_env else dict(options.env)
    client = ClaudeClient(options.cwd, options.executable, env)
    settings = config(options, ask, dictionary)
    content = await asyncio.to_thread(content_of, prompt, options.images)
    if options.resume is None:
        return await client.create_session(content, settings)
    try:
        return await client.resume_session(options.resume, content, settings)
    except SessionNotFound as missing:
        elsewhere = await asyncio.to_thread(_folder_of, options.resume, env)
        if elsewhere is None:
            raise
        belongs = f"the session {options.resume!r} belongs to {elsewhere}, not to {options.cwd}"
        raise SessionNotFound(f"{belongs}; open it with cwd={elsewhere!r}") from missing


def config(options: Options, ask: Ask, dictionary: ClaudeDictionary) -> ClaudeSessionConfig:
    """Our options in Claude Code's words."""
    rights = rights_of(options)
    allowed = allowed_in(options, rights)
    asks = rights.hook is not None or options.can_use_tool is not None
    return ClaudeSessionConfig(
        permission_mode=rights.mode,
        can_use_tool=_callback(ask, dictionary, rights) if asks else None,
        hooks=_hooks(rights, options, allowed, dictionary),
        # The user's own settings must not switch the hook off.
        settings={"disableAllHooks": False} if rights.hook is not None else None,
        model=options.model,
        system_prompt=options.system_prompt,
        append_system_prompt=options.append_system_prompt,
        max_turns=options.max_turns,
        max_budget_usd=options.max_budget_usd,
        json_schema=options.output_schema,
        allowed_tools=allowed,
        disallowed_tools=tuple(rule for name in options.disallowed_tools for rule in natives_of(name)),
        mcp_servers={name: _server(server) for name, server in options.mcp_servers.items()},
        fork_session=options.fork,
        forward_subagent_text=True,
        env=options.env if options.inherit_env else {},
        extra_args=options.extra_args,
        stall_after=options.stall_after,
    )


def _callback(ask: Ask, dictionary: ClaudeDictionary, rights: Rights) -> Any:
    async def decide(asked: CanUseTool) -> Decision:
        if rights.hook == "deny_acts" and asked.tool_name not in ASKED_IN_A_DRY_RUN:
            dictionary.refuse(asked.tool_use_id)
            return Deny(THE_PLAN_IS_ALL if asked.tool_name == "ExitPlanMode" else NOT_IN_A_DRY_RUN)
        decision = await ask(dictionary.request(asked))
        match decision:
            case decisions.Allow():
                # What was remembered, the session remembers: rules of Claude Code's own would outlive it.
                return Allow(decision.updated_input)
            case decisions.Deny():
                return Deny(decision.message or Deny().message, interrupt=decision.interrupt)

    return decide


def _hooks(
    rights: Rights, options: Options, allowed: tuple[str, ...], dictionary: ClaudeDictionary
) -> dict[str, Sequence[HookMatcher]]:
    if rights.hook is None:
        return {}

    def risk(tool: str, given: Mapping[str, Any]) -> Risk:
        from ...permissions.risk import judge  # the shell parser is not worth loading before there is a call to judge

        name = name_of(tool)
        return judge(name, operation_of(name), given, cwd=options.cwd).risk

    rules = Judge(rights.hook, risk, allowed, _is_policed(options))

    async def before_tool(call: HookCallback) -> Mapping[str, Any]:
        verdict = rules.judge(str(call.input.get("tool_name", "")), call.input.get("tool_input") or {})
        if verdict == "deny":
            dictionary.refuse(str(call.input.get("tool_use_id") or call.tool_use_id))
        return hook_output(verdict, NOT_IN_A_DRY_RUN if verdict == "deny" else "")

    return {"PreToolUse": [HookMatcher([before_tool], timeout=HOOK_TIMEOUT)]}


def _is_policed(options: Options) -> bool:
    """Whether the caller has rules of its own, beside those that the tier and the modes mean."""
    if options.policy is None:
        return False
    from ...permissions.modes import built_in

    meant = built_in(tier=options.tier, approval=options.approval, sandbox=options.sandbox)
    return bool(options.policy != meant)


def _server(server: McpServer) -> dict[str, Any]:
    if server.transport == "stdio":
        return {"type": "stdio", "command": server.command, "args": list(server.args), "env": dict(server.env)}
    return {"type": server.transport, "url": server.url, "headers": dict(server.headers)}


def content_of(prompt: str, images: tuple[str, ...]) -> str | list[dict[str, Any]]:
    """The prompt, with pictures as blocks before it. A picture is a path, or a ``data:`` address with base64."""
    if not images:
        return prompt
    return [*map(_picture, images), {"type": "text", "text": prompt}]


def _picture(source: str) -> dict[str, Any]:
    if source.startswith("data:"):
        head, _, content = source.partition(",")
        return image(content, head.removeprefix("data:").split(";", 1)[0] or "image/png")
    path = Path(source)
    kind = mimetypes.guess_type(path.name)[0] or ""
    if not kind.startswith("image/"):
        raise LocalProtocolError(f"{source!r} is no picture by its name; Claude Code takes png, jpeg, gif and webp")
    try:
        return image(base64.b64encode(path.read_bytes()).decode(), kind)
    except OSError as error:
        raise LocalProtocolError(f"the picture {source!r} cannot be read: {error.strerror}; correct images=") from error


def _folder_of(session_id: str, env: Mapping[str, str] | None) -> str | None:
    return next((one.cwd for one in list_sessions(None, env=env).sessions if one.session_id == session_id), None)


def list_stored(cwd: str, env: Mapping[str, str] | None) -> Iterable[StoredSession]:
    return [
        StoredSession(
            agent=NAME,
            session_id=one.session_id,
            cwd=one.cwd or cwd,
            title=one.title,
            first_prompt=one.first_prompt or "",
            messages=one.message_count,
            model=one.model or "",
            branch=one.git_branch or "",
            started_ms=one.started_ms or 0,
            updated_ms=one.updated_ms,
            tokens=one.tokens,
            cost_usd=one.cost_usd,
            path=one.path,
        )
        for one in list_sessions(cwd, env=env).sessions
    ]


async def inspect(env: Mapping[str, str] | None) -> Presence:
    client = ClaudeClient(Path.cwd(), env=env)

    async def sign_in() -> SignIn:
        if (await client.auth_status()).logged_in:
            return True, "", ""
        return False, f"{TITLE} has no credentials", SIGN_IN

    return await inspected(AGENT, client.find_executable, client.check_version, sign_in)


AGENT = Agent(
    name=NAME,
    title=TITLE,
    install=INSTALL,
    drivers={
        "stream": Driver(
            "stream", CAPABILITIES, ClaudeDictionary, ClaudeProtocol, open_session, (CanUseTool,), ClaudeRecordingReader
        )
    },
    choose_driver=lambda options: "stream",
    list_stored=list_stored,
    read_stored=read_stored,
    inspect=inspect,
    tools=("Read", "Write", "Edit", "Bash", "Glob", "Grep", "WebFetch", "WebSearch"),
    arguments=ArgumentRules(
        reserved={
            "-p": 0,
            "--print": 0,
            "--verbose": 0,
            "--output-format": 1,
            "--input-format": 1,
            "--include-partial-messages": 0,
            "--replay-user-messages": 0,
            "--permission-prompt-tool": 1,
        },
        replaced={
            "--dangerously-skip-permissions": "skip_permissions: true",
            "--permission-mode": "tier or approval",
            "--model": "model",
        },
    ),
    package=Package("@anthropic-ai/claude-code", "2.1.197"),
    scripted=ScriptedSetup("claude-sonnet-4-5", scripted_settings),
)
