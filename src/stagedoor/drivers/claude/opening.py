"""Start or resume Claude Code with our options in its words: mode, hook, callback, tools, pictures."""

from __future__ import annotations

import asyncio
import base64
import mimetypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from ...agents.claude.client import ClaudeClient
from ...agents.claude.commands import Decision, PermissionResultAllow, PermissionResultDeny, image
from ...agents.claude.config import ClaudeSessionConfig, Effort, ElicitCallback, HookMatcher
from ...agents.claude.events import CanUseTool, Elicitation, HookCallback
from ...agents.claude.history import list_sessions
from ...agents.claude.session import ClaudeSession
from ...errors import LocalProtocolError, NotSupported, SessionNotFound
from ...mcp.functions import HOST
from ...permissions.ground import ground_of
from ...unified.decisions import Allow, Ask, Deny
from ...unified.events import Risk
from ...unified.options import FunctionServer, McpServer, Options
from ...unified.tool_lists import MCP, ToolLists, tool_lists
from ...unified.tools import operation_of
from ..confinement import confinement_of
from ..policing import is_policed
from .dictionary import ClaudeDictionary
from .rights import (
    EDITING,
    NOT_IN_A_DRY_RUN,
    QUESTIONS_IN_A_DRY_RUN,
    SANDBOX,
    STAYS_INSIDE,
    THE_PLAN_IS_ALL,
    HookJudge,
    Rights,
    hook_output,
    is_sandboxed,
    rights_of,
)
from .state import state_of
from .tools import TITLE, TOOLS, name_of
from .trust import PROJECT_PATHS, with_trust

HOOK_TIMEOUT = 60.0


def client_of(options: Options) -> ClaudeClient:
    return ClaudeClient(options.cwd, options.executable, None if options.inherit_env else dict(options.env))


async def open_session(prompt: str, options: Options, ask: Ask, dictionary: ClaudeDictionary) -> ClaudeSession:
    dictionary.prompted = True
    dictionary.resumed = options.resume is not None
    client = client_of(options)
    settings = config(options, ask, dictionary)
    content = await asyncio.to_thread(content_of, prompt, options.images)
    if options.resume is None:
        return await client.create_session(content, settings)
    try:
        return await client.resume_session(options.resume, content, settings)
    except SessionNotFound as missing:
        elsewhere = await asyncio.to_thread(_folder_of, options.resume, None if options.inherit_env else options.env)
        if elsewhere is None:
            raise
        message = (
            f"session {options.resume!r} belongs to {elsewhere}, not to {options.cwd}: open it with cwd={elsewhere!r}"
        )
        raise SessionNotFound(message) from missing


async def models_of(session: ClaudeSession) -> list[str]:
    return await session.models()


def effort_of(options: Options) -> Effort | None:
    efforts: dict[str, Effort] = {one: one for one in get_args(Effort)}
    effort = efforts.get(options.effort or "")
    if options.effort is not None and effort is None:
        raise NotSupported(f"effort={options.effort!r}: Claude Code knows {', '.join(efforts)}")
    return effort


def check(options: Options) -> None:
    effort_of(options)


def config(options: Options, ask: Ask, dictionary: ClaudeDictionary) -> ClaudeSessionConfig:
    """Our options in Claude Code's words."""
    rights = rights_of(options)
    lists = tool_lists(options, TOOLS, agent=TITLE)
    hooked = rights.hook is not None or lists.limits or is_sandboxed(options)
    asks = rights.hook is not None or options.can_use_tool is not None
    free = rights.hook is None and not lists.limits and options.policy is None
    own = ClaudeSessionConfig(
        permission_mode=rights.mode,
        can_use_tool=_callback(ask, dictionary, rights, free=free) if asks else None,
        elicit=_elicit(ask, dictionary),
        hooks=_hooks(rights, options, lists, dictionary) if hooked else {},
        settings=_settings(options) if hooked else None,
        model=options.model,
        effort=effort_of(options),
        system_prompt=options.system_prompt,
        append_system_prompt=options.append_system_prompt,
        max_turns=options.max_turns,
        max_budget_usd=options.max_budget_usd,
        output_schema=options.output_schema,
        # Never its --allowedTools: that is a grant, which no question, policy or audit comes before.
        tools=None if lists.allowed is None else [tool.name for tool in lists.offered],
        disallowed_tools=_withheld(lists),
        mcp_servers={
            name: _server(server) for name, server in options.mcp_servers.items() if lists.permits_server(name)
        },
        awaited_servers=(HOST,) if isinstance(options.mcp_servers.get(HOST), FunctionServer) else (),
        strict_mcp_config=not lists.permits_servers,
        fork_session=options.fork,
        forward_subagent_text=True,
        env=options.env if options.inherit_env else {},
        extra_args=options.extra_args,
        confinement=confinement_of(options, state_of, PROJECT_PATHS, own_sandbox=True),
        stall_after=options.stall_after,
    )
    return with_trust(own, options)


