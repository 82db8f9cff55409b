"""What the methods of an agent take, as the protocol writes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

SessionId: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class InitializeParams(msgspec.Struct, frozen=True, rename="camel"):
    protocol_version: int
    client_capabilities: dict[str, Any] | None = None
    client_info: dict[str, Any] | None = None


class NamedValue(msgspec.Struct, frozen=True):
    """An environment variable or an HTTP header."""

    name: str
    value: str


class McpServerParams(msgspec.Struct, frozen=True):
    """A server of the Model Context Protocol: a ``command``, or with a ``type`` a ``url``."""

    name: str
    type: Literal["stdio", "http", "sse"] = "stdio"
    command: str = ""
    args: list[str] = []
    env: list[NamedValue] = []
    url: str = ""
    headers: list[NamedValue] = []


class NewSessionParams(msgspec.Struct, frozen=True, rename="camel"):
    cwd: str
    additional_directories: list[str] | None = None
    mcp_servers: list[McpServerParams] | None = None


class OpenSessionParams(msgspec.Struct, frozen=True, rename="camel"):
    """``session/load``, ``resume`` and ``fork``."""

    session_id: SessionId
    cwd: str
    additional_directories: list[str] | None = None
    mcp_servers: list[McpServerParams] | None = None


class ListSessionsParams(msgspec.Struct, frozen=True):
    cwd: str | None = None
    cursor: str | None = None


class SessionIdParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: SessionId


class EnvironmentParams(msgspec.Struct, frozen=True):
    """Of ``_stagedoor/environment``: that of the program which the editor has started."""

    env: dict[str, str]


class AuthenticateParams(msgspec.Struct, frozen=True, rename="camel"):
    method_id: str


class LogoutParams(msgspec.Struct, frozen=True):
    pass


class SetModeParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: SessionId
    mode_id: str


class SetConfigOptionParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: SessionId
    config_id: str
    value: Any


class PromptParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: SessionId
    prompt: list[dict[str, Any]]

    @property
    def text(self) -> str:
        pieces: list[str] = []
        for block in self.prompt:
            match block:
                case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
                    pieces.append(text)
                case _:
                    pass
        return "\n".join(pieces)
