"""The settings of a session over the Agent Client Protocol: modes, models and config options, as one list.

A mode, or an option of a kind that we do not know, may decide what the agent asks about: where the session promises
anything, those are for its tier and not to be changed. The model, and how much it thinks, always are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ...agents.acp import AcpSession
from ...agents.acp.responses import ConfigOption, OpenSessionResponse
from ...agents.acp.session import EFFORTS
from ...errors import BadRequest, LocalProtocolError
from ...unified.options import Options
from ...unified.settings import AgentSetting, SettingChoice, SettingKind, allowed_change, setting_named

KINDS: dict[object, SettingKind] = {"mode": "mode", "model": "model", "thought_level": "effort"}
"""Categories of config options. Others begin with an underscore, or are the agent's own."""
KEEPS_TIER = "it decides what the agent asks about, and this session promises a tier: start one in tier autonomous"
SWITCH = (SettingChoice(value="true", name="On"), SettingChoice(value="false", name="Off"))


def promises_nothing(options: Options) -> bool:
    """Whether the agent may be in whatever mode it has: nobody relies on its questions."""
    if options.tier == "dry-run" or options.sandbox == "readOnly" or options.policy is not None:
        return False
    if options.allowed_tools is not None or options.disallowed_tools or options.before_tool_call:
        return False
    return (options.approval or options.tier) in ("autonomous", "autoAll")


def settings_in(opened: OpenSessionResponse, options: Sequence[ConfigOption]) -> tuple[AgentSetting, ...]:
    """What an agent offers. Some offer the same twice, as a mode and as an option: the option is left out."""
    settings: dict[str, AgentSetting] = {}
    if opened.modes is not None:
        choices = tuple(
            SettingChoice(value=mode.id, name=mode.name, about=mode.description or "")
            for mode in opened.modes.available_modes
        )
        current = opened.modes.current_mode_id
        settings["mode"] = AgentSetting(id="mode", kind="mode", name="Mode", value=current, choices=choices)
    if opened.models is not None:
        choices = tuple(
            SettingChoice(value=model.model_id, name=model.name, about=model.description or "")
            for model in opened.models.available_models
        )
        current = opened.models.current_model_id
        settings["model"] = AgentSetting(id="model", kind="model", name="Model", value=current, choices=choices)
    taken = set(settings)
    for option in options:
        kind = kind_of_option(option)
        if kind in taken:
            continue
        settings.setdefault(
            option.id,
            AgentSetting(
                id=option.id,
                kind=kind,
                name=option.name,
                about=option.description or "",
                value=_text(option.current_value),
                choices=SWITCH if option.type == "boolean" else _choices(option),
            ),
        )
    return tuple(settings.values())


def kind_of_option(option: ConfigOption) -> SettingKind:
    if isinstance(option.category, str) and option.category in KINDS:
        return KINDS[option.category]
    if option.category is None and option.id in ("mode", "model"):
        return KINDS[option.id]
    return "effort" if option.category is None and option.id in EFFORTS else "other"


class AcpSettings:
    """The settings of the sessions of one driver. ``inner``: the protocol's own session inside the driver's."""

    def __init__(self, inner: Callable[[Any], AcpSession] = lambda native: native) -> None:
        self._inner = inner

    def read(self, native: Any, options: Options) -> tuple[AgentSetting, ...]:
        session = self._inner(native)
        free = promises_nothing(options)
        return tuple(
            one if free or one.kind in ("model", "effort") else _locked(one)
            for one in settings_in(_now(session), session.config_options)
        )

    async def change(self, native: Any, options: Options, name: str, value: str) -> AgentSetting:
        """Set one; returns it as it stands then. Raises ``BadRequest``, ``NotAllowed`` or ``NotSupported``."""
        session = self._inner(native)
        setting = allowed_change(self.read(native, options), name, value)
        await choose(session, setting, value)
        return setting_named(self.read(native, options), setting.id)


async def choose(session: AcpSession, setting: AgentSetting, value: str) -> None:
    try:
        await _request(session, setting, value)
    except LocalProtocolError as fault:
        raise BadRequest(str(fault)) from fault


def _request(session: AcpSession, setting: AgentSetting, value: str) -> Awaitable[None]:
    if setting.id == "mode" and session.opened.modes is not None:
        return session.set_mode(value)
    if setting.id == "model" and session.opened.models is not None:
        return session.set_model(value)
    is_switch = setting.choices == SWITCH
    return session.set_config_option(setting.id, value == "true" if is_switch else value)


def _now(session: AcpSession) -> OpenSessionResponse:
    return replace(session.opened, modes=session.modes, models=session.models)


def _locked(setting: AgentSetting) -> AgentSetting:
    return replace(setting, locked=KEEPS_TIER)


def _choices(option: ConfigOption) -> tuple[SettingChoice, ...]:
    return tuple(
        SettingChoice(value=choice.value, name=choice.name, about=choice.description or "")
        for choice in option.choices()
    )


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)
