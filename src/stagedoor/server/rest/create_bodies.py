"""The three bodies that ``POST /api/sessions`` takes, as one value.

Ours is ``SessionSpec``, flat. A board sends ``{"agentId", "projectId", "prompt"}``. A client of the ``lifecycle``
dialect sends ``{"agentType", "prompt", "sessionId", "config"}``, where ``sessionId`` is a session to continue.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import msgspec

from stagedoor import catalog
from stagedoor.dialects.session_request import RequestedConfig, SessionRequest, parse_session_request
from stagedoor.errors import LocalProtocolError
from stagedoor.service.service import Service
from stagedoor.service.stored import LAST
from stagedoor.service.views import SessionSpec, SessionView

from ..problems import InvalidField
from ..reading import as_type


class BoardBody(SessionSpec, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """``agentId`` in place of ``agent``."""

    agent_id: str


class ContinueBody(msgspec.Struct, frozen=True):
    """Continue ``session_id``, or with ``last`` the newest session of ``agent`` in a folder."""

    session_id: str
    agent: str
    prompt: str
    cwd: str = ""
    project_id: str = ""


CreateBody: TypeAlias = SessionSpec | ContinueBody


def read_create_body(raw: Any) -> CreateBody:
    if not isinstance(raw, dict):
        raise InvalidField("expected an object with a prompt", field="$")
    fields = cast("dict[str, Any]", raw)
    if "agentType" in fields:
        return _read_session_request(fields)
    if "agentId" in fields:
        if "agent" in fields:
            raise InvalidField("agent and agentId mean the same; send one of them", field="$.agentId")
        board: BoardBody = as_type(fields, BoardBody)
        plain = {name: value for name, value in fields.items() if name != "agentId"}
        return cast("SessionSpec", as_type(plain | {"agent": board.agent_id}, SessionSpec))
    return cast("SessionSpec", as_type(fields, SessionSpec))


def _read_session_request(fields: dict[str, Any]) -> CreateBody:
    try:
        request = parse_session_request(msgspec.json.encode(fields), agents=catalog.names())
    except LocalProtocolError as error:
        raise InvalidField(str(error), field="$") from error
    config_fields = cast("dict[str, Any]", fields.get("config", {}))
    if request.session_id is not None:
        config = request.config
        places = {"workingDirectory", "projectId"} if request.session_id == LAST else set[str]()
        if set(config_fields) - places:
            raise InvalidField("a continued session keeps its config; leave config out", field="$.config")
        return ContinueBody(
            request.session_id,
            request.agent_type,
            request.prompt,
            config.working_directory or "",
            config.project_id or "",
        )
    return _from_request(request, request.config, config_fields)


def _from_request(request: SessionRequest, config: RequestedConfig, config_fields: dict[str, Any]) -> SessionSpec:
    # The server chooses what is left out; its own default is never less strict than the request's.
    return SessionSpec(
        prompt=request.prompt,
        agent=request.agent_type,
        project_id=config.project_id or "",
        cwd=config.working_directory or "",
        model=config.model,
        approval=config.approval_mode if "approvalMode" in config_fields else None,
        sandbox=config.sandbox_mode if "sandboxMode" in config_fields else None,
        allowed_tools=None if config.allowed_tools is None else tuple(config.allowed_tools),
        disallowed_tools=tuple(config.blocked_tools or ()),
        max_turns=config.max_turns,
    )


async def carry_out(service: Service, body: CreateBody, *, who: str) -> SessionView:
    """Create the session, or continue the one it names."""
    if isinstance(body, SessionSpec):
        return await service.sessions.create(body, who=who)
    view = await service.stored.to_continue(body.session_id, agent=body.agent, cwd=body.cwd, project_id=body.project_id)
    if view.ended:
        return await service.sessions.resume(view.id, body.prompt, who=who)
    await service.sessions.send(view.id, body.prompt, who=who)
    return await service.sessions.get(view.id)
