"""What the agent answers to our requests."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from stagedoor.wire.jsonrpc import Id

from .settings import (
    AgentCapabilities,
    AuthMethod,
    ConfigOption,
    Implementation,
    SessionListing,
    SessionModelState,
    SessionModeState,
)


class InitializeResponse(msgspec.Struct, frozen=True, rename="camel"):
    """Who the agent is and what it can do."""

    protocol_version: int
    agent_capabilities: AgentCapabilities | None = None
    auth_methods: list[AuthMethod] | None = None
    agent_info: Implementation | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @property
    def capabilities(self) -> AgentCapabilities:
        return self.agent_capabilities or AgentCapabilities()


class AuthenticateResponse(msgspec.Struct, frozen=True):
    pass


class NewSessionResponse(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    modes: SessionModeState | None = None
    models: SessionModelState | None = None
    config_options: list[ConfigOption] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class LoadSessionResponse(msgspec.Struct, frozen=True, rename="camel"):
    """The stored session is open; some agents go on replaying it after this."""

    session_id: str = ""
    modes: SessionModeState | None = None
    models: SessionModelState | None = None
    config_options: list[ConfigOption] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ResumeSessionResponse(msgspec.Struct, frozen=True, rename="camel"):
    """The stored session is open; nothing of it is replayed."""

    session_id: str = ""
    modes: SessionModeState | None = None
    models: SessionModelState | None = None
    config_options: list[ConfigOption] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ForkSessionResponse(msgspec.Struct, frozen=True, rename="camel"):
    """``session_id`` is the copy's, ``forked_from`` the original's."""

    session_id: str
    forked_from: str = ""
    modes: SessionModeState | None = None
    models: SessionModelState | None = None
    config_options: list[ConfigOption] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ListSessionsResponse(msgspec.Struct, frozen=True, rename="camel"):
    sessions: list[SessionListing] = []
    next_cursor: str | None = None


class CloseSessionResponse(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str = ""


class DeleteSessionResponse(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str = ""


class SetSessionModeResponse(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str = ""


class SetSessionModelResponse(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str = ""


class SetSessionConfigOptionResponse(msgspec.Struct, frozen=True, rename="camel"):
    config_options: list[ConfigOption] = []
    session_id: str = ""


class Usage(msgspec.Struct, frozen=True, rename="camel"):
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    thought_tokens: int | None = None
    cached_read_tokens: int | None = None
    cached_write_tokens: int | None = None


class PromptResponse(msgspec.Struct, frozen=True, rename="camel"):
    """The turn is over: end_turn, max_tokens, max_turn_requests, refusal or cancelled."""

    stop_reason: str
    usage: Usage | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    session_id: str = ""


class Answered(msgspec.Struct, frozen=True):
    """The agent answered a request that is known only by its number (a recording of one side)."""

    request_id: Id
    result: msgspec.Raw


AgentResponse: TypeAlias = (
    InitializeResponse
    | AuthenticateResponse
    | NewSessionResponse
    | LoadSessionResponse
    | ResumeSessionResponse
    | ForkSessionResponse
    | ListSessionsResponse
    | CloseSessionResponse
    | DeleteSessionResponse
    | SetSessionModeResponse
    | SetSessionModelResponse
    | SetSessionConfigOptionResponse
    | PromptResponse
)

RESPONSES: dict[str, type[AgentResponse]] = {
    "initialize": InitializeResponse,
    "authenticate": AuthenticateResponse,
    "session/new": NewSessionResponse,
    "session/load": LoadSessionResponse,
    "session/resume": ResumeSessionResponse,
    "session/fork": ForkSessionResponse,
    "session/list": ListSessionsResponse,
    "session/close": CloseSessionResponse,
    "session/delete": DeleteSessionResponse,
    "session/set_mode": SetSessionModeResponse,
    "session/set_model": SetSessionModelResponse,
    "session/set_config_option": SetSessionConfigOptionResponse,
    "session/prompt": PromptResponse,
}

GIVEAWAYS: dict[str, str] = {
    "protocolVersion": "initialize",
    "stopReason": "session/prompt",
    "sessions": "session/list",
    "sessionId": "session/new",
    "modes": "session/load",
    "configOptions": "session/set_config_option",
}
"""The member of a result that tells which method it answers, for recordings that lack our side. First match counts."""


def addressed(answer: AgentResponse, session_id: str) -> AgentResponse:
    """The answer with the session it is about, which the wire leaves to the number of the request."""
    match answer:
        case InitializeResponse() | AuthenticateResponse() | NewSessionResponse() | ListSessionsResponse():
            return answer
        case ForkSessionResponse():
            return msgspec.structs.replace(answer, forked_from=session_id)
        case _:
            return msgspec.structs.replace(answer, session_id=session_id)
