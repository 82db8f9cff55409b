"""The three shapes a new session may be asked for in, as one wish.

Ours is ``Wanted``, flat. A board sends ``{"agentId", "projectId", "prompt"}``. A client of the ``lifecycle`` dialect
sends ``{"agentType", "prompt", "sessionId", "config"}``, where ``sessionId`` names a session to go on with.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import msgspec

from stagedoor import catalog
from stagedoor.dialects.session_request import RequestedConfig, SessionRequest, parse_session_request
from stagedoor.errors import BadRequest, LocalProtocolError
from stagedoor.service.service import Service
from stagedoor.service.views import SessionSpec, SessionView

from ..problems import InvalidField
from ..reading import as_type


class BoardWish(SessionSpec, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """``agentId`` in place of ``agent``."""

    agent_id: str


class Continued(msgspec.Struct, frozen=True):
    """Go on with ``session_id``."""

    session_id: str
    agent: str
    prompt: str


Wish: TypeAlias = SessionSpec | Continued


def wish_of(body: Any) -> Wish:
    if not isinstance(body, dict):
        raise InvalidField("expected an object with a prompt", field="$")
    given = cast("dict[str, Any]", body)
    if "agentType" in given:
        return _requested(given)
    if "agentId" in given:
        if "agent" in given:
            raise InvalidField("agent and agentId are two words for one thing; give one of them", field="$.agentId")
        wish: BoardWish = as_type(given, BoardWish)
        plain = {name: value for name, value in given.items() if name != "agentId"}
        return cast("SessionSpec", as_type(plain | {"agent": wish.agent_id}, SessionSpec))
    return cast("SessionSpec", as_type(given, SessionSpec))


def _requested(given: dict[str, Any]) -> Wish:
    try:
        request = parse_session_request(msgspec.json.encode(given), agents=catalog.names())
    except LocalProtocolError as error:
        raise InvalidField(str(error), field="$") from error
    told = cast("dict[str, Any]", given.get("config", {}))
    if request.session_id is not None:
        if told:
            raise InvalidField("a session goes on with the config it began with; leave config out", field="$.config")
        return Continued(request.session_id, request.agent_type, request.prompt)
    return _wanted(request, request.config, told)


def _wanted(request: SessionRequest, config: RequestedConfig, told: dict[str, Any]) -> SessionSpec:
    # What is left out is the server's to choose; its own default is never laxer than the request's.
    return SessionSpec(
        prompt=request.prompt,
        agent=request.agent_type,
        project_id=config.project_id or "",
        cwd=config.working_directory or "",
        model=config.model,
        approval=config.approval_mode if "approvalMode" in told else None,
        sandbox=config.sandbox_mode if "sandboxMode" in told else None,
        allowed_tools=None if config.allowed_tools is None else tuple(config.allowed_tools),
        disallowed_tools=tuple(config.blocked_tools or ()),
        max_turns=config.max_turns,
    )


async def carry_out(service: Service, wish: Wish, *, who: str) -> SessionView:
    """Begin what is wished for, or go on with what it names."""
    if isinstance(wish, SessionSpec):
        return await service.sessions.create(wish, who=who)
    old = await service.sessions.get(wish.session_id)
    if old.agent != wish.agent:
        raise BadRequest(f"session {old.id} is one of {old.agent}, not of {wish.agent}")
    if old.ended:
        return await service.sessions.resume(old.id, wish.prompt, who=who)
    await service.sessions.send(old.id, wish.prompt, who=who)
    return await service.sessions.get(old.id)
