"""Any agent that speaks the Agent Client Protocol, version 1.

client = AcpClient(["some-agent", "--acp"], cwd=".")
async with await client.create_session("Fix the login bug", AcpConfig(request_permission=ask)) as session:
    async for event in session.events:
        match event:
            case SessionUpdate(update=AgentMessageChunk(text=text)):
                print(text, end="")
            case PromptResponse(stop_reason=why):
                break
"""

from .client import AcpClient
from .commands import (
    AnswerElicitation,
    AnswerPermissionRequest,
    AnswerRequest,
    AuthenticateRequest,
    CancelNotification,
    ClientCapabilities,
    CloseSessionRequest,
    Command,
    DeleteSessionRequest,
    ForkSessionRequest,
    HttpHeader,
    InitializeRequest,
    ListSessionsRequest,
    LoadSessionRequest,
    McpServer,
    McpServerHttp,
    McpServerSse,
    McpServerStdio,
    NewSessionRequest,
    PromptRequest,
    RefuseRequest,
    ResumeSessionRequest,
    SetSessionConfigOptionRequest,
    SetSessionModelRequest,
    SetSessionModeRequest,
)
from .config import AcpConfig, AcpProfile, AskPermission, Elicit, PermissionAnswer
from .events import (
    CompleteElicitation,
    Event,
    ExtensionNotification,
    RequestDeclined,
    RequestFailed,
    RequestWithdrawn,
    Unanswered,
    session_of,
)
from .launch import launch
from .protocol import PROTOCOL_VERSION, AcpProtocol
from .requests import (
    AgentRequest,
    CreateElicitation,
    CreateTerminal,
    EnvVariable,
    KillTerminal,
    PermissionKind,
    PermissionOption,
    ReadTextFile,
    ReleaseTerminal,
    RequestPermission,
    TerminalOutput,
    WaitForTerminalExit,
    WriteTextFile,
)
from .responses import (
    AcpUsage,
    AgentCapabilities,
    AuthenticateResponse,
    AuthMethod,
    CloseSessionResponse,
    ConfigChoice,
    ConfigOption,
    DeleteSessionResponse,
    ForkSessionResponse,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptResponse,
    ResumeSessionResponse,
    SessionListing,
    SessionMode,
    SessionModelState,
    SessionModeState,
    SetSessionConfigOptionResponse,
    SetSessionModelResponse,
    SetSessionModeResponse,
    UntypedResponse,
)
from .session import AcpSession
from .updates import (
    AcpPlan,
    AcpToolCall,
    AgentMessageChunk,
    AgentThoughtChunk,
    AudioContent,
    AvailableCommand,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    Content,
    ContentBlock,
    Cost,
    CurrentModeUpdate,
    DiffContent,
    EmbeddedResource,
    ImageContent,
    PlanEntry,
    PlanRemoved,
    PlanUpdate,
    Resource,
    ResourceLink,
    SessionInfoUpdate,
    SessionUpdate,
    TerminalContent,
    TextContent,
    ToolCallContent,
    ToolCallLocation,
    ToolCallUpdate,
    UsageUpdate,
    UserMessageChunk,
)

__all__ = [
    "PROTOCOL_VERSION", "AcpClient", "AcpConfig", "AcpPlan", "AcpProfile", "AcpProtocol", "AcpSession", "AcpToolCall",
    "AcpUsage", "AgentCapabilities", "AgentMessageChunk", "AgentRequest", "AgentThoughtChunk", "AnswerElicitation",
    "AnswerPermissionRequest", "AnswerRequest", "AskPermission", "AudioContent", "AuthMethod", "AuthenticateRequest",
    "AuthenticateResponse", "AvailableCommand", "AvailableCommandsUpdate", "CancelNotification", "ClientCapabilities",
    "CloseSessionRequest", "CloseSessionResponse", "Command", "CompleteElicitation", "ConfigChoice", "ConfigOption",
    "ConfigOptionUpdate", "Content", "ContentBlock", "Cost", "CreateElicitation", "CreateTerminal", "CurrentModeUpdate",
    "DeleteSessionRequest", "DeleteSessionResponse", "DiffContent", "Elicit", "EmbeddedResource", "EnvVariable",
    "Event", "ExtensionNotification", "ForkSessionRequest", "ForkSessionResponse", "HttpHeader", "ImageContent",
    "InitializeRequest", "InitializeResponse", "KillTerminal", "ListSessionsRequest", "ListSessionsResponse",
    "LoadSessionRequest", "LoadSessionResponse", "McpServer", "McpServerHttp", "McpServerSse", "McpServerStdio",
    "NewSessionRequest", "NewSessionResponse", "PermissionAnswer", "PermissionKind", "PermissionOption", "PlanEntry",
    "PlanRemoved", "PlanUpdate", "PromptRequest", "PromptResponse", "ReadTextFile", "RefuseRequest", "ReleaseTerminal",
    "RequestDeclined", "RequestFailed", "RequestPermission", "RequestWithdrawn", "Resource", "ResourceLink",
    "ResumeSessionRequest", "ResumeSessionResponse", "SessionInfoUpdate", "SessionListing", "SessionMode",
    "SessionModeState", "SessionModelState", "SessionUpdate", "SetSessionConfigOptionRequest",
    "SetSessionConfigOptionResponse", "SetSessionModeRequest", "SetSessionModeResponse", "SetSessionModelRequest",
    "SetSessionModelResponse", "TerminalContent", "TerminalOutput", "TextContent", "ToolCallContent",
    "ToolCallLocation", "ToolCallUpdate", "Unanswered", "UntypedResponse", "UsageUpdate", "UserMessageChunk",
    "WaitForTerminalExit", "WriteTextFile", "launch", "session_of",
]  # fmt: skip
