"""Who offers what: an agent's capabilities against our commands, ours against its requests."""

from __future__ import annotations

from .commands import (
    Call,
    ClientCapabilities,
    CloseSession,
    DeleteSession,
    ForkSession,
    ListSessions,
    LoadSession,
    McpServerHttp,
    McpServerSse,
    NewSession,
    Prompt,
    ResumeSession,
)
from .content import AudioContent, EmbeddedResource, ImageContent
from .requests import AgentRequest, CreateElicitation, ReadTextFile, RequestPermission, WriteTextFile
from .responses import InitializeResponse


def offers(capabilities: ClientCapabilities, question: AgentRequest) -> bool:
    """Whether we told the agent that it may ask this."""
    match question:
        case RequestPermission():
            return True
        case ReadTextFile():
            return capabilities.read_files
        case WriteTextFile():
            return capabilities.write_files
        case CreateElicitation(mode="form"):
            return capabilities.elicitation_forms
        case CreateElicitation():
            return capabilities.elicitation_urls
        case _:
            return capabilities.terminals


def lacking(command: Call, agent: InitializeResponse) -> str:
    """What this command needs and the agent has not declared; empty when it can be sent."""
    capabilities = agent.capabilities
    session = capabilities.session
    match command:
        case LoadSession() if not capabilities.load_session:
            return "loading a stored session"
        case ResumeSession() if session.resume is None:
            return "resuming a session"
        case ForkSession() if session.fork is None:
            return "forking a session"
        case ListSessions() if session.list is None:
            return "a list of its sessions"
        case CloseSession() if session.close is None:
            return "closing a session"
        case DeleteSession() if session.delete is None:
            return "deleting a session"
        case Prompt(prompt=blocks):
            return _unreadable(blocks, agent)
        case _:
            pass
    if isinstance(command, NewSession | LoadSession | ResumeSession | ForkSession):
        if any(isinstance(server, McpServerHttp) for server in command.mcp_servers) and not capabilities.mcp.http:
            return "MCP servers over HTTP"
        if any(isinstance(server, McpServerSse) for server in command.mcp_servers) and not capabilities.mcp.sse:
            return "MCP servers over SSE"
    return ""


def _unreadable(blocks: tuple[object, ...], agent: InitializeResponse) -> str:
    readable = agent.capabilities.prompt
    for block in blocks:
        match block:
            case ImageContent() if not readable.image:
                return "images in a prompt"
            case AudioContent() if not readable.audio:
                return "audio in a prompt"
            case EmbeddedResource() if not readable.embedded_context:
                return "embedded resources in a prompt"
            case _:
                pass
    return ""