def _settings(options: Options) -> dict[str, Any]:
    """The user's own settings must not switch the hook off."""
    return {"disableAllHooks": False, **({"sandbox": SANDBOX} if is_sandboxed(options) else {})}


def _elicit(ask: Ask, dictionary: ClaudeDictionary) -> ElicitCallback:
    dictionary.asks_for_servers = True

    async def fill_in(question: Elicitation) -> Mapping[str, Any] | None:
        decision = await ask(dictionary.elicitation(question))
        if not isinstance(decision, Allow):
            return None
        content: object = (decision.updated_input or {}).get("content", {})
        return cast("Mapping[str, Any]", content) if isinstance(content, Mapping) else None

    return fill_in


def _callback(ask: Ask, dictionary: ClaudeDictionary, rights: Rights, *, free: bool) -> Any:
    """``free``: this session asks nobody about what acts. Some versions ask about a few commands even then."""

    async def decide(question: CanUseTool) -> Decision:
        if rights.hook == "deny_acts" and question.tool_name not in QUESTIONS_IN_A_DRY_RUN:
            dictionary.refuse(question.tool_use_id)
            return PermissionResultDeny(THE_PLAN_IS_ALL if question.tool_name == "ExitPlanMode" else NOT_IN_A_DRY_RUN)
        request = dictionary.request(question)
        if free and request.operation != "other":
            return PermissionResultAllow()
        decision = await ask(request)
        match decision:
            case Allow():
                # What was remembered, the session remembers: rules of Claude Code's own would outlive it.
                return PermissionResultAllow(decision.updated_input)
            case Deny():
                message = decision.message or PermissionResultDeny().message
                return PermissionResultDeny(message, interrupt=decision.interrupt)

    return decide


def _withheld(lists: ToolLists) -> tuple[str, ...]:
    """What is taken from the model's list by name; with ``allowed_tools`` its own tools already are."""
    own = () if lists.allowed is not None else tuple(tool.name for tool in lists.withheld)
    servers = (MCP.format(server=one.server, tool=one.tool).removesuffix("__") for one in lists.denied.servers)
    return (*own, *servers)


def _hooks(
    rights: Rights, options: Options, lists: ToolLists, dictionary: ClaudeDictionary
) -> dict[str, Sequence[HookMatcher]]:
    sandboxed = is_sandboxed(options)

    def risk(tool: str, arguments: Mapping[str, Any]) -> Risk:
        from ...permissions.risk.judge import (
            judge,  # the shell parser is not worth loading before there is a call to judge
        )

        name = name_of(tool)
        return judge(name, operation_of(name), arguments, cwd=ground_of(options)).risk

    readers = frozenset(MCP.format(server=HOST, tool=tool.name) for tool in options.tools if tool.reads)
    rules = HookJudge(rights.hook, risk, is_policed(options), lists, readers)

    async def before_tool(call: HookCallback) -> Mapping[str, Any]:
        tool = str(call.input.get("tool_name", ""))
        arguments: Mapping[str, Any] = call.input.get("tool_input") or {}
        if sandboxed and tool in EDITING and not _is_inside(arguments, options.cwd):
            dictionary.refuse(str(call.input.get("tool_use_id") or call.tool_use_id))
            return hook_output("deny", STAYS_INSIDE)
        verdict = rules.judge(tool, arguments)
        if verdict == "deny":
            dictionary.refuse(str(call.input.get("tool_use_id") or call.tool_use_id))
        if rules.is_unlisted(tool):
            return hook_output("deny", f"{tool} is not among the tools of this session.")
        return hook_output(verdict, NOT_IN_A_DRY_RUN if verdict == "deny" else "")

    return {"PreToolUse": [HookMatcher([before_tool], timeout=HOOK_TIMEOUT)]}


def _is_inside(arguments: Mapping[str, Any], cwd: str) -> bool:
    """Whether an edit stays in the workspace, links followed."""
    path = arguments.get("file_path", arguments.get("notebook_path"))
    place = Path(cwd, path).resolve() if isinstance(path, str) else None
    return place is not None and place.is_relative_to(Path(cwd).resolve())


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
        raise LocalProtocolError(f"{source!r} is not a picture by its name; use png, jpeg, gif or webp")
    try:
        return image(base64.b64encode(path.read_bytes()).decode(), kind)
    except OSError as error:
        raise LocalProtocolError(f"cannot read the picture {source!r}: {error.strerror}; correct images=") from error


def _folder_of(session_id: str, env: Mapping[str, str] | None) -> str | None:
    sessions = list_sessions(None, env=env).sessions
    return next((session.cwd for session in sessions if session.session_id == session_id), None)
