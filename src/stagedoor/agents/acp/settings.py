"""What an agent says it can do, and the settings of a session."""

from __future__ import annotations

from typing import Any

import msgspec


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


class Model(msgspec.Struct, frozen=True, rename="camel"):
    model_id: str
    name: str = ""
    description: str | None = None


class SessionModelState(msgspec.Struct, frozen=True, rename="camel"):
    current_model_id: str = ""
    available_models: list[Model] = []


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
        found: list[ConfigChoice] = []
        for raw in self.options or ():
            try:
                one = msgspec.json.decode(bytes(raw), type=dict[str, Any])
                if "options" in one:
                    found += msgspec.convert(one, ConfigGroup).options
                else:
                    found.append(msgspec.convert(one, ConfigChoice))
            except msgspec.MsgspecError:
                continue
        return found


class SessionListing(msgspec.Struct, frozen=True, rename="camel"):
    """A stored session, as the agent lists it."""

    session_id: str
    cwd: str = ""
    title: str | None = None
    updated_at: str | None = None
    additional_directories: list[str] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
