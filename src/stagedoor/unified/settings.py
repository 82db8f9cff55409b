"""What can be chosen in a session by the agent's own names: its mode, its model, how much it thinks, and more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ..errors import BadRequest, NotAllowed, unknown_model

SettingKind = Literal["mode", "model", "effort", "other"]


class SettingChoice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One value that can be chosen: ``value`` is what is sent, ``name`` and ``about`` are for people."""

    value: str
    name: str = ""
    about: str = ""


class AgentSetting(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``id`` is what a change names; ``kind`` (``mode``, ``model``, ``effort``) works in its place."""

    id: str
    kind: SettingKind = "other"
    name: str = ""
    about: str = ""
    value: str = ""
    """What it is now."""
    choices: tuple[SettingChoice, ...] = ()
    """Empty: the agent does not say which values there are."""
    locked: str = ""
    """Why it cannot be changed in this session; empty: it can."""


class AgentCommand(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A command of the agent's own, which a prompt may begin with: ``/compact``."""

    name: str
    description: str = ""


class QuotaWindow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much of what an account may use in some time is used up."""

    name: str
    used_percent: float
    resets_at: int | None = None
    """Milliseconds since 1970."""


class AgentReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an agent says of itself beside its events. Empty and null: it does not say."""

    commands: tuple[AgentCommand, ...] = ()
    context_used: int | None = None
    """Tokens that the last call of the model had before it."""
    context_size: int | None = None
    quotas: tuple[QuotaWindow, ...] = ()


def setting_named(settings: Sequence[AgentSetting], name: str) -> AgentSetting:
    """By its id, else the first of that kind. Raises ``BadRequest``."""
    by_id = next((one for one in settings if one.id == name), None)
    by_kind = next((one for one in settings if one.kind == name and name != "other"), None)
    setting = by_id or by_kind
    if setting is None:
        offered = ", ".join(one.id for one in settings)
        raise BadRequest(f"there is no setting {name!r} here; there is: {offered or 'nothing to choose'}")
    return setting


def allowed_change(settings: Sequence[AgentSetting], name: str, value: str) -> AgentSetting:
    """The setting that ``name`` means, as it is now. Raises ``BadRequest`` for a value that there is not, and
    ``NotAllowed`` for one that must not be changed."""
    setting = setting_named(settings, name)
    values = [choice.value for choice in setting.choices]
    if values and value not in values and setting.kind == "model":
        raise BadRequest(unknown_model(value, values))
    if values and value not in values:
        few = ", ".join(values[:20]) + (" …" if len(values) > 20 else "")
        raise BadRequest(f"{setting.id} has no value {value!r}; choose one of {few}")
    if setting.locked:
        raise NotAllowed(f"{setting.id} cannot be changed here: {setting.locked}")
    return setting


def check_model(settings: Sequence[AgentSetting], model: str) -> None:
    """Raises what ``allowed_change`` says of a model, where the agent says which there are."""
    if any(one.kind == "model" for one in settings):
        allowed_change(settings, "model", model)
