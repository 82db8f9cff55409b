"""A request for a session, as the ``lifecycle`` dialect's clients send it.

What the schema accepts is accepted and what it refuses is refused, its limits included; the sentences are ours.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any, cast, get_args

import msgspec

from stagedoor.errors import LocalProtocolError

from .lifecycle import ApprovalMode, SandboxMode

MAX_PROMPT = 100_000
MAX_TURNS = 1_000
AGENT_TYPES = ("claude", "codex", "gemini")
"""Those the schema names. A server adds what its catalog has."""
_CHOICES = {"config.approvalMode": get_args(ApprovalMode), "config.sandboxMode": get_args(SandboxMode)}


class RequestedConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    project_id: str | None = None
    working_directory: str | None = None
    model: str | None = None
    approval_mode: ApprovalMode = "ask"
    sandbox_mode: SandboxMode = "none"
    allowed_tools: list[str] | None = None
    blocked_tools: list[str] | None = None
    max_turns: Annotated[int, msgspec.Meta(ge=1, le=MAX_TURNS)] | None = None


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``session_id`` names a session to resume."""

    agent_type: str
    prompt: Annotated[str, msgspec.Meta(max_length=MAX_PROMPT)]
    session_id: str | None = None
    config: RequestedConfig = RequestedConfig()


def parse_session_request(body: bytes, *, agents: Collection[str] = AGENT_TYPES) -> SessionRequest:
    """Raises :class:`LocalProtocolError` with a sentence that says which field is wrong and what it may be."""
    try:
        whole = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LocalProtocolError(f"the session request is not JSON: {error}") from error
    try:
        request = msgspec.convert(_checked(whole), SessionRequest)
    except msgspec.ValidationError as error:
        raise LocalProtocolError(f"the session request is not valid: {_sentence(str(error))}") from error
    if request.agent_type not in agents:
        names = ", ".join(agents)
        raise LocalProtocolError(
            f"the session request is not valid: agentType is {request.agent_type!r}, it can be one of {names}"
        )
    return request


def _checked(whole: object) -> object:
    """The same request with whole numbers as integers. The schema knows no ``null``: leave the field out instead."""
    if not isinstance(whole, dict):
        return whole
    request = cast("dict[str, Any]", whole)
    _refuse_nulls(request, SessionRequest, "")
    config = request.get("config")
    if not isinstance(config, dict):
        return request
    settings = cast("dict[str, Any]", config)
    _refuse_nulls(settings, RequestedConfig, "config.")
    turns = settings.get("maxTurns")
    if isinstance(turns, float) and turns.is_integer():  # 3.0 is an integer in JSON Schema
        return request | {"config": settings | {"maxTurns": int(turns)}}
    return request


def _refuse_nulls(fields: dict[str, Any], shape: type[msgspec.Struct], where: str) -> None:
    for name in shape.__struct_encode_fields__:
        if name in fields and fields[name] is None:
            raise msgspec.ValidationError(f"{where}{name} is null, leave it out instead")


def _sentence(complaint: str) -> str:
    """``Expected `int` <= 1000 - at `$.config.maxTurns``` with the field in front."""
    match = re.fullmatch(r"(.*) - at `\$\.?(.*)`", complaint, re.DOTALL)
    if match is None:
        return complaint
    problem, field = match.groups()
    if not field:
        return str(problem)
    choices = f", it can be one of {', '.join(_CHOICES[field])}" if field in _CHOICES else ""
    return f"{field}: {problem[:1].lower()}{problem[1:]}{choices}"
