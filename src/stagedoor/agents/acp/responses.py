"""What the agent answers to our requests: what it can do, the settings of a session, how a turn ended."""

from __future__ import annotations

import shlex
from typing import Any, TypeAlias, cast

# A session that the CLI names itself takes the place of the one we know:
# pyright: reportIncompatibleMethodOverride=false
import msgspec

from stagedoor.wire.jsonrpc import Id
from stagedoor.wire.stamps import Stamped


class PromptCapabilities(msgspec.Struct, frozen=True, rename="camel"):
    image: bool = False
    audio: bool = False
    embedded_context: bool = False


class McpCapabilities(msgspec.Struct, frozen=True):
    http: bool = False
    sse: bool = False
    acp: bool = False


class SessionCapabilities(msgspec.Struct, frozen=True, rename="camel"):
    """Each is offered when it is not None."""

    list: dict[str, Any] | None = None
    delete: dict[str, Any] | None = None
    fork: dict[str, Any] | None = None
    resume: dict[str, Any] | None = None
    close: dict[str, Any] | None = None
    additional_directories: dict[str, Any] | None = None


class AgentCapabilities(msgspec.Struct, frozen=True, rename="camel"):
    load_session: bool | None = False
    prompt_capabilities: PromptCapabilities | None = None
    mcp_capabilities: McpCapabilities | None = None
    session_capabilities: SessionCapabilities | None = None
    auth: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @property
    def prompt(self) -> PromptCapabilities:
        return self.prompt_capabilities or PromptCapabilities()

    @property
    def mcp(self) -> McpCapabilities:
        return self.mcp_capabilities or McpCapabilities()

    @property
    def session(self) -> SessionCapabilities:
        return self.session_capabilities or SessionCapabilities()


class AuthMethod(msgspec.Struct, frozen=True):
    """A way to sign in. ``type`` is empty (the agent does it), ``env_var`` or ``terminal``."""

    id: str
    name: str = ""
    description: str | None = None
    type: str = ""
    vars: list[dict[str, Any]] | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    link: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


def way_in(method: AuthMethod, program: str) -> str:
    """What a person does to sign in by this method, as far as the agent says."""
    name = method.name or method.id
    match method.meta:
        case {"terminal-auth": {"command": str(command), **more}}:
            words: object = more.get("args")
            arguments = [str(word) for word in cast("list[object]", words)] if isinstance(words, list) else []
            return f"{name}: run {shlex.join([command, *arguments])}"
        case _:
            pass
    if method.type == "terminal":
        return f"{name}: run {shlex.join([program, *(method.args or ())])}"
    variables = [str(variable.get("name")) for variable in method.vars or () if variable.get("name")]
    if method.type == "env_var" and variables:
        return f"{name}: set {' or '.join(variables)}"
    return f"{name}: {method.description}" if method.description else name


class Implementation(msgspec.Struct, frozen=True):
    name: str = ""
    version: str = ""
    title: str | None = None


class SessionMode(msgspec.Struct, frozen=True):
    id: str
    name: str = ""
    description: str | None = None


class SessionModeState(msgspec.Struct, frozen=True, rename="camel"):
    current_mode_id: str = ""
    available_modes: list[SessionMode] = []


class AvailableModel(msgspec.Struct, frozen=True, rename="camel"):
    model_id: str
    name: str = ""
    description: str | None = None


class SessionModelState(msgspec.Struct, frozen=True, rename="camel"):
    current_model_id: str = ""
    available_models: list[AvailableModel] = []


class ConfigChoice(msgspec.Struct, frozen=True):
    value: str
    name: str = ""
    description: str | None = None


class ConfigGroup(msgspec.Struct, frozen=True):
    group: str
    name: str = ""
    options: list[ConfigChoice] = []


class ConfigOption(msgspec.Struct, frozen=True, rename="camel"):
    """One setting of a session: ``select`` (``current_value`` is one of the choices) or ``boolean``."""

    id: str
    name: str = ""
    type: str = ""
    current_value: Any = None
    category: Any = None
    description: str | None = None
    options: list[msgspec.Raw] | None = None

    def choices(self) -> list[ConfigChoice]:
        """What may be chosen, with groups flattened; what cannot be read is passed over."""
        choices: list[ConfigChoice] = []
        for raw in self.options or ():
            try:
                members = msgspec.json.decode(bytes(raw), type=dict[str, Any])
                if "options" in members:
                    choices += msgspec.convert(members, ConfigGroup).options
                else:
                    choices.append(msgspec.convert(members, ConfigChoice))
            except msgspec.MsgspecError:
                continue
        return choices


