"""What a caller can send to an agent that speaks the Agent Client Protocol, by the names of the protocol's schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from stagedoor.wire.jsonrpc import Id

from .requests import EnvVariable, PermissionKind
from .updates import KnownBlock


class McpServerStdio(msgspec.Struct, frozen=True):
    """An MCP server the agent starts."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[EnvVariable, ...] = ()


class HttpHeader(msgspec.Struct, frozen=True):
    name: str
    value: str


class McpServerHttp(msgspec.Struct, frozen=True, tag_field="type", tag="http"):
    name: str
    url: str
    headers: tuple[HttpHeader, ...] = ()


class McpServerSse(msgspec.Struct, frozen=True, tag_field="type", tag="sse"):
    name: str
    url: str
    headers: tuple[HttpHeader, ...] = ()


McpServer: TypeAlias = McpServerStdio | McpServerHttp | McpServerSse


class ClientCapabilities(msgspec.Struct, frozen=True):
    """What we offer the agent. Nothing by default: most agents do better with their own tools."""

    read_files: bool = False
    write_files: bool = False
    terminals: bool = False
    elicitation_forms: bool = False
    elicitation_urls: bool = False

    def members(self) -> dict[str, Any]:
        """As ``initialize`` sends it."""
        offered: dict[str, Any] = {
            "fs": {"readTextFile": self.read_files, "writeTextFile": self.write_files},
            "terminal": self.terminals,
        }
        elicitation: dict[str, dict[str, Any]] = {}
        if self.elicitation_forms:
            elicitation["form"] = {}
        if self.elicitation_urls:
            elicitation["url"] = {}
        if elicitation:
            offered["elicitation"] = elicitation
        return offered


# ---------------------------------------------------------------------------------------- requests, answered by number


class InitializeRequest(msgspec.Struct, frozen=True):
    """Always the first. What we offer is given to the protocol, which has to act on it."""

    client_name: str = "stagedoor"
    client_version: str = "0"


class AuthenticateRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Sign in by one of the agent's methods. Some agents write that into the user's own settings."""

    method_id: str
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


class NewSessionRequest(msgspec.Struct, frozen=True, rename="camel"):
    cwd: str
    mcp_servers: tuple[McpServer, ...] = ()
    additional_directories: tuple[str, ...] | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


class LoadSessionRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Open a stored session; the agent replays it."""

    session_id: str
    cwd: str
    mcp_servers: tuple[McpServer, ...] = ()
    additional_directories: tuple[str, ...] | UnsetType = UNSET


class ResumeSessionRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Open a stored session without a replay."""

    session_id: str
    cwd: str
    mcp_servers: tuple[McpServer, ...] = ()
    additional_directories: tuple[str, ...] | UnsetType = UNSET


class ForkSessionRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Continue from a copy of a session."""

    session_id: str
    cwd: str
    mcp_servers: tuple[McpServer, ...] = ()
    additional_directories: tuple[str, ...] | UnsetType = UNSET


class ListSessionsRequest(msgspec.Struct, frozen=True, rename="camel"):
    cwd: str | UnsetType = UNSET
    cursor: str | UnsetType = UNSET


class CloseSessionRequest(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str


class DeleteSessionRequest(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str


class SetSessionModeRequest(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    mode_id: str


class SetSessionModelRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Not in the published schema, but in use; agents without it have a ``model`` config option."""

    session_id: str
    model_id: str


class SetSessionConfigOptionRequest(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    config_id: str
    value: str | bool


class PromptRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Start a turn."""

    session_id: str
    prompt: tuple[KnownBlock, ...]


class ListToolsRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Which tools the model is offered. The protocol has no method for it; ``method`` is the agent's own."""

    method: str
    session_id: str
    cwd: str


Call: TypeAlias = (
    InitializeRequest
    | AuthenticateRequest
    | NewSessionRequest
    | LoadSessionRequest
    | ResumeSessionRequest
    | ForkSessionRequest
    | ListSessionsRequest
    | CloseSessionRequest
    | DeleteSessionRequest
    | SetSessionModeRequest
    | SetSessionModelRequest
    | SetSessionConfigOptionRequest
    | PromptRequest
    | ListToolsRequest
)

METHODS: dict[type[Call], str] = {
    InitializeRequest: "initialize",
    AuthenticateRequest: "authenticate",
    NewSessionRequest: "session/new",
    LoadSessionRequest: "session/load",
    ResumeSessionRequest: "session/resume",
    ForkSessionRequest: "session/fork",
    ListSessionsRequest: "session/list",
    CloseSessionRequest: "session/close",
    DeleteSessionRequest: "session/delete",
    SetSessionModeRequest: "session/set_mode",
    SetSessionModelRequest: "session/set_model",
    SetSessionConfigOptionRequest: "session/set_config_option",
    PromptRequest: "session/prompt",
}

# -------------------------------------------------------------------------------------------- notices and answers


class CancelNotification(msgspec.Struct, frozen=True):
    """End the running turn of this session; every open question of it is answered ``cancelled``."""

    session_id: str


class CancelRequest(msgspec.Struct, frozen=True, rename="camel"):
    """We no longer want the answer to a request of ours. Agents that do not know this ignore it."""

    request_id: Id


class AnswerPermissionRequest(msgspec.Struct, frozen=True):
    """Answer by kind, or by the id of an option; neither means ``cancelled``."""

    request_id: Id
    kind: PermissionKind | None = None
    option_id: str | None = None
    answers: Mapping[str, str] | None = None
    """To the agent's own questions, beside the outcome."""


class AnswerElicitation(msgspec.Struct, frozen=True):
    request_id: Id
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class AnswerRequest(msgspec.Struct, frozen=True):
    """The result of a file or terminal request."""

    request_id: Id
    result: dict[str, Any]


class RefuseRequest(msgspec.Struct, frozen=True):
    """Answer a request with an error."""

    request_id: Id
    message: str
    code: int = -32603


Command: TypeAlias = (
    Call
    | CancelNotification
    | CancelRequest
    | AnswerPermissionRequest
    | AnswerElicitation
    | AnswerRequest
    | RefuseRequest
)
