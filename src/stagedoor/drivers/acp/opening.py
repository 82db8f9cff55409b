"""What every driver that speaks the Agent Client Protocol shares: our options in the protocol's words."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import sys
import weakref
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from ...agents.acp import AcpClient, AcpSession
from ...agents.acp.commands import ClientCapabilities, McpServer, McpServerHttp, McpServerSse, McpServerStdio
from ...agents.acp.config import AcpProfile, AcpSessionConfig, AskPermission, PermissionAnswer
from ...agents.acp.requests import CreateElicitation, EnvVariable, RequestPermission
from ...agents.acp.updates import ImageContent, KnownBlock, TextContent
from ...errors import LaunchError, NotSupported
from ...mcp import bridge
from ...mcp.functions import HOST
from ...permissions.ground import is_free_edit
from ...transports.launch import Launch
from ...unified.capabilities import Capabilities
from ...unified.decisions import Allow, Ask, Deny
from ...unified.options import FunctionServer, HostedOptions, Options
from ...unified.options import McpServer as Server
from .dictionary import AcpDictionary
from .questions import AcpQuestions, answer_to
from .serving import ServedCalls

LISTING_SECONDS = 30.0
CAPABILITIES = Capabilities(
    text_deltas=True,
    thinking=True,
    plan=True,
    mcp_servers=True,
    permissions="some",
    deny_message=False,
    remember_session=True,
    interrupt=True,
    resume=True,
    fork=True,
    diffs=True,
    dry_run=False,
    supervised=False,
    notes={
        "supervised": "over the protocol an agent decides itself what it asks about",
        "permissions": "the agent decides what it asks about",
        "edit_input": "the protocol has no way to change a call's input",
        "fork": "where the agent offers it",
        "tool_list": "where the agent names them in `_meta.tools` of its answer to session/new; most do not",
    },
)

KNOWN_PROGRAM = replace(
    CAPABILITIES,
    permissions="all",
    fork=False,
    allowed_tools=True,
    disallowed_tools=True,
    dry_run=True,
    supervised=True,
    confine=True,
    exit_codes=True,
    sandbox=("none", "readOnly", "workspaceWrite", "fullAccess"),
    notes={
        "tool_list": "the CLI does not tell which tools the model is offered",
        "edit_input": "the protocol has no way to change a call's input; an edited call is refused",
        "cost": "the CLI reports tokens, not cost",
        "max_budget": "the CLI reports tokens, not cost",
    },
)
"""What holds of every CLI that we start over the protocol ourselves, with settings that make it ask."""


def config(
    options: Options,
    ask: Ask,
    dictionary: AcpDictionary,
    *,
    mode: str | None = None,
    edits: bool = False,
    free: bool = False,
    serve: bool = False,
    waits: float = 0.0,
) -> AcpSessionConfig:
    """Our options in the protocol's words. ``mode`` is the agent's own name for the tier. ``edits``: the agent asks
    about them so that we see them, and those that need no question are allowed at once; ``free``: all are. ``serve``:
    what it asks us to read, write and run is decided by the same rules. ``waits``: so many seconds at most for an agent
    that begins a turn before it knows the tools of its servers."""
    functions = functions_of(options)

    dictionary.serves = serve
    dictionary.model = options.model or ""
    served = ServedCalls(options, ask, dictionary.served_call, edits=edits, free=free, turn_of=lambda: dictionary.turns)

    async def decide(question: RequestPermission) -> PermissionAnswer:
        request = dictionary.request(question)
        if request.tool_name == "question":
            decision = await ask(request)
            return None if isinstance(decision, Deny) and decision.interrupt else answer_to(question, decision)
        if free or (edits and is_free_edit(request, options)):
            served.grant(request, question.session_id)
            return "allow_once"
        decision = await ask(request)
        if isinstance(decision, Allow):
            served.grant(request, question.session_id)
            return "allow_once"  # we remember: what the agent remembered it would no longer ask about, nor we record
        return None if decision.interrupt else "reject_once"

    async def elicit(question: CreateElicitation) -> Mapping[str, Any] | None:
        match await ask(dictionary.request(question)):
            case Allow(updated_input=filled):
                content: object = (filled or {}).get("content", {})
                return cast("Mapping[str, Any]", content) if isinstance(content, Mapping) else None
            case Deny():
                return None

    return AcpSessionConfig(
        mcp_servers=tuple(_server(name, server) for name, server in options.mcp_servers.items()),
        over_pipes=_bridges(functions),
        ready=None if functions is None or not waits else partial(functions.listed, waits),
        mode=mode,
        model=options.model,
        effort=options.effort,
        can_use_tool=decide,
        elicit=elicit,
        authorize=served.authorize if serve else None,
        host=options.host if serve and isinstance(options, HostedOptions) else None,
    )


def prompt_blocks(prompt: str, options: Options) -> str | list[KnownBlock]:
    """The first prompt with the images of the options. It reads their files."""
    if not options.images:
        return prompt
    return [TextContent(prompt), *(image_block(options.cwd, name) for name in options.images)]


def image_block(cwd: str, name: str) -> ImageContent:
    """An image by the path of its file, or by a ``data:`` URL with base64."""
    if name.startswith("data:"):
        kind, mark, content = name.removeprefix("data:").partition(";base64,")
        try:
            base64.b64decode(content, validate=True)
        except binascii.Error:
            mark = ""
        if not mark or not kind.startswith("image/"):
            raise NotSupported(f"{name[:40]!r} is not an image: write data:image/png;base64, and the image in base64")
        return ImageContent(content, kind)
    kind = mimetypes.guess_type(name)[0] or ""
    if not kind.startswith("image/"):
        raise NotSupported(f"{name!r} is not an image: name a file that ends in .png, .jpg, .webp or .gif")
    try:
        content_of_file = (Path(cwd) / name).read_bytes()
    except OSError as error:
        raise LaunchError(f"cannot read the image {name!r}: {error.strerror}") from None
    return ImageContent(base64.b64encode(content_of_file).decode(), kind)


def _server(name: str, server: Server) -> McpServer:
    headers = [{"name": key, "value": value} for key, value in server.headers.items()]
    match server.transport:
        case "http":
            return msgspec.convert({"type": "http", "name": name, "url": server.url, "headers": headers}, McpServerHttp)
        case "sse":
            return msgspec.convert({"type": "sse", "name": name, "url": server.url, "headers": headers}, McpServerSse)
        case _:
            env = tuple(EnvVariable(key, value) for key, value in server.env.items())
            return McpServerStdio(name=name, command=server.command, args=tuple(server.args), env=env)


def _bridges(server: FunctionServer | None) -> dict[str, McpServerStdio]:
    """A program of ours that carries the protocol from its pipes to our own server. Isolated: it runs in the workspace,
    from which it must import nothing."""
    if server is None:
        return {}
    env = (EnvVariable(bridge.SECRET, server.headers["Authorization"]),)
    return {HOST: McpServerStdio(name=HOST, command=sys.executable, args=("-I", bridge.__file__, server.url), env=env)}


def functions_of(options: Options) -> FunctionServer | None:
    """The server of the caller's own functions, where there are any."""
    server = options.mcp_servers.get(HOST)
    return server if isinstance(server, FunctionServer) else None


async def open_launched(
    start: Launch,
    prompt: str,
    options: Options,
    settings: AcpSessionConfig,
    questions: AcpQuestions,
    *,
    offered: ClientCapabilities | None = None,
    profile: AcpProfile | None = None,
    decide: AskPermission | None = None,
) -> AcpSession:
    """Start or resume a session of an agent that we know by name, with a launch of its own; ``questions`` learns of it.
    ``decide``: who answers in its place."""
    env = None if options.inherit_env else dict(options.env)
    if options.inherit_env:
        start = replace(start, env={**options.env, **start.env})
    client = AcpClient(
        start,
        options.cwd,
        env,
        capabilities=offered if start.confinement is None else None,
        profile=profile,
        quiet=options.stall_after,
    )
    settings = replace(settings, can_use_tool=decide or questions.decide)
    blocks = prompt_blocks(prompt, options)
    if options.resume is None:
        session = await client.create_session(blocks, settings)
    elif options.fork:
        session = await client.fork_session(options.resume, blocks, settings)
    else:
        session = await client.resume_session(options.resume, blocks, settings)
    questions.session.set_result(weakref.ref(session))
    return session