class SessionListing(msgspec.Struct, frozen=True, rename="camel"):
    """A stored session, as the agent lists it."""

    session_id: str
    cwd: str = ""
    title: str | None = None
    updated_at: str | None = None
    additional_directories: list[str] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class InitializeResponse(Stamped, frozen=True, rename="camel"):
    """Who the agent is and what it can do."""

    protocol_version: int
    agent_capabilities: AgentCapabilities | None = None
    auth_methods: list[AuthMethod] | None = None
    agent_info: Implementation | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    @property
    def capabilities(self) -> AgentCapabilities:
        return self.agent_capabilities or AgentCapabilities()


class AuthenticateResponse(Stamped, frozen=True):
    pass


class NewSessionResponse(Stamped, frozen=True, rename="camel"):
    session_id: str
    modes: SessionModeState | None = None
    models: SessionModelState | None = None
    config_options: list[ConfigOption] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class LoadSessionResponse(Stamped, frozen=True, rename="camel"):
    """The stored session is open; some agents continue to replay it after this."""

    session_id: str = ""
    modes: SessionModeState | None = None
    models: SessionModelState | None = None
    config_options: list[ConfigOption] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ResumeSessionResponse(Stamped, frozen=True, rename="camel"):
    """The stored session is open; nothing of it is replayed."""

    session_id: str = ""
    modes: SessionModeState | None = None
    models: SessionModelState | None = None
    config_options: list[ConfigOption] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ForkSessionResponse(Stamped, frozen=True, rename="camel"):
    """``session_id`` is the copy's, ``forked_from`` the original's."""

    session_id: str
    forked_from: str = ""
    modes: SessionModeState | None = None
    models: SessionModelState | None = None
    config_options: list[ConfigOption] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


OpenSessionResponse: TypeAlias = NewSessionResponse | LoadSessionResponse | ResumeSessionResponse | ForkSessionResponse


class ListSessionsResponse(Stamped, frozen=True, rename="camel"):
    sessions: list[SessionListing] = []
    next_cursor: str | None = None


class CloseSessionResponse(Stamped, frozen=True, rename="camel"):
    session_id: str = ""


class DeleteSessionResponse(Stamped, frozen=True, rename="camel"):
    session_id: str = ""


class SetSessionModeResponse(Stamped, frozen=True, rename="camel"):
    session_id: str = ""


class SetSessionModelResponse(Stamped, frozen=True, rename="camel"):
    session_id: str = ""


class SetSessionConfigOptionResponse(Stamped, frozen=True, rename="camel"):
    config_options: list[ConfigOption] = []
    session_id: str = ""


class AcpUsage(msgspec.Struct, frozen=True, rename="camel"):
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    thought_tokens: int | None = None
    cached_read_tokens: int | None = None
    cached_write_tokens: int | None = None


class PromptResponse(Stamped, frozen=True, rename="camel"):
    """The turn is over: end_turn, max_tokens, max_turn_requests, refusal or cancelled."""

    stop_reason: str
    usage: AcpUsage | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    session_id: str = ""


class UntypedResponse(Stamped, frozen=True):
    """The agent answered a request that is known only by its number (a recording of one side)."""

    request_id: Id
    result: msgspec.Raw


class _ListedTool(msgspec.Struct, frozen=True):
    name: str
    enabled: bool = True


class _ListedTools(msgspec.Struct, frozen=True):
    tools: list[_ListedTool]


def tool_names(result: msgspec.Raw) -> tuple[str, ...]:
    """Of an agent's own answer, if it looks like a list of tools."""
    try:
        listed = msgspec.json.decode(bytes(result), type=_ListedTools).tools
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
    return tuple(tool.name for tool in listed if tool.enabled)


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

METHOD_BY_MEMBER: dict[str, str] = {
    "protocolVersion": "initialize",
    "stopReason": "session/prompt",
    "sessions": "session/list",
    "sessionId": "session/new",
    "modes": "session/load",
    "configOptions": "session/set_config_option",
}
"""A member of a result → the method it answers, for recordings that lack our side. The first match counts."""


def addressed(answer: AgentResponse, session_id: str) -> AgentResponse:
    """The answer with the session it is about, which the wire leaves to the number of the request."""
    match answer:
        case InitializeResponse() | AuthenticateResponse() | NewSessionResponse() | ListSessionsResponse():
            return answer
        case ForkSessionResponse():
            return msgspec.structs.replace(answer, forked_from=session_id)
        case _:
            return msgspec.structs.replace(answer, session_id=session_id)
